"""Turns files and contents that stand in for files into text and lines, or into one clear error."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from providers.errors import UsageError

MAX_TRACE_BYTES: Final = 4_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a file would hold, and what messages call it."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.name


Source = str | Content
"""The path of a file, or its content."""


def path_of(name: str) -> Path:
    """The path, in the user's home where it starts with `~`; as it is written where nobody has such a home."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def read_text(source: Source, what: str, most_bytes: int) -> str:
    """The text of a file. Raises UsageError when it is missing, too large or not text."""
    if isinstance(source, Content):
        if len(source.text) > most_bytes:
            raise UsageError(f"{what} {source} has {len(source.text):,} characters; at most {most_bytes:,} are read")
        return source.text
    file = path_of(source)
    try:
        if file.stat().st_size > most_bytes:
            raise UsageError(f"{what} {source!r} has {file.stat().st_size:,} bytes; at most {most_bytes:,} are read")
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{what} {source!r} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"{what} {source!r} cannot be read: {error.strerror or error}") from None


@contextmanager
def read_lines(source: Source) -> Iterator[Iterator[str]]:
    """The lines of a request log, unpacked where it is gzip. Raises UsageError when it cannot be read."""
    if isinstance(source, Content):
        yield io.StringIO(source.text, newline="")
        return
    try:
        with path_of(source).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            raw = gzip.GzipFile(fileobj=file) if packed else file
            with io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
                yield _bounded(text, source)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UsageError(f"trace {source!r} is damaged: {error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"trace {source!r} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"trace {source!r} cannot be read: {error.strerror or error}") from None


def _bounded(lines: Iterator[str], path: str) -> Iterator[str]:
    total = 0
    for line in lines:
        total += len(line)
        if total > MAX_TRACE_BYTES:
            raise UsageError(f"trace {path!r} unpacks to more than {MAX_TRACE_BYTES:,} bytes")
        yield line
