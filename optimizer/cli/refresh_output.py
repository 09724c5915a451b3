"""Turns the results of a refresh into one outcome line a provider, and its progress into lines on a terminal."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from optimizer.api.json_text import json_text
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from pricing_cache.observations import Outcome
from pricing_cache.refresh import Result
from providers.base import Progress, no_progress

SCHEMA: Final = "costopt.refresh"
SCHEMA_VERSION: Final = "1.0"
_COUNTS: Final = ("new", "changed", "unchanged", "gone", "held", "rejected", "seconds")
_COLUMNS: Final = ("provider", "outcome", *_COUNTS, "what happened")
_MOST_LINES: Final = 10
"""Of one kind on standard error, unless all are asked for."""


@contextmanager
def progress(names: Sequence[str], *, quiet: bool) -> Iterator[Callable[[str], Progress]]:
    """For each provider a function that shows its latest line: on a terminal one line each, else nowhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: no_progress
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    latest = dict.fromkeys(names, "asking")

    def lines() -> Text:
        return Text("\n".join(f"{name:8}{line}" for name, line in latest.items()))

    with Live(console=Console(stderr=True), transient=True, get_renderable=lines):
        yield lambda name: lambda line: latest.update({name: line})


def render(results: Sequence[Result], format_: str) -> str:
    """The outcomes in one of the formats."""
    if format_ == "json":
        documents = [_document(result) for result in results]
        return json_text({"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "providers": documents})
    rows = [_row(result) for result in results]
    if format_ == "csv":
        return csv_text(_COLUMNS, rows)
    table = Table(title="", columns=_COLUMNS, rows=rows, right=frozenset(_COUNTS))
    return terminal([table]) if format_ == "table" else markdown([table])


def outcomes(results: Sequence[Result]) -> Iterator[str]:
    """One line a provider, where the table is not shown."""
    for result in results:
        changes = result.changes
        stored = f"{changes.new} new, {changes.changed} changed, {changes.unchanged} unchanged, {changes.gone} gone"
        counts = stored if result.outcome is Outcome.STORED else ""
        what = "; ".join(filter(None, [counts, _what_happened(result)]))
        yield f"{result.provider}: {result.outcome}: {what}"


def remarks(results: Sequence[Result], *, verbose: bool) -> Iterator[str]:
    """Lines for standard error: what was kept apart and how to take it, what was overridden, warnings, notes."""
    for result in results:
        held = [
            f"{key}: {_price(entry.offer and entry.offer.usd_per_hour)}: {entry.reason}"
            + (f" ({_price(entry.last_good_usd_per_hour)})" if entry.last_good_usd_per_hour else "")
            for key, entry in sorted(result.held.items())
        ]
        yield from _some(result, "kept apart", held, verbose=verbose)
        yield from _some(result, "taken although", result.accepted, verbose=verbose)
        yield from _some(result, "warning: far from other providers:", result.warnings, verbose=verbose)
        yield from _some(result, "note:", result.notes, verbose=True)
        if any(entry.offer for entry in result.held.values()) or result.outcome is Outcome.REFUSED:
            yield f"{result.provider}: to use what is kept apart: costopt refresh {result.provider} --accept"


def _some(result: Result, what: str, lines: Sequence[str], *, verbose: bool) -> Iterator[str]:
    shown = lines if verbose else lines[:_MOST_LINES]
    yield from (f"{result.provider}: {what} {line}" for line in shown)
    if len(shown) < len(lines):
        yield f"{result.provider}: … {len(lines) - len(shown)} more; -v shows all"


def _price(usd_per_hour: object) -> str:
    return f"{usd_per_hour} USD/h" if usd_per_hour else "no price"


def _row(result: Result) -> tuple[str, ...]:
    counted = result.outcome is Outcome.STORED
    changes = result.changes
    numbers = (changes.new, changes.changed, changes.unchanged, changes.gone, len(result.held))
    return (
        result.provider,
        result.outcome,
        *(f"{value}" if counted else "-" for value in numbers),
        f"{sum(result.rejections.values())}",
        f"{result.duration_s:.1f}",
        _what_happened(result),
    )


def _what_happened(result: Result) -> str:
    """Why nothing was stored, or the reasons behind the counts."""
    reasons = [f"held: {_counts(_held_reasons(result))}"] if result.held else []
    if result.rejections:
        reasons.append(f"rejected: {_counts(result.rejections)}")
    return "; ".join(filter(None, [result.message, *reasons]))


def _held_reasons(result: Result) -> Mapping[str, int]:
    return Counter(entry.reason for entry in result.held.values())


def _counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))


def _document(result: Result) -> dict[str, Any]:
    return {
        "provider": result.provider,
        "outcome": result.outcome,
        "message": result.message,
        "offers": asdict(result.changes) if result.outcome is Outcome.STORED else None,
        "held": [
            {
                "offer": str(key),
                "reason": entry.reason,
                "usd_per_hour": str(entry.offer.usd_per_hour) if entry.offer else None,
                "last_good_usd_per_hour": str(entry.last_good_usd_per_hour) if entry.last_good_usd_per_hour else None,
            }
            for key, entry in sorted(result.held.items())
        ],
        "accepted": list(result.accepted),
        "rejections": dict(result.rejections),
        "warnings": list(result.warnings),
        "notes": list(result.notes),
        "duration_s": round(result.duration_s, 3),
    }
