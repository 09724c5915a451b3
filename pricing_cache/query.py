"""Turns the offers on file and a buyer's filters into the offers that may be bought, and a count of the others."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from pricing_cache.compiled import OfferBook
from pricing_cache.current import load_as_of, load_current
from pricing_cache.location import locate
from providers.errors import UnknownName, nearest
from providers.offers import PROVIDERS, Offer, PurchaseOption, Trait

ASKED_FOR_TRAITS: Final = (Trait.COMMUNITY, Trait.ARM64, Trait.PREVIEW, Trait.RETIRED, Trait.CONFIDENTIAL)
"""Traits that a careful buyer does not take unasked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a buyer accepts. An empty set of providers, regions or accelerators accepts all.

    `excluded_accelerators` maps a canonical name to the reason why it is left out unasked.
    """

    providers: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    accelerators: frozenset[str] = frozenset()
    purchase_options: frozenset[PurchaseOption] = frozenset({PurchaseOption.ON_DEMAND})
    traits: frozenset[Trait] = frozenset()
    fractional: bool = False
    excluded_accelerators: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The offers that pass, and those that do not, by the first reason that each meets."""

    offers: tuple[Offer, ...]
    left_out: Mapping[str, tuple[Offer, ...]]

    @property
    def rejections(self) -> dict[str, int]:
        """How many offers were left out, by reason."""
        return {reason: len(offers) for reason, offers in self.left_out.items()}


def current_offers(
    environment: Mapping[str, str] = os.environ, *, as_of: date | None = None, offline: bool = False
) -> OfferBook:
    """The offers that can be bought now, or as they were known on a past day; its header may hold `warnings`.

    The environment names the cache; what the cache lacks comes from the shipped snapshot. `offline` asks no server.
    Raises CacheError for a cache that cannot be used, NoUsablePrices when nothing was known on that day.
    """
    location = locate(environment)
    return load_as_of(location, as_of) if as_of else load_current(location, offline=offline)


def select(offers: Iterable[Offer], filters: Filters) -> Selection:
    """The offers that pass all filters; each of the others is listed under the first reason that it meets."""
    kept: list[Offer] = []
    left_out: dict[str, list[Offer]] = {}
    for offer in offers:
        reason = _reason_against(offer, filters)
        if reason is None:
            kept.append(offer)
        else:
            left_out.setdefault(reason, []).append(offer)
    return Selection(offers=tuple(kept), left_out={reason: tuple(found) for reason, found in left_out.items()})


def check_names(book: OfferBook, filters: Filters) -> None:
    """Raises UnknownName, with suggestions, for a provider or region that no offer has."""
    for provider in sorted(filters.providers):
        if provider not in PROVIDERS:
            raise UnknownName("provider", provider, nearest(provider, PROVIDERS), f"known: {', '.join(PROVIDERS)}")
    known = {offer.region for offer in book.offers if offer.region}
    for region in sorted(filters.regions - known):
        raise UnknownName("region", region, nearest(region, known), "`costopt offers` lists the regions")


def other_option(option: PurchaseOption) -> str:
    """The reason why an offer under another purchase option is left out."""
    return f"other purchase option ({option})"


def only_when_asked_for(trait: Trait) -> str:
    """The reason why a machine with a trait is left out."""
    return f"{trait} machine, only taken when asked for"


def _reason_against(offer: Offer, filters: Filters) -> str | None:
    kind = offer.instance_type
    if offer.purchase_option not in filters.purchase_options:
        return other_option(offer.purchase_option)
    if filters.providers and kind.provider not in filters.providers:
        return "other provider"
    if filters.accelerators and kind.accelerator not in filters.accelerators:
        return "other accelerator"
    if filters.regions and offer.region not in filters.regions:
        return "other region" if offer.region else "price without a region"
    if kind.traits:
        for trait in ASKED_FOR_TRAITS:
            if trait in kind.traits and trait not in filters.traits:
                return only_when_asked_for(trait)
    if kind.is_fractional and not filters.fractional:
        return "fraction of an accelerator"
    if offer.in_stock is False:
        return "out of stock when last asked"
    return filters.excluded_accelerators.get(kind.accelerator)
