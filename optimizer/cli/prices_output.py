"""Turns what the cache knows about its prices into tables, JSON, CSV, Markdown, and for a history a page."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from optimizer.api.json_text import json_text
from optimizer.cli.charts import svg_chart, text_chart
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from pricing_cache.history import KINDS, Change, DayOfPrices, KeptApart, Sighting

if TYPE_CHECKING:
    from optimizer.cli.prices_view import CacheView, Record
    from pricing_cache.freshness import Freshness
    from pricing_cache.observations import Run

SCHEMA_VERSION: Final = "1.0"
_MOST_ROWS: Final = 40
_UNIT: Final = "USD per accelerator-hour"


def status(view: "CacheView", entries: Sequence["Freshness"], format_: str, today: date, max_age_days: float) -> str:
    """Age and coverage by provider, and what is kept apart."""
    if format_ == "json":
        head = _head("status")
        cache = {
            "location": str(view.location),
            "generation": view.stamp.generation if view.stamp else None,
            "max_age_days": max_age_days,
        }
        documents = [_status_document(entry, today) for entry in entries]
        return json_text(
            {**head, "cache": cache, "providers": documents, "kept_apart": [*map(_apart, view.kept_apart)]}
        )
    columns = ("provider", "offers", "shipped", "types", "regions", "oldest", "newest", "age", "stale", "last refresh")
    rows = [_status_row(entry, today) for entry in entries]
    if format_ == "csv":
        return csv_text(columns, rows)
    table = Table(title="Prices in use", columns=columns, rows=rows, right=frozenset(columns[1:5]) | {"age", "stale"})
    exists = f"generation {view.stamp.generation}" if view.stamp else "not there yet: `costopt refresh` makes it"
    parts: list[Table | str] = [
        table,
        f"Cache: {view.location} ({exists}). shipped = from the snapshot in the package; "
        f"stale = older than {max_age_days:g} days, or without a date.",
    ]
    if view.kept_apart:
        parts.append(_apart_table(view.kept_apart))
        parts.append("To use what is kept apart: costopt refresh PROVIDER --accept")
    return terminal(parts) if format_ == "table" else markdown(parts)


def accelerator_history(names: Sequence[str], days: Sequence[DayOfPrices], format_: str) -> str:
    """Lowest and median price by provider and day."""
    title = ", ".join(names)
    if format_ == "json":
        return json_text({**_head("history"), "accelerators": list(names), "points": [*map(_day_document, days)]})
    columns = ("day", "provider", "lowest", "median", "offers", "lowest offer", "from")
    rows = [
        (
            f"{day.day}",
            day.provider,
            f"{day.lowest:.4f}",
            f"{day.median:.4f}",
            f"{day.offers}",
            f"{day.lowest_offer}",
            "shipped snapshot" if day.shipped else "refresh",
        )
        for day in days
    ]
    lines: dict[str, list[tuple[date, float]]] = defaultdict(list)
    for day in days:
        lines[day.provider].append((day.day, float(day.lowest)))
    return _history(title, columns, rows, lines, f"lowest {_UNIT}", format_)


def offer_history(what: str, sightings: Sequence[Sighting], format_: str) -> str:
    """Each price that was seen of an offer."""
    if format_ == "json":
        return json_text({**_head("history"), "offer": what, "points": [*map(_sighting_document, sightings)]})
    columns = ("day", "offer", "USD/h", "from")
    rows = [
        (
            f"{sighting.day}",
            f"{sighting.key}",
            "gone" if sighting.usd_per_hour is None else f"{sighting.usd_per_hour}",
            "shipped snapshot" if sighting.run_id is None else f"refresh {sighting.run_id}",
        )
        for sighting in sightings
    ]
    lines: dict[str, list[tuple[date, float]]] = defaultdict(list)
    for sighting in sightings:
        if sighting.usd_per_hour is not None:
            lines[str(sighting.key)].append((sighting.day, float(sighting.usd_per_hour)))
    return _history(what, columns, rows, lines, "USD per hour of the instance", format_)


def diff(found: Sequence[Change], first_day: date, last_day: date, format_: str, *, everything: bool) -> str:
    """Changes by provider, by accelerator and by offer."""
    by_provider = _counted(found, lambda change: change.offer.provider)
    by_accelerator = _counted(found, lambda change: change.offer.instance_type.accelerator)
    if format_ == "json":
        return json_text(
            {
                **_head("diff"),
                "from": f"{first_day}",
                "to": f"{last_day}",
                "by_provider": by_provider,
                "by_accelerator": by_accelerator,
                "offers": [*map(_change_document, found)],
            }
        )
    columns = ("offer", "accelerator", "change", "before USD/h", "after USD/h", "percent")
    ordered = sorted(found, key=lambda change: (-abs((change.ratio or Decimal(1)) - 1), change.offer.key))
    rows = [_change_row(change) for change in ordered]
    if format_ == "csv":
        return csv_text(columns, rows)
    shown = rows if everything else rows[:_MOST_ROWS]
    parts: list[Table | str] = [
        f"Prices known on {first_day} against those known on {last_day}",
        _count_table("By provider", "provider", by_provider),
        _count_table("By accelerator", "accelerator", by_accelerator),
        Table(title="By offer, largest change first", columns=columns, rows=shown, right=frozenset(columns[3:])),
    ]
    if len(shown) < len(rows):
        parts.append(f"… {len(rows) - len(shown)} more; --all shows them")
    return terminal(parts) if format_ == "table" else markdown(parts)


def show(records: Sequence["Record"], format_: str) -> str:
    """The record behind each offer."""
    documents = [_record_document(record) for record in records]
    if format_ == "json":
        return json_text({**_head("show"), "offers": documents})
    if format_ == "csv":
        columns = ("offer", "field", "value")
        return csv_text(columns, [(d["offer"], *pair) for d in documents for pair in _flat(d) if pair[0] != "offer"])
    parts = [Table(title=d["offer"], columns=("field", "value"), rows=_flat(d)[1:]) for d in documents]
    return terminal(parts) if format_ == "table" else markdown(parts)


def _head(command: str) -> dict[str, Any]:
    return {"schema": f"costopt.prices.{command}", "schema_version": SCHEMA_VERSION}


def _history(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    lines: Mapping[str, Sequence[tuple[date, float]]],
    unit: str,
    format_: str,
) -> str:
    if format_ == "csv":
        return csv_text(columns, rows)
    if format_ == "html":
        return _page(title, columns, rows, svg_chart(lines, title, unit))
    numbers = frozenset(columns) & {"lowest", "median", "offers", "USD/h"}
    table = Table(title=title, columns=columns, rows=rows, right=numbers)
    if format_ == "md":
        return markdown([table])
    return terminal([table, *filter(None, [text_chart(lines, unit)])])


def _page(title: str, columns: Iterable[str], rows: Iterable[Sequence[str]], chart: str) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        "<style>body{font-family:sans-serif;max-width:60rem;margin:2rem auto}"
        "td,th{padding:.2rem .6rem;text-align:left}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{chart}\n<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>\n"
        "</body></html>\n"
    )


def _status_row(entry: "Freshness", today: date) -> tuple[str, ...]:
    return (
        entry.provider,
        f"{entry.offers}",
        f"{entry.shipped}",
        f"{entry.instance_types}",
        f"{entry.regions}",
        f"{entry.oldest or '-'}",
        f"{entry.newest or '-'}",
        f"{(today - entry.newest).days} d" if entry.newest else "-",
        f"{entry.stale}",
        _last_refresh(entry),
    )


def _last_refresh(entry: "Freshness") -> str:
    if entry.last_run is None:
        return "never"
    words = f"{entry.last_run.at:%Y-%m-%d %H:%M} {entry.last_run.outcome}"
    if entry.last_run.message:
        words += f": {entry.last_run.message}"
    if entry.last_stored and entry.last_stored is not entry.last_run:
        words += f"; last good {entry.last_stored.at:%Y-%m-%d %H:%M}"
    return words


def _status_document(entry: "Freshness", today: date) -> dict[str, Any]:
    return {
        "provider": entry.provider,
        "offers": entry.offers,
        "offers_from_snapshot": entry.shipped,
        "as_of_oldest": _text(entry.oldest),
        "as_of_newest": _text(entry.newest),
        "age_days_oldest": (today - entry.oldest).days if entry.oldest else None,
        "age_days_newest": (today - entry.newest).days if entry.newest else None,
        "undated": entry.undated,
        "stale": entry.stale,
        "instance_types": entry.instance_types,
        "accelerators": entry.accelerators,
        "regions": entry.regions,
        "offers_by_purchase_option": dict(entry.by_purchase_option),
        "last_refresh": _run_document(entry.last_run),
        "last_good_refresh": _run_document(entry.last_stored),
    }


def _run_document(run: "Run | None") -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "run": run.id,
        "at": run.at.isoformat(),
        "outcome": run.outcome,
        "message": run.message,
        "duration_s": round(run.duration_s, 3),
        "instance_types_seen": run.instance_types_seen,
        "rejections": dict(run.rejections),
        "notes": list(run.notes),
        "sources": list(run.sources),
    }


def _apart(entry: KeptApart) -> dict[str, Any]:
    return {
        "offer": f"{entry.key}",
        "reason": entry.reason,
        "usd_per_hour": _text(entry.usd_per_hour),
        "last_good_usd_per_hour": _text(entry.last_good_usd_per_hour),
        "run": entry.run_id,
    }


def _apart_table(entries: Sequence[KeptApart]) -> Table:
    rows = [
        (f"{entry.key}", entry.reason, _text(entry.usd_per_hour) or "-", _text(entry.last_good_usd_per_hour) or "-")
        for entry in entries[:_MOST_ROWS]
    ]
    columns = ("offer", "why", "USD/h", "last good USD/h")
    title = f"Kept apart: {len(entries)}"
    return Table(title=title, columns=columns, rows=rows, right=frozenset(columns[2:]))


def _day_document(day: DayOfPrices) -> dict[str, Any]:
    return {
        "day": f"{day.day}",
        "provider": day.provider,
        "lowest_usd_per_accelerator_hour": f"{day.lowest:.6f}",
        "median_usd_per_accelerator_hour": f"{day.median:.6f}",
        "offers": day.offers,
        "lowest_offer": f"{day.lowest_offer}",
        "from_snapshot": day.shipped,
    }


def _sighting_document(sighting: Sighting) -> dict[str, Any]:
    return {
        "day": f"{sighting.day}",
        "offer": f"{sighting.key}",
        "usd_per_hour": _text(sighting.usd_per_hour),
        "gone": sighting.usd_per_hour is None,
        "run": sighting.run_id,
    }


def _change_document(change: Change) -> dict[str, Any]:
    return {
        "offer": f"{change.offer.key}",
        "provider": change.offer.provider,
        "accelerator": change.offer.instance_type.accelerator,
        "change": change.kind,
        "before_usd_per_hour": _text(change.before_usd_per_hour),
        "after_usd_per_hour": _text(change.after_usd_per_hour),
        "percent": round(float(change.ratio - 1) * 100, 2) if change.ratio else None,
    }


def _change_row(change: Change) -> tuple[str, ...]:
    return (
        f"{change.offer.key}",
        change.offer.instance_type.accelerator,
        change.kind,
        _text(change.before_usd_per_hour) or "-",
        _text(change.after_usd_per_hour) or "-",
        f"{(change.ratio - 1) * 100:+.1f}" if change.ratio else "-",
    )


def _counted(found: Iterable[Change], group_of: Callable[[Change], str]) -> dict[str, dict[str, Any]]:
    """Changes by kind for each group, and the median of the price changes in percent."""
    groups: dict[str, list[Change]] = defaultdict(list)
    for change in found:
        groups[group_of(change)].append(change)
    return {
        name: {
            **{kind: sum(change.kind == kind for change in members) for kind in KINDS},
            "median_percent": _median_percent(members),
        }
        for name, members in sorted(groups.items())
    }


def _median_percent(members: Iterable[Change]) -> float | None:
    ratios = [change.ratio for change in members if change.ratio]
    return round(float(median(ratios) - 1) * 100, 2) if ratios else None


def _count_table(title: str, name: str, counts: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = (name, *KINDS, "median %")
    rows = [
        (
            group,
            *(f"{of_kind[kind]}" for kind in KINDS),
            "-" if of_kind["median_percent"] is None else f"{of_kind['median_percent']:+.1f}",
        )
        for group, of_kind in counts.items()
    ]
    return Table(title=title, columns=columns, rows=rows, right=frozenset(columns[1:]))


def _record_document(record: "Record") -> dict[str, Any]:
    offer, run = record.offer, record.run
    commitment = offer.commitment if offer else None
    days = [sighting.day for sighting in record.sightings]
    return {
        "offer": f"{record.key}",
        "on_sale": offer is not None,
        "accelerator": offer and offer.instance_type.accelerator,
        "accelerator_count": offer and offer.instance_type.accelerator_count,
        "usd_per_hour": _text(offer.usd_per_hour if offer else None),
        "upfront_usd": _text(commitment.upfront_usd if commitment else None),
        "term_months": commitment.term_months if commitment else None,
        "as_of": _text(offer.observed_on if offer else None),
        "effective_from": _text(offer.effective_from if offer else None),
        "in_stock": offer.in_stock if offer else None,
        "source": offer.source if offer else None,
        "row_ids": list(offer.row_ids) if offer else [],
        "notes": offer.notes if offer else None,
        "refresh": _run_document(run),
        "kept_apart": _apart(record.kept_apart) if record.kept_apart else None,
        "observations": len(record.sightings),
        "first_observed": _text(min(days, default=None)),
    }


def _flat(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Fields that say something, nested ones under their path."""
    rows: list[tuple[str, str]] = []
    for name, value in document.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            rows += [(f"{prefix}{name}", str(item)) for item in value]
        elif value not in (None, ""):
            rows.append((f"{prefix}{name}", str(value)))
    return rows


def _text(value: object) -> str | None:
    return None if value is None else f"{value}"
