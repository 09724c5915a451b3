"""Turns providers' answers into rows of the cache, and rows back into the offers in use as of a run."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, RowMapping, Select, Table, func, insert, select, update

from pricing_cache.quarantine import Held, Verdict
from pricing_cache.schema import (
    CACHE,
    CITATIONS,
    COVERAGE,
    DEPARTURES,
    INSTANCE_TYPES,
    OBSERVATIONS,
    OFFERS,
    QUARANTINE,
    RUNS,
)
from pricing_cache.stamp import Stamp
from providers.base import Coverage
from providers.offers import Commitment, CommitmentKind, InstanceType, Offer, OfferKey, PurchaseOption, Trait


class Outcome(StrEnum):
    """How a run ended."""

    STORED = "stored"
    REFUSED = "refused"
    """The answer as a whole is in quarantine."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Credentials are missing."""

    @property
    def has_answer(self) -> bool:
        """Whether the provider answered, to be used or not."""
        return self in (Outcome.STORED, Outcome.REFUSED)

    @property
    def is_failure(self) -> bool:
        """Whether prices were wanted and did not come into use."""
        return self in (Outcome.REFUSED, Outcome.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The note of one provider's refresh; `at` is the fetch's own now, `message` says why it did not store."""

    id: int
    provider: str
    at: datetime
    outcome: Outcome
    duration_s: float = 0.0
    message: str = ""
    instance_types_seen: int = 0
    rejections: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """An offer as a run observed it, and the rows that hold its machine and its citation."""

    offer: Offer
    run_id: int
    instance_type_id: int
    citation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheState:
    """What the database says as of a run: the quotes in use, and what it says against rows of the shipped snapshot.

    `offer_ids` has every key that was ever met, `departed` the keys that a later answer did not list any more, `held`
    those with a price kept apart, `coverage` what stored answers of each provider spoke for.
    """

    stamp: Stamp
    quotes: Mapping[OfferKey, Quote]
    offer_ids: Mapping[OfferKey, int]
    departed: frozenset[OfferKey]
    held: frozenset[OfferKey]
    coverage: Mapping[str, tuple[Coverage, ...]]

    def replaces(self, key: OfferKey) -> bool:
        """Whether the snapshot's row of that key is out of use: observed, gone, or not in an answer for it."""
        if key in self.quotes or key in self.departed:
            return True
        if key in self.held:
            return False
        return any(part.includes(key) for part in self.coverage.get(key.provider, ()))


_Value = TypeVar("_Value", bound=Hashable)


class _Ids(Generic[_Value]):
    """Row ids of values: known ones keep theirs, new ones are numbered in order of first use."""

    def __init__(self, connection: Connection, table: Table, known: Mapping[_Value, int]) -> None:
        self._known = known
        self._next = (connection.execute(select(func.max(table.c.id))).scalar() or 0) + 1
        self.new: dict[_Value, int] = {}

    def of(self, value: _Value) -> int:
        found = self._known.get(value) or self.new.get(value)
        if found is None:
            found = self.new[value] = self._next
            self._next += 1
        return found


_Citation = tuple[str, tuple[str, ...], str]


class _Writer:
    """Collects the rows of one run, so that each table is filled by one statement."""

    def __init__(self, connection: Connection, run_id: int, state: CacheState) -> None:
        quotes = state.quotes.values()
        self._run_id = run_id
        self.offers = _Ids(connection, OFFERS, state.offer_ids)
        self.types = _Ids(connection, INSTANCE_TYPES, {q.offer.instance_type: q.instance_type_id for q in quotes})
        self.citations = _Ids(connection, CITATIONS, {_citation(q.offer): q.citation_id for q in quotes})

    def key_row(self, key: OfferKey) -> dict[str, Any]:
        return {"offer_id": self.offers.of(key), "run_id": self._run_id}

    def quote_row(self, offer: Offer) -> dict[str, Any]:
        commitment = offer.commitment
        return self.key_row(offer.key) | {
            "instance_type_id": self.types.of(offer.instance_type),
            "citation_id": self.citations.of(_citation(offer)),
            "usd_per_hour": offer.usd_per_hour,
            "upfront_usd": commitment.upfront_usd if commitment else None,
            "term_months": commitment.term_months if commitment else None,
            "in_stock": offer.in_stock,
            "observed_on": offer.observed_on,
            "effective_from": offer.effective_from,
        }

    def quarantine_row(self, key: OfferKey, held: Held) -> dict[str, Any]:
        quoted = self.quote_row(held.offer) if held.offer else self.key_row(key) | _NO_QUOTE
        return quoted | {"reason": held.reason, "last_good_usd_per_hour": held.last_good_usd_per_hour}


def append_run(connection: Connection, run: Run) -> None:
    """Appends the note of a run: all there is to keep of one that failed or was skipped."""
    row = {column.name: getattr(run, column.name) for column in RUNS.columns}
    lists = {"rejections": dict(run.rejections), "notes": list(run.notes), "sources": list(run.sources)}
    connection.execute(insert(RUNS).values(row | lists | {"outcome": run.outcome.value}))


def append_answer(
    connection: Connection,
    run: Run,
    verdict: Verdict,
    *,
    coverage: Iterable[Coverage],
    departed: Collection[OfferKey],
    state: CacheState,
) -> None:
    """Appends a stored run with its rows; `state` is the provider's, read in the same transaction.

    It changes what is current, so it becomes the cache's generation.
    """
    writer = _Writer(connection, run.id, state)
    observations = [writer.quote_row(offer) for offer in verdict.usable.values()]
    departures = [writer.key_row(key) for key in departed]
    quarantined = [writer.quarantine_row(key, entry) for key, entry in verdict.held.items()]
    append_run(connection, run)
    _insert_new(connection, writer)
    _insert(connection, OBSERVATIONS, observations)
    _insert(connection, DEPARTURES, departures)
    _insert(connection, QUARANTINE, quarantined)
    _insert(connection, COVERAGE, [_coverage_row(run.id, part) for part in coverage])
    connection.execute(update(CACHE).values(generation=run.id))


def append_refused(connection: Connection, run: Run, verdict: Verdict, *, state: CacheState) -> None:
    """Appends a run whose answer is kept apart as a whole; nothing of what is current changes."""
    writer = _Writer(connection, run.id, state)
    refused = {key: Held(reason=verdict.refusal, offer=offer) for key, offer in verdict.usable.items()}
    rows = [writer.quarantine_row(key, entry) for key, entry in (refused | dict(verdict.held)).items()]
    append_run(connection, run)
    _insert_new(connection, writer)
    _insert(connection, QUARANTINE, rows)


def read_runs(connection: Connection) -> tuple[Run, ...]:
    """The notes of all runs, oldest first."""
    return tuple(_run(row) for row in connection.execute(select(RUNS).order_by(RUNS.c.id)).mappings())


def last_stored_run(connection: Connection, provider: str) -> Run | None:
    """The provider's last run that brought prices into use."""
    stored = select(RUNS).where(RUNS.c.provider == provider, RUNS.c.outcome == Outcome.STORED.value)
    row = connection.execute(stored.order_by(RUNS.c.id.desc()).limit(1)).mappings().first()
    return _run(row) if row else None


def last_run_before(connection: Connection, moment: datetime) -> int:
    """Id of the newest run made before that moment; 0 when there is none."""
    return connection.execute(select(func.max(RUNS.c.id)).where(RUNS.c.at < moment)).scalar() or 0


def read_state(connection: Connection, *, provider: str | None = None, through: int | None = None) -> CacheState:
    """What the cache holds of one provider, or of all, as of run `through` (None = the newest)."""
    cache = connection.execute(select(CACHE)).one()
    last = cache.last_run if through is None else through
    keys = _offer_keys(connection, provider)
    gone = {row.offer_id: row.run_id for row in connection.execute(_newest(DEPARTURES, provider, last))}
    held = connection.execute(
        select(QUARANTINE.c.offer_id)
        .join(RUNS, RUNS.c.id == QUARANTINE.c.run_id)
        .where(RUNS.c.id <= last, RUNS.c.outcome == Outcome.STORED.value)
    ).scalars()
    return CacheState(
        stamp=Stamp(cache_id=cache.cache_id, generation=cache.generation),
        quotes=_quotes(connection, keys, gone, provider, last),
        offer_ids={key: number for number, key in keys.items()},
        departed=frozenset(keys[number] for number in gone),
        held=frozenset(keys[number] for number in set(held) if number in keys),
        coverage=_coverage(connection, provider, last),
    )


def offer_key(row: RowMapping) -> OfferKey:
    """The key in a row that has the columns of the offers table."""
    return OfferKey(**{name: row[name] for name in _KEY_COLUMNS})


_NO_QUOTE: dict[str, Any] = dict.fromkeys(
    column.name for column in QUARANTINE.columns if column.name not in ("offer_id", "run_id", "reason")
)
_KEY_COLUMNS = tuple(column.name for column in OFFERS.columns if column.name != "id")
_TYPE_COLUMNS = tuple(column.name for column in INSTANCE_TYPES.columns if column.name != "id")


def _citation(offer: Offer) -> _Citation:
    return offer.source, offer.row_ids, offer.notes


def _insert_new(connection: Connection, writer: _Writer) -> None:
    """The keys, machines and citations that the run is the first to name."""
    _insert(
        connection,
        OFFERS,
        [
            {"id": number} | {name: str(getattr(key, name)) for name in _KEY_COLUMNS}
            for key, number in writer.offers.new.items()
        ],
    )
    _insert(
        connection,
        INSTANCE_TYPES,
        [
            {"id": number}
            | {name: getattr(kind, name) for name in _TYPE_COLUMNS}
            | {"traits": sorted(trait.value for trait in kind.traits)}
            for kind, number in writer.types.new.items()
        ],
    )
    _insert(
        connection,
        CITATIONS,
        [
            {"id": number, "source": source, "row_ids": list(row_ids), "notes": notes}
            for (source, row_ids, notes), number in writer.citations.new.items()
        ],
    )


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _coverage_row(run_id: int, part: Coverage) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "purchase_option": part.purchase_option.value,
        "commitment_kind": part.commitment_kind.value if part.commitment_kind else None,
        "regions": part.regions,
        "instance_types": part.instance_types,
        "except_types": part.except_types,
        "zoned": part.zoned,
    }


def _newest(table: Table, provider: str | None, last: int) -> Select[tuple[int, int]]:
    """Each offer's newest run in an append-only table; answered from its primary key alone."""
    query = select(table.c.offer_id, func.max(table.c.run_id).label("run_id")).where(table.c.run_id <= last)
    if provider is not None:
        query = query.where(table.c.offer_id.in_(select(OFFERS.c.id).where(OFFERS.c.provider == provider)))
    return query.group_by(table.c.offer_id)


def _offer_keys(connection: Connection, provider: str | None) -> dict[int, OfferKey]:
    query = select(OFFERS)
    if provider is not None:
        query = query.where(OFFERS.c.provider == provider)
    return {row["id"]: offer_key(row) for row in connection.execute(query).mappings()}


def _quotes(
    connection: Connection, keys: Mapping[int, OfferKey], gone: Mapping[int, int], provider: str | None, last: int
) -> dict[OfferKey, Quote]:
    newest = _newest(OBSERVATIONS, provider, last).subquery()
    query = (
        select(OBSERVATIONS, CITATIONS.c.source, CITATIONS.c.row_ids, CITATIONS.c.notes)
        .join(newest, (newest.c.offer_id == OBSERVATIONS.c.offer_id) & (newest.c.run_id == OBSERVATIONS.c.run_id))
        .join(CITATIONS, CITATIONS.c.id == OBSERVATIONS.c.citation_id)
    )
    types = _instance_types(connection, provider)
    return {
        keys[row["offer_id"]]: Quote(
            offer=_offer(keys[row["offer_id"]], types[row["instance_type_id"]], row),
            run_id=row["run_id"],
            instance_type_id=row["instance_type_id"],
            citation_id=row["citation_id"],
        )
        for row in connection.execute(query).mappings()
        if gone.get(row["offer_id"], 0) < row["run_id"]
    }


def _instance_types(connection: Connection, provider: str | None) -> dict[int, InstanceType]:
    query = select(INSTANCE_TYPES)
    if provider is not None:
        query = query.where(INSTANCE_TYPES.c.provider == provider)
    return {row["id"]: _instance_type(row) for row in connection.execute(query).mappings()}


def _instance_type(row: RowMapping) -> InstanceType:
    fields = {name: row[name] for name in _TYPE_COLUMNS}
    return InstanceType(**fields | {"traits": frozenset(Trait(trait) for trait in row["traits"])})


def _offer(key: OfferKey, kind: InstanceType, row: RowMapping) -> Offer:
    commitment = None
    if key.commitment_kind:
        commitment = Commitment(
            kind=CommitmentKind(key.commitment_kind),
            term_months=row["term_months"],
            upfront_usd=row["upfront_usd"],
            variant=key.commitment_variant,
        )
    return Offer(
        instance_type=kind,
        region=key.region or None,
        zone=key.zone or None,
        purchase_option=PurchaseOption(key.purchase_option),
        usd_per_hour=row["usd_per_hour"],
        observed_on=row["observed_on"],
        source=row["source"],
        commitment=commitment,
        in_stock=row["in_stock"],
        effective_from=row["effective_from"],
        row_ids=tuple(row["row_ids"]),
        notes=row["notes"],
    )


def _coverage(connection: Connection, provider: str | None, last: int) -> dict[str, tuple[Coverage, ...]]:
    """What the stored runs of each provider spoke for, each part once."""
    columns = [column for column in COVERAGE.columns if column is not COVERAGE.c.run_id]
    query = select(RUNS.c.provider, *columns).join(RUNS, RUNS.c.id == COVERAGE.c.run_id).where(RUNS.c.id <= last)
    if provider is not None:
        query = query.where(RUNS.c.provider == provider)
    parts: dict[str, list[Coverage]] = {}
    for seller, option, kind, regions, types, except_types, zoned in connection.execute(query.distinct()):
        found = Coverage(
            purchase_option=PurchaseOption(option),
            commitment_kind=CommitmentKind(kind) if kind else None,
            regions=regions,
            instance_types=types,
            except_types=except_types,
            zoned=zoned,
        )
        parts.setdefault(seller, []).append(found)
    return {seller: tuple(found) for seller, found in parts.items()}


def _run(row: RowMapping) -> Run:
    fields = {column.name: row[column.name] for column in RUNS.columns}
    return Run(
        **fields | {"outcome": Outcome(row["outcome"]), "notes": tuple(row["notes"]), "sources": tuple(row["sources"])}
    )
