"""Turns a document into a workbook: a sheet a table, native charts, formulas where a reader would change a number.

Text is always written as text, with the mark that keeps a spreadsheet from running it. Equal documents give equal
bytes: the only date inside is the one handed in.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from optimizer.report.csv_rows import FORMULA_STARTS
from optimizer.report.page import Chart, Column, Kind, Page, Table, Value

if TYPE_CHECKING:
    from xlsxwriter.worksheet import Worksheet

_NAME_LENGTH: Final = 31
_WIDEST: Final = 60
_NARROWEST: Final = 10
_CELL: Final = re.compile(r"\{(\w+)\}")
_INPUT: Final = re.compile(r"\[(\w+)\]")
_NUMBER_FORMATS: Final[Mapping[Kind, str]] = {
    "usd": "#,##0.00",
    "price": "#,##0.0000##",
    "number": "#,##0.####",
    "percent": "0.0%",
    "date": "yyyy-mm-dd",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a table stands: its sheet, the row of its headings, and its columns by key."""

    sheet: str
    first_row: int
    rows: int
    columns: Mapping[str, int]


class _Book:
    """A workbook with its formats, made once."""

    def __init__(self, buffer: io.BytesIO, created: datetime) -> None:
        from xlsxwriter import Workbook

        options = {
            "in_memory": True,
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "strings_to_numbers": False,
        }
        self.book: Any = Workbook(buffer, options)
        self.book.set_properties({"created": created.replace(tzinfo=None, microsecond=0)})
        self.plain: dict[tuple[Kind, bool, bool], Any] = {}
        self.title = self.book.add_format({"bold": True, "font_size": 14})
        self.heading = self.book.add_format({"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"})
        self.names: set[str] = set()

    def style(self, kind: Kind, *, quoted: bool = False, total: bool = False) -> Any:
        """The format of a cell; `quoted` is a spreadsheet's own mark for text that looks like a formula."""
        key = (kind, quoted, total)
        if key not in self.plain:
            style = self.book.add_format({"num_format": _NUMBER_FORMATS.get(kind, "General"), "valign": "top"})
            if quoted:
                style.set_quote_prefix()
            if total:
                style.set_bold()
                style.set_top(1)
            self.plain[key] = style
        return self.plain[key]

    def sheet(self, title: str) -> "Worksheet":
        """A new sheet under a name that a spreadsheet allows and that no other sheet has."""
        clean = re.sub(r"[\[\]:*?/\\']", " ", title).strip()[:_NAME_LENGTH] or "Sheet"
        name, number = clean, 2
        while name.lower() in self.names:
            tail = f" {number}"
            name, number = clean[: _NAME_LENGTH - len(tail)] + tail, number + 1
        self.names.add(name.lower())
        return self.book.add_worksheet(name)


def xlsx_bytes(page: Page, created: datetime) -> bytes:
    """The document as a workbook; `created` is the date that the file bears."""
    buffer = io.BytesIO()
    book = _Book(buffer, created)
    _summary(book, page)
    if page.inputs:
        _inputs(book, page)
    for section in page.sections:
        places = {table.id: _table(book, table) for table in section.tables if table.rows}
        for number, chart in enumerate(section.charts):
            if chart.table in places:
                _chart(book, chart, places[chart.table], number)
    book.book.close()
    return buffer.getvalue()


def _summary(book: _Book, page: Page) -> None:
    sheet = book.sheet("Summary")
    sheet.set_column(0, 0, 34)
    sheet.set_column(1, 1, 26)
    sheet.set_column(2, 2, 90)
    _text(book, sheet, 0, 0, page.title, book.title)
    _text(book, sheet, 1, 0, page.subtitle)
    row = 3
    for figure in page.figures:
        for column, text in enumerate((figure.label, figure.value, figure.note)):
            _text(book, sheet, row, column, text)
        row += 1
    for title, lines in (("Warnings", page.warnings), ("Assumptions and notes", page.notes)):
        if lines:
            _text(book, sheet, row + 1, 0, title, book.heading)
            row += 2
            for line in lines:
                _text(book, sheet, row, 0, line)
                row += 1
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)


def _inputs(book: _Book, page: Page) -> None:
    """Numbers to change; each has a name that formulas use."""
    sheet = book.sheet("Inputs")
    sheet.set_column(0, 0, 60)
    sheet.set_column(1, 1, 18)
    _text(book, sheet, 0, 0, "Change these numbers; the other sheets follow.", book.heading)
    for row, item in enumerate(page.inputs, start=1):
        _text(book, sheet, row, 0, item.label)
        _value(book, sheet, row, 1, item.value, item.kind)
        book.book.define_name(f"in_{item.key}", f"=Inputs!$B${row + 1}")


def _table(book: _Book, table: Table) -> _Place:
    from xlsxwriter.utility import xl_rowcol_to_cell

    sheet = book.sheet(table.title or table.id)
    keys = {column.key: index for index, column in enumerate(table.columns)}
    for index, column in enumerate(table.columns):
        _text(book, sheet, 0, index, column.title, book.heading)
        sheet.set_column(index, index, _width(table, index))
    for row, values in enumerate(table.rows, start=1):
        for index, (column, value) in enumerate(zip(table.columns, values, strict=True)):
            if column.formula and value is not None:
                formula = _formula(column, {key: xl_rowcol_to_cell(row, at) for key, at in keys.items()})
                sheet.write_formula(row, index, formula, book.style(column.kind), _number(value))
            else:
                _value(book, sheet, row, index, value, column.kind)
    last = len(table.rows)
    if table.total is not None:
        _total(book, sheet, table, last)
    if table.note:
        _text(book, sheet, last + 3, 0, table.note)
    sheet.freeze_panes(1, 1)
    sheet.autofilter(0, 0, last, len(table.columns) - 1)
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
    sheet.repeat_rows(0)
    return _Place(sheet.get_name(), 0, last, keys)


def _total(book: _Book, sheet: "Worksheet", table: Table, last: int) -> None:
    from xlsxwriter.utility import xl_range, xl_rowcol_to_cell

    row = last + 1
    keys = {column.key: xl_rowcol_to_cell(row, index) for index, column in enumerate(table.columns)}
    for index, (column, value) in enumerate(zip(table.columns, table.total or (), strict=True)):
        style = book.style(column.kind, total=True)
        if value is None:
            sheet.write_blank(row, index, None, style)
        elif column.summed:
            sheet.write_formula(row, index, f"=SUM({xl_range(1, index, last, index)})", style, _number(value))
        elif column.formula:
            sheet.write_formula(row, index, _formula(column, keys), style, _number(value))
        else:
            _value(book, sheet, row, index, value, column.kind, total=True)


def _formula(column: Column, cells: Mapping[str, str]) -> str:
    text = _CELL.sub(lambda match: cells[match[1]], column.formula)
    return "=" + _INPUT.sub(lambda match: f"in_{match[1]}", text)


def _chart(book: _Book, chart: Chart, place: _Place, number: int) -> None:
    shape: Any = book.book.add_chart({"type": "line" if chart.kind == "line" else "column"})
    labels = place.columns[chart.label_column]
    for key, line in zip(chart.columns, chart.series, strict=True):
        column = place.columns[key]
        shape.add_series(
            {
                "name": line.name,
                "categories": [place.sheet, 1, labels, place.rows, labels],
                "values": [place.sheet, 1, column, place.rows, column],
                "line": {"dash_type": "dash"} if line.dashed else {},
            }
        )
    shape.set_title({"name": chart.title, "name_font": {"size": 11}})
    shape.set_y_axis({"name": chart.unit, "num_format": "#,##0"})
    shape.set_legend({"position": "bottom"})
    shape.set_size({"width": 860, "height": 360})
    book.book.get_worksheet_by_name(place.sheet).insert_chart(place.rows + 5 + number * 19, 0, shape)


def _value(
    book: _Book, sheet: "Worksheet", row: int, column: int, value: Value, kind: Kind, *, total: bool = False
) -> None:
    if value is None:
        return
    if isinstance(value, str):
        _text(book, sheet, row, column, value, book.style("text", total=True) if total else None)
    elif isinstance(value, date):
        sheet.write_datetime(row, column, value, book.style("date", total=total))
    else:
        sheet.write_number(row, column, _number(value), book.style(kind, total=total))


def _text(book: _Book, sheet: "Worksheet", row: int, column: int, text: str, style: Any = None) -> None:
    quoted = text.lstrip(" ").startswith(FORMULA_STARTS)
    sheet.write_string(row, column, text[:32_000], book.style("text", quoted=True) if quoted else style)


def _number(value: Value) -> float:
    return float(value) if isinstance(value, (Decimal, int, float)) else 0.0


def _width(table: Table, index: int) -> int:
    longest = max((len(str(row[index])) for row in table.rows if row[index] is not None), default=0)
    title = len(table.columns[index].title)
    return max(_NARROWEST, min(_WIDEST, max(longest, title // 2) + 2))
