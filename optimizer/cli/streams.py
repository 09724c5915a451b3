"""Puts results on standard output or in a file, and everything else on standard error."""

import sys
from collections.abc import Iterable

from optimizer.api.files import write_file
from optimizer.cli.printable import printable
from providers.errors import UsageError


def write_result(result: str | bytes, output: str) -> None:
    """The result, whole: to stdout for `-`, else to the file in one step. Raises UsageError when it cannot."""
    if output == "-":
        _print(result)
        return
    write_file(result if isinstance(result, bytes) else result.encode(), output)


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
            print(printable(line), file=sys.stderr)
