"""Turns a validation into what is printed: tables, JSON, CSV or Markdown, and one line per prediction."""

from collections.abc import Iterator
from typing import Any

from optimizer.api.json_text import json_text
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.sizing.accuracy import GROUPS, Validation

_COLUMNS = (
    "rows",
    "predicted",
    "median_abs_pct_error",
    "p90_abs_pct_error",
    "within_1_5x",
    "bias",
    "interval_coverage",
)
_VERDICT_COLUMNS = ("rows", "predicted", "agreement", "false_fits", "false_rejections", "fitting", "out_of_memory")
_SHOWN_GROUPS = 12


def render(document: dict[str, Any], format_: str) -> str:
    """The validation in one of the formats; CSV has one line per metric and group."""
    if format_ == "json":
        return json_text(document)
    if format_ == "csv":
        header = ["metric", "by", "group", *dict.fromkeys((*_COLUMNS, *_VERDICT_COLUMNS))]
        return csv_text(header, [[line.get(key, "") for key in header] for line in _lines(document)])
    parts = list(_parts(document))
    return terminal(parts) if format_ == "table" else markdown(parts)


def predictions_csv(validation: Validation) -> str:
    """One line per row and metric: id, metric, measured, predicted, low, high, why it was skipped."""
    header = ["id", "metric", "measured", "predicted", "low", "high", "skipped"]
    rows = [
        [p.id, p.metric, _cell(p.measured), _cell(p.predicted), _cell(p.low), _cell(p.high), p.skipped]
        for p in validation.predictions
    ]
    return csv_text(header, rows)


def _lines(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for metric, values in document["metrics"].items():
        yield {"metric": metric, "by": "all", "group": "all", **values}
        for key in GROUPS:
            for name, figures in values["by"][key].items():
                yield {"metric": metric, "by": key, "group": name, **figures}


def _parts(document: dict[str, Any]) -> Iterator[Table | str]:
    skipped = sum(document["skipped"].values())
    yield f"{document['table']}: {document['rows']:,} rows, {skipped:,} skipped; errors in % of the measurement"
    for reason, count in document["skipped"].items():
        yield f"  skipped {count:,}: {reason}"
    measured = {name: values for name, values in document["metrics"].items() if values["rows"]}
    errors = {name: values for name, values in measured.items() if name != "verdict"}
    if "verdict" in measured:
        yield _table("Verdicts", "metric", {"verdict": measured["verdict"]}, _VERDICT_COLUMNS)
    if errors:
        yield _table("Errors", "metric", errors, _COLUMNS)
    for name, values in measured.items():
        columns = _VERDICT_COLUMNS if name == "verdict" else _COLUMNS
        for key in GROUPS:
            groups = dict(sorted(values["by"][key].items(), key=lambda item: (-item[1]["rows"], item[0])))
            few = dict(list(groups.items())[:_SHOWN_GROUPS])
            left = len(groups) - len(few)
            title = f"{name} by {key}" + (f" (the largest {len(few)}; {left} more in JSON)" if left else "")
            yield _table(title, key, few, columns)


def _table(title: str, first: str, rows: dict[str, dict[str, Any]], columns: tuple[str, ...]) -> Table:
    return Table(
        title=title,
        columns=(first, *columns),
        rows=[(name, *(_cell(values.get(column)) for column in columns)) for name, values in rows.items()],
        right=frozenset(columns),
    )


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
