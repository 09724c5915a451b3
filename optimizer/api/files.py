"""Puts content into a file whole, or not at all."""

import os
import secrets
from pathlib import Path

from providers.errors import UsageError


def write_file(content: bytes, name: str) -> None:
    """The content, whole: a reader sees the old file or the new one. Raises UsageError when it cannot be written."""
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"cannot write {name!r}: it is a folder; name a file in it")
    try:
        if path.exists() and not path.is_file():
            # A device or a named pipe is written to: replacing it by a file would break it for everybody.
            path.write_bytes(content)
            return
        path = path.resolve()
        temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
        try:
            with os.fdopen(new_file(temporary), "wb") as file:
                file.write(content)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {name!r}: {error.strerror or error}; choose another --output") from None


def new_file(path: Path) -> int:
    """A descriptor of a file that was not there, with the rights that any new file gets. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
