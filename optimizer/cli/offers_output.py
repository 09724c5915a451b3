"""Turns the offers on file into a listing: filtered, sorted, as a table, JSON, CSV or Markdown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from optimizer.cli.choices import json_text
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.plans.document import offer_document
from optimizer.sizing.document import number
from pricing_cache.compiled import OfferBook
from pricing_cache.query import Filters, Selection
from providers.accelerators import catalogue
from providers.errors import UnknownName, nearest
from providers.offers import InstanceType, Offer, PurchaseOption, Trait

SCHEMA: Final = "costopt.offers"
SCHEMA_VERSION: Final = "1.0"
ARCHITECTURES: Final = ("x86", "arm64")
LINKS: Final = ("nvlink", "nvlink_bridge", "pcie", "infinity_fabric", "ici", "neuronlink", "roce", "none")
"""What can join the accelerators of one machine, as InstanceType names it."""

_COLUMNS: Final = (
    "offer",
    "provider",
    "instance_type",
    "region",
    "zone",
    "purchase_option",
    "accelerator",
    "accelerator_count",
    "accelerator_memory_gib",
    "usd_per_hour",
    "usd_per_accelerator_hour",
    "as_of",
    "stale",
    "source",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Filters that only a listing has."""

    accelerators: frozenset[str]
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


SORT_KEYS: Final[Mapping[str, Callable[[Offer], Any]]] = {
    "price": lambda offer: offer.usd_per_hour,
    "gpu-price": lambda offer: offer.usd_per_accelerator_hour,
    "gib-price": _per_gib,
    "pflop-price": _per_pflop,
    "name": lambda offer: 0,
}


def all_filters(
    *,
    providers: frozenset[str],
    regions: frozenset[str],
    accelerators: frozenset[str],
    purchase_options: frozenset[PurchaseOption] | None,
) -> Filters:
    """Filters that leave out nothing but what was asked: all traits, fractions and purchase options pass."""
    return Filters(
        providers=providers,
        regions=regions,
        accelerators=accelerators,
        purchase_options=purchase_options or frozenset(PurchaseOption),
        traits=frozenset(Trait),
        fractional=True,
    )


def check_instance_types(book: OfferBook, names: frozenset[str]) -> None:
    """Raises UnknownName for a machine that no offer has."""
    known = {offer.instance_type.name for offer in book.offers}
    for name in sorted(names - known):
        raise UnknownName(
            "instance type",
            name,
            nearest(name, known),
            "`costopt offers --all` lists them; machines whose accelerator has no facts here are left out",
        )


def arranged(offers: Sequence[Offer], listing: Listing, sort: str) -> list[Offer]:
    """The offers that the listing takes, by the sort key and then by offer key."""
    key = SORT_KEYS[sort]
    return sorted((offer for offer in offers if listing.takes(offer)), key=lambda offer: (key(offer), offer.key))


def nothing_found(selection: Selection) -> str:
    """Why the listing is empty: which filters took the offers on file."""
    reasons = [f"{count} × {reason}" for reason, count in selection.rejections.items()]
    if selection.offers:
        reasons.append(f"{len(selection.offers)} × other instance type, count, memory or price")
    return f"no offer passes the filters ({', '.join(reasons) or 'none on file'}); loosen one of them"


def without_repeats(offers: Sequence[Offer]) -> list[Offer]:
    """The offers less those of a zone that cost what their region does."""
    regional = {_place(offer): offer.usd_per_hour for offer in offers if offer.zone is None}
    return [offer for offer in offers if offer.zone is None or regional.get(_place(offer)) != offer.usd_per_hour]


def _place(offer: Offer) -> tuple[object, ...]:
    """What an offer and that of its region have in common."""
    return (offer.provider, offer.instance_type.name, offer.region, offer.purchase_option, offer.commitment)


def render(offers: Sequence[Offer], format_: str, origin: str, today: date, max_age_days: float) -> str:
    """The listing in one of the formats; `origin` says which file the prices are of."""
    limit = today - timedelta(days=max_age_days)
    documents = [_document(offer, limit) for offer in offers]
    if format_ == "json":
        head = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "origin": origin}
        return json_text({**head, "offers": documents})
    if format_ == "csv":
        return csv_text(_COLUMNS, [[document[column] for column in _COLUMNS] for document in documents])
    parts: list[Table | str] = [
        _table(offers, limit),
        f"Prices: {origin}. * = older than {max_age_days:g} days, or without a date.",
    ]
    return terminal(parts) if format_ == "table" else markdown(parts)


def _document(offer: Offer, limit: date) -> dict[str, Any]:
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
        "stale": _is_stale(offer, limit),
        "notes": offer.notes,
    }


def _table(offers: Sequence[Offer], limit: date) -> Table:
    rows = [
        (
            offer.provider,
            offer.instance_type.name,
            offer.zone or offer.region or "any",
            f"{offer.instance_type.accelerator_count:g} x {offer.instance_type.accelerator}",
            offer.purchase_option.replace("_", " "),
            f"{offer.usd_per_hour:,.4f}",
            f"{offer.usd_per_accelerator_hour:,.4f}",
            f"{offer.observed_on or 'no date'}{'*' if _is_stale(offer, limit) else ''}",
            ", ".join(
                [*sorted(offer.instance_type.traits), *(["fraction"] if offer.instance_type.is_fractional else [])]
            ),
        )
        for offer in offers
    ]
    columns = (
        "provider",
        "instance type",
        "region",
        "accelerators",
        "bought",
        "USD/h",
        "USD/GPU-h",
        "as of",
        "remarks",
    )
    return Table(title="Offers", columns=columns, rows=rows, right=frozenset({"USD/h", "USD/GPU-h"}))


def _is_stale(offer: Offer, limit: date) -> bool:
    return offer.observed_on is None or offer.observed_on < limit
