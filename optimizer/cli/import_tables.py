"""Opens quote tables and cost exports for `costopt import` and turns what they cost into its formats."""

import shlex
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from optimizer.api.clock import now, today
from optimizer.api.json_text import json_text
from optimizer.api.market_view import Offers
from optimizer.cli.import_output import SCHEMA, SCHEMA_VERSION, fault_document
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.interop.answers.buying import place_of
from optimizer.interop.asks import Fault
from optimizer.interop.readers.cost_export import CostExport, Use, read_cost_export
from optimizer.interop.readers.quote_table import QuotedRow, QuoteTable, option_of_term, read_quotes
from optimizer.plans.document import offer_document
from optimizer.sizing.document import number
from providers.offers import Offer

_CENT: Final = Decimal("0.01")
_MICRO: Final = Decimal("0.000001")
_ON_A_SCREEN: Final = 40
"""Rows of a table on a terminal; the other formats have all."""

_QUOTE_COLUMNS: Final = (
    *("line", "vendor", "accelerator", "term", "USD/GPU-h", "GPUs", "USD/month", "USD in all", "on file, same term"),
    *("on demand", "spot", "comparable"),
)
_USE_COLUMNS: Final = (
    *("provider", "what", "region", "bought", "accelerator", "rows", "hours", "acc.-hours", "billed USD"),
    *("effective USD", "USD/h", "on file USD/h", "cheapest, same accelerator"),
)


def quotes(text: str, file: str, offers: Offers) -> QuoteTable:
    """The quotes of a table against the offers that may be bought."""
    return read_quotes(text, file, offers.eligible, today())


def cost_export(path: str, offers: Offers, *, quiet: bool) -> CostExport:
    """The accelerators of a FOCUS export against the offers that may be bought."""
    from optimizer.cli.focus_file import malformed_lines, opened, with_progress

    machines = {(o.provider, o.instance_type.name): o.instance_type for o in offers.all_on_file}
    with opened(path) as connection:
        return with_progress(
            connection,
            lambda: read_cost_export(
                connection,
                offers.eligible,
                machines.values(),
                until=now(),
                malformed=lambda: malformed_lines(connection),
            ),
            quiet=quiet,
        )


def render_quotes(file: str, found: QuoteTable, format_: str) -> str:
    """The quotes in one of the formats."""
    if format_ == "json":
        return json_text(_quotes_document(file, found))
    rows = [_quote_row(row) for row in found.rows]
    if format_ == "csv":
        return csv_text(_QUOTE_COLUMNS, rows)
    parts = list(_quote_parts(file, found, rows, most=_ON_A_SCREEN if format_ == "table" else len(rows)))
    return terminal(parts) if format_ == "table" else markdown(parts)


def render_cost_export(file: str, found: CostExport, format_: str) -> str:
    """The accelerators of the export in one of the formats."""
    if format_ == "json":
        return json_text(_cost_document(file, found))
    rows = [_use_row(use) for use in found.uses]
    if format_ == "csv":
        return csv_text(_USE_COLUMNS, rows)
    parts = list(_cost_parts(file, found, rows, most=_ON_A_SCREEN if format_ == "table" else len(rows)))
    return terminal(parts) if format_ == "table" else markdown(parts)


def _quotes_document(file: str, found: QuoteTable) -> dict[str, Any]:
    best = found.cheapest
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "kind": "quotes",
        "file": file,
        "works": any(row.is_comparable for row in found.rows),
        "quotes": [_quote(row) for row in found.rows],
        "cheapest_quote_line": None if best is None else best.line,
        "columns_not_read": list(found.ignored),
        "not_in_the_table": list(found.missing),
        "differences": list(found.differences),
        "assumptions": list(_quote_assumptions()),
    }


def _quote_assumptions() -> Iterator[str]:
    yield "a month has 730 hours; upfront payments are spread over the term"
    yield "the smallest order that a quote names is priced, else one GPU; its term in all"
    yield (
        "on file: list prices per accelerator-hour without tax, whatever the region; terms from 12 months on are set "
        "against one-year reservations, from 36 on against three-year ones"
    )


def _quote(row: QuotedRow) -> dict[str, Any]:
    quote, on_file = row.quote, row.on_file
    best = None if on_file is None else on_file.cheapest
    hourly = row.usd_per_gpu_hour
    saving = None if best is None or hourly is None else hourly - best.usd_per_accelerator_hour
    return {
        "line": row.line,
        "vendor": None if quote is None else quote.vendor,
        "gpu": None if quote is None else quote.gpu,
        "accelerator": quote.accelerator.name if quote and quote.accelerator else None,
        "region": None if quote is None else quote.region,
        "term_months": None if quote is None else quote.term_months,
        "gpus": row.gpus,
        "usd_per_gpu_hour": _money(hourly, _MICRO),
        "usd_per_month": _money(row.usd_per_month, _CENT),
        "usd_total": _money(row.usd_total, _CENT),
        "comparable": row.is_comparable,
        "faults": [fault_document(fault) for fault in row.faults],
        "on_file": None
        if on_file is None
        else {
            "purchase_option": None if quote is None else option_of_term(quote.term_months).value,
            "same_term": _offer(on_file.same_term),
            "on_demand": _offer(on_file.on_demand),
            "spot": _offer(on_file.spot),
        },
        "cheaper_on_file": None if saving is None or saving <= 0 else _offer(best),
        "saving_usd_per_gpu_hour": None if saving is None or saving <= 0 else _money(saving, _MICRO),
    }


def _offer(offer: Offer | None) -> dict[str, Any] | None:
    if offer is None:
        return None
    return {**offer_document(offer), "usd_per_gpu_hour": str(offer.usd_per_accelerator_hour.quantize(_MICRO))}


def _quote_row(row: QuotedRow) -> tuple[str, ...]:
    quote, on_file = row.quote, row.on_file
    if quote is None:
        return (str(row.line), "", "", "", "", "", "", "", "", "", "", "not read")
    term = quote.term_months
    return (
        str(row.line),
        quote.vendor,
        quote.accelerator.name if quote.accelerator else quote.gpu,
        "not stated" if term is None else f"{term} months" if term else "none",
        _shown(row.usd_per_gpu_hour, 3),
        str(row.gpus),
        _shown(row.usd_per_month, 2),
        _shown(row.usd_total, 2),
        *(("", "", "") if on_file is None else map(_price, (on_file.same_term, on_file.on_demand, on_file.spot))),
        "yes" if row.is_comparable else "no, see below",
    )


def _price(offer: Offer | None) -> str:
    return "" if offer is None else f"{offer.usd_per_accelerator_hour:,.3f} {place_of(offer)}"


def _quote_parts(file: str, found: QuoteTable, rows: Sequence[tuple[str, ...]], *, most: int) -> Iterator[Table | str]:
    usable = sum(row.is_comparable for row in found.rows)
    yield f"{file}: {len(found.rows):,} quotes, {usable:,} can be compared"
    right = frozenset({"line", "USD/GPU-h", "GPUs", "USD/month", "USD in all"})
    yield Table(title="Quotes", columns=_QUOTE_COLUMNS, rows=rows[:most], right=right)
    if len(rows) > most:
        yield f"{len(rows) - most:,} more quotes: -f json, csv or md has all"
    faults = [fault for row in found.rows for fault in row.faults]
    if faults:
        yield _fault_lines(faults, most)
    if found.missing:
        yield f"Not in the table, to be asked of every seller: {', '.join(found.missing)}"
    if found.differences:
        yield "What differs beside the price:\n" + "\n".join(f"  - {line}" for line in found.differences)
    if found.ignored:
        yield f"Columns that were not read: {', '.join(found.ignored)}"
    best = found.cheapest
    if best is not None and best.quote is not None:
        price = _shown(best.usd_per_gpu_hour, 3)
        yield f"Cheapest quote: line {best.line}, {best.quote.vendor}, {price} USD per GPU-hour"
    for row in found.rows[:most]:
        yield from _cheaper_than(row)
    yield f"Next: `costopt compare --gpu NAME --count N --quotes {shlex.quote(file)}` sets them against all ways to buy"
    yield "Assumed:\n" + "\n".join(f"  - {line}" for line in _quote_assumptions())


def _cheaper_than(row: QuotedRow) -> Iterator[str]:
    offer = None if row.on_file is None else row.on_file.cheapest
    hourly = row.usd_per_gpu_hour
    if offer is None or hourly is None or row.quote is None or offer.usd_per_accelerator_hour >= hourly:
        return
    price = offer.usd_per_accelerator_hour
    yield (
        f"Line {row.line}, {row.quote.vendor}: {offer.instance_type.accelerator} costs {price:,.3f} instead of "
        f"{hourly:,.3f} USD per GPU-hour ({1 - price / hourly:.0%} less): {_bought_as(offer)}"
    )


def _cost_document(file: str, found: CostExport) -> dict[str, Any]:
    actuals = found.actuals
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "kind": "cost_export",
        "file": file,
        "works": bool(found.uses),
        "rows": actuals.rows,
        "accelerator_rows": found.rows,
        "rejected": dict(actuals.rejected),
        "rows_in_the_future": actuals.outside,
        "accelerator_hours": number(float(found.accelerator_hours)),
        "billed_usd": _money(found.billed_usd, _MICRO),
        "effective_usd": _money(found.effective_usd, _MICRO),
        "effective_cost_differs": {
            "rows": actuals.spoiled_effective_rows,
            "usd": _money(actuals.spoiled_effective_usd, _MICRO),
        },
        "usd_without_accelerators": _money(found.usd_without_accelerators, _MICRO),
        "uses": [_use(use) for use in found.uses],
        "warnings": list(actuals.warnings),
        "assumptions": list(_cost_assumptions()),
    }


def _cost_assumptions() -> Iterator[str]:
    yield "effective cost of on-demand usage is BilledCost; other charges by EffectiveCost"
    yield "instance types are told by the words of SkuPriceDetails, x_InstanceType, SkuMeter and ChargeDescription"
    yield "what would be cheaper is the same accelerators for the same hours at list prices without tax and discounts"
    yield "machines with the same accelerators may differ in processors, memory and network"
    yield "accelerators that are charged apart from their machine come without its processors and memory"


def _use(use: Use) -> dict[str, Any]:
    return {
        "provider": use.provider,
        "instance_type": use.instance_type,
        "sku": use.sku,
        "region": use.region,
        "purchase_option": use.purchase_option,
        "accelerator": use.accelerator,
        "accelerator_count": number(use.accelerators),
        "rows": use.rows,
        "hours": None if use.hours is None else number(float(use.hours), digits=9),
        "accelerator_hours": None if use.accelerator_hours is None else number(float(use.accelerator_hours), digits=9),
        "billed_usd": _money(use.billed_usd, _MICRO),
        "effective_usd": _money(use.effective_usd, _MICRO),
        "usd_once": _money(use.usd_once, _MICRO),
        "usd_per_hour": _money(use.usd_per_hour, _MICRO),
        "usd_per_gpu_hour": _money(use.usd_per_accelerator_hour, _MICRO),
        "on_file": _offer(use.same),
        "cheaper": [
            {**(_offer(offer) or {}), "saving_usd": _money(use.saving_usd(offer), _CENT)}
            for offer in use.cheaper
            if (use.saving_usd(offer) or Decimal(0)) > 0
        ],
    }


def _use_row(use: Use) -> tuple[str, ...]:
    best = _best(use)
    return (
        use.provider,
        use.instance_type or use.sku or "",
        use.region or "",
        (use.purchase_option or "not said").replace("_", " "),
        f"{use.accelerators:g} x {use.accelerator}",
        f"{use.rows:,}",
        _shown(use.hours, 2),
        _shown(use.accelerator_hours, 2),
        _shown(use.billed_usd, 2),
        _shown(use.effective_usd, 2),
        _shown(use.usd_per_hour, 3),
        "" if use.same is None else f"{use.same.usd_per_hour:,.3f}",
        "" if best is None else _bought_as(best),
    )


def _best(use: Use) -> Offer | None:
    """What saves most without a term; None where nothing does."""
    saving = [(use.saving_usd(offer) or Decimal(0), offer) for offer in use.cheaper if offer.commitment is None]
    found = [pair for pair in saving if pair[0] > 0]
    return max(found, key=lambda pair: (pair[0], str(pair[1].key)))[1] if found else None


def _cost_parts(file: str, found: CostExport, rows: Sequence[tuple[str, ...]], *, most: int) -> Iterator[Table | str]:
    actuals = found.actuals
    yield (
        f"{file}: {found.rows:,} of {actuals.rows:,} rows are of accelerators: {found.accelerator_hours:,.1f} "
        f"accelerator-hours, {found.billed_usd:,.2f} USD billed, {found.effective_usd:,.2f} USD effective"
    )
    if rows:
        right = frozenset(_USE_COLUMNS[5:12])
        yield Table(title="Accelerators", columns=_USE_COLUMNS, rows=rows[:most], right=right)
    if len(rows) > most:
        yield f"{len(rows) - most:,} more: -f json, csv or md has all"
    if found.usd_without_accelerators:
        yield f"Everything else: {found.usd_without_accelerators:,.2f} USD effective"
    for use in found.uses[:most]:
        yield from _cheaper_use(use)
    if actuals.outside:
        yield f"{actuals.outside:,} rows begin in the future and are left out"
    if actuals.warnings:
        yield "Warnings:\n" + "\n".join(f"  - {line}" for line in actuals.warnings)
    yield f"Next: `costopt report BUDGET.yaml --actuals {shlex.quote(file)}` sets it against a budget"
    yield "Assumed:\n" + "\n".join(f"  - {line}" for line in _cost_assumptions())


def _cheaper_use(use: Use) -> Iterator[str]:
    what = f"{use.instance_type or use.sku} in {use.region or 'no region'}"
    lines = [
        f"  - {_bought_as(offer)}: {offer.usd_per_accelerator_hour:,.3f} USD per accelerator-hour, "
        f"{use.saving_usd(offer):,.2f} USD less"
        for offer in use.cheaper
        if (use.saving_usd(offer) or Decimal(0)) > 0
    ]
    if lines:
        paid = _shown(use.usd_per_accelerator_hour, 3)
        yield f"{what}, {paid} USD per accelerator-hour paid; cheaper:\n" + "\n".join(lines)
    elif use.usd_per_hour is not None:
        yield f"{what}: nothing on file has the same accelerators for less"


def _bought_as(offer: Offer) -> str:
    day = offer.observed_on or "no date"
    option = offer.purchase_option.replace("_", " ")
    return f"{offer.provider} {offer.instance_type.name} {offer.region or ''}".strip() + f", {option} ({day})"


def _fault_lines(faults: Sequence[Fault], most: int) -> str:
    lines = [f"  - {'' if fault.fatal else 'note: '}{fault}" for fault in faults[: most * 2]]
    more = len(faults) - len(lines)
    return "Faults:\n" + "\n".join([*lines, *([f"  - {more:,} more: -f json has all"] if more > 0 else [])])


def _money(value: Decimal | None, step: Decimal) -> str | None:
    return None if value is None else str(value.quantize(step))


def _shown(value: Decimal | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
