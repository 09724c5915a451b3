"""Turns Lambda's list of instance types into offers: one price everywhere, capacity by region."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from providers.base import Answer, Coverage, FetchContext
from providers.errors import InvalidAnswer, MissingCredentials
from providers.http import Client
from providers.offers import InstanceType, PurchaseOption, Trait
from providers.tally import Tally, usd

_HOST: Final = "cloud.lambda.ai"
_URL: Final = f"https://{_HOST}/api/v1/instance-types"
SOURCE: Final = "Lambda Cloud API, GET /api/v1/instance-types"

_DESCRIPTION: Final = re.compile(r"(?P<name>.+?)\s*\((?P<gb>\d+(?:\.\d+)?)\s*GB(?:\s+(?P<form>\w+))?\)")
"""`A100 (40 GB SXM4)`: the only place that tells the memory; the type's name misleads (gpu_1x_a100_sxm4 is 40 GB)."""

_CENTS: Final = Decimal(100)


class Lambda:
    """The adapter of Lambda Cloud; needs `LAMBDA_API_KEY`."""

    name = "lambda"

    def fetch(self, context: FetchContext) -> Answer:
        """What Lambda sells on demand; it has no spot and no reserved prices in its API."""
        key = context.environment.get("LAMBDA_API_KEY", "")
        if not key:
            raise MissingCredentials(self.name, "set LAMBDA_API_KEY to a key of cloud.lambda.ai/api-keys")
        with Client(self.name, context, frozenset({_HOST})) as client:
            data = client.json("GET", _URL, headers={"Authorization": f"Bearer {key}"}, hint="check LAMBDA_API_KEY")
        tally = Tally(self.name, context.now)
        parse_instance_types(data, tally)
        return tally.answer([Coverage(purchase_option=PurchaseOption.ON_DEMAND)], [SOURCE])


def parse_instance_types(data: Any, tally: Tally) -> None:
    """Adds the offers of a reply of `/instance-types` to the tally.

    The price is that of the whole instance and the same in every region, so each type has one offer without a region,
    in stock or not, and one more for each region that has capacity now. Raises InvalidAnswer for another shape.
    """
    types = data.get("data") if isinstance(data, Mapping) else None
    if not isinstance(types, Mapping):
        raise InvalidAnswer(tally.provider, "the reply has no `data` keyed by instance type")
    for name, entry in types.items():
        try:
            _parse_entry(name, entry, tally)
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
            tally.reject("row of another shape")


def _parse_entry(name: str, entry: Mapping[str, Any], tally: Tally) -> None:
    row = entry["instance_type"]
    if row["specs"]["gpus"] == 0:
        return
    kind = _instance_type(name, row, tally)
    if kind is None:
        return
    cents = usd(row["price_cents_per_hour"])
    price = None if cents is None else cents / _CENTS
    listed = entry.get("regions_with_capacity_available")
    regions = None if listed is None else [region["name"] for region in listed]
    tally.offer(
        kind,
        price,
        PurchaseOption.ON_DEMAND,
        source=SOURCE,
        region=None,
        in_stock=None if regions is None else bool(regions),
        row_ids=[name],
        notes=f"capacity now in {', '.join(regions)}" if regions else "",
    )
    for region in regions or []:
        tally.offer(kind, price, PurchaseOption.ON_DEMAND, source=SOURCE, region=region, in_stock=True, row_ids=[name])


def _instance_type(name: str, row: Mapping[str, Any], tally: Tally) -> InstanceType | None:
    specs = row["specs"]
    description = _DESCRIPTION.fullmatch(row["gpu_description"].strip())
    label, memory_gb = row["gpu_description"], None
    if description:
        label = " ".join(filter(None, [description["name"], description["form"]]))
        memory_gb = float(description["gb"])
    return tally.instance_type(
        name,
        label,
        int(specs["gpus"]),
        accelerator_memory_gib=memory_gb,
        vcpus=float(specs["vcpus"]),
        memory_gib=float(specs["memory_gib"]),
        traits=frozenset({Trait.ARM64}) if row.get("architecture") == "arm64" else frozenset(),
    )


ADAPTER: Final = Lambda()
