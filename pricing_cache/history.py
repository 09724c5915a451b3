"""Turns what the cache and the shipped snapshot remember into prices over time, and into changes between two days."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from statistics import median
from typing import Final

from sqlalchemy import Connection, select

from pricing_cache.observations import Run, offer_key, read_runs
from pricing_cache.schema import DEPARTURES, INSTANCE_TYPES, OBSERVATIONS, OFFERS, QUARANTINE, RUNS
from providers.offers import Offer, OfferKey

NEW: Final = "new"
GONE: Final = "gone"
UP: Final = "up"
DOWN: Final = "down"
KINDS: Final = (UP, DOWN, NEW, GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A price of an offer on a day, for the whole instance.

    `usd_per_hour` None = on that day the offer was gone. `run_id` None = the shipped snapshot has it.
    """

    key: OfferKey
    day: date
    accelerator_count: float
    usd_per_hour: Decimal | None
    run_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOfPrices:
    """What one provider asked for an accelerator on a day, in USD per accelerator-hour, over `offers` offers."""

    provider: str
    day: date
    lowest: Decimal
    median: Decimal
    offers: int
    lowest_offer: OfferKey
    shipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One offer at two moments; a price of None = not on sale, or not known, at that moment."""

    offer: Offer
    before_usd_per_hour: Decimal | None
    after_usd_per_hour: Decimal | None

    @property
    def kind(self) -> str:
        if self.before_usd_per_hour is None:
            return NEW
        if self.after_usd_per_hour is None:
            return GONE
        return UP if self.after_usd_per_hour > self.before_usd_per_hour else DOWN

    @property
    def ratio(self) -> Decimal | None:
        """The price after over the price before; None where one of them is missing."""
        if self.before_usd_per_hour is None or self.after_usd_per_hour is None:
            return None
        return self.after_usd_per_hour / self.before_usd_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptApart:
    """A price in quarantine: `usd_per_hour` None = the seller's figure could not be read."""

    key: OfferKey
    run_id: int
    reason: str
    usd_per_hour: Decimal | None
    last_good_usd_per_hour: Decimal | None


def cached_sightings(
    connection: Connection, *, accelerators: frozenset[str] | None = None, keys: frozenset[OfferKey] | None = None
) -> list[Sighting]:
    """Every price in the cache of machines with these accelerators, or of these offers, oldest run first.

    Of offers also the days on which they were gone.
    """
    query = (
        select(OBSERVATIONS, OFFERS, RUNS.c.at, INSTANCE_TYPES.c.accelerator_count)
        .join(INSTANCE_TYPES, INSTANCE_TYPES.c.id == OBSERVATIONS.c.instance_type_id)
        .join(OFFERS, OFFERS.c.id == OBSERVATIONS.c.offer_id)
        .join(RUNS, RUNS.c.id == OBSERVATIONS.c.run_id)
    )
    if accelerators is not None:
        query = query.where(INSTANCE_TYPES.c.accelerator.in_(sorted(accelerators)))
    if keys is not None:
        query = query.where(OFFERS.c.id.in_(_offer_ids(connection, keys)))
    found = [
        Sighting(
            key=offer_key(row),
            day=row["observed_on"] or row["at"].date(),
            accelerator_count=row["accelerator_count"],
            usd_per_hour=row["usd_per_hour"],
            run_id=row["run_id"],
        )
        for row in connection.execute(query).mappings()
    ]
    if keys is not None:
        found += _departures(connection, keys)
    return sorted(found, key=lambda sighting: (sighting.run_id or 0, sighting.key))


def shipped_sightings(offers: Iterable[Offer]) -> list[Sighting]:
    """The dated prices among rows of the shipped snapshot."""
    return [
        Sighting(
            key=offer.key,
            day=offer.observed_on,
            accelerator_count=offer.instance_type.accelerator_count,
            usd_per_hour=offer.usd_per_hour,
        )
        for offer in offers
        if offer.observed_on
    ]


def by_day(sightings: Iterable[Sighting]) -> tuple[DayOfPrices, ...]:
    """The lowest and the median price by provider and day, per accelerator-hour.

    A day's prices are those of its last run; the shipped snapshot counts for days without a run.
    """
    runs: dict[tuple[str, date], dict[int, list[Sighting]]] = defaultdict(lambda: defaultdict(list))
    for sighting in sightings:
        if sighting.usd_per_hour is not None:
            runs[sighting.key.provider, sighting.day][sighting.run_id or 0].append(sighting)
    return tuple(
        _day_of_prices(provider, day, *max(of_day.items())) for (provider, day), of_day in sorted(runs.items())
    )


def changes(before: Iterable[Offer], after: Iterable[Offer]) -> tuple[Change, ...]:
    """What differs between the offers of two moments, in the order of their keys; equal prices are left out."""
    old = {offer.key: offer for offer in before}
    new = {offer.key: offer for offer in after}
    found = []
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        usd_before = was.usd_per_hour if was else None
        usd_after = now.usd_per_hour if now else None
        if usd_before != usd_after:
            offer = new.get(key) or old[key]
            found.append(Change(offer=offer, before_usd_per_hour=usd_before, after_usd_per_hour=usd_after))
    return tuple(found)


def kept_apart(connection: Connection) -> tuple[KeptApart, ...]:
    """What each provider's newest answer had that is in quarantine now."""
    newest: dict[str, Run] = {run.provider: run for run in read_runs(connection) if run.outcome.has_answer}
    query = select(QUARANTINE, OFFERS).join(OFFERS, OFFERS.c.id == QUARANTINE.c.offer_id)
    of_newest = query.where(QUARANTINE.c.run_id.in_([run.id for run in newest.values()]))
    found = [
        KeptApart(
            key=offer_key(row),
            run_id=row["run_id"],
            reason=row["reason"],
            usd_per_hour=row["usd_per_hour"],
            last_good_usd_per_hour=row["last_good_usd_per_hour"],
        )
        for row in connection.execute(of_newest).mappings()
    ]
    return tuple(sorted(found, key=lambda entry: entry.key))


def _day_of_prices(provider: str, day: date, run_id: int, sightings: list[Sighting]) -> DayOfPrices:
    prices = {
        sighting.key: sighting.usd_per_hour / Decimal(str(sighting.accelerator_count))
        for sighting in sightings
        if sighting.usd_per_hour is not None
    }
    lowest_offer = min(prices, key=lambda key: (prices[key], key))
    return DayOfPrices(
        provider=provider,
        day=day,
        lowest=prices[lowest_offer],
        median=median(prices.values()),
        offers=len(prices),
        lowest_offer=lowest_offer,
        shipped=run_id == 0,
    )


def _departures(connection: Connection, keys: frozenset[OfferKey]) -> list[Sighting]:
    query = (
        select(DEPARTURES, OFFERS, RUNS.c.at)
        .join(OFFERS, OFFERS.c.id == DEPARTURES.c.offer_id)
        .join(RUNS, RUNS.c.id == DEPARTURES.c.run_id)
        .where(OFFERS.c.id.in_(_offer_ids(connection, keys)))
    )
    return [
        Sighting(key=offer_key(row), day=row["at"].date(), accelerator_count=1, usd_per_hour=None, run_id=row["run_id"])
        for row in connection.execute(query).mappings()
    ]


def _offer_ids(connection: Connection, keys: frozenset[OfferKey]) -> list[int]:
    names = {key.instance_type for key in keys}
    query = select(OFFERS).where(OFFERS.c.instance_type.in_(sorted(names)))
    return [row["id"] for row in connection.execute(query).mappings() if offer_key(row) in keys]
