"""Turns sellers' private quotes, each in its own units, into USD per GPU-hour with what is missing said of each.

Nothing is assumed: a quote without a currency, a variant or a unit keeps that gap, and is set apart where the gap
keeps it from being compared.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Final

from optimizer.report.money import micros
from providers.accelerators import Accelerator, matches
from providers.errors import UnknownName, UsageError, nearest
from providers.units import HOURS_PER_MONTH

COLUMNS: Final[Mapping[str, str]] = {
    "vendor": "the seller",
    "gpu": "accelerator with form factor and memory, like H100 SXM5 80GB",
    "gpus_per_node": "accelerators of one machine",
    "price": "amount per price_unit",
    "price_unit": "gpu_hour, node_hour, gpu_month, node_month, gpu_term or node_term",
    "currency": "USD, or one of the rates given",
    "upfront": "paid at the start, per GPU for gpu_… units, per node for node_… units",
    "term_months": "minimum term; 0 = can be left at any time",
    "min_gpus": "smallest order",
    "region": "where the machines are",
    "interconnect": "network between machines",
    "egress_usd_gb": "price of a GB that leaves",
    "storage_usd_gb_month": "price of a GB kept for a month",
    "support_percent": "support, on top of the compute",
    "tax_included": "yes or no: whether the price has tax in it",
    "tax_percent": "rate of the tax",
    "interruption": "who may end or interrupt it, at which notice",
    "capacity": "what is promised: delivery date, reservation, best effort",
    "quoted_on": "day of the quote",
    "valid_until": "last day on which it can be accepted",
    "throughput_loss": "share of the throughput that is lost (network, virtualisation)",
    "utilization": "share of the hours that do useful work",
    "addon": "share of cost that comes on top",
    "notes": "anything else",
}
"""Columns of a quotes file; any may be left out but vendor and a price."""

_ALIASES: Final = {
    "provider": "vendor",
    "seller": "vendor",
    "accelerator": "gpu",
    "commit_months": "term_months",
    "commitment_months": "term_months",
    "minimum_gpus": "min_gpus",
    "network": "interconnect",
    "upfront_usd": "upfront",
    "quoted": "quoted_on",
}
_PRICED_IN_THE_NAME: Final[Mapping[str, str]] = {
    "usd_gpu_h": "gpu_hour",
    "usd_per_gpu_hour": "gpu_hour",
    "usd_gpu_hour": "gpu_hour",
    "usd_node_h": "node_hour",
    "usd_per_node_hour": "node_hour",
    "usd_node_hour": "node_hour",
    "usd_gpu_month": "gpu_month",
    "usd_node_month": "node_month",
}
"""Columns whose name gives currency and unit of the price."""

UNITS: Final = ("gpu_hour", "node_hour", "gpu_month", "node_month", "gpu_term", "node_term")
_MOST_ROWS: Final = 10_000
_MOST_CHARACTERS: Final = 5_000_000
_MOST_USD: Final = Decimal(10) ** 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """USD for one unit of a currency, of a day, from a source."""

    usd: Decimal
    observed_on: date
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A quote in common units; what is not stated is None. `blocked` says why it cannot be compared with others."""

    vendor: str
    gpu: str
    accelerator: Accelerator | None
    gpus_per_node: int | None
    usd_per_gpu_hour: Decimal | None
    upfront_usd_per_gpu: Decimal | None
    term_months: int | None
    min_gpus: int | None
    region: str | None
    interconnect: str | None
    egress_usd_per_gb: Decimal | None
    storage_usd_per_gb_month: Decimal | None
    support_share: Decimal | None
    tax_percent: Decimal | None
    interruption: str | None
    capacity: str | None
    quoted_on: date | None
    valid_until: date | None
    usd_per_useful_gpu_hour: Decimal | None
    notes: str = ""
    flags: tuple[str, ...] = field(default=())
    blocked: tuple[str, ...] = field(default=())

    @property
    def effective_usd_per_gpu_hour(self) -> Decimal | None:
        """Hourly price + upfront over the term's hours; None where one is not known."""
        if self.usd_per_gpu_hour is None:
            return None
        if not self.upfront_usd_per_gpu:
            return self.usd_per_gpu_hour
        if not self.term_months:
            return None
        return self.usd_per_gpu_hour + self.upfront_usd_per_gpu / (self.term_months * HOURS_PER_MONTH)


def parse_quotes(text: str, file_name: str, rates: Mapping[str, Rate]) -> tuple[Quote, ...]:
    """The quotes of a CSV. Raises UsageError for an unknown column, a missing one, or a cell that is no such value."""
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(f"{file_name} has {len(text):,} characters; at most {_MOST_CHARACTERS:,} are read")
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        columns = {name: _column(name, file_name) for name in reader.fieldnames or ()}
        _check_columns(set(columns.values()), columns, file_name)
        quotes: list[Quote] = []
        for row in reader:
            if len(quotes) >= _MOST_ROWS:
                raise UsageError(f"{file_name} has over {_MOST_ROWS:,} quotes")
            if None in row:
                raise UsageError(f"{file_name}: line {reader.line_num}: more cells than columns")
            cells = {columns[name]: (value or "").strip() for name, value in row.items()}
            named = next((unit for name, unit in _PRICED_IN_THE_NAME.items() if name in columns), None)
            if any(cells.values()):
                quotes.append(_quote(_Cells(file_name, reader.line_num, cells), named, rates))
    except csv.Error as error:
        raise UsageError(f"{file_name}: line {reader.line_num}: {error}") from None
    return tuple(quotes)


def differences(quotes: Sequence[Quote]) -> tuple[str, ...]:
    """What differs between quotes that a price does not show."""
    found = []
    kinds: tuple[tuple[str, dict[str, str]], ...] = (
        ("interconnect", {q.vendor: q.interconnect for q in quotes if q.interconnect}),
        ("region", {q.vendor: q.region for q in quotes if q.region}),
        ("accelerator", {q.vendor: q.accelerator.name for q in quotes if q.accelerator}),
    )
    for what, stated in kinds:
        if len(set(stated.values())) > 1:
            found.append(f"{what} differs: " + "; ".join(f"{vendor} {value}" for vendor, value in stated.items()))
    return tuple(found)


def useful_usd_per_hour(usd_per_hour: Decimal, loss: Decimal, utilization: Decimal, addon: Decimal) -> Decimal:
    """USD per hour of useful work: price / ((1 - loss) x utilisation) x (1 + addon)."""
    return micros(usd_per_hour / ((1 - loss) * utilization) * (1 + addon))


@dataclass(frozen=True, slots=True)
class _Cells:
    """A row's cells by column, and where it stands."""

    file_name: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str | None:
        return self.cells.get(column) or None

    def number(self, column: str, most: Decimal = _MOST_USD) -> Decimal | None:
        """A number of at least 0. Raises UsageError."""
        text = self.text(column)
        if text is None:
            return None
        try:
            value = Decimal(text)
        except InvalidOperation:
            raise self.error(column, text, "is not a number") from None
        if not value.is_finite() or not 0 <= value <= most:
            raise self.error(column, text, f"is not between 0 and {most:,}")
        return value

    def whole(self, column: str) -> int | None:
        value = self.number(column, Decimal(1_000_000))
        if value is None:
            return None
        if value != int(value):
            raise self.error(column, str(value), "is not a whole number")
        return int(value)

    def day(self, column: str) -> date | None:
        text = self.text(column)
        try:
            return None if text is None else date.fromisoformat(text)
        except ValueError:
            raise self.error(column, text or "", "is not a day like 2026-11-30") from None

    def error(self, column: str, value: str, problem: str) -> UsageError:
        return UsageError(f"{self.file_name}: line {self.line}, {column}: {value!r} {problem}")


def _column(name: str, file_name: str) -> str:
    word = name.strip().lower().replace(" ", "_")
    word = _ALIASES.get(word, word)
    if word in _PRICED_IN_THE_NAME:
        return "price"
    if word not in COLUMNS:
        near = nearest(word, COLUMNS)
        hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(COLUMNS)}"
        raise UsageError(f"{file_name}: unknown column {name!r}; {hint}")
    return word


def _check_columns(found: set[str], columns: Mapping[str, str], file_name: str) -> None:
    for needed in ("vendor", "price"):
        if needed not in found:
            raise UsageError(f"{file_name}: no column {needed}; a quote needs a vendor and a price")
    if len(found) < len(columns):
        raise UsageError(f"{file_name}: two columns mean the same: {', '.join(columns)}")


def _quote(row: _Cells, named_unit: str | None, rates: Mapping[str, Rate]) -> Quote:
    """One quote; gaps become flags, and blocks where nothing can be compared without them."""
    vendor = row.text("vendor") or f"line {row.line}"
    flags: list[str] = []
    blocked: list[str] = []
    accelerator = _accelerator(row.text("gpu"), flags, blocked)
    gpus_per_node, term = row.whole("gpus_per_node"), row.whole("term_months")
    factor = _before_tax(row, _usd_factor(row, named_unit, rates, flags, blocked), flags, blocked)
    unit = _unit(row, named_unit, blocked)
    price = row.number("price")
    if price is None:
        blocked.append("price not stated")
    hourly = _per_gpu_hour(price, unit, gpus_per_node, term, factor, blocked)
    upfront = row.number("upfront")
    per_gpu = None if upfront is None or factor is None else upfront * factor
    if per_gpu is not None and unit is not None and unit.startswith("node"):
        per_gpu = per_gpu / gpus_per_node if gpus_per_node else None
    if per_gpu and not term:
        blocked.append("upfront without a term to spread it over")
    flags += _gaps(row)
    return Quote(
        vendor=vendor,
        gpu=row.text("gpu") or "",
        accelerator=accelerator,
        gpus_per_node=gpus_per_node,
        usd_per_gpu_hour=hourly,
        upfront_usd_per_gpu=per_gpu,
        term_months=term,
        min_gpus=row.whole("min_gpus"),
        region=row.text("region"),
        interconnect=row.text("interconnect"),
        egress_usd_per_gb=_metered(row, "egress_usd_gb"),
        storage_usd_per_gb_month=_metered(row, "storage_usd_gb_month"),
        support_share=None if (share := row.number("support_percent", Decimal(100))) is None else share / 100,
        tax_percent=row.number("tax_percent", Decimal(100)),
        interruption=row.text("interruption"),
        capacity=row.text("capacity"),
        quoted_on=row.day("quoted_on"),
        valid_until=row.day("valid_until"),
        usd_per_useful_gpu_hour=_useful(row, hourly),
        notes=row.text("notes") or "",
        flags=tuple(flags),
        blocked=tuple(blocked),
    )


def _accelerator(name: str | None, flags: list[str], blocked: list[str]) -> Accelerator | None:
    if name is None:
        blocked.append("accelerator not stated")
        return None
    try:
        variants = matches(name)
    except UnknownName:
        blocked.append(f"accelerator {name!r} is not known")
        return None
    if len(variants) > 1:
        blocked.append(f"variant not stated: {name} can be {', '.join(v.name for v in variants)}")
        return None
    return variants[0]


def _usd_factor(
    row: _Cells, named_unit: str | None, rates: Mapping[str, Rate], flags: list[str], blocked: list[str]
) -> Decimal | None:
    """USD per unit of the quote's currency; 1 for USD."""
    currency = (row.text("currency") or ("USD" if named_unit else "")).upper()
    if not currency:
        blocked.append("currency not stated")
        return None
    if currency == "USD":
        return Decimal(1)
    rate = rates.get(currency)
    if rate is None:
        blocked.append(f"currency {currency} without a rate")
        return None
    flags.append(f"converted at {rate.usd} USD per {currency} of {rate.observed_on} ({rate.source})")
    return rate.usd


def _before_tax(row: _Cells, factor: Decimal | None, flags: list[str], blocked: list[str]) -> Decimal | None:
    """The factor with the tax taken out of a price that includes it."""
    word = (row.text("tax_included") or "").lower()
    if word not in ("", "yes", "no"):
        raise row.error("tax_included", word, "is neither yes nor no")
    if word != "yes":
        return factor
    percent = row.number("tax_percent", Decimal(100))
    if percent is None:
        blocked.append("tax is in the price at a rate not stated")
        return None
    flags.append(f"{percent} % tax taken out of the price")
    return None if factor is None else factor / (1 + percent / 100)


def _unit(row: _Cells, named_unit: str | None, blocked: list[str]) -> str | None:
    unit = (row.text("price_unit") or named_unit or "").lower()
    if not unit:
        blocked.append("unit of the price not stated")
        return None
    if unit not in UNITS:
        raise row.error("price_unit", unit, f"is none of {', '.join(UNITS)}")
    return unit


def _per_gpu_hour(
    price: Decimal | None,
    unit: str | None,
    gpus_per_node: int | None,
    term: int | None,
    factor: Decimal | None,
    blocked: list[str],
) -> Decimal | None:
    """The recurring price of one GPU for an hour; a month has 730."""
    if price is None or unit is None or factor is None:
        return None
    whose, _, period = unit.partition("_")
    usd = price * factor
    if whose == "node":
        if not gpus_per_node:
            blocked.append("GPUs per node not stated, price is per node")
            return None
        usd /= gpus_per_node
    if period == "month":
        usd /= HOURS_PER_MONTH
    if period == "term":
        if not term:
            blocked.append("term not stated, price is per term")
            return None
        usd /= term * HOURS_PER_MONTH
    return usd


def _metered(row: _Cells, column: str) -> Decimal | None:
    """A price per unit; words like `metered` are no price."""
    text = row.text(column)
    return None if text is None or text.lower() in ("metered", "unknown", "tbd", "n/a", "?") else row.number(column)


def _gaps(row: _Cells) -> Iterable[str]:
    """What the seller should still be asked."""
    vendor = row.text("vendor") or f"line {row.line}"
    asked = {
        "region": "region not stated",
        "interconnect": "interconnect not stated",
        "term_months": "minimum term not stated",
        "min_gpus": "smallest order not stated",
        "tax_included": "tax not stated",
        "interruption": "interruption terms not stated",
        "capacity": "capacity terms not stated",
        "quoted_on": "day of the quote not stated",
        "valid_until": "validity not stated",
    }
    yield from (words for column, words in asked.items() if row.text(column) is None)
    if _metered(row, "egress_usd_gb") is None:
        yield f"egress of {vendor} unknown"
    if _metered(row, "storage_usd_gb_month") is None:
        yield "storage price not stated"


def _useful(row: _Cells, hourly: Decimal | None) -> Decimal | None:
    """Price per useful GPU-hour, where the quote's row says loss, utilisation and what comes on top."""
    one = Decimal(1)
    loss, utilization = row.number("throughput_loss", one), row.number("utilization", one)
    addon = row.number("addon", Decimal(100))
    if hourly is None or loss is None or not utilization or addon is None or loss >= 1:
        return None
    return useful_usd_per_hour(hourly, loss, utilization, addon)
