"""Opens a FOCUS cost export, CSV or Parquet, so that the report can read it by column, and shows how far it is."""

import csv
import gzip
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from providers.errors import UsageError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MOST_BYTES: Final = 200 * 10**9
_PARQUET: Final = b"PAR1"
_GZIP: Final = b"\x1f\x8b"
_POLL_S: Final = 0.1
_MEMORY: Final = "1GB"
_LONGEST_LINE_BYTES: Final = 2_000_000
Found = TypeVar("Found")


@contextmanager
def opened(path: str) -> Iterator["DuckDBPyConnection"]:
    """A connection whose view `focus` is the file. Raises UsageError for a file that cannot be read as a table."""
    import duckdb

    _check(path)
    # Extensions are never fetched: everything needed is built in, and a report goes nowhere by itself.
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "memory_limit": _MEMORY,
            "preserve_insertion_order": "false",
        }
    )
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW focus AS SELECT * FROM {_scan(path)}")  # noqa: S608  # the path is quoted
        yield connection
    except duckdb.Error as error:
        raise UsageError(f"cost export {path!r} cannot be read: {_first_line(error)}") from None
    finally:
        connection.close()


def malformed_lines(connection: "DuckDBPyConnection") -> int:
    """Lines of the CSV that could not be split into columns by the query that ran last."""
    tables = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if "reject_errors" not in tables:
        return 0
    row = connection.execute("SELECT count(DISTINCT line) FROM reject_errors").fetchone()
    return int(row[0]) if row else 0


def with_progress(connection: "DuckDBPyConnection", read: Callable[[], Found], *, quiet: bool) -> Found:
    """What `read` gives; on a terminal, a bar shows how much of the file is read."""
    if quiet or not sys.stderr.isatty():
        return read()
    from rich.console import Console
    from rich.progress import Progress

    done = threading.Event()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the cost export", total=100)

        def watch() -> None:
            while not done.wait(_POLL_S):
                bar.update(task, completed=max(0.0, connection.query_progress()))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            return read()
        finally:
            done.set()
            watcher.join()


def _check(path: str) -> None:
    file = Path(path)
    try:
        size = file.stat().st_size
        if not file.is_file():
            raise UsageError(f"cost export {path!r} is not a file")
        with file.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        raise UsageError(f"cost export {path!r} cannot be read: {error.strerror or error}") from None
    if size == 0:
        raise UsageError(f"cost export {path!r} is empty")
    if size > _MOST_BYTES:
        raise UsageError(f"cost export {path!r} has {size:,} bytes; at most {_MOST_BYTES:,} are read")


def _scan(path: str) -> str:
    """The file as a table function of DuckDB; patterns in the name mean themselves."""
    with Path(path).open("rb") as stream:
        start = stream.read(4)
    name = "".join(f"[{character}]" if character in "*?[" else character for character in str(Path(path).resolve()))
    if start == _PARQUET:
        return f"read_parquet({_quoted(name)})"
    packed = start.startswith(_GZIP)
    names, separator = _header(path, packed=packed)
    columns = ", ".join(f"{_quoted(column)}: 'VARCHAR'" for column in names)
    return (
        f"read_csv({_quoted(name)}, columns = {{{columns}}}, auto_detect = false, header = true, "
        f"delim = {_quoted(separator)}, "
        f"quote = '\"', escape = '\"', compression = '{'gzip' if packed else 'none'}', "
        f"ignore_errors = true, store_rejects = true, max_line_size = {_LONGEST_LINE_BYTES})"
    )


def _header(path: str, *, packed: bool) -> tuple[list[str], str]:
    """The names of a CSV's columns, and what separates them: a comma, semicolon or tab, whichever it has most of.

    Raises UsageError where the first line is no header.
    """
    opener = gzip.open if packed else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            line = file.readline(_LONGEST_LINE_BYTES)
        separator = max(",;\t", key=line.count)
        names = next(csv.reader([line], strict=True, delimiter=separator), [])
    except (UnicodeDecodeError, csv.Error, OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cost export {path!r} is neither a CSV nor a Parquet file: {error}") from None
    if len({name.lower() for name in names}) < len(names) or not all(names):
        raise UsageError(f"cost export {path!r}: its first line does not name each column once")
    return names, separator


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
