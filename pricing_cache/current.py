"""Turns the cache's database, or the compiled file that agrees with it, into the offers in use now or on a past day.

The shipped snapshot is the floor: its rows stand in for what no answer has covered, and say so in their source.
The compiled file carries the stamp of the database state that it was made from. A planner compares it with the stamp
in the database itself on every read, so a file that is older, younger, or of another database is never used: it is
made anew. With PostgreSQL the same stamp is asked of the server.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from time import time as clock
from typing import TYPE_CHECKING, Any, Final

from pricing_cache.compiled import OfferBook, read_offers, write_offers
from pricing_cache.location import CacheLocation
from pricing_cache.snapshot import ORIGIN as SNAPSHOT_ORIGIN
from pricing_cache.snapshot import snapshot, snapshot_digest
from pricing_cache.stamp import Stamp, read_stamp
from providers.errors import CacheError, NoUsablePrices
from providers.offers import Offer

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from pricing_cache.observations import CacheState

ORIGIN: Final = "price cache"
_LONGEST_WRITE_S: Final = 3600.0
_SHIPPED: Final = f"{SNAPSHOT_ORIGIN}: "
WARNINGS: Final = "warnings"
"""Key of an offer book's header: lines that its reader should see."""


def load_current(location: CacheLocation, *, offline: bool = False) -> OfferBook:
    """The offers in use now. Nothing but the compiled file is written.

    `offline` does not ask a PostgreSQL server: it uses the compiled file as it stands, and says so.
    Raises CacheError for a cache that is not one or cannot be reached.
    """
    if offline and location.database is None:
        return _unchecked(location)
    stamp = read_stamp(location)
    if stamp is None or stamp.generation == 0:
        return _with_warnings(snapshot(), _unwritable(location) if stamp is None else ())
    compiled = _compiled(location)
    if compiled is not None and _agrees(compiled, stamp):
        return compiled
    return rebuild(location)


def rebuild(location: CacheLocation) -> OfferBook:
    """The offers in use now, from the database; leaves them in the compiled file, or warns that it cannot."""
    from pricing_cache.store import open_for_reading

    with open_for_reading(location) as store, store.reading() as connection:
        book = current_book(connection)
    try:
        location.compiled.parent.mkdir(parents=True, exist_ok=True)
        write_offers(location.compiled, book.offers, book.header)
        _sweep(location.compiled)
    except OSError as error:
        reason = f"{location.compiled} cannot be written ({error.strerror or error}): every command reads the database"
        return _with_warnings(book, (reason,))
    return book


def current_book(connection: "Connection") -> OfferBook:
    """The offers in use as of the newest run, read in the caller's transaction."""
    from pricing_cache.observations import read_state

    state = read_state(connection)
    return _book(state, snapshot().offers, _stamp_header(state.stamp))


def load_as_of(location: CacheLocation, day: date) -> OfferBook:
    """The offers as they were known at the end of that day (UTC). A price without a date is left out and counted.

    Raises NoUsablePrices when nothing was known, CacheError for a cache that is not one.
    """
    dated = [offer for offer in snapshot().offers if offer.observed_on]
    known = [offer for offer in dated if offer.observed_on and offer.observed_on <= day]
    header = {"as_of": day.isoformat(), "undated_left_out": len(snapshot().offers) - len(dated)}
    stamp = read_stamp(location)
    if stamp is None:
        book = replace(_summed_up(known, header), origin=SNAPSHOT_ORIGIN)
    else:
        book = _cached_as_of(location, day, known, header)
    if not book.offers:
        oldest = min((offer.observed_on for offer in dated if offer.observed_on), default=None)
        raise NoUsablePrices(f"no price is known as of {day}; the oldest of the shipped snapshot is of {oldest}")
    return book


def is_shipped(offer: Offer, book: OfferBook) -> bool:
    """Whether the offer's price is the shipped snapshot's, not one that a refresh brought."""
    return book.origin == SNAPSHOT_ORIGIN or offer.source.startswith(_SHIPPED)


def merged(state: "CacheState", floor: Iterable[Offer]) -> list[Offer]:
    """The quotes in use and, labelled, the rows of the floor that nothing in the cache replaces."""
    kept = [replace(offer, source=f"{_SHIPPED}{offer.source}") for offer in floor if not state.replaces(offer.key)]
    return [quote.offer for quote in state.quotes.values()] + kept


def _cached_as_of(location: CacheLocation, day: date, floor: Iterable[Offer], header: Mapping[str, Any]) -> OfferBook:
    from pricing_cache.observations import last_run_before, read_state
    from pricing_cache.store import open_for_reading

    next_day = datetime.combine(day + timedelta(days=1), time(), UTC)
    with open_for_reading(location) as store, store.reading() as connection:
        state = read_state(connection, through=last_run_before(connection, next_day))
    return _book(state, floor, header)


def _book(state: "CacheState", floor: Iterable[Offer], header: Mapping[str, Any]) -> OfferBook:
    offers = merged(state, floor)
    return _summed_up(offers, {**header, "from_snapshot": len(offers) - len(state.quotes)})


def _summed_up(offers: Iterable[Offer], header: Mapping[str, Any]) -> OfferBook:
    offers = sorted(offers, key=lambda offer: offer.key)
    days = sorted(offer.observed_on for offer in offers if offer.observed_on)
    span = {"as_of_oldest": days[0].isoformat(), "as_of_newest": days[-1].isoformat()} if days else {}
    return OfferBook(origin=ORIGIN, offers=tuple(offers), header={"kind": "cache", **header, **span})


def _stamp_header(stamp: Stamp) -> dict[str, Any]:
    return {"cache_id": stamp.cache_id, "generation": stamp.generation, "snapshot": snapshot_digest()}


def _compiled(location: CacheLocation) -> OfferBook | None:
    """What the compiled file holds; None when there is none, or none that can be read: it can be made again."""
    if not location.compiled.exists():
        return None
    try:
        return read_offers(location.compiled, ORIGIN)
    except CacheError:
        return None


def _sweep(compiled: Path) -> None:
    """Removes what killed processes left half written."""
    for left_over in compiled.parent.glob(f"{compiled.name}*.tmp"):
        if clock() - left_over.stat().st_mtime > _LONGEST_WRITE_S:
            left_over.unlink(missing_ok=True)


def _agrees(book: OfferBook, stamp: Stamp) -> bool:
    return all(book.header.get(key) == value for key, value in _stamp_header(stamp).items())


def _unchecked(location: CacheLocation) -> OfferBook:
    compiled = _compiled(location)
    if compiled is None:
        return _with_warnings(snapshot(), (f"offline, and no prices of {location} are on file here: snapshot used",))
    return _with_warnings(compiled, (f"offline: prices as last read from {location}",))


def _unwritable(location: CacheLocation) -> tuple[str, ...]:
    """A warning when no cache exists and none could be made where it is wanted."""
    import os

    if location.database is None:
        return ()
    parent = next(folder for folder in location.database.absolute().parents if folder.exists())
    if parent.is_dir() and os.access(parent, os.W_OK):
        return ()
    return (f"the price cache cannot be kept in {location.database.parent}: prices are those of the shipped snapshot",)


def _with_warnings(book: OfferBook, warnings: Iterable[str]) -> OfferBook:
    lines = list(warnings)
    return replace(book, header={**book.header, WARNINGS: lines}) if lines else book
