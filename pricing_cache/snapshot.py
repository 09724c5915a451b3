"""Turns tables of published prices into the dated snapshot that ships: `python -m pricing_cache.snapshot PRICES_DIR`.

PRICES_DIR holds `aws.csv`, `gcp.csv`, `azure.csv`, `lambda.csv` and `runpod.csv`, one row an instance type and place
with a column a purchase option. A row that cannot be trusted is counted under its reason and left out; nothing is
filled in.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Final

from pricing_cache.compiled import OfferBook, read_offers, write_offers
from providers.errors import UnknownName
from providers.instance_types import describe, is_sold_on_demand
from providers.offers import PROVIDERS, Commitment, CommitmentKind, InstanceType, Offer, OfferKey, PurchaseOption, Trait
from providers.plausibility import implausible

_FILE: Final = Path(__file__).with_name("data") / "snapshot.json"
ORIGIN: Final = "shipped snapshot"

_KINDS: Final = (
    ("standard RI", CommitmentKind.RESERVED_INSTANCE),
    ("resource-based CUD", CommitmentKind.COMMITTED_USE),
    ("savings plan", CommitmentKind.SAVINGS_PLAN),
)

_MULTI_HOST: Final = re.compile(r"v(?:4|5p|6e|5litepod)-\d+$")
_CHIPS_PER_HOST: Final = 4
"""A TPU slice of several hosts has four chips a host (Cloud TPU system architecture)."""

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Quote:
    """One priced column of a row."""

    option: PurchaseOption
    column: str
    observed_on: date | None
    source: str


@cache
def snapshot() -> OfferBook:
    """The offers that ship in the package. Raises CacheError when the file is damaged."""
    return read_offers(_FILE, ORIGIN)


def snapshot_digest() -> str:
    """Tells one release's snapshot from another's."""
    import hashlib  # only where there is a cache to compare with: start-up time

    return hashlib.sha256(_FILE.read_bytes()).hexdigest()[:16]


def parse_prices(provider: str, rows: Iterable[Row]) -> tuple[list[Offer], Counter[str]]:
    """Offers of one provider's table, and how many rows or prices were left out for which reason."""
    table = list(rows)
    dates = _dates_by_source(table)
    offers: dict[OfferKey, Offer] = {}
    rejections: Counter[str] = Counter()
    for row in table:
        kind = _instance_type(provider, row)
        if isinstance(kind, str):
            rejections[kind] += 1
            continue
        found = [_offer(kind, row, quote) for quote in _quotes(row, dates)]
        if not found:
            rejections["no price"] += 1
        for offer in found:
            if isinstance(offer, str):
                rejections[offer] += 1
            elif offer.key in offers:
                rejections["same offer twice"] += 1
            else:
                offers[offer.key] = offer
    return list(offers.values()), rejections


def _instance_type(provider: str, row: Row) -> InstanceType | str:
    """The row's machine, or the reason why the row cannot be trusted."""
    name = row["instance_type"]
    notes = row.get("notes") or ""
    count = _number(row["accelerator_count"])
    if count is None or count <= 0:
        return "no accelerator count"
    if "fractional" in notes and count >= 1:
        return "fractional device sold as whole"
    try:
        return describe(
            provider,
            name,
            row["accelerator"],
            count,
            accelerator_memory_gib=_number(row["accelerator_memory_gib"]),
            vcpus=_number(row["vcpus"]),
            memory_gib=_number(row["memory_gib"]),
            hosts=_hosts(name, count),
            traits=frozenset({Trait.RETIRED}) if "retired" in notes else frozenset(),
        )
    except UnknownName:
        return f"accelerator without facts: {row['accelerator']}"
    except ValueError:
        return "impossible accelerator count or memory"


def _hosts(name: str, count: float) -> int:
    return max(1, int(count) // _CHIPS_PER_HOST) if _MULTI_HOST.match(name) else 1


def _quotes(row: Row, dates: Mapping[str, date | None]) -> Iterator[_Quote]:
    """The priced columns of a row, each with the date and source of its own."""
    source = row["source"]
    observed_on = _date(row["observed_on"])
    if row["on_demand_usd_per_hour"]:
        yield _Quote(PurchaseOption.ON_DEMAND, "on_demand_usd_per_hour", observed_on, source)
    if row["spot_usd_per_hour"]:
        window = (row.get("spot_observed_window") or "").split("/")
        yield _Quote(PurchaseOption.SPOT, "spot_usd_per_hour", _date(window[-1]), row.get("spot_source") or source)
    reserved_source = row.get("reserved_source") or source
    for option in (PurchaseOption.RESERVED_1Y, PurchaseOption.RESERVED_3Y):
        column = f"{option}_usd_per_hour"
        if row[column]:
            yield _Quote(option, column, dates.get(reserved_source), reserved_source)


def _offer(kind: InstanceType, row: Row, quote: _Quote) -> Offer | str:
    """The offer of one priced column, or the reason why it cannot be trusted."""
    if quote.option is PurchaseOption.ON_DEMAND and not is_sold_on_demand(kind.provider, kind.name):
        return "listed on demand, sold as spot, flex start or reservation only"
    try:
        price = Decimal(row[quote.column])
    except InvalidOperation:
        return "price is not a number"
    reason = implausible(price, kind)
    if reason:
        return reason
    commitment = None
    if quote.option.is_reserved:
        commitment = _commitment(row.get("reserved_kind") or "", quote.option)
        if commitment is None:
            return "reserved price without a known kind of commitment"
    return Offer(
        instance_type=kind,
        region=row["region"] or None,
        zone=row["zone"] or None,
        purchase_option=quote.option,
        usd_per_hour=price,
        observed_on=quote.observed_on,
        source=quote.source,
        commitment=commitment,
        notes=row.get("notes") or "",
    )


def _commitment(text: str, option: PurchaseOption) -> Commitment | None:
    term_months = option.term_months
    for prefix, kind in _KINDS:
        if text.startswith(prefix) and term_months:
            return Commitment(kind=kind, term_months=term_months)
    return None


def _dates_by_source(rows: Iterable[Row]) -> dict[str, date | None]:
    """The day of each source whose rows all carry the same one; a source with several days has none."""
    days: dict[str, set[date | None]] = {}
    for row in rows:
        days.setdefault(row["source"], set()).add(_date(row["observed_on"]))
    return {source: next(iter(found)) if len(found) == 1 else None for source, found in days.items()}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def build(prices: Path, output: Path) -> dict[str, dict[str, int]]:
    """Writes the snapshot of the tables in `prices` to `output`; returns the rejections by provider and reason."""
    offers: list[Offer] = []
    rejections: dict[str, dict[str, int]] = {}
    for provider in PROVIDERS:
        with (prices / f"{provider}.csv").open(encoding="utf-8", newline="") as file:
            found, reasons = parse_prices(provider, csv.DictReader(file))
        offers += found
        rejections[provider] = dict(sorted(reasons.items()))
    days = sorted(offer.observed_on for offer in offers if offer.observed_on)
    header = {
        "kind": "snapshot",
        "as_of_oldest": days[0].isoformat(),
        "as_of_newest": days[-1].isoformat(),
        "rejections": rejections,
    }
    write_offers(output, offers, header)
    print(f"{len(offers)} offers written to {output}")
    return rejections


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m pricing_cache.snapshot PRICES_DIR")
    for seller, reasons in build(Path(sys.argv[1]), _FILE).items():
        for reason, rows in reasons.items():
            print(f"  {seller}: {rows} left out: {reason}")
