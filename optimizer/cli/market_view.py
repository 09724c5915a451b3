"""Turns market flags into the offers that may be bought, and those that other flags would add."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from optimizer.cli.choices import UNCALIBRATED, accelerators, includes, not_on_demand
from optimizer.plans.planner import Pool
from optimizer.sizing.calibration import is_calibrated
from pricing_cache.compiled import OfferBook
from pricing_cache.query import Filters, check_names, current_offers, select
from providers.accelerators import catalogue
from providers.offers import Offer, PurchaseOption, Trait

_UNCALIBRATED_REASON = "accelerator without calibration, only taken when asked for"
_TRAIT_NOTES: Mapping[Trait, str] = {
    Trait.COMMUNITY: "hosts that the provider does not answer for",
    Trait.ARM64: "arm64 hosts: images must be built for them",
}
_OPTION_NOTES: Mapping[PurchaseOption, str] = {
    PurchaseOption.SPOT: "can be taken away at short notice",
    PurchaseOption.RESERVED_1Y: "bound for one year",
    PurchaseOption.RESERVED_3Y: "bound for three years",
    PurchaseOption.CAPACITY_BLOCK: "for a fixed stretch of days, booked ahead",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketView:
    """The market flags as given."""

    providers: frozenset[str]
    regions: frozenset[str]
    gpus: tuple[str, ...]
    purchase_options: frozenset[PurchaseOption]
    include: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What may be bought, how many offers are on file, why the others may not, and what other flags would add."""

    eligible: Sequence[Offer]
    on_file: int
    rejections: Mapping[str, int]
    pools: Sequence[Pool]
    remarks: tuple[str, ...]
    warnings: tuple[str, ...]


def load(view: MarketView) -> Offers:
    """Reads the offers on file through the view. Raises UnknownName for names that nothing on file has."""
    names, remarks = accelerators(view.gpus)
    traits, uncalibrated = includes(view.include)
    filters = Filters(
        providers=view.providers,
        regions=view.regions,
        accelerators=names,
        purchase_options=view.purchase_options,
        traits=traits,
        excluded_accelerators={} if uncalibrated else _uncalibrated(),
    )
    book = current_offers()
    check_names(book, filters)
    selection = select(book.offers, filters)
    return Offers(
        eligible=selection.offers,
        on_file=len(book.offers),
        rejections=selection.rejections,
        pools=tuple(_pools(book, filters, selection.offers)),
        remarks=remarks,
        warnings=not_on_demand(view.providers, names, view.purchase_options),
    )


def _uncalibrated() -> dict[str, str]:
    return {a.name: _UNCALIBRATED_REASON for a in catalogue().values() if not is_calibrated(a)}


def _pools(book: OfferBook, filters: Filters, eligible: Sequence[Offer]) -> list[Pool]:
    """A pool for each purchase option, and each kind of machine, that was not asked for."""
    pools = []
    for option, note in _OPTION_NOTES.items():
        if option not in filters.purchase_options:
            offers = select(book.offers, replace(filters, purchase_options=frozenset({option}))).offers
            flag = f"--purchase {option.replace('_', '-')}"
            pools.append(Pool(kind="purchase_option", name=option, flag=flag, offers=offers, note=note))
    for trait, note in _TRAIT_NOTES.items():
        if trait not in filters.traits:
            added = replace(filters, traits=filters.traits | {trait})
            pools.append(_added(book, added, eligible, name=trait, note=note))
    if filters.excluded_accelerators:
        added = replace(filters, excluded_accelerators={})
        note = "no published measurements to calibrate the estimate on"
        pools.append(_added(book, added, eligible, name=UNCALIBRATED, note=note))
    return pools


def _added(book: OfferBook, filters: Filters, eligible: Sequence[Offer], *, name: str, note: str) -> Pool:
    """The pool with a kind of machine added; empty where that adds nothing."""
    offers = select(book.offers, filters).offers
    more = offers if len(offers) > len(eligible) else ()
    return Pool(kind="include", name=name, flag=f"--include {name}", offers=more, note=note)
