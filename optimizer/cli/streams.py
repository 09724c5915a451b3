"""Puts results on standard output or in a file, and everything else on standard error."""

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from providers.errors import UsageError


def write_result(result: str | bytes, output: str) -> None:
    """The result, whole: to stdout for `-`, else to the file in one step. Raises UsageError when it cannot."""
    if output == "-":
        _print(result)
        return
    content = result if isinstance(result, bytes) else result.encode()
    path = Path(output)
    if path.is_dir():
        raise UsageError(f"cannot write {output!r}: it is a folder; name a file in it")
    try:
        if path.exists() and not path.is_file():
            # A device or a named pipe is written to: replacing it by a file would break it for everybody.
            path.write_bytes(content)
            return
        path = path.resolve()
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {output!r}: {error.strerror or error}; choose another --output") from None


def _print(result: str | bytes) -> None:
    """All of it: where Python runs unbuffered, a text stream drops what one write to a pipe leaves over."""
    if isinstance(result, bytes) and sys.stdout.isatty():
        raise UsageError("the result is not text: name a file with --output")
    sys.stdout.flush()
    rest = memoryview(result if isinstance(result, bytes) else result.encode(sys.stdout.encoding, "replace"))
    try:
        while rest:
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write to standard output: {error.strerror or error}; choose an --output") from None


def say(lines: Iterable[str], *, quiet: bool) -> None:
    """Lines for a person, on standard error."""
    if not quiet:
        for line in lines:
            print(line, file=sys.stderr)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
