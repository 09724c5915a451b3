"""Opens the price cache: SQLAlchemy Core over one SQLite file or a team's PostgreSQL, the same code for both.

Writers queue behind each other; readers never wait for them and see whole transactions only.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, inspect, select, text, update
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError

from pricing_cache.location import CacheLocation
from pricing_cache.schema import CACHE, WrongDatabase, bring_up_to_date
from pricing_cache.stamp import BUSY_TIMEOUT_S, CONNECT_TIMEOUT_S, SCHEMA_VERSION, immutable_uri, read_stamp, unusable
from providers.errors import CacheError

LONGEST_WAIT_S: Final = 120.0
"""How long a writer queues behind others; each holds the lock for the rows of one run, which takes seconds."""

_PAUSE_S: Final = 0.05
"""Between attempts at what SQLite refuses at once instead of waiting: the switch of a new file to WAL."""


class Store:
    """One open cache; closes its connections when its `with` ends."""

    def __init__(self, engine: Engine, location: CacheLocation) -> None:
        self._engine = engine
        self._location = location

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment of the database, whatever others write meanwhile."""
        isolation = {} if self._location.database else {"isolation_level": "REPEATABLE READ"}
        with self._transaction(isolation) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[tuple[Connection, int]]:
        """The one transaction that writes at its time, and the id of the run that it may append.

        All of it is kept, or nothing when the block raises. Raises CacheError when others write for too long.
        """
        with self._transaction({"writes": True}) as connection:
            connection.execute(update(CACHE).values(last_run=CACHE.c.last_run + 1))
            yield connection, connection.execute(select(CACHE.c.last_run)).scalar_one()

    def prepare(self) -> None:
        """Creates or migrates the tables where that is needed."""
        if not self.is_up_to_date():
            with self._transaction({"writes": True}) as connection:
                bring_up_to_date(connection)

    def is_up_to_date(self) -> bool:
        """Whether the tables are there in this costopt's schema."""
        with self.reading() as connection:
            if not inspect(connection).has_table(CACHE.name):
                return False
            return bool(connection.execute(select(CACHE.c.schema_version)).scalar_one() == SCHEMA_VERSION)

    @contextmanager
    def _transaction(self, options: Mapping[str, Any]) -> Iterator[Connection]:
        try:
            with self._begun(options) as connection:
                yield connection
                connection.commit()
        except IntegrityError:
            raise
        except DBAPIError as error:
            if _is_locked(error):
                wait = f"another process has been writing to it for more than {LONGEST_WAIT_S:.0f} s"
                raise CacheError(f"price cache {self._location}: {wait}; try again when it is done") from error
            raise unusable(self._location, str(error.orig).strip()) from error
        except WrongDatabase as error:
            raise unusable(self._location, error) from error

    def _begun(self, options: Mapping[str, Any]) -> Connection:
        """A connection with a transaction begun, after waiting for its turn."""
        give_up_at = time.monotonic() + LONGEST_WAIT_S
        while True:
            try:
                connection = self._engine.connect()
            except OperationalError as error:
                if not _is_locked(error) or time.monotonic() > give_up_at:
                    raise
                time.sleep(_PAUSE_S)
                continue
            try:
                connection.execution_options(**options)
                connection.begin()
            except OperationalError as error:
                connection.close()
                if not _is_locked(error) or time.monotonic() > give_up_at:
                    raise
            else:
                return connection


def open_store(location: CacheLocation) -> Store:
    """Opens the cache for reading and writing; creates or migrates it first where that is needed.

    Raises CacheError, with the way out, for a place that cannot be written and a file that is not a cache.
    """
    if location.database:
        read_stamp(location)  # refuses a file that is no cache before a byte of it is changed
        try:
            location.database.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unusable(location, f"its directory cannot be made: {error}") from error
        engine = _sqlite_engine(location.database)
    else:
        engine = _postgresql_engine(location)
    store = Store(engine, location)
    store.prepare()
    return store


def open_for_reading(location: CacheLocation) -> Store:
    """Opens an existing cache without writing to it, also in a directory that cannot be written.

    Only one of an older schema is migrated first, which needs to write.
    """
    engine = _sqlite_reading_engine(location.database) if location.database else _postgresql_engine(location)
    store = Store(engine, location)
    if not store.is_up_to_date():
        open_store(location)
    return store


def _sqlite_engine(path: Path) -> Engine:
    """WAL, so that readers never wait; a full sync, so that what was reported as stored survives a power cut."""
    url = URL.create("sqlite", database=str(path))  # a path may hold what means something in an URL
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself: `_begins` does
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")

    event.listen(engine, "begin", _begins)
    return engine


def _sqlite_reading_engine(path: Path) -> Engine:
    def connect() -> sqlite3.Connection:
        uri = f"file:{quote(str(path))}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError as error:
            connection.close()
            if _is_locked(error):
                raise
            return sqlite3.connect(immutable_uri(path), uri=True, isolation_level=None)
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
    event.listen(engine, "begin", _begins)
    return engine


def _begins(connection: Connection) -> None:
    """A writer takes SQLite's lock at once: one that upgraded from reading could not wait for its turn."""
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")


def _postgresql_engine(location: CacheLocation) -> Engine:
    url = location.url.replace("postgresql://", "postgresql+psycopg://", 1)
    lock_timeout_ms = int(LONGEST_WAIT_S * 1000)
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": CONNECT_TIMEOUT_S})
    except (ArgumentError, ImportError, ValueError) as error:
        raise unusable(location, error) from error

    @event.listens_for(engine, "begin")
    def _waits_for_its_turn(connection: Connection) -> None:
        connection.execute(text(f"SET LOCAL lock_timeout = {lock_timeout_ms}"))

    return engine


def _is_locked(error: BaseException) -> bool:
    """SQLite's `database is locked`, PostgreSQL's `canceling statement due to lock timeout`."""
    return "locked" in str(error) or "lock timeout" in str(error)
