"""Turns the SKUs of Google's billing catalogue into rates: what one core, GiB, accelerator or slice costs in a region.

A SKU names no machine type; what it prices is written in its description only, in a form that differs by family and
by region, so the description is taken apart here and nowhere else.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from providers.errors import InvalidAnswer
from providers.offers import PurchaseOption
from providers.tally import require_texts, usd
from providers.units import GB, GIB, HOURS_PER_MONTH

GLOBAL: Final = "global"
"""The region of a SKU whose price is the same everywhere."""

_OTHER_PRODUCTS: Final = re.compile(
    r"\b(DWS|Dynamic Workload Scheduler|Calendar|Flex|Flex-start|Reserved|Reservation|Sole Tenancy|Custom|Premium"
    r"|Upgrade|Workstation|Windows|Licensing|Extended|Pod|VM state)\b",
    re.IGNORECASE,
)
_COMMITMENT: Final = re.compile(
    r"Commitment v1: (?P<what>.+?)(?: running)? in .+ for (?P<years>\d) Years?", re.IGNORECASE
)
_PLACE: Final = re.compile(r"(?: running)? in [^()]+$")
_HOST: Final = re.compile(r"(?P<family>\w+?)(?: Predefined)? Instance (?P<part>Core|Ram)")
_COMMITTED_HOST: Final = re.compile(r"(?:(?P<family>\w+) )?(?P<part>Cpu|Ram)")
_SLICE: Final = re.compile(r"\w+ (?P<name>Nvidia .+?) \(1 gpu slice\)", re.IGNORECASE)
_TPU: Final = re.compile(r"Tpu-?(?P<generation>v\d+[a-z]+)\b.*", re.IGNORECASE)
_ACCELERATED_FAMILY: Final = re.compile(r"n1|[ag]\d\w*")
"""Google names families with accelerators A… and G…; N1 is the one that accelerators are attached to."""

_SPOT: Final = re.compile(r"^Spot Preemptible |^Preemptible | attached to (?:Spot )?Preemptible VMs?", re.IGNORECASE)

_ODD_NAMES: Final = MappingProxyType(
    {
        "nvidia-tesla-a100-80gb": "nvidia-a100-80gb",
        "nvidia-h100-80gb-mega": "nvidia-h100-mega-80gb",
        "nvidia-h100-80gb-plus": "nvidia-h100-mega-80gb",
        "nvidia-rtx-6000-96gb": "nvidia-rtx-pro-6000",
    }
)
"""Accelerators that the catalogue names otherwise than the machine types do; a3-mega's has a name by region."""

_TERMS: Final = MappingProxyType({"1": PurchaseOption.RESERVED_1Y, "3": PurchaseOption.RESERVED_3Y})
_USAGE: Final = MappingProxyType({"1": "Commit1Yr", "3": "Commit3Yr"})
_NANO: Final = Decimal(1).scaleb(-9)


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """What a rate pays for: `core` or `ram` of a family, `gpu` or `slice` of an accelerator type, `tpu` of a
    generation (one chip), or `ssd`."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """USD per hour of one core, GiB, accelerator, slice or chip, with the SKU that says so."""

    usd_per_hour: Decimal
    sku: str
    effective_from: date | None


RateKey = tuple[Part, str, PurchaseOption]
"""Part, region, purchase option."""


@dataclass(slots=True)
class Rates:
    """The rates of a catalogue. `unreadable` are listed at a price that cannot be used, or at several."""

    found: dict[RateKey, Rate] = field(default_factory=dict)
    unreadable: set[RateKey] = field(default_factory=set)
    rejections: Counter[str] = field(default_factory=Counter)
    parts: set[Part] = field(default_factory=set)

    def get(self, part: Part, region: str, option: PurchaseOption) -> Rate | None:
        """The region's rate, or the one that holds everywhere."""
        if (part, region, option) in self.unreadable:
            return None
        return self.found.get((part, region, option)) or self.found.get((part, GLOBAL, option))

    def is_unreadable(self, part: Part, region: str, option: PurchaseOption) -> bool:
        return (part, region, option) in self.unreadable or (part, GLOBAL, option) in self.unreadable

    def add(self, key: RateKey, rate: Rate) -> None:
        """Takes a rate; two prices for one thing are an ambiguity that nobody resolves."""
        earlier = self.found.get(key)
        if earlier is not None and earlier.usd_per_hour != rate.usd_per_hour:
            del self.found[key]
            self.unreadable.add(key)
            self.rejections["several prices for one part"] += 2
        elif key in self.unreadable:
            self.rejections["several prices for one part"] += 1
        else:
            self.found[key] = rate


def parse_skus(data: Any, now: datetime, rates: Rates) -> None:
    """Adds the rates of one page of SKUs. SKUs of other products are passed over; one of accelerators or their hosts
    whose price cannot be used is counted. Raises InvalidAnswer for another shape."""
    skus = data.get("skus") if isinstance(data, Mapping) else None
    if not isinstance(skus, list):
        raise InvalidAnswer("gcp", "the reply has no list `skus`")
    for sku in skus:
        try:
            _parse_sku(sku, now, rates)
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError, IndexError):
            rates.rejections["row of another shape"] += 1


def classify(description: str, group: str, usage_type: str) -> tuple[Part, PurchaseOption] | None:
    """What a SKU prices and how it is bought, or None for other products (DWS, calendar, licences, custom shapes).

    The usage type alone does not tell: some spot and commitment prices are labelled OnDemand.
    """
    if _OTHER_PRODUCTS.search(description):
        return None
    commitment = _COMMITMENT.fullmatch(description)
    if commitment:
        years = commitment["years"]
        if _USAGE.get(years) != usage_type:
            return None
        return _with_option(_part(commitment["what"], group, committed=True), _TERMS[years])
    if description.startswith("Commitment"):
        return None
    spot = bool(_SPOT.search(description)) or usage_type == "Preemptible"
    if not spot and usage_type != "OnDemand":
        return None
    part = _part(_SPOT.sub("", _PLACE.sub("", description)), group, committed=False)
    return _with_option(part, PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND)


def _with_option(part: Part | None, option: PurchaseOption) -> tuple[Part, PurchaseOption] | None:
    return None if part is None else (part, option)


def _part(what: str, group: str, *, committed: bool) -> Part | None:
    host = (_COMMITTED_HOST if committed else _HOST).fullmatch(what)
    if host:
        return Part("ram" if host["part"] == "Ram" else "core", (host["family"] or "n1").lower())
    if what == ("Local SSD" if committed else "SSD backed Local Storage"):
        return Part("ssd")
    tpu = _TPU.fullmatch(what)
    if tpu:
        return Part("tpu", tpu["generation"].lower())
    if group != "GPU":
        return None
    a_slice = _SLICE.fullmatch(what)
    if a_slice:
        return Part("slice", _accelerator_type(a_slice["name"]))
    return Part("gpu", _accelerator_type(what))


def _accelerator_type(name: str) -> str:
    """The accelerator type of the machine types that the catalogue means: `Nvidia Tesla T4 GPU` is nvidia-tesla-t4."""
    words = [word for word in name.lower().split() if word != "gpu"]
    slug = "-".join(words if words[0] == "nvidia" else ["nvidia", *words])
    return _ODD_NAMES.get(slug, slug)


def _parse_sku(sku: Mapping[str, Any], now: datetime, rates: Rates) -> None:
    category = sku["category"]
    known = classify(sku["description"], category["resourceGroup"], category["usageType"])
    if known is None:
        return
    part, option = known
    if part.kind in ("core", "ram") and not _ACCELERATED_FAMILY.fullmatch(part.name):
        return
    require_texts(sku["skuId"], *sku["serviceRegions"])
    rates.parts.add(part)
    keys = [(part, region, option) for region in sku["serviceRegions"]]
    info = _in_effect(sku["pricingInfo"], now)
    price = _hourly(info["pricingExpression"])
    if isinstance(price, str):
        rates.rejections[price] += 1
        rates.unreadable.update(key for key in keys if key not in rates.found)
        return
    effective = info.get("effectiveTime")
    rate = Rate(
        usd_per_hour=price,
        sku=sku["skuId"],
        effective_from=datetime.fromisoformat(effective).date() if effective else None,
    )
    for key in keys:
        rates.add(key, rate)


def _in_effect(infos: list[Mapping[str, Any]], now: datetime) -> Mapping[str, Any]:
    """The newest price that has begun; one without a time counts as begun."""
    begun = [info for info in infos if not info.get("effectiveTime") or _time(info) <= now]
    return max(begun, key=lambda info: _time(info).timestamp() if info.get("effectiveTime") else 0.0)


def _time(info: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(info["effectiveTime"])


def _hourly(expression: Mapping[str, Any]) -> Decimal | str:
    """USD per hour of one unit (memory and disk per GiB), or why the price cannot be used."""
    price = _first_paid_tier(expression["tieredRates"])
    if isinstance(price, str):
        return price
    unit = expression["usageUnit"]
    if unit in ("h", "GiBy.h"):
        return price
    if unit == "GBy.h":
        return price * GIB / GB
    if unit == "GiBy.mo":
        return price / HOURS_PER_MONTH
    return f"price per {unit}"


def _first_paid_tier(tiers: Iterable[Mapping[str, Any]]) -> Decimal | str:
    """`units` (a string) + `nanos` of the first tier that is not free; either may be absent."""
    for tier in tiers:
        money = tier["unitPrice"]
        if money["currencyCode"] != "USD":
            return f"price in {money['currencyCode']}, not USD"
        units, nanos = usd(money.get("units") or 0), usd(money.get("nanos") or 0)
        price = (units or Decimal(0)) + (nanos or Decimal(0)) * _NANO
        if not price.is_finite():
            return "price is not a number"
        if price < 0:
            return "negative price"
        if price > 0:
            return price
    return "price of zero"
