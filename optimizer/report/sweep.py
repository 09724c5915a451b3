"""Turns the plans of a sweep into a page: a table, and charts of cost and price per token."""

from collections.abc import Sequence
from typing import Any, Final

from optimizer.plans.explain import describe_fleet
from optimizer.plans.plan import Plan
from optimizer.report.page import Chart, Column, Page, Section, Series, Table
from optimizer.sizing.document import number

SCHEMA: Final = "costopt.sweep"
SCHEMA_VERSION: Final = "1.0"
_COLUMNS: Final = (
    Column(key="value", title="value", kind="number"),
    Column(key="status", title="status"),
    Column(key="requests_per_s", title="requests/s", kind="number"),
    Column(key="usd_per_month", title="USD/month", kind="usd"),
    Column(key="usd_per_million_output_tokens", title="USD/M output tokens", kind="price"),
    Column(key="gpus", title="accelerators", kind="number"),
    Column(key="instances", title="instances"),
)


def sweep_document(parameter: str, plans: Sequence[tuple[float, Plan]]) -> dict[str, Any]:
    """The sweep as JSON: one point a value, money as decimal strings, null where nothing fits."""
    points = []
    for value, plan in plans:
        fleet = plan.fleet
        price = None if fleet is None else fleet.usd_per_million_output_tokens
        points.append(
            {
                "value": number(value),
                "status": plan.status,
                "requests_per_s": None if fleet is None else number(fleet.requests_per_s),
                "usd_per_month": None if fleet is None else f"{fleet.usd_per_month:.2f}",
                "usd_per_million_output_tokens": None if price is None else f"{price:.4f}",
                "gpus": None if fleet is None else fleet.accelerators,
                "instances": None if fleet is None else describe_fleet(fleet),
                "shortfalls": [
                    {"limit": s.limit, "needed": number(s.needed), "available": number(s.available), "unit": s.unit}
                    for s in plan.shortfalls
                ],
            }
        )
    return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "parameter": parameter, "points": points}


def sweep_page(parameter: str, plans: Sequence[tuple[float, Plan]]) -> Page:
    """The sweep as a document for people."""
    fleets = [plan.fleet for _, plan in plans]
    prices = [None if fleet is None else fleet.usd_per_million_output_tokens for fleet in fleets]
    rows = [
        (
            value,
            plan.status.replace("_", " "),
            None if fleet is None else fleet.requests_per_s,
            None if fleet is None else fleet.usd_per_month,
            price,
            None if fleet is None else fleet.accelerators,
            "does not fit" if fleet is None else describe_fleet(fleet),
        )
        for (value, plan), fleet, price in zip(plans, fleets, prices, strict=True)
    ]
    labels = [f"{value:g}" for value, _ in plans]
    cost = Series(name="USD/month", values=[None if f is None else float(f.usd_per_month) for f in fleets])
    per_token = Series(name="USD/M tokens", values=[None if price is None else float(price) for price in prices])
    table = Table(id="sweep", title=f"Plans by {parameter}", columns=_COLUMNS, rows=rows)
    charts = [
        _chart("cost", f"Cost by {parameter}", labels, cost, "USD per month", "usd_per_month"),
        _chart(
            "price",
            f"Price of output tokens by {parameter}",
            labels,
            per_token,
            "USD per million output tokens",
            "usd_per_million_output_tokens",
        ),
    ]
    first = plans[0][1]
    return Page(
        title=f"{first.title}: plans by {parameter}",
        subtitle=f"Prices of {first.prices.as_of_oldest} to {first.prices.as_of_newest}",
        figures=(),
        sections=[Section(id="sweep", title="Plans", tables=[table], charts=charts)],
        notes=first.assumptions,
        warnings=tuple(dict.fromkeys(warning for _, plan in plans for warning in plan.warnings)),
    )


def _chart(key: str, title: str, labels: Sequence[str], series: Series, unit: str, column: str) -> Chart:
    return Chart(
        id=key,
        title=title,
        kind="line",
        labels=labels,
        series=[series],
        unit=unit,
        table="sweep",
        label_column="value",
        columns=(column,),
    )
