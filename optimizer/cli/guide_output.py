"""Turns the guide's rows and claims into tables, JSON, CSV or Markdown."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from optimizer.api.json_text import json_text
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.interop.guide import CONTEXT_TOKENS, GuideRow
from optimizer.interop.guide_claims import Claim
from optimizer.plans.document import offer_document
from optimizer.sizing.document import number

SCHEMA: Final = "costopt.guide"
SCHEMA_VERSION: Final = "1.0"
_COLUMNS: Final = ("size", "use", "accelerators", "cheapest offer", "USD/h", "h per 10^9 tokens", "limit", "price of")
_INTRODUCTION: Final = (
    "The smallest accelerators that do it comfortably, at the cheapest on-demand offer on file. Every figure of memory "
    "and speed is an estimate; prices are list prices."
)


def render(rows: Sequence[GuideRow], claims: Sequence[Claim], format_: str) -> str:
    """The guide in one of the formats."""
    if format_ == "json":
        return json_text(_document(rows, claims))
    lines = [_line(row) for row in rows]
    if format_ == "csv":
        return csv_text(_COLUMNS, lines)
    table = Table(
        title="Which accelerators for which model", columns=_COLUMNS, rows=lines, right=frozenset(_COLUMNS[4:6])
    )
    said = Table(
        title="Recommendations in circulation",
        columns=("said", "verdict", "arithmetic"),
        rows=[(claim.said, claim.verdict, claim.arithmetic) for claim in claims],
    )
    models = "Sizes stand for " + ", ".join(dict.fromkeys(f"{row.size} = {row.model}" for row in rows)) + "."
    assumed = (
        f"Inference: several requests of {CONTEXT_TOKENS:,} tokens at once, TTFT 2,000 ms and TPOT 100 ms; 8 bit is "
        "FP8, 4 bit is groups of 128 (AWQ, GPTQ). Training: AdamW with FP32 master weights; several machines only "
        "where the seller documents a network between them."
    )
    parts: list[Table | str] = [_INTRODUCTION, table, models, assumed, said]
    if format_ == "table":
        return terminal(parts)
    head = "<!-- written by `costopt guide -f md`; do not edit -->\n\n# The matching table\n\n"
    return head + markdown(parts)


def _document(rows: Sequence[GuideRow], claims: Sequence[Claim]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "rows": [
            {
                "size": row.size,
                "model": row.model,
                "use": row.way,
                "accelerator": row.accelerator,
                "accelerator_count": row.count or None,
                "instance": None if row.offer is None else offer_document(row.offer),
                "count": row.machines or None,
                "usd_per_hour": None if row.usd_per_hour is None else str(row.usd_per_hour),
                "hours_per_billion_tokens": number(row.hours),
                "limit": row.limit,
            }
            for row in rows
        ],
        "claims": [{"said": claim.said, "verdict": claim.verdict, "arithmetic": claim.arithmetic} for claim in claims],
    }


def _line(row: GuideRow) -> tuple[str, ...]:
    offer, cost = row.offer, row.usd_per_hour
    if offer is None or cost is None:
        return row.size, row.way, "none", "", "", "", row.limit, ""
    place = " ".join(part for part in (offer.provider, offer.instance_type.name, offer.region) if part)
    return (
        row.size,
        row.way,
        f"{row.count} x {row.accelerator}",
        f"{row.machines} x {place}",
        f"{cost.quantize(Decimal('0.01')):,}",
        "" if row.hours is None else f"{row.hours:,.1f}",
        row.limit,
        str(offer.observed_on or "no date"),
    )
