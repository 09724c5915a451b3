"""Writes FOCUS cost exports for tests and benchmarks: hourly rows with the columns of a version."""

import csv
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

COLUMNS_1_0 = (
    "BilledCost",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargeCategory",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "EffectiveCost",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "RegionId",
    "ServiceName",
    "SkuId",
    "SkuPriceId",
    "SubAccountName",
    "Tags",
)
COLUMNS_1_3 = tuple("ServiceProviderName" if c == "ProviderName" else c for c in COLUMNS_1_0)


def focus_row(**over: Any) -> dict[str, Any]:
    """One hour of an on-demand p5.48xlarge at 55.04 USD from 2026-12-01 00:00 UTC; `usd` is billed and effective."""
    start = over.pop("start", datetime(2026, 12, 1, tzinfo=UTC))
    hours = over.pop("hours", 1)
    usd = over.pop("usd", 55.04)
    tags = over.pop("tags", {})
    row = {
        "BilledCost": usd,
        "BillingCurrency": "USD",
        "BillingPeriodStart": start.strftime("%Y-%m-01T00:00:00Z"),
        "ChargeCategory": "Usage",
        "ChargeDescription": "$55.04 per On Demand Linux p5.48xlarge Instance Hour",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": start.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "ChargePeriodEnd": (start + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "ConsumedQuantity": hours,
        "ConsumedUnit": "Hours",
        "ContractedCost": usd,
        "EffectiveCost": usd,
        "ListCost": usd,
        "ListUnitPrice": usd / hours if isinstance(usd, (int, float)) else None,
        "PricingCategory": "Standard",
        "PricingQuantity": hours,
        "PricingUnit": "Hours",
        "ServiceProviderName": "AWS",
        "RegionId": "us-east-1",
        "ServiceName": "Amazon Elastic Compute Cloud",
        "SkuId": "sku",
        "SkuPriceId": "sku.price",
        "SubAccountName": "ml",
        "Tags": json.dumps(tags),
    }
    return row | over


def write_focus(path: Path, rows: Iterable[Mapping[str, Any]], columns: Iterable[str] = COLUMNS_1_3) -> Path:
    """The rows as CSV; a row without one of the columns has NULL there."""
    columns = list(columns)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            known = {**row, "ProviderName": row.get("ProviderName", row.get("ServiceProviderName"))}
            writer.writerow(["NULL" if known.get(c) is None else known[c] for c in columns])
    return path
