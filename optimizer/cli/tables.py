"""Turns rows into a table for a terminal, a pipe, CSV or Markdown."""

import csv
import io
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from optimizer.cli.printable import printable

_PIPE_WIDTH: Final = 200
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled table; `right` names the columns that hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()


def terminal(parts: Iterable[Table | str]) -> str:
    """Tables and lines of text as one string: with colour and fitted to the window on a terminal, plain otherwise.

    In a window too narrow for a table's words, its rows are printed as paragraphs.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    tty = sys.stdout.isatty()
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        force_terminal=tty,
        no_color=bool(os.environ.get("NO_COLOR")),
        width=None if tty else _PIPE_WIDTH,
        highlight=False,
        legacy_windows=False,
    )
    for part in parts:
        if isinstance(part, str):
            console.print(Text(printable(part)), soft_wrap=not tty)
            continue
        if tty and _narrowest(part) > console.width:
            console.print(Text(printable(_records(part, console.width))), soft_wrap=True)
            continue
        table = RichTable(box=SIMPLE_HEAD, title=part.title or None, title_justify="left", title_style="bold")
        for column in part.columns:
            table.add_column(column, justify="right" if column in part.right else "left", overflow="fold")
        for row in part.rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        console.print(table)
    lines = (line.rstrip() for line in buffer.getvalue().splitlines())
    return "\n".join(lines).strip("\n") + "\n"


def _narrowest(table: Table) -> int:
    """Columns of the window below which words would be cut: the longest word of each column, and its padding."""
    cells = zip(table.columns, *table.rows, strict=True)
    return 1 + sum(3 + max(len(word) for cell in column for word in cell.split() or [""]) for column in cells)


def _records(table: Table, width: int) -> str:
    """The table as one paragraph a row, for windows that are too narrow for its columns."""
    lines = textwrap.wrap(table.title, width)
    for row in table.rows:
        text = "; ".join(f"{column}: {cell}" for column, cell in zip(table.columns, row, strict=True) if cell)
        lines += textwrap.wrap(text, width, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([*lines, ""])


def markdown(parts: Iterable[Table | str]) -> str:
    """Tables and lines of text as Markdown."""
    blocks = []
    for part in parts:
        if isinstance(part, str):
            blocks.append(printable(part).replace("<", "&lt;"))
            continue
        head = "| " + " | ".join(part.columns) + " |"
        rule = "| " + " | ".join("---:" if column in part.right else "---" for column in part.columns) + " |"
        rows = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in part.rows]
        title = [f"## {part.title}", ""] if part.title else []
        blocks.append("\n".join([*title, head, rule, *rows]))
    return "\n\n".join(blocks) + "\n"


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """One table as CSV; text that a spreadsheet would take for a formula is quoted with an apostrophe."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_defused(cell) for cell in row])
    return buffer.getvalue()


def _escaped(cell: str) -> str:
    return printable(cell).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _defused(cell: object) -> object:
    if cell is None:
        return ""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell
