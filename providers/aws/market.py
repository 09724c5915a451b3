"""Turns AWS's spot prices, savings-plan rates and capacity blocks into offers."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from providers.aws.machines import Machines
from providers.errors import InvalidAnswer
from providers.offers import Commitment, CommitmentKind, PurchaseOption
from providers.tally import Tally, require_texts, usd
from providers.units import HOURS_PER_YEAR, SECONDS_PER_HOUR

_LINUX: Final = "Linux/UNIX"
_NOT_SOLD: Final = "N/A"
_ZONE_OF_A_REGION: Final = re.compile(r"[a-z]+\d-az\d+")
"""A zone id of the region itself; those of Local Zones have another word inside (use1-atl2-az1)."""

_OLD_REGION_IDS: Final = MappingProxyType(
    {
        "us-east": "us-east-1",
        "us-west": "us-west-1",
        "eu-ireland": "eu-west-1",
        "apac-sin": "ap-southeast-1",
        "apac-syd": "ap-southeast-2",
        "apac-tokyo": "ap-northeast-1",
    }
)
_SAVINGS_TERMS: Final = MappingProxyType({8760: PurchaseOption.RESERVED_1Y, 26280: PurchaseOption.RESERVED_3Y})
_PLANS: Final = MappingProxyType({"EC2Instance": "", "Compute": "compute"})
_UPFRONT_SHARE: Final = MappingProxyType(
    {"No Upfront": Decimal(0), "Partial Upfront": Decimal("0.5"), "All Upfront": Decimal(1)}
)
"""What is paid at the start of the whole commitment (AWS, Savings Plans user guide: at least half for partial)."""


def parse_spot_history(
    rows: Iterable[Mapping[str, Any]], region: str, machines: Machines, source: str, tally: Tally
) -> None:
    """Adds the current Linux spot price of each zone from rows of `describe_spot_price_history`, newest first or not.

    Zones are named by id, since names differ between accounts.
    """
    current: dict[tuple[str, str], tuple[datetime, object]] = {}
    for row in rows:
        try:
            if row["ProductDescription"] != _LINUX:
                continue
            place, since = (row["InstanceType"], row["AvailabilityZoneId"]), _time(row["Timestamp"])
            require_texts(*place)
            if place not in current or current[place][0] < since:
                current[place] = since, row["SpotPrice"]
        except (KeyError, TypeError, ValueError):
            tally.reject("row of another shape")
    for (name, zone), (since, price) in current.items():
        kind = machines.kind(name)
        if kind is not None:
            tally.offer(
                kind,
                usd(price),
                PurchaseOption.SPOT,
                source=source,
                region=region,
                zone=zone,
                row_ids=[f"{name}/{zone}"],
                effective_from=since.date(),
            )


def parse_spot_feed(
    data: Any, bands: Mapping[tuple[str, str], str], machines: Machines, source: str, tally: Tally
) -> frozenset[str]:
    """Adds the Linux spot price by region of the public feed and returns the feed's regions.

    Sizes are repeated in it, and what is not sold is `N/A*`. `bands` says how often a type is interrupted. Raises
    InvalidAnswer for another shape.
    """
    config = data.get("config") if isinstance(data, Mapping) else None
    regions = config.get("regions") if isinstance(config, Mapping) else None
    if not isinstance(config, Mapping) or not isinstance(regions, list) or config.get("rate") != "perhr":
        raise InvalidAnswer("aws", "the spot feed has no hourly prices by region")
    read: set[str] = set()
    for entry in regions:
        try:
            region = _OLD_REGION_IDS.get(entry["region"], entry["region"])
            for name, price in dict(_linux_prices(entry)).items():
                kind = machines.kind(name) if name in machines else None
                if kind is not None and not str(price).startswith(_NOT_SOLD):
                    tally.offer(
                        kind,
                        usd(price),
                        PurchaseOption.SPOT,
                        source=source,
                        region=region,
                        row_ids=[f"{name}/{region}"],
                        notes=bands.get((region, name), ""),
                    )
        except (KeyError, TypeError, AttributeError, ValueError):
            tally.reject("row of another shape")
        else:
            read.add(region)
    return frozenset(read)


def parse_spot_advisor(data: Any) -> dict[tuple[str, str], str]:
    """How often Linux spot capacity is interrupted, in words, by region and type; `r` is an index into bands."""
    labels = {band["index"]: band["label"] for band in data["ranges"]}
    return {
        (region, name): f"interrupted {labels[entry['r']]} a month"
        for region, systems in data["spot_advisor"].items()
        for name, entry in systems.get("Linux", {}).items()
        if entry["r"] in labels
    }


def parse_savings_rates(rows: Iterable[Mapping[str, Any]], machines: Machines, source: str, tally: Tally) -> None:
    """Adds the savings-plan rates of Linux on shared hosts from `describe_savings_plans_offering_rates`.

    Every rate is the effective price per hour, whatever is paid at the start.
    """
    for row in rows:
        try:
            _savings_rate(row, machines, source, tally)
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
            tally.reject("row of another shape")


def parse_capacity_blocks(
    rows: Iterable[Mapping[str, Any]],
    region: str,
    zone_ids: Mapping[str, str],
    machines: Machines,
    source: str,
    tally: Tally,
) -> None:
    """Adds, for each type and zone, the capacity block that starts first, from `describe_capacity_block_offerings`.

    A fee is for all instances and the whole duration. `zone_ids` turns the account's zone names into ids.
    """
    first: dict[tuple[str, str], tuple[datetime, Mapping[str, Any]]] = {}
    for row in rows:
        try:
            place, start = (row["InstanceType"], row["AvailabilityZone"]), _time(row["StartDate"])
            require_texts(*place)
            if place not in first or start < first[place][0]:
                first[place] = start, row
        except (KeyError, TypeError, ValueError):
            tally.reject("row of another shape")
    for (name, zone), (start, row) in first.items():
        kind = machines.kind(name)
        if kind is None:
            continue
        try:
            hours, count = int(row["CapacityBlockDurationHours"]), int(row["InstanceCount"])
            fee, currency = usd(row["UpfrontFee"]), row["CurrencyCode"]
            tally.offer(
                kind,
                None if fee is None else fee / (hours * count),
                PurchaseOption.CAPACITY_BLOCK,
                source=source,
                region=region,
                zone=zone_ids.get(zone) or None,
                row_ids=[row["CapacityBlockOfferingId"]],
                notes=f"{count} for {hours} h from {start.date().isoformat()}, paid in advance",
                problem="" if currency == "USD" else f"price in {currency}, not USD",
            )
        except (KeyError, TypeError, ValueError, ArithmeticError):
            tally.reject("row of another shape")


def parse_type_offerings(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The zones of the region, by id, that sell each type, from `describe_instance_type_offerings`."""
    zones: dict[str, set[str]] = {}
    for row in rows:
        found = zones.setdefault(row.get("InstanceType", ""), set())
        if _ZONE_OF_A_REGION.fullmatch(row.get("Location", "")):
            found.add(row["Location"])
    return {name: tuple(sorted(found)) for name, found in zones.items()}


def _linux_prices(region: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for group in region["instanceTypes"]:
        for size in group["sizes"]:
            for column in size["valueColumns"]:
                if column["name"] == "linux":
                    yield size["size"], column["prices"].get("USD")


def _savings_rate(row: Mapping[str, Any], machines: Machines, source: str, tally: Tally) -> None:
    about = {pair["name"]: pair["value"] for pair in row["properties"]}
    if about.get("productDescription") != _LINUX or about.get("tenancy") != "shared":
        return
    offering = row["savingsPlanOffering"]
    hours = int(offering["durationSeconds"]) // SECONDS_PER_HOUR
    option, plan = _SAVINGS_TERMS.get(hours), _PLANS.get(offering["planType"])
    share = _UPFRONT_SHARE.get(offering["paymentOption"])
    if option is None or plan is None or share is None or row["unit"] != "Hrs":
        tally.reject("savings plan of an unknown kind, term or payment")
        return
    kind = machines.kind(about["instanceType"])
    if kind is None:
        return
    rate = usd(row["rate"])
    payment = offering["paymentOption"].lower() if share else ""
    upfront = rate * hours * share if rate is not None and rate.is_finite() and rate > 0 else Decimal(0)
    tally.offer(
        kind,
        rate,
        option,
        source=source,
        region=about["region"],
        commitment=Commitment(
            kind=CommitmentKind.SAVINGS_PLAN,
            term_months=12 * hours // HOURS_PER_YEAR,
            upfront_usd=upfront,
            variant=", ".join(filter(None, [plan, payment])),
        ),
        row_ids=[offering["offeringId"]],
        problem="" if offering["currency"] == "USD" else f"price in {offering['currency']}, not USD",
    )


def _time(value: object) -> datetime:
    """A moment, as botocore decodes it or as the wire writes it."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
