"""Turns the offers in use and the notes of past runs into how old and how complete each provider's prices are."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from pricing_cache.compiled import OfferBook
from pricing_cache.current import is_shipped
from providers.offers import PROVIDERS, Offer

if TYPE_CHECKING:
    from pricing_cache.observations import Run

DEFAULT_MAX_AGE_DAYS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How old and how complete one provider's prices in use are.

    `stale` counts offers older than the most days allowed, and those without a date (`undated`). `last_run` is the
    newest refresh whatever came of it, `last_stored` the newest that brought prices; None = there was none.
    """

    provider: str
    offers: int
    shipped: int
    oldest: date | None
    newest: date | None
    undated: int
    stale: int
    instance_types: int
    accelerators: int
    regions: int
    by_purchase_option: Mapping[str, int]
    last_run: "Run | None"
    last_stored: "Run | None"


def is_stale(offer: Offer, today: date, max_age_days: float) -> bool:
    """Whether the price is older than that many days, or of no known day."""
    return offer.observed_on is None or offer.observed_on < today - timedelta(days=max_age_days)


def freshness(book: OfferBook, runs: Sequence["Run"], today: date, max_age_days: float) -> tuple[Freshness, ...]:
    """One entry a provider, in the order in which providers are shown, then any others."""
    by_provider: dict[str, list[Offer]] = {name: [] for name in PROVIDERS}
    for offer in book.offers:
        by_provider.setdefault(offer.provider, []).append(offer)
    return tuple(
        _of_provider(name, offers, book, [run for run in runs if run.provider == name], today, max_age_days)
        for name, offers in by_provider.items()
    )


def _of_provider(
    name: str, offers: Sequence[Offer], book: OfferBook, runs: Sequence["Run"], today: date, max_age_days: float
) -> Freshness:
    days = [offer.observed_on for offer in offers if offer.observed_on]
    stored = [run for run in runs if run.outcome == "stored"]
    return Freshness(
        provider=name,
        offers=len(offers),
        shipped=sum(is_shipped(offer, book) for offer in offers),
        oldest=min(days, default=None),
        newest=max(days, default=None),
        undated=len(offers) - len(days),
        stale=sum(is_stale(offer, today, max_age_days) for offer in offers),
        instance_types=_distinct(offer.instance_type.name for offer in offers),
        accelerators=_distinct(offer.instance_type.accelerator for offer in offers),
        regions=_distinct(offer.region for offer in offers if offer.region),
        by_purchase_option=dict(sorted(Counter(offer.purchase_option.value for offer in offers).items())),
        last_run=runs[-1] if runs else None,
        last_stored=stored[-1] if stored else None,
    )


def _distinct(values: Iterable[str]) -> int:
    return len(set(values))
