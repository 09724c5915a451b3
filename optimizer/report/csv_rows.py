"""Turns rows into CSV whose text no spreadsheet takes for a formula."""

import csv
import io
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from optimizer.report.page import Value

FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    """The rows with a header; what is not known is empty, numbers are plain, a formula's start gets an apostrophe."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return buffer.getvalue()


def defused(text: str) -> str:
    """The text, with an apostrophe before what a spreadsheet would run."""
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA_STARTS) else text


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return defused(value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
