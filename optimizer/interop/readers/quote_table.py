"""Turns a seller's table of quotes, in whatever columns it has, into prices per GPU-hour, faults by line, and what is
cheaper on file."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from statistics import median
from typing import Final

from optimizer.interop.asks import Fault
from optimizer.report.quotes import COLUMNS, Quote, differences, parse_quotes
from providers.accelerators import Accelerator, matches
from providers.errors import UnknownName, UsageError
from providers.offers import Offer, PurchaseOption
from providers.units import HOURS_PER_MONTH

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "vendor": ("provider", "seller", "supplier", "company", "cloud", "name"),
    "gpu": ("accelerator", "gpu_type", "gpu_model", "gpu_name", "chip", "card", "accelerator_type", "model", "sku"),
    "gpus_per_node": ("gpus_node", "gpu_per_node", "gpus_per_server", "gpus_per_machine", "gpus_per_instance"),
    "price_unit": ("unit", "billing_unit", "per", "uom", "price_per", "billing"),
    "currency": ("curr", "ccy", "currency_code"),
    "upfront": ("upfront_usd", "upfront_fee", "deposit"),
    "term_months": (
        *("term", "commit_months", "commitment_months", "commitment", "contract_months", "contract_term"),
        *("min_term_months", "minimum_term", "min_term", "months", "commit", "contract_length"),
    ),
    "min_gpus": ("minimum_gpus", "quantity", "qty", "gpus", "gpu_count", "num_gpus", "min_order", "moq"),
    "region": ("location", "site", "datacenter", "data_center", "country"),
    "interconnect": ("network", "fabric", "networking"),
    "quoted_on": ("date", "quote_date", "quoted", "as_of"),
    "valid_until": ("expires", "expiry", "valid_to", "valid_through", "validity", "valid_till", "quote_expiry"),
    "notes": ("comment", "comments", "remarks", "note"),
}
"""Names that sellers give the columns of `costopt compare --quotes`."""

_PRICE: Final = re.compile(r"price|rate|cost|usd|eur|gbp|fee|amount")
_SYMBOLS: Final[Mapping[str, str]] = {"$": "USD", "€": "EUR", "£": "GBP", "us$": "USD"}
_UNITS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu_hour": ("gpu_hour", "gpu_hr", "gpu_h", "per_gpu_hour", "hour_gpu", "gpuh", "gpu_hours", "hr_gpu", "h_gpu"),
    "node_hour": ("node_hour", "node_hr", "node_h", "server_hour", "instance_hour", "machine_hour", "server_hr"),
    "gpu_month": ("gpu_month", "gpu_mo", "month_gpu"),
    "node_month": ("node_month", "node_mo", "server_month", "machine_month", "instance_month"),
    "gpu_term": ("gpu_term",),
    "node_term": ("node_term", "server_term"),
}
_AMOUNT: Final = re.compile(
    r"(?P<before>us\$|[$€£]|[a-z]{3})?\s*(?P<number>\d[\d.,' ]*)\s*(?P<after>.*)", re.IGNORECASE
)
_TERM: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)[\s-]*(?P<unit>months?|mos?|m|years?|yrs?|y)?", re.IGNORECASE)
_NO_TERM: Final = ("none", "no", "on demand", "month to month", "monthly", "cancel anytime", "0")
_NAMED_TERMS: Final[Mapping[str, str]] = {"quarterly": "3", "annual": "12", "annually": "12", "yearly": "12"}
_COUNTED: Final = re.compile(r"(?P<count>\d{1,3})\s*[x×]\s*(?P<name>\S.*)", re.IGNORECASE)
"""An accelerator's name behind the number that a machine has: `8x H100`."""


_LOW: Final = Decimal("0.5")
_HIGH: Final = Decimal(3)
"""A price below half of the cheapest on file, or above three times the median on demand, is taken for a mistake."""

_GAPS: Final[Mapping[str, str]] = {
    "region not stated": "region",
    "interconnect not stated": "interconnect",
    "smallest order not stated": "min_gpus",
    "tax not stated": "tax_included",
    "interruption terms not stated": "interruption",
    "capacity terms not stated": "capacity",
    "day of the quote not stated": "quoted_on",
    "validity not stated": "valid_until",
    "storage price not stated": "storage_usd_gb_month",
}
"""What a quote may leave open, and the column that would say it: where a table has no such column it is told once."""

_NO_TERM_STATED: Final = "minimum term not stated"
_EGRESS: Final = "egress_usd_gb"
_LONGEST_HEADER: Final = 10_000
_MOST_ROWS: Final = 5_000
_FIXES: Final = (
    ("currency not stated", "say the currency in a column `currency`, like USD"),
    ("currency ", "`costopt compare --quotes FILE --costs RATES` converts it"),
    ("unit of the price", "say gpu_hour, node_hour, gpu_month or node_month in a column `price_unit`"),
    ("price not stated", "ask the seller"),
    ("GPUs per node", "say how many in a column `gpus_per_node`"),
    ("term not stated", "say the months in a column `term_months`"),
    ("upfront", "say the months in a column `term_months`"),
    ("variant not stated", "ask which: they differ in memory, power and speed"),
    ("accelerator not stated", "ask the seller"),
    ("tax is in", "say the rate in a column `tax_percent`"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnFile:
    """Offers for the same accelerators, cheapest per accelerator-hour: in the quote's kind of term, and beside it."""

    same_term: Offer | None
    on_demand: Offer | None
    spot: Offer | None

    @property
    def cheapest(self) -> Offer | None:
        """Without spot, which can be taken away."""
        found = [offer for offer in (self.same_term, self.on_demand) if offer is not None]
        return min(found, key=lambda offer: offer.usd_per_accelerator_hour, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedRow:
    """One quote with its line. `quote` None = the row could not be read; `gpus` are those of the smallest order.

    `is_plausible`: the price is in the range of what the same accelerators cost on file, where they are there.
    """

    line: int
    quote: Quote | None
    gpus: int
    on_file: OnFile | None
    faults: tuple[Fault, ...]
    is_plausible: bool = True

    @property
    def usd_per_gpu_hour(self) -> Decimal | None:
        """With the upfront spread over the term; None where something that it needs is missing."""
        return None if self.quote is None else self.quote.effective_usd_per_gpu_hour

    @property
    def usd_per_month(self) -> Decimal | None:
        """Of the smallest order; a month has 730 hours."""
        hourly = self.usd_per_gpu_hour
        return None if hourly is None else hourly * self.gpus * HOURS_PER_MONTH

    @property
    def usd_total(self) -> Decimal | None:
        """Of the smallest order over its term; None without a term."""
        monthly = self.usd_per_month
        term = self.quote.term_months if self.quote else None
        return None if monthly is None or not term else monthly * term

    @property
    def is_comparable(self) -> bool:
        """Whether nothing that a comparison needs is missing."""
        return self.quote is not None and not self.quote.blocked and not any(fault.fatal for fault in self.faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteTable:
    """The quotes in the order of the file, the columns that were not read, and what the table has no column for.

    `differences` are what differs between the quotes beside the price.
    """

    rows: tuple[QuotedRow, ...]
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()

    @property
    def cheapest(self) -> QuotedRow | None:
        """Of the quotes that can be compared, and whose price is plausible."""
        found = [row for row in self.rows if row.is_comparable and row.is_plausible and row.usd_per_gpu_hour]
        return min(found, key=lambda row: row.usd_per_gpu_hour or Decimal(0), default=None)


@dataclass(frozen=True, slots=True)
class _Column:
    """What a column of the file is; a price column's name may give unit and currency."""

    name: str
    unit: str | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class _Shelf:
    """What is on file of some accelerators: the cheapest by purchase option, and the range of prices."""

    cheapest: Mapping[PurchaseOption, Offer]
    low: Decimal | None
    usual: Decimal | None


@dataclass(slots=True)
class _Shelves:
    """The shelf of each set of accelerators, put together once."""

    offers: Mapping[str, Sequence[Offer]]
    known: dict[tuple[str, ...], _Shelf]

    @classmethod
    def of(cls, offers: Sequence[Offer]) -> "_Shelves":
        found: dict[str, list[Offer]] = {}
        for offer in offers:
            found.setdefault(offer.instance_type.accelerator, []).append(offer)
        return cls(found, {})

    def shelf(self, accelerators: Sequence[Accelerator]) -> _Shelf:
        names = tuple(one.name for one in accelerators)
        if names not in self.known:
            self.known[names] = _shelf([offer for name in names for offer in self.offers.get(name, ())])
        return self.known[names]


def is_quote_header(line: str) -> bool:
    """Whether a line names the columns of quotes: a price, and whose or of what it is."""
    if len(line) > _LONGEST_HEADER:
        return False
    columns = _columns(_cells(line))
    names = {column.name for column in columns.values()}
    return "price" in names and bool({"vendor", "gpu"} & names) and len(columns) > 1


def read_quotes(text: str, name: str, offers: Sequence[Offer], today: date) -> QuoteTable:
    """The quotes of a table, with commas, semicolons or tabs. `offers` are those that may be bought, whatever the term.

    A row that cannot be read keeps its line and its fault. Raises UsageError for a table without a header of quotes.
    """
    first, _, _ = text.partition("\n")
    delimiter = _delimiter(first)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=False)
    try:
        header = next(reader)
        columns = _columns(header)
        shelves = _Shelves.of(offers)
        rows: list[QuotedRow] = []
        while True:
            line = reader.line_num + 1
            cells = next(reader, None)
            if cells is None:
                break
            if not any(cell.strip() for cell in cells):
                continue
            if len(rows) >= _MOST_ROWS:
                raise UsageError(f"{name} has over {_MOST_ROWS:,} quotes")
            rows.append(_row(line, cells, header, columns, shelves, today, decimal_comma=delimiter == ";"))
    except (csv.Error, StopIteration) as error:
        raise UsageError(f"{name}, line {reader.line_num}: no table: {error}") from None
    ignored = tuple(header[index] for index in range(len(header)) if index not in columns and header[index].strip())
    present = {column.name for column in columns.values()}
    missing = [words.removesuffix(" not stated") for words, column in _GAPS.items() if column not in present]
    return QuoteTable(
        rows=tuple(rows),
        ignored=ignored,
        missing=(*missing, *(() if _EGRESS in present else ("egress",))),
        differences=differences([row.quote for row in rows if row.quote is not None]),
    )


def _row(
    line: int,
    cells: Sequence[str],
    header: Sequence[str],
    columns: Mapping[int, _Column],
    shelves: _Shelves,
    today: date,
    *,
    decimal_comma: bool,
) -> QuotedRow:
    if len(cells) > len(header):
        what = f"{len(cells)} cells under {len(header)} columns"
        return _unread(line, Fault(line=line, what=what, fix="put quotes around cells with separators in them"))
    given = {column.name: cells[index].strip() for index, column in columns.items() if index < len(cells)}
    _tidy(given, columns.values(), decimal_comma=decimal_comma)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(given.keys())
    writer.writerow(given.values())
    try:
        (quote,) = parse_quotes(buffer.getvalue(), "quote", {})
    except (UsageError, ValueError) as error:
        what = re.sub(r"^quote: (line \d+, )?", "", str(error))
        return _unread(line, Fault(line=line, what=what, fix="correct the cell"))
    variants = (quote.accelerator,) if quote.accelerator else _meant(quote.gpu)[0]
    shelf = shelves.shelf(variants)
    doubts = tuple(_price_faults(line, quote, shelf))
    return QuotedRow(
        line=line,
        quote=quote,
        gpus=max(1, quote.min_gpus or 1),
        on_file=_on_file(quote, shelf),
        faults=(*_faults(line, quote, today, given), *doubts),
        is_plausible=not doubts,
    )


def _unread(line: int, fault: Fault) -> QuotedRow:
    return QuotedRow(line=line, quote=None, gpus=1, on_file=None, faults=(fault,))


def _cells(line: str) -> list[str]:
    return next(csv.reader([line], delimiter=_delimiter(line)), [])


def _delimiter(line: str) -> str:
    """The separator that the header has most of."""
    return max(",;\t", key=line.count)


def _columns(header: Sequence[str]) -> dict[int, _Column]:
    """Columns that are known, by their place; of several of one name the first."""
    found: dict[int, _Column] = {}
    taken: set[str] = set()
    for index, cell in enumerate(header):
        column = _column(cell)
        if column is not None and column.name not in taken:
            found[index] = column
            taken.add(column.name)
    return found


def _column(cell: str) -> _Column | None:
    text = cell.strip().lower()
    currency = next((code for symbol, code in _SYMBOLS.items() if symbol in text), None)
    word = re.sub(r"[^a-z0-9]+", "_", text.replace("$", " usd ").replace("€", " eur ").replace("£", " gbp ")).strip("_")
    word = re.sub(r"_(?:in|per|a)_|^per_", "_", word).strip("_")
    if word in COLUMNS:
        return _Column(word)
    for name, words in _ALIASES.items():
        if word in words:
            return _Column(name)
    if _PRICE.search(word) and not re.search(r"egress|storage|support|tax|upfront|total|list", word):
        currency = currency or next((code.upper() for code in ("usd", "eur", "gbp") if code in word.split("_")), None)
        return _Column("price", _unit_in(word), currency)
    return None


def _unit_in(word: str) -> str | None:
    """The unit that a word ends in or holds: `usd_gpu_hr` is gpu_hour."""
    known = ((unit, name) for unit, names in _UNITS.items() for name in names)
    return next((unit for unit, name in known if re.search(rf"(?:^|_){name}(?:_|$)", word)), None)


def _tidy(given: dict[str, str], columns: Iterable[_Column], *, decimal_comma: bool) -> None:
    """Plain numbers in place of `$2.10/GPU/h`, `12 months` and `1 year`; what else they say goes to its column."""
    price = next((column for column in columns if column.name == "price"), _Column("price"))
    amount = _AMOUNT.fullmatch(given.get("price", ""))
    if amount:
        given["price"] = _plain_number(amount["number"].strip(), decimal_comma=decimal_comma)
        _fill(given, "currency", _currency_in(amount["before"] or "", amount["after"]))
        _fill(given, "price_unit", _unit_in(_word(amount["after"])))
    _fill(given, "currency", price.currency)
    _fill(given, "price_unit", price.unit)
    if given.get("price_unit"):
        given["price_unit"] = _unit_in(_word(given["price_unit"])) or given["price_unit"]
    counted = _COUNTED.fullmatch(given.get("gpu", ""))
    if counted:
        given["gpu"] = counted["name"]
        _fill(given, "gpus_per_node", counted["count"])
    if given.get("term_months"):
        given["term_months"] = _months(given["term_months"])
    for column in {"min_gpus", "gpus_per_node"} & given.keys():
        given[column] = given[column].replace(",", "")


def _word(text: str) -> str:
    """A unit as the names of columns have it: `USD per GPU hour` is usd_gpu_hour."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).replace("per_", "").strip("_")


def _currency_in(before: str, after: str) -> str | None:
    """The currency that stands before or behind an amount, as a symbol or a code."""
    if before:
        return _SYMBOLS.get(before.lower()) or before.upper()
    codes = {code.lower(): code for code in _SYMBOLS.values()} | dict(_SYMBOLS)
    return next((code for word, code in codes.items() if word in after.lower()), None)


def _months(term: str) -> str:
    """`12`, `12-month`, `1 year`, `annual` and `on demand` as a number of months; anything else as it is."""
    plain = term.lower().replace("-", " ")
    if plain in _NO_TERM:
        return "0"
    if plain in _NAMED_TERMS:
        return _NAMED_TERMS[plain]
    found = _TERM.fullmatch(term)
    if not found:
        return term
    months = Decimal(found["number"]) * (12 if (found["unit"] or "").lower().startswith("y") else 1)
    return f"{months.normalize():f}"


def _fill(given: dict[str, str], column: str, value: str | None) -> None:
    if value and not given.get(column):
        given[column] = value


def _plain_number(text: str, *, decimal_comma: bool) -> str:
    """`1,234.50`, `1.234,50` and `2,10` as Decimal reads them; a lone comma before one or two digits is decimal."""
    text = text.replace(" ", "").replace("'", "").rstrip(".,")
    is_decimal = decimal_comma or re.fullmatch(r"\d+,\d{1,2}", text) or ("." in text and "," in text)
    if is_decimal and text.rfind(",") > text.rfind("."):
        return text.replace(".", "").replace(",", ".")
    return text.replace(",", "")


@lru_cache(maxsize=10_000)
def _meant(named: str) -> tuple[tuple[Accelerator, ...], tuple[str, ...]]:
    """The accelerators that a name can mean, else names that are near."""
    try:
        return (matches(named) if named else ()), ()
    except UnknownName as error:
        return (), error.suggestions


def _shelf(offers: Sequence[Offer]) -> _Shelf:
    cheapest: dict[PurchaseOption, Offer] = {}
    for offer in sorted(offers, key=lambda one: (one.usd_per_accelerator_hour, one.key)):
        cheapest.setdefault(offer.purchase_option, offer)
    prices = [offer.usd_per_accelerator_hour for offer in offers]
    on_demand = [o.usd_per_accelerator_hour for o in offers if o.purchase_option is PurchaseOption.ON_DEMAND]
    return _Shelf(cheapest, min(prices, default=None), median(on_demand or prices) if prices else None)


def option_of_term(term_months: int | None) -> PurchaseOption:
    """The list price that a term is set against: on demand below a year, the longest reservation that is not longer."""
    if not term_months or term_months < 12:
        return PurchaseOption.ON_DEMAND
    return PurchaseOption.RESERVED_1Y if term_months < 36 else PurchaseOption.RESERVED_3Y


def _on_file(quote: Quote, shelf: _Shelf) -> OnFile:
    return OnFile(
        same_term=shelf.cheapest.get(option_of_term(quote.term_months)),
        on_demand=shelf.cheapest.get(PurchaseOption.ON_DEMAND),
        spot=shelf.cheapest.get(PurchaseOption.SPOT),
    )


def _faults(line: int, quote: Quote, today: date, present: Collection[str]) -> Iterator[Fault]:
    for words in quote.blocked:
        yield Fault(line=line, what=f"{quote.vendor}: {words}", fix=_fix(words, quote))
    if quote.valid_until is not None and quote.valid_until < today:
        what = f"{quote.vendor}: the quote could be accepted until {quote.valid_until}"
        yield Fault(line=line, what=what, fix="ask for a new one", fatal=False)
    if quote.quoted_on is not None and quote.quoted_on > today:
        what = f"{quote.vendor}: quoted on {quote.quoted_on}, which lies ahead"
        yield Fault(line=line, what=what, fix="correct the day", fatal=False)
    if quote.term_months is None:
        what = f"{quote.vendor}: {_NO_TERM_STATED}"
        yield Fault(line=line, what=what, fix="ask the seller: it is priced without one", fatal=False)
    for flag in quote.flags:
        # What no quote of the table can say is told once, of the table.
        column = _EGRESS if flag == f"egress of {quote.vendor} unknown" else _GAPS.get(flag)
        if flag != _NO_TERM_STATED and (column is None or column in present):
            fix = "set it beside the price" if column is None else "ask the seller"
            yield Fault(line=line, what=f"{quote.vendor}: {flag}", fix=fix, fatal=False)


def _fix(words: str, quote: Quote) -> str:
    if words.startswith("accelerator ") and words.endswith("is not known"):
        near = ", ".join(_meant(quote.gpu)[1])
        return f"did you mean {near}?" if near else "`costopt offers` lists names"
    return next((fix for start, fix in _FIXES if words.startswith(start)), "ask the seller")


def _price_faults(line: int, quote: Quote, shelf: _Shelf) -> Iterator[Fault]:
    """A price that is nowhere near what the same accelerators cost on file, and the unit that would explain it."""
    hourly = quote.effective_usd_per_gpu_hour
    low, usual = shelf.low, shelf.usual
    if hourly is None or low is None or usual is None:
        return
    if low * _LOW <= hourly <= usual * _HIGH:
        return
    readings = {"a price per node": hourly / (quote.gpus_per_node or 8), "a price per month": hourly / HOURS_PER_MONTH}
    meant = next((words for words, value in readings.items() if hourly > usual and low <= value <= usual * _HIGH), None)
    yield Fault(
        line=line,
        what=f"{quote.vendor}: {hourly:.2f} USD per GPU-hour of {quote.gpu or 'it'} is implausible: on file it costs "
        f"{low:.2f} at the least and {usual:.2f} on demand (median)",
        fix=f"is it {meant}? say so in a column `price_unit`" if meant else "check it with the seller",
        fatal=False,
    )
