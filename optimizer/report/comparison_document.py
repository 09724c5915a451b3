"""Turns a comparison into the JSON document `costopt.compare`, and into CSV rows under FOCUS's column names."""

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

from optimizer.report.comparison import Comparison
from optimizer.report.csv_rows import csv_text
from optimizer.report.money import micros
from optimizer.report.page import Value
from optimizer.report.quotes import Quote
from optimizer.report.ways import HORIZONS, UTILIZATIONS, Tco, Way

SCHEMA: Final = "costopt.compare"
SCHEMA_VERSION: Final = "1.0"
_PRICING_CATEGORY: Final = {"on_demand": "Standard", "spot": "Dynamic", "per token": "Standard"}
_COMMITMENT_TYPES: Final = {
    "reserved_instance": "Reserved Instance",
    "savings_plan": "Savings Plan",
    "committed_use": "Committed Use Discount",
}
_COLUMNS: Final = (
    "ServiceProviderName",
    "RegionId",
    "BillingCurrency",
    "PricingCategory",
    "CommitmentDiscountType",
    "x_Way",
    "x_Kind",
    "x_PurchaseOption",
    "x_Accelerators",
    "x_Gpus",
    "x_TermMonths",
    "x_UpfrontCost",
    "x_HourlyCost",
    "x_EffectiveHourlyCost",
    "x_MonthlyCost",
    "x_JobCost",
    *(f"x_Tco{months}{part}Cost" for months in HORIZONS for part in ("Compute", "Storage", "Egress", "Support", "")),
    "x_CostPerMillionTokens",
    "x_BreakEvenUtilization",
    "x_BreakEvenMonth",
    "x_PriceDate",
    "x_Source",
    "x_Interruption",
    "x_Capacity",
    "x_Risks",
    "x_ToBeAsked",
    "x_SetApart",
)


def comparison_document(found: Comparison) -> dict[str, Any]:
    """The comparison; money as decimal strings in USD, what is not known as null."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "title": found.title,
        "now": found.now.isoformat(),
        "currency": "USD",
        "job_hours": None if found.hours is None else float(found.hours),
        "reference": None if found.reference is None else found.reference.name,
        "ways": [_way(found, way) for way in found.ways],
        "set_apart": [{**_way(found, way), "why": list(way.gaps)} for way in found.apart],
        "quotes": [_quote(quote) for quote in found.quotes],
        "assumptions": list(found.assumptions),
        "warnings": list(found.warnings),
    }


def comparison_csv(found: Comparison) -> str:
    """A row a way, those that are set apart last."""
    return csv_text(_COLUMNS, (_csv_row(found, way) for way in (*found.ways, *found.apart)))


def _csv_row(found: Comparison, way: Way) -> Sequence[Value]:
    return (
        way.seller,
        way.region,
        "USD",
        _PRICING_CATEGORY.get(way.purchase_option, "Committed" if way.bound else None),
        _COMMITMENT_TYPES.get(way.commitment_kind or ""),
        way.name,
        way.kind,
        way.purchase_option,
        way.accelerators,
        way.gpus,
        way.term_months,
        way.upfront_usd,
        _micros(way.usd_per_hour),
        _micros(way.effective_usd_per_hour),
        way.usd_per_month,
        None if found.hours is None else way.job_usd(found.hours),
        *(part for months in HORIZONS for part in _tco_parts(way.tco(months))),
        way.usd_per_million_tokens(),
        _rounded(found.break_even_utilization(way)),
        found.break_even_month(way),
        way.as_of,
        way.source,
        way.interruption,
        way.capacity,
        "; ".join(way.risks),
        "; ".join(way.flags),
        "; ".join(way.gaps),
    )


def _tco_parts(found: Tco | None) -> tuple[Value, ...]:
    if found is None:
        return (None,) * 5
    return (found.compute_usd, found.storage_usd, found.egress_usd, found.support_usd, found.usd)


def _way(found: Comparison, way: Way) -> dict[str, Any]:
    return {
        "name": way.name,
        "kind": way.kind,
        "seller": way.seller,
        "purchase_option": way.purchase_option,
        "accelerators": way.accelerators,
        "how": way.how,
        "gpus": way.gpus,
        "region": way.region,
        "term_months": way.term_months,
        "paid_by_use": way.by_use,
        "upfront_usd": str(way.upfront_usd),
        "usd_per_hour": _usd(_micros(way.usd_per_hour)),
        "effective_usd_per_hour": _usd(_micros(way.effective_usd_per_hour)),
        "usd_per_month": _usd(way.usd_per_month),
        "job_usd": None if found.hours is None else _usd(way.job_usd(found.hours)),
        "tco": [_tco(cost) for months in HORIZONS if (cost := way.tco(months)) is not None],
        "usd_per_million_tokens": _usd(way.usd_per_million_tokens()),
        "usd_per_useful_gpu_hour": _usd(way.usd_per_useful_gpu_hour),
        "break_even_utilization": _rounded(found.break_even_utilization(way)),
        "break_even_month": found.break_even_month(way),
        "sensitivity": [
            {
                "utilization": utilization,
                "usd_per_month": _usd(way.month_usd(utilization)),
                "usd_per_million_tokens": _usd(way.usd_per_million_tokens(utilization)),
            }
            for utilization in UTILIZATIONS
        ],
        "as_of": _day(way.as_of),
        "source": way.source,
        "interruption": way.interruption,
        "capacity": way.capacity,
        "risks": list(way.risks),
        "flags": list(way.flags),
    }


def _tco(cost: Tco) -> dict[str, Any]:
    return {
        "months": cost.months,
        "compute_usd": str(cost.compute_usd),
        "storage_usd": _usd(cost.storage_usd),
        "egress_usd": _usd(cost.egress_usd),
        "support_usd": _usd(cost.support_usd),
        "usd": str(cost.usd),
    }


def _quote(quote: Quote) -> dict[str, Any]:
    return {
        "vendor": quote.vendor,
        "gpu": quote.gpu,
        "accelerator": None if quote.accelerator is None else quote.accelerator.name,
        "accelerator_memory_gb": None if quote.accelerator is None else quote.accelerator.memory_gib,
        "gpus_per_node": quote.gpus_per_node,
        "usd_per_gpu_hour": _usd(_micros(quote.usd_per_gpu_hour)),
        "effective_usd_per_gpu_hour": _usd(_micros(quote.effective_usd_per_gpu_hour)),
        "usd_per_useful_gpu_hour": _usd(quote.usd_per_useful_gpu_hour),
        "upfront_usd_per_gpu": _usd(quote.upfront_usd_per_gpu),
        "term_months": quote.term_months,
        "min_gpus": quote.min_gpus,
        "region": quote.region,
        "interconnect": quote.interconnect,
        "egress_usd_per_gb": _usd(quote.egress_usd_per_gb),
        "tax_percent": _usd(quote.tax_percent),
        "quoted_on": _day(quote.quoted_on),
        "valid_until": _day(quote.valid_until),
        "flags": list(quote.flags),
        "not_comparable": list(quote.blocked),
    }


def _micros(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else micros(amount)


def _usd(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()
