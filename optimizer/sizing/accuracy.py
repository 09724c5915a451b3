"""Turns predictions beside measurements into errors by metric and group: the document `costopt.validate`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SCHEMA: Final = "costopt.validate"
SCHEMA_VERSION: Final = "1.0"
GROUPS: Final = ("accelerator", "model", "engine", "scenario", "source")
_WORST: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One row's measured and predicted value in one metric; `skipped` says why nothing was predicted.

    A verdict is 1 (fits) or 0. `groups` has the row's accelerator, model, engine, scenario and source.
    """

    id: str
    metric: str
    measured: float
    predicted: float | None
    low: float | None = None
    high: float | None = None
    skipped: str = ""
    groups: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All predictions of a table, and the rows that could not be used, by reason."""

    table: str
    metrics: tuple[str, ...]
    rows: int
    skipped: Mapping[str, int]
    predictions: Sequence[Prediction]


def validation_document(validation: Validation) -> dict[str, Any]:
    """The document's keys are those of schema version 1.0; percentages are of abs(predicted / measured - 1)."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "table": validation.table,
        "rows": validation.rows,
        "skipped": dict(sorted(validation.skipped.items())),
        "metrics": {
            name: _metric(name, [p for p in validation.predictions if p.metric == name]) for name in validation.metrics
        },
    }


def errors(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Median and 90th percentile of the error in percent, share within 1.5 x, bias (median ratio), coverage."""
    made = [p for p in predictions if p.predicted is not None]
    ratios = sorted((p.predicted or 0.0) / p.measured for p in made)
    if not ratios:
        return {"rows": len(predictions), "predicted": 0, "median_abs_pct_error": None, "p90_abs_pct_error": None}
    sizes = sorted(abs(ratio - 1) * 100 for ratio in ratios)
    bounded = [p for p in made if p.low is not None and p.high is not None]
    held = [p for p in bounded if (p.low or 0.0) <= p.measured <= (p.high or 0.0)]
    return {
        "rows": len(predictions),
        "predicted": len(made),
        "median_abs_pct_error": _round(quantile(sizes, 0.5)),
        "p90_abs_pct_error": _round(quantile(sizes, 0.9)),
        "within_1_5x": _round(sum(1 for ratio in ratios if 1 / 1.5 <= ratio <= 1.5) / len(ratios)),
        "bias": _round(quantile(ratios, 0.5)),
        "interval_coverage": _round(len(held) / len(bounded)) if bounded else None,
    }


def agreement(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Share of verdicts that agree, both kinds of wrong ones, and how many rows fit or do not."""
    made = [p for p in predictions if p.predicted is not None]
    false_fits = sum(1 for p in made if p.predicted and not p.measured)
    false_rejections = sum(1 for p in made if p.measured and not p.predicted)
    return {
        "rows": len(predictions),
        "predicted": len(made),
        "agreement": _round(1 - (false_fits + false_rejections) / len(made)) if made else None,
        "false_fits": false_fits,
        "false_rejections": false_rejections,
        "fitting": sum(1 for p in made if p.measured),
        "out_of_memory": sum(1 for p in made if not p.measured),
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie, interpolated."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _metric(name: str, predictions: Sequence[Prediction]) -> dict[str, Any]:
    if name == "verdict":
        wrong = [p for p in predictions if p.predicted is not None and bool(p.predicted) != bool(p.measured)]
        return {**agreement(predictions), "by": _by(predictions, agreement), "worst": [_shown(p) for p in wrong]}
    made = [p for p in predictions if p.predicted]
    worst = sorted(made, key=lambda p: (-abs(math.log((p.predicted or 1.0) / p.measured)), p.id))[:_WORST]
    return {**errors(predictions), "by": _by(predictions, errors), "worst": [_shown(p) for p in worst]}


def _shown(prediction: Prediction) -> dict[str, Any]:
    return {
        "id": prediction.id,
        "measured": _round(prediction.measured),
        "predicted": _round(prediction.predicted),
        **prediction.groups,
    }


def _by(
    predictions: Sequence[Prediction], summary: Callable[[Sequence[Prediction]], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for key in GROUPS:
        members: dict[str, list[Prediction]] = {}
        for prediction in predictions:
            members.setdefault(prediction.groups[key], []).append(prediction)
        result[key] = {name: summary(members[name]) for name in sorted(members)}
    return result


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
