"""Turns a document into Markdown."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from optimizer.report.page import Page, Table, printable, shown

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#~])")


def markdown_text(page: Page) -> str:
    """The document as Markdown; names are escaped, so that none can become markup, a link or HTML."""
    return "\n".join(_lines(page)).rstrip() + "\n"


def _lines(page: Page) -> Iterator[str]:
    yield f"# {escaped(page.title)}"
    yield ""
    yield escaped(page.subtitle)
    yield ""
    for figure in page.figures:
        note = f" ({escaped(figure.note)})" if figure.note else ""
        yield f"- **{escaped(figure.label)}**: {escaped(figure.value)}{note}"
    for section in page.sections:
        yield ""
        yield f"## {escaped(section.title)}"
        for text in section.text:
            yield ""
            yield escaped(text)
        for table in section.tables:
            yield ""
            yield from _table(table)
    for title, lines in (("Warnings", page.warnings), ("Assumptions and notes", page.notes)):
        if lines:
            yield ""
            yield f"## {title}"
            yield ""
            yield from (f"- {escaped(line)}" for line in lines)


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"### {escaped(table.title)}"
        yield ""
    if not table.rows:
        yield "None."
        return
    yield _row([column.title for column in table.columns])
    yield (
        "|"
        + "|".join(" --- " if column.kind in ("text", "code", "date") else " ---: " for column in table.columns)
        + "|"
    )
    rows = [*table.rows, table.total] if table.total is not None else table.rows
    for row in rows:
        yield _row([shown(value, column.kind) for value, column in zip(row, table.columns, strict=True)])
    if table.note:
        yield ""
        yield escaped(table.note)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(" ".join(text.split())))
