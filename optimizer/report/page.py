"""What a document shows, whatever the format: figures on top, sections of tables and charts, notes at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

Kind = Literal["text", "usd", "price", "number", "percent", "date", "code"]
Level = Literal["", "ok", "watch", "over"]
Value = str | Decimal | float | int | date | None
"""A cell; None = not known, or does not apply: shown as empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    `formula` says how a spreadsheet computes its cells from others of the row, written `{key}`, and from inputs,
    written `[key]`; the cells hold the same values, computed in Decimal. `summed`: the total row adds it up.
    `detail`: too wide for a terminal.
    """

    key: str
    title: str
    kind: Kind = "text"
    formula: str = ""
    summed: bool = False
    detail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows in the order in which they are read; `levels` colours rows where given.

    `collapsed`: the numbers behind a chart, folded away where a format can.
    """

    id: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    total: Sequence[Value] | None = None
    note: str = ""
    levels: Sequence[Level] = ()
    collapsed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values over a chart's labels; None = no mark there. `dashed` for what is expected, not known."""

    name: str
    values: Sequence[float | None]
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines or bars over labels; `table` and `columns` name where a spreadsheet finds the same numbers."""

    id: str
    title: str
    kind: Literal["line", "bar"]
    labels: Sequence[str]
    series: Sequence[Series]
    unit: str
    table: str = ""
    label_column: str = ""
    columns: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the document under one heading."""

    id: str
    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number at the top, with what to know of it."""

    label: str
    value: str
    note: str = ""
    level: Level = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A number that a reader may change in a spreadsheet; formulas refer to it as `[key]`."""

    key: str
    label: str
    value: Value
    kind: Kind = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole document."""

    title: str
    subtitle: str
    figures: Sequence[Figure]
    sections: Sequence[Section]
    inputs: Sequence[Input] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()


def shown(value: Value, kind: Kind) -> str:
    """A cell as a reader sees it; empty where nothing is known."""
    if value is None:
        return ""
    if isinstance(value, (str, date)):
        return printable(str(value))
    match kind:
        case "usd":
            return f"{value:,.2f}"
        case "price":
            return f"{value:,.4f}"
        case "percent":
            return f"{value:,.1%}"
        case _:
            return f"{value:,.2f}".rstrip("0").rstrip(".")


def printable(text: str) -> str:
    """The text without control characters: a name could move a terminal's cursor with them."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def total_row(columns: Sequence[Column], rows: Sequence[Sequence[Value]], label: str = "Total") -> list[Value]:
    """A last row that adds up the columns that are summed; None where no row has a value."""
    found: list[Value] = []
    for index, column in enumerate(columns):
        values = [row[index] for row in rows]
        known = [value for value in values if isinstance(value, (Decimal, int, float))]
        found.append(sum(known[1:], known[0]) if column.summed and known else None)
    found[0] = label
    return found
