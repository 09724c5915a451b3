"""Turns the offers on file into a listing, filtered and sorted, and that into the JSON document `costopt.offers`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from optimizer.api import choices, values
from optimizer.api.clock import today
from optimizer.plans.document import offer_document
from optimizer.sizing.document import number
from pricing_cache.compiled import OfferBook
from pricing_cache.query import Filters, Selection, check_names, current_offers, select
from providers.accelerators import catalogue
from providers.errors import UnknownName, nearest
from providers.offers import InstanceType, Offer, PurchaseOption, Trait

SCHEMA: Final = "costopt.offers"
SCHEMA_VERSION: Final = "1.0"
ARCHITECTURES: Final = ("x86", "arm64")
LINKS: Final = ("nvlink", "nvlink_bridge", "pcie", "infinity_fabric", "ici", "neuronlink", "roce", "none")
"""What can join the accelerators of one machine, as InstanceType names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersArguments:
    """What is wanted: a field for each flag of `costopt offers` that says so, under its name.

    Several words of a repeatable flag are a list; None where nothing was said. Every way to buy where `purchase` is
    None.
    """

    provider: Sequence[str] | None = None
    region: Sequence[str] | None = None
    gpu: Sequence[str] | None = None
    purchase: Sequence[str] | None = None
    instance_type: Sequence[str] | None = None
    count: int | None = None
    min_memory: float | None = None
    arch: str | None = None
    link: Sequence[str] | None = None
    max_price: str | None = None
    sort: str = "price"
    as_of: str | None = None
    max_age: str = values.MAX_AGE
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The offers that were asked for, in order; `stale_before` is the day before which a price is old."""

    offers: Sequence[Offer]
    on_file: int
    origin: str
    max_age_days: float
    stale_before: date
    remarks: tuple[str, ...]
    warnings: tuple[str, ...]

    def is_stale(self, offer: Offer) -> bool:
        return offer.observed_on is None or offer.observed_on < self.stale_before


def listing_of(wanted: OffersArguments) -> Listing:
    """The offers on file that pass. Raises UnknownName, InvalidValue, NoUsablePrices."""
    sort = choices.one_of("sort key", wanted.sort, tuple(_SORT_KEYS))
    names, remarks = choices.accelerators(wanted.gpu)
    filters = Filters(
        providers=choices.providers(wanted.provider),
        regions=frozenset(wanted.region or ()),
        accelerators=names,
        purchase_options=choices.purchase_options(wanted.purchase) if wanted.purchase else frozenset(PurchaseOption),
        traits=frozenset(Trait),
        fractional=True,
    )
    machines = _machines(wanted)
    max_age_days = values.duration_hours("--max-age", wanted.max_age) / 24
    book = current_offers(as_of=values.past_day("--as-of", wanted.as_of, today()), offline=wanted.offline)
    check_names(book, filters)
    _check_instance_types(book, machines.instance_types)
    selection = select(book.offers, filters)
    found = sorted(
        (offer for offer in selection.offers if machines.takes(offer)),
        key=lambda offer: (_SORT_KEYS[sort](offer), offer.key),
    )
    remarks += choices.not_on_demand(filters.providers, names, filters.purchase_options)
    return Listing(
        offers=found,
        on_file=len(book.offers),
        origin=book.origin,
        max_age_days=max_age_days,
        stale_before=today() - timedelta(days=max_age_days),
        remarks=remarks if found else (*remarks, _nothing_found(selection)),
        warnings=tuple(book.header.get("warnings", ())),
    )


def listing_document(listing: Listing, offers: Sequence[Offer]) -> dict[str, Any]:
    """The document of those of the listing's offers."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "origin": listing.origin,
        "offers": [offer_row(offer, stale=listing.is_stale(offer)) for offer in offers],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machines:
    """Filters that only a listing has."""

    instance_types: frozenset[str]
    count: int | None
    arm64: bool | None
    links: frozenset[str]
    min_memory_gib: float | None
    max_usd_per_hour: Decimal | None

    def takes(self, offer: Offer) -> bool:
        kind = offer.instance_type
        return (
            (not self.instance_types or kind.name in self.instance_types)
            and (self.count is None or kind.accelerator_count == self.count)
            and (self.arm64 is None or (Trait.ARM64 in kind.traits) == self.arm64)
            and (not self.links or kind.link in self.links)
            and (self.min_memory_gib is None or _memory_gib(kind) >= self.min_memory_gib)
            and (self.max_usd_per_hour is None or offer.usd_per_hour <= self.max_usd_per_hour)
        )


def _machines(wanted: OffersArguments) -> _Machines:
    arch = None if wanted.arch is None else choices.one_of("architecture", wanted.arch, ARCHITECTURES)
    return _Machines(
        instance_types=frozenset(wanted.instance_type or ()),
        count=wanted.count,
        arm64=None if arch is None else arch == "arm64",
        links=frozenset(choices.one_of("link", name, LINKS) for name in wanted.link or ()),
        min_memory_gib=values.positive("--min-memory", wanted.min_memory),
        max_usd_per_hour=values.money("--max-price", wanted.max_price),
    )


def _memory_gib(kind: InstanceType) -> float:
    """Memory of one accelerator by its label, or of the part of one that the machine has."""
    return catalogue()[kind.accelerator].memory_gib * min(1.0, kind.accelerator_count)


def _per_gib(offer: Offer) -> float:
    return float(offer.usd_per_accelerator_hour) / catalogue()[offer.instance_type.accelerator].memory_gib


def _per_pflop(offer: Offer) -> float:
    """USD per hour and dense 16-bit PFLOP/s (bf16, fp16 where there is no bf16); last where neither is known."""
    rates = catalogue()[offer.instance_type.accelerator].dense_tflops
    tflops = rates.get("bf16") or rates.get("fp16")
    return float(offer.usd_per_accelerator_hour) / (tflops / 1000) if tflops else float("inf")


_SORT_KEYS: Final[Mapping[str, Callable[[Offer], Any]]] = {
    "price": lambda offer: offer.usd_per_hour,
    "gpu-price": lambda offer: offer.usd_per_accelerator_hour,
    "gib-price": _per_gib,
    "pflop-price": _per_pflop,
    "name": lambda offer: 0,
}


def _check_instance_types(book: OfferBook, names: frozenset[str]) -> None:
    """Raises UnknownName for a machine that no offer has."""
    known = {offer.instance_type.name for offer in book.offers}
    for name in sorted(names - known):
        raise UnknownName(
            "instance type",
            name,
            nearest(name, known),
            "`costopt offers --all` lists them; machines whose accelerator has no facts here are left out",
        )


def _nothing_found(selection: Selection) -> str:
    """Why the listing is empty: which filters took the offers on file."""
    reasons = [f"{count} × {reason}" for reason, count in selection.rejections.items()]
    if selection.offers:
        reasons.append(f"{len(selection.offers)} × other instance type, count, memory or price")
    return f"no offer passes the filters ({', '.join(reasons) or 'none on file'}); loosen one of them"


def offer_row(offer: Offer, *, stale: bool) -> dict[str, Any]:
    """One offer with the facts of its machine."""
    kind = offer.instance_type
    accelerator = catalogue()[kind.accelerator]
    return {
        "offer": str(offer.key),
        **offer_document(offer),
        "usd_per_accelerator_hour": f"{offer.usd_per_accelerator_hour:.6f}",
        "accelerator_memory_gib": number(accelerator.memory_gib),
        "accelerator_usable_memory_gib": number(accelerator.usable_memory_gib),
        "fractional": kind.is_fractional,
        "link": kind.link,
        "vcpus": number(kind.vcpus),
        "memory_gib": number(kind.memory_gib),
        "traits": sorted(kind.traits),
        "in_stock": offer.in_stock,
        "stale": stale,
        "notes": offer.notes,
    }
