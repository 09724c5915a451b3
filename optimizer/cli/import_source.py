"""Opens the file, folder or pipe that `costopt import` is given, and tells its kind by its beginning."""

import gzip
import os
import select
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

from optimizer.interop.readers.quote_table import is_quote_header
from optimizer.interop.readers.request_log import check_text_log, is_log_header, is_log_json
from providers.errors import UsageError

Kind = Literal["folder", "cost_export", "quotes", "log", "text"]

MAX_BYTES: Final = 2_000_000
"""Of files that are read whole; logs and cost exports are read as they come."""

_MAX_PIPED_BYTES: Final = 4_000_000_000
_HEAD_BYTES: Final = 100_000
_PIPE_WAIT_S: Final = 10.0
_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = b"PAR1"
_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
"""What UTF-16 begins with."""

_FOCUS: Final = frozenset({"billedcost", "chargeperiodstart"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A file that can be read several times: where it is, what messages call it, and what it is."""

    path: Path
    name: str
    kind: Kind

    def inside(self, name: str) -> "Opened":
        """A text file of the folder."""
        return Opened(path=self.path / name, name=f"{self.name}/{name}", kind="text")

    def text(self) -> str:
        """All of it with plain line ends. Raises UsageError for what is too large, or no text."""
        content = _unpacked(self.path, self.name, MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            size = self.path.stat().st_size
            has = f"has {size:,} bytes" if size > MAX_BYTES else "unpacks to more than is read"
            raise UsageError(f"file {self.name!r} {has}; at most {MAX_BYTES:,} are read")
        return _decoded(content, self.name).replace("\r\n", "\n").replace("\r", "\n")


@contextmanager
def opened(file: str) -> Iterator[Opened]:
    """What `file` names: `-` is standard input. Raises UsageError for what is missing, or no regular file."""
    name = "standard input" if file == "-" else file
    with _regular(file) as given, _in_utf_8(given, name) as path:
        yield Opened(path=path, name=name, kind=_kind(path, name))


@contextmanager
def _regular(file: str) -> Iterator[Path]:
    """A path that can be read again; what comes through a pipe is kept in a temporary file meanwhile."""
    if file == "-":
        with _kept(sys.stdin.buffer, "standard input") as path:
            yield path
        return
    path = Path(file)
    try:
        mode = path.stat().st_mode
        if stat.S_ISFIFO(mode):
            with open(path, "rb", opener=_without_waiting) as pipe, _kept(pipe, file) as copy:
                yield copy
            return
    except (OSError, ValueError) as error:
        raise UsageError(f"file {file!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UsageError(f"{file!r} is neither a file nor a folder")
    yield path


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe only where somebody has it open for writing: nobody waits for a writer that never comes."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not select.select([descriptor], [], [], _PIPE_WAIT_S)[0]:
        os.close(descriptor)
        raise OSError(None, "nothing was written to this pipe")
    os.set_blocking(descriptor, True)
    return descriptor


@contextmanager
def _kept(stream: IO[bytes], name: str) -> Iterator[Path]:
    """The stream's content as a file that goes at the end. Raises UsageError for more than can be read."""
    with tempfile.NamedTemporaryFile(prefix="costopt-") as copy:
        size = 0
        while chunk := stream.read(1 << 20):
            size += len(chunk)
            if size > _MAX_PIPED_BYTES:
                raise UsageError(f"{name} gives more than {_MAX_PIPED_BYTES:,} bytes")
            copy.write(chunk)
        copy.flush()
        yield Path(copy.name)


@contextmanager
def _in_utf_8(path: Path, name: str) -> Iterator[Path]:
    """The file, or a copy in UTF-8 of one that begins like UTF-16. Raises UsageError where it is no such text."""
    if path.is_dir() or not _raw_start(path, name).startswith(_MARKS):
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="costopt-", mode="w", encoding="utf-8", newline="") as copy:
        try:
            with path.open(encoding="utf-16", newline="") as text:
                while part := text.read(1 << 20):
                    copy.write(part)
        except (UnicodeError, OSError):
            raise UsageError(f"file {name!r} begins like UTF-16 and is none: save it as UTF-8") from None
        copy.flush()
        yield Path(copy.name)


def _raw_start(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(2)
    except OSError as error:
        raise UsageError(f"file {name!r} cannot be read: {error.strerror or error}") from None


def _kind(path: Path, name: str) -> Kind:
    """By its first line, or by its first bytes. Raises UsageError for an engine's text log."""
    if path.is_dir():
        return "folder"
    start = _start(path, name)
    if start.startswith(_PARQUET):
        return "cost_export"
    head = start.decode("utf-8-sig", "replace").lstrip()
    first = head.replace("\r\n", "\n").replace("\r", "\n").partition("\n")[0]
    if "\0" in head:
        return "text"
    header = {cell.strip().strip('"').lower() for cell in first.replace(";", ",").replace("\t", ",").split(",")}
    if header >= _FOCUS:
        return "cost_export"
    if is_log_header(first) or is_log_json(head):
        return "log"
    check_text_log(head, name)
    return "quotes" if is_quote_header(first) else "text"


def _start(path: Path, name: str) -> bytes:
    return _unpacked(path, name, _HEAD_BYTES)


def _unpacked(path: Path, name: str, most: int) -> bytes:
    """The first bytes of a file, of what is packed in it where it is gzip."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            return gzip.GzipFile(fileobj=file).read(most) if packed else file.read(most)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UsageError(f"file {name!r} is damaged: {error}") from None
    except OSError as error:
        raise UsageError(f"file {name!r} cannot be read: {error.strerror or error}") from None


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"file {name!r} is neither UTF-8 nor UTF-16 text: save it as UTF-8") from None
