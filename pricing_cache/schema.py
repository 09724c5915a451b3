"""Turns the cache's model into tables that SQLite and PostgreSQL share, and brings an older database up to date.

Observations, departures and quarantine are only ever appended to, each row under the run that brought it. What is
current follows from them: an offer's newest observation holds unless a newer departure says that it is gone.
All names start with `costopt_`, so that a team's database can hold other tables beside them.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Date,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.types import TypeDecorator

from pricing_cache.stamp import SCHEMA_VERSION
from providers.errors import CacheError


class WrongDatabase(CacheError):
    """The database is another program's, or a newer costopt's."""


class _Money(TypeDecorator[Decimal]):
    """Decimal as its own digits: SQLite has no exact number, and both databases must give back what was put in."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


class _Names(TypeDecorator[frozenset[str]]):
    """A set of ids as text, so that equal sets are equal to the database; NULL stays None."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: frozenset[str] | None, dialect: Dialect) -> str | None:
        return None if value is None else "\n".join(sorted(value))

    def process_result_value(self, value: Any | None, dialect: Dialect) -> frozenset[str] | None:
        return None if value is None else frozenset(value.split("\n")) - {""}


class _Instant(TypeDecorator[datetime]):
    """An aware datetime, kept in UTC; SQLite forgets the zone, so it is put back."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


METADATA: Final = MetaData()

CACHE: Final = Table(
    "costopt_cache",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("cache_id", String(32), nullable=False),
    Column("schema_version", Integer, nullable=False),
    Column("last_run", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
)
"""One row. `generation` is the last run that changed what is current; `cache_id` tells one database from another."""

RUNS: Final = Table(
    "costopt_runs",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("provider", String, nullable=False),
    Column("at", _Instant, nullable=False),
    Column("duration_s", Float, nullable=False),
    Column("outcome", String, nullable=False),
    Column("message", String, nullable=False),
    Column("instance_types_seen", Integer, nullable=False),
    Column("rejections", JSON, nullable=False),
    Column("notes", JSON, nullable=False),
    Column("sources", JSON, nullable=False),
)
"""One refresh of one provider, also one that failed. Ids rise in the order in which runs were committed."""

COVERAGE: Final = Table(
    "costopt_coverage",
    METADATA,
    Column("run_id", ForeignKey("costopt_runs.id"), nullable=False, index=True),
    Column("purchase_option", String, nullable=False),
    Column("commitment_kind", String),
    Column("regions", _Names),
    Column("instance_types", _Names),
    Column("except_types", _Names, nullable=False),
    Column("zoned", Boolean, nullable=False),
)
"""What a stored run spoke for; NULL means every one."""

INSTANCE_TYPES: Final = Table(
    "costopt_instance_types",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("provider", String, nullable=False),
    Column("name", String, nullable=False),
    Column("accelerator", String, nullable=False),
    Column("accelerator_count", Float, nullable=False),
    Column("link", String, nullable=False),
    Column("vcpus", Float),
    Column("memory_gib", Float),
    Column("network_gbit_per_s", Float),
    Column("hosts", Integer, nullable=False),
    Column("traits", JSON, nullable=False),
)
"""Machine shapes as they were described; a shape that changes gets a row of its own."""

OFFERS: Final = Table(
    "costopt_offers",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("provider", String, nullable=False),
    Column("instance_type", String, nullable=False),
    Column("region", String, nullable=False),
    Column("zone", String, nullable=False),
    Column("purchase_option", String, nullable=False),
    Column("commitment_kind", String, nullable=False),
    Column("commitment_variant", String, nullable=False),
    UniqueConstraint(
        "provider",
        "instance_type",
        "region",
        "zone",
        "purchase_option",
        "commitment_kind",
        "commitment_variant",
        name="costopt_offer_key",
    ),
)
"""Offer keys: what stays the same while the price changes."""

CITATIONS: Final = Table(
    "costopt_citations",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("source", String, nullable=False),
    Column("row_ids", JSON, nullable=False),
    Column("notes", String, nullable=False),
)
"""Where a price stands at its seller; one row serves every observation that repeats it."""


def _quote_columns(*, nullable: bool) -> list[Column[Any]]:
    return [
        Column("run_id", ForeignKey("costopt_runs.id"), primary_key=True),
        Column("instance_type_id", ForeignKey("costopt_instance_types.id"), nullable=nullable),
        Column("citation_id", ForeignKey("costopt_citations.id"), nullable=nullable),
        Column("usd_per_hour", _Money, nullable=nullable),
        Column("upfront_usd", _Money),
        Column("term_months", Integer),
        Column("in_stock", Boolean),
        Column("observed_on", Date),
        Column("effective_from", Date),
    ]


OBSERVATIONS: Final = Table(
    "costopt_observations",
    METADATA,
    Column("offer_id", ForeignKey("costopt_offers.id"), primary_key=True),
    *_quote_columns(nullable=False),
)
"""A price that a run brought and that may be used."""

DEPARTURES: Final = Table(
    "costopt_departures",
    METADATA,
    Column("offer_id", ForeignKey("costopt_offers.id"), primary_key=True),
    Column("run_id", ForeignKey("costopt_runs.id"), primary_key=True),
)
"""An offer that a run spoke for and did not list any more."""

QUARANTINE: Final = Table(
    "costopt_quarantine",
    METADATA,
    Column("offer_id", ForeignKey("costopt_offers.id"), primary_key=True),
    *_quote_columns(nullable=True),
    Column("reason", String, nullable=False),
    Column("last_good_usd_per_hour", _Money),
)
"""A price that a run brought and that is kept apart; without a price when the seller's figure could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step from schema `version - 1` to `version`, applied inside the transaction that opens the database."""

    version: int
    apply: Callable[[Connection], None]


MIGRATIONS: Final[tuple[Migration, ...]] = ()
"""Steps since schema 1, in order. A new database gets the tables above at once."""

_MIGRATION_LOCK: Final = 0x636F7374
"""Key of PostgreSQL's advisory lock under which tables are created or migrated ("cost" in ASCII)."""


def bring_up_to_date(
    connection: Connection, *, migrations: Sequence[Migration] = MIGRATIONS, version: int = SCHEMA_VERSION
) -> None:
    """Creates the tables in an empty database, or applies the migrations that an older one lacks.

    Raises WrongDatabase for a database of another program or of a newer costopt; nothing is changed then.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
    tables = inspect(connection).get_table_names()
    if CACHE.name not in tables:
        if tables and connection.dialect.name == "sqlite":  # a server's database may well hold other tables
            raise WrongDatabase(f"it is a database of something else (tables: {', '.join(sorted(tables)[:3])})")
        METADATA.create_all(connection)
        connection.execute(
            insert(CACHE).values(id=1, cache_id=uuid.uuid4().hex, schema_version=version, last_run=0, generation=0)
        )
        return
    found = connection.execute(select(CACHE.c.schema_version)).scalar_one()
    if found > version:
        raise WrongDatabase(f"its schema is {found}, and this costopt knows {version}: upgrade costopt")
    for migration in migrations:
        if found < migration.version <= version:
            migration.apply(connection)
    if found < version:
        connection.execute(update(CACHE).values(schema_version=version))
