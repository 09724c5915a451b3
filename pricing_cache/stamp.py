"""Turns a cache's place into the stamp of what its database holds now, without a database layer.

The planner compares it with the stamp in the compiled file of current offers: the two agree or the file is not used.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pricing_cache.location import VARIABLE, CacheLocation
from providers.errors import CacheError

SCHEMA_VERSION: Final = 1
"""Of the tables in `pricing_cache.schema`."""

BUSY_TIMEOUT_S: Final = 10.0
"""How long SQLite waits for another process before it says that the database is locked."""

CONNECT_TIMEOUT_S: Final = 10
"""For a PostgreSQL server that does not answer."""

_QUERY: Final = "SELECT cache_id, generation, schema_version FROM costopt_cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Which database, and the last run that changed its current offers. Equal stamps mean equal offers."""

    cache_id: str
    generation: int


def read_stamp(location: CacheLocation) -> Stamp | None:
    """The database's stamp, or None when there is no cache yet.

    Raises CacheError, with the way out, for a file that is not a cache and for a server that does not answer.
    """
    row = _sqlite_row(location, location.database) if location.database else _postgresql_row(location)
    if row is None:
        return None
    cache_id, generation, schema_version = row
    if schema_version > SCHEMA_VERSION:
        raise unusable(location, f"its schema is {schema_version}, and this costopt knows {SCHEMA_VERSION}")
    return Stamp(cache_id=cache_id, generation=generation)


def unusable(location: CacheLocation, why: object) -> CacheError:
    """The error for a cache that cannot be used, with the way out."""
    if location.database:
        way_out = f"move the file away (prices then come from the shipped snapshot), or set {VARIABLE} to another one"
    else:
        way_out = f"check the server and {VARIABLE}, or unset it to use a file of your own"
    return CacheError(f"price cache {location}: {why}; {way_out}")


def immutable_uri(path: Path) -> str:
    """An URI that reads a SQLite file in a directory where nothing, not even SQLite's own files, can be written."""
    return f"file:{quote(str(path))}?mode=ro&immutable=1"


def _sqlite_row(location: CacheLocation, path: Path) -> tuple[Any, ...] | None:
    if not path.exists():
        return None
    try:
        try:
            return _read(lambda: sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S))
        except sqlite3.OperationalError as error:
            if "unable to open" not in str(error) and "readonly" not in str(error):
                raise
            return _read(lambda: sqlite3.connect(immutable_uri(path), uri=True))
    except sqlite3.DatabaseError as error:
        raise unusable(location, error) from error


def _read(connect: Callable[[], sqlite3.Connection]) -> tuple[Any, ...] | None:
    with closing(connect()) as connection:
        try:
            row: tuple[Any, ...] | None = connection.execute(_QUERY).fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise sqlite3.DatabaseError("it is a SQLite database, but not a price cache") from error
            return None  # another process is just creating it
        return row


def _postgresql_row(location: CacheLocation) -> tuple[Any, ...] | None:
    try:
        import psycopg
    except ImportError as error:
        raise unusable(location, "the PostgreSQL driver is missing (pip install 'gpu-costopt[postgresql]')") from error
    try:
        with psycopg.connect(location.url, connect_timeout=CONNECT_TIMEOUT_S) as connection:
            return connection.execute(_QUERY).fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    except psycopg.Error as error:
        raise unusable(location, str(error).strip()) from error
