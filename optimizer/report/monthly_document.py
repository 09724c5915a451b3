"""Turns a monthly report into the JSON document `costopt.report`, and into CSV lines under FOCUS's column names."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from optimizer.report.csv_rows import csv_text
from optimizer.report.forecast import METHODS, Forecast
from optimizer.report.monthly import GroupRow, MonthlyReport, ReportLine
from optimizer.report.page import Value
from optimizer.report.variance import Variance

SCHEMA: Final = "costopt.report"
SCHEMA_VERSION: Final = "1.0"
_PRICING_CATEGORY: Final = {"on_demand": "Standard", "spot": "Dynamic", "committed": "Committed"}
FOCUS_COLUMNS: Final = (
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "BillingCurrency",
    "ChargeCategory",
    "ServiceProviderName",
    "PricingCategory",
    "BilledCost",
    "EffectiveCost",
    "x_Workload",
    "x_Owner",
    "x_Accelerator",
    "x_Category",
    "x_PlanCost",
    "x_ForecastRunRateCost",
    "x_ForecastTrendCost",
    "x_ForecastDriverCost",
    "x_ForecastCost",
    "x_ForecastCashCost",
)


def monthly_document(report: MonthlyReport) -> dict[str, Any]:
    """The report; money as decimal strings in USD, what is not known as null."""
    month = report.month
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "name": report.budget.name,
        "month": str(month),
        "time_zone": month.zone,
        "days": month.days,
        "hours": float(month.hours),
        "now": report.now.isoformat(),
        "actuals_through": _moment(report.through),
        "elapsed_hours": float(report.elapsed_hours),
        "currency": "USD",
        "basis": report.budget.basis,
        "forecast_method": report.method,
        "totals": {
            **_row(report.total),
            "cash_usd": str(report.cash_usd),
            "lines": len(report.lines),
        },
        **{f"by_{dimension}": [_row(row) for row in rows] for dimension, rows in report.groups.items()},
        "lines": [_line(line) for line in report.lines],
        "alerts": [
            {
                "subject": alert.subject,
                "alert": str(alert),
                "basis": alert.basis,
                "threshold": alert.threshold,
                "budget_usd": str(alert.budget_usd),
                "amount_usd": str(alert.amount_usd),
                "fired": alert.fired,
            }
            for alert in report.alerts
        ],
        "burn_down": [
            {
                "day": day.day.isoformat(),
                "actual_usd": _usd(day.actual_usd),
                "forecast_usd": _usd(day.forecast_usd),
                "budget_left_usd": _usd(day.budget_left_usd),
            }
            for day in report.days
        ],
        "change": _change(report),
        "commitments": _commitments(report),
        "unit_costs": _unit_costs(report),
        "plan": _plan(report),
        "outlook": [
            {
                "month": str(ahead.month),
                "usd": str(ahead.usd),
                "compute_usd": str(ahead.compute_usd),
                "unused_commitments_usd": str(ahead.unused_usd),
                "items_usd": str(ahead.items_usd),
                "budget_usd": _usd(ahead.budget_usd),
                "left_usd": _usd(ahead.left_usd),
                "by_owner": {owner: str(usd) for owner, usd in ahead.by_owner.items()},
            }
            for ahead in report.outlook
        ],
        "actions": [
            {
                "what": action.what,
                "saving_usd": _usd(action.saving_usd),
                "command": action.command,
                "note": action.note,
            }
            for action in report.actions
        ],
        "actuals": _actuals(report),
        "assumptions": list(report.assumptions),
        "warnings": list(report.warnings),
    }


def monthly_csv(report: MonthlyReport) -> str:
    """A row a line of the report, under FOCUS's names and `x_` columns; empty where nothing is known."""
    rows: list[Sequence[Value]] = []
    for line in report.lines:
        key, forecast = line.key, line.forecast
        rows.append(
            (
                report.month.start.strftime("%Y-%m-%dT%H:%M:%SZ"),
                report.month.end.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "USD",
                "Tax" if key.category == "tax" else "Usage",
                key.provider,
                _PRICING_CATEGORY.get(key.purchase_option or ""),
                line.actual_cash_usd,
                line.actual_usd,
                key.workload,
                key.owner,
                key.accelerator,
                key.category,
                line.plan_usd,
                forecast.run_rate_usd,
                forecast.trend_usd,
                forecast.driver_usd,
                line.forecast_usd,
                line.cash_usd,
            )
        )
    return csv_text(FOCUS_COLUMNS, rows)


def _row(row: GroupRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "budget_usd": _usd(row.budget_usd),
        "actual_usd": _usd(row.actual_usd),
        "plan_usd": str(row.plan_usd),
        **_forecast(row.forecast),
        "forecast_usd": str(row.forecast_usd),
        **_variance(row.variance),
    }


def _line(line: ReportLine) -> dict[str, Any]:
    key = line.key
    return {
        "workload": key.workload,
        "owner": key.owner,
        "provider": key.provider,
        "accelerator": key.accelerator,
        "purchase_option": key.purchase_option,
        "category": key.category,
        "plan_usd": str(line.plan_usd),
        "actual_usd": _usd(line.actual_usd),
        "actual_cash_usd": _usd(line.actual_cash_usd),
        **_forecast(line.forecast),
        "forecast_usd": str(line.forecast_usd),
        "cash_usd": str(line.cash_usd),
    }


def _forecast(forecast: Forecast) -> dict[str, str | None]:
    return {f"forecast_{method}_usd": _usd(forecast.by(method)) for method in METHODS}


def _variance(found: Variance | None) -> dict[str, Any]:
    if found is None:
        return {"variance_usd": None, "variance_share": None, "level": None}
    return {"variance_usd": str(found.usd), "variance_share": _number(found.share), "level": found.level}


def _change(report: MonthlyReport) -> dict[str, Any]:
    change = report.change
    return {
        "basis": report.change_basis,
        "before_usd": str(change.before_usd),
        "price_usd": str(change.price_usd),
        "volume_usd": str(change.volume_usd),
        "mix_usd": str(change.mix_usd),
        "after_usd": str(change.after_usd),
        "earlier_price_unknown": list(change.unpriced),
    }


def _commitments(report: MonthlyReport) -> list[dict[str, Any]]:
    return [
        {
            "name": held.commitment.name,
            "provider": held.commitment.provider,
            "instance_type": held.commitment.instance_type,
            "region": held.commitment.region,
            "kind": held.commitment.kind,
            "count": held.commitment.count,
            "start": held.commitment.start.isoformat(),
            "end": held.commitment.end.isoformat(),
            "effective_usd_per_hour": str(held.commitment.effective_usd_per_hour.quantize(Decimal("0.000001"))),
            "available_hours": float(held.available_hours),
            "used_hours": float(held.used_hours),
            "utilization": _number(held.utilization),
            "coverage": _number(held.coverage),
            "amortised_usd": str(held.amortised_usd),
            "cash_usd": str(held.cash_usd),
            "waste_usd": str(held.waste_usd),
        }
        for held in report.commitments
    ]


def _unit_costs(report: MonthlyReport) -> list[dict[str, Any]]:
    return [
        {
            "workload": unit.workload,
            "usd": str(unit.usd),
            "requests": float(unit.requests),
            "tokens": float(unit.tokens),
            "accelerator_hours": float(unit.accelerator_hours),
            "utilization": _number(unit.utilization),
            "usd_per_thousand_requests": _usd(unit.usd_per_thousand_requests),
            "usd_per_million_tokens": _usd(unit.usd_per_million_tokens),
            "usd_per_accelerator_hour": _usd(unit.usd_per_accelerator_hour),
        }
        for unit in report.unit_costs
    ]


def _plan(report: MonthlyReport) -> list[dict[str, Any]]:
    return [
        {
            "workload": line.workload,
            "owner": line.owner,
            "provider": line.machine.provider,
            "instance_type": line.machine.name,
            "region": line.region,
            "purchase_option": line.purchase_option,
            "commitment": line.commitment,
            "accelerator": line.machine.accelerator,
            "accelerator_count": line.machine.accelerator_count,
            "instances": float(line.instances),
            "hours": float(line.hours),
            "usd_per_hour": str(line.usd_per_hour.quantize(Decimal("0.000001"))),
            "usd": str(line.usd),
            "as_of": _day(line.observed_on),
            "source": line.source,
        }
        for line in report.plan.lines
    ]


def _actuals(report: MonthlyReport) -> dict[str, Any] | None:
    actuals = report.actuals
    if actuals is None:
        return None
    return {
        "rows": actuals.rows,
        "used": actuals.used,
        "outside_the_months": actuals.outside,
        "rejected": dict(actuals.rejected),
        "checked_rows": actuals.check.rows,
        "differing_rows": actuals.check.differing,
        "difference_usd": str(actuals.check.difference_usd.quantize(Decimal("0.01"))),
        "checked_against": list(actuals.check.prices),
        "effective_cost_replaced_rows": actuals.spoiled_effective_rows,
    }


def _usd(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _number(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
