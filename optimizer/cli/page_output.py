"""Turns a document into the bytes or text of a format: for a terminal, Markdown, HTML or a workbook."""

from collections.abc import Iterator
from datetime import datetime

from optimizer.cli.tables import Table, terminal
from optimizer.report.page import Page, printable, shown


def rendered_page(page: Page, format_: str, now: datetime, not_on_a_terminal: frozenset[str]) -> str | bytes:
    """The document as `table`, `md`, `html` or `xlsx`; some tables are too long for a terminal."""
    if format_ == "html":
        from optimizer.report.html import html_text

        return html_text(page)
    if format_ == "xlsx":
        from optimizer.report.xlsx import xlsx_bytes

        return xlsx_bytes(page, now)
    if format_ == "md":
        from optimizer.report.markdown import markdown_text

        return markdown_text(page)
    return terminal(list(_parts(page, not_on_a_terminal)))


def _parts(page: Page, left_out: frozenset[str]) -> Iterator[Table | str]:
    yield f"{printable(page.title)}\n{printable(page.subtitle)}"
    figures = (f"{f.label}: {f.value}{f' ({f.note})' if f.note else ''}" for f in page.figures)
    yield "\n".join(printable(line) for line in figures)
    for section in page.sections:
        for table in section.tables:
            if table.id in left_out or not table.rows:
                continue
            rows = [*table.rows, table.total] if table.total is not None else table.rows
            kept = [(index, column) for index, column in enumerate(table.columns) if not column.detail]
            yield Table(
                title=table.title,
                columns=[printable(column.title) for _, column in kept],
                rows=[[shown(row[index], column.kind) for index, column in kept] for row in rows],
                right=frozenset(
                    printable(column.title) for _, column in kept if column.kind not in ("text", "code", "date")
                ),
            )
    yield "Assumed:\n" + "\n".join(f"  - {printable(line)}" for line in page.notes)
    if page.warnings:
        yield "Warnings:\n" + "\n".join(f"  - {printable(line)}" for line in page.warnings)
