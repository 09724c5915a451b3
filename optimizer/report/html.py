"""Turns a document into one HTML file that needs nothing else: style, charts and the sorting of tables are inside."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from optimizer.report.page import Column, Page, Table, Value, printable, shown
from optimizer.report.svg import svg_chart

if TYPE_CHECKING:
    from jinja2 import Environment


_SENTENCE: Final = 45


def html_text(page: Page) -> str:
    """The document as HTML. Every name is escaped; the page may load and run nothing but its own script."""
    from markupsafe import Markup

    script, style = _data("page.js"), _data("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            style=Markup(style),  # noqa: S704  # our own file
            script=Markup(script),  # noqa: S704  # our own file, the one whose hash the policy names
            digest=digest,
            chart=lambda chart: Markup(svg_chart(chart)),  # noqa: S704  # escapes what it is given
            shown=shown,
            sort_key=_sort_key,
            is_number=_is_number,
            is_wide=_is_wide,
        )
    )


def _is_number(column: Column) -> bool:
    return column.kind not in ("text", "code", "date")


def _is_wide(table: Table, index: int) -> bool:
    """Whether a column holds sentences: they get room, so that rows stay low."""
    return any(isinstance(cell := row[index], str) and len(cell) > _SENTENCE for row in table.rows)


def _sort_key(value: Value) -> str:
    """What the script sorts by: the whole number, not its rounded text; empty sorts last."""
    return "" if value is None else str(value)


@cache
def _environment() -> "Environment":
    from jinja2 import DictLoader, Environment, StrictUndefined

    return Environment(
        loader=DictLoader({"page.html": _data("page.html")}),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _finalized(value: object) -> object:
    """Names without control characters; our own markup, whose type is another, is left alone."""
    return printable(value) if type(value) is str else value


def _data(name: str) -> str:
    return files("optimizer.report").joinpath("data", name).read_text(encoding="utf-8")
