"""Turns the cache that the environment names, and the shipped snapshot under it, into what `costopt prices` shows."""

import os
from dataclasses import dataclass
from datetime import date

from pricing_cache.current import WARNINGS, is_shipped, load_as_of, load_current, merged
from pricing_cache.freshness import Freshness, freshness
from pricing_cache.history import (
    Change,
    DayOfPrices,
    KeptApart,
    Sighting,
    by_day,
    cached_sightings,
    changes,
    kept_apart,
    shipped_sightings,
)
from pricing_cache.location import locate
from pricing_cache.observations import CacheState, Run, read_runs, read_state
from pricing_cache.snapshot import snapshot
from pricing_cache.stamp import read_stamp
from pricing_cache.store import open_for_reading
from providers.errors import UnknownName, nearest
from providers.offers import Offer, OfferKey, PurchaseOption


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Offers to look at; an empty set, or None, takes all."""

    providers: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    accelerators: frozenset[str] = frozenset()
    purchase_options: frozenset[PurchaseOption] | None = None

    def takes(self, key: OfferKey) -> bool:
        return (
            (not self.providers or key.provider in self.providers)
            and (not self.regions or key.region in self.regions)
            and (self.purchase_options is None or key.purchase_option in self.purchase_options)
        )

    def takes_offer(self, offer: Offer) -> bool:
        wanted = not self.accelerators or offer.instance_type.accelerator in self.accelerators
        return wanted and self.takes(offer.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What stands behind an offer: its price in use, the run that brought it, and what is kept apart.

    `offer` None = it is not on sale any more. `run` None = the price is the shipped snapshot's.
    """

    key: OfferKey
    offer: Offer | None
    run: Run | None
    kept_apart: KeptApart | None
    sightings: tuple[Sighting, ...]


class CacheView:
    """One look at the cache and the snapshot. Raises CacheError when the cache is not one."""

    def __init__(self) -> None:
        self.location = locate(os.environ)
        self.book = load_current(self.location)
        self.stamp = read_stamp(self.location)
        self.warnings: tuple[str, ...] = tuple(self.book.header.get(WARNINGS, ()))
        self.runs: tuple[Run, ...] = ()
        self.kept_apart: tuple[KeptApart, ...] = ()
        if self.stamp is not None:
            with open_for_reading(self.location) as store, store.reading() as connection:
                self.runs = read_runs(connection)
                self.kept_apart = kept_apart(connection)

    def freshness(self, today: date, max_age_days: float) -> tuple[Freshness, ...]:
        return freshness(self.book, self.runs, today, max_age_days)

    def accelerator_history(
        self, accelerators: frozenset[str], wanted: Wanted, first_day: date | None
    ) -> tuple[DayOfPrices, ...]:
        """Prices by provider and day of machines with one of the accelerators."""
        shipped = [o for o in snapshot().offers if o.instance_type.accelerator in accelerators]
        found = shipped_sightings(shipped) + self._cached(accelerators=accelerators)
        return by_day(s for s in found if wanted.takes(s.key) and (first_day is None or s.day >= first_day))

    def offer_history(self, text: str) -> list[Sighting]:
        """Prices of the offers that the text names, oldest first. Raises UnknownName."""
        keys = self._keys(text, self._state())
        shipped = shipped_sightings(offer for offer in snapshot().offers if offer.key in keys)
        return sorted(shipped + self._cached(keys=keys), key=lambda s: (s.key, s.day, s.run_id or 0))

    def changes(self, first_day: date, last_day: date, wanted: Wanted) -> tuple[Change, ...]:
        """What changed between two days, of what is wanted. Raises NoUsablePrices for a day without any."""
        before, after = (load_as_of(self.location, day).offers for day in (first_day, last_day))
        return changes(filter(wanted.takes_offer, before), filter(wanted.takes_offer, after))

    def records(self, text: str) -> tuple[Record, ...]:
        """What stands behind the offers that the text names. Raises UnknownName."""
        state = self._state()
        keys = self._keys(text, state)
        in_use = {offer.key: offer for offer in self._in_use(state)}
        runs = {run.id: run for run in self.runs}
        apart = {entry.key: entry for entry in self.kept_apart}
        sightings = self._cached(keys=keys)
        return tuple(
            Record(
                key=key,
                offer=in_use.get(key),
                run=runs[state.quotes[key].run_id] if state and key in state.quotes else None,
                kept_apart=apart.get(key),
                sightings=tuple(sighting for sighting in sightings if sighting.key == key),
            )
            for key in sorted(keys)
        )

    def is_shipped(self, offer: Offer) -> bool:
        return is_shipped(offer, self.book)

    def _state(self) -> CacheState | None:
        if self.stamp is None:
            return None
        with open_for_reading(self.location) as store, store.reading() as connection:
            return read_state(connection)

    def _in_use(self, state: CacheState | None) -> list[Offer]:
        """The offers in use with their row ids, which the compiled file leaves out."""
        return merged(state, snapshot().offers) if state else list(snapshot().offers)

    def _cached(
        self, *, accelerators: frozenset[str] | None = None, keys: frozenset[OfferKey] | None = None
    ) -> list[Sighting]:
        if self.stamp is None:
            return []
        with open_for_reading(self.location) as store, store.reading() as connection:
            return cached_sightings(connection, accelerators=accelerators, keys=keys)

    def _keys(self, text: str, state: CacheState | None) -> frozenset[OfferKey]:
        """The offers whose name is the text, or starts with it and a slash."""
        known = {str(key): key for key in state.offer_ids} if state else {}
        known |= {str(offer.key): offer.key for offer in self.book.offers}
        wanted = text.strip().rstrip("/")
        found = frozenset(key for name, key in known.items() if name == wanted or name.startswith(f"{wanted}/"))
        if not found:
            hint = "`costopt offers -f json` names them; write provider/instance type/region/purchase option"
            raise UnknownName("offer", text, nearest(wanted, known), hint)
        return found
