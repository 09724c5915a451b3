"""Turns a table of published training measurements into predictions beside them, and the errors by kind and group."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from optimizer.sizing.training.calibration import MEMORY, TIME, TIME_SPREAD, TimeConstants
from optimizer.sizing.training.measurements import Measurement, measurement
from optimizer.sizing.training.memory import TrainingMemory, training_memory
from optimizer.sizing.training.time import step_time

METRICS: Final = ("time", "peak_memory", "verdict")
_GB_PER_GIB: Final = 1.073741824
_WORST: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a row measured in one metric and what was predicted; `skipped` says why nothing was.

    time: seconds per token and accelerator. peak_memory: GiB, read as the row's basis says. verdict: 1 = fits.
    """

    id: str
    metric: str
    measured: float
    predicted: float | None
    low: float | None = None
    high: float | None = None
    skipped: str = ""
    groups: Mapping[str, str]

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All predictions of a table, and the rows that could not be used, by reason."""

    rows: int
    skipped: Mapping[str, int]
    predictions: Sequence[Prediction]


def validate(rows: Iterable[Mapping[str, str]], constants: TimeConstants = TIME) -> Validation:
    """Predicts every row in every metric that it measures."""
    skipped: Counter[str] = Counter()
    predictions: list[Prediction] = []
    count = 0
    for row in rows:
        count += 1
        found = measurement(row)
        if isinstance(found, str):
            skipped[found] += 1
        else:
            predictions.extend(predict(found, constants))
    return Validation(rows=count, skipped=dict(skipped), predictions=predictions)


def predict(row: Measurement, constants: TimeConstants = TIME) -> Iterable[Prediction]:
    """The row's predictions, one for each metric that it measures."""
    groups = {
        "accelerator": row.setup.cluster.accelerator.name,
        "model": row.setup.model.name,
        "engine": row.framework or "not stated",
        "scenario": f"{row.setup.task} {row.setup.precision}",
        "source": row.source or "not stated",
    }
    if row.tokens_per_s_per_accelerator:
        seconds = seconds_per_token(row, constants)
        yield Prediction(
            id=row.id,
            metric="time",
            measured=1 / row.tokens_per_s_per_accelerator,
            predicted=seconds,
            low=seconds / TIME_SPREAD,
            high=seconds * TIME_SPREAD,
            groups=groups,
        )
    if row.peak_memory_gib:
        peak = peak_gib(row)
        low, high = peak / MEMORY.spread, peak * MEMORY.spread
        yield Prediction(
            id=row.id,
            metric="peak_memory",
            measured=row.peak_memory_gib,
            predicted=peak,
            low=low,
            high=high,
            groups=groups,
        )
    if row.fits is not None:
        stated = row.layout_stated
        yield Prediction(
            id=row.id,
            metric="verdict",
            measured=float(row.fits),
            predicted=float(fits(row)) if stated else None,
            skipped="" if stated else "layout not stated",
            groups=groups,
        )


def seconds_per_token(row: Measurement, constants: TimeConstants = TIME) -> float:
    """Predicted seconds per token and accelerator; a whole run also loses what restarts and evaluation take."""
    rate = step_time(row.setup, constants).tokens_per_s_per_accelerator
    return 1 / (rate * constants.goodput if row.whole_run else rate)


def peak_gib(row: Measurement) -> float:
    """The predicted peak as the row's source reads it: tensors, the allocator's reserve, or what the driver shows."""
    memory = training_memory(row.setup)
    basis = row.memory_basis
    if "smi" in basis or "not stated" in basis or not basis:
        shown = memory.needed_gib
    elif "reserved" in basis:
        shown = memory.allocated_gib + memory.fragmentation_gib
    else:
        shown = memory.allocated_gib
    decimal = "gb" in basis and "gib" not in basis and "converted" not in basis
    return shown * _GB_PER_GIB if decimal else shown


def fits(row: Measurement) -> bool:
    """Whether the row's setup is predicted to fit; where recomputation is not stated, in its thriftiest form."""
    memory: TrainingMemory = training_memory(row.setup)
    if memory.verdict == "does_not_fit" and not row.recompute_stated:
        memory = training_memory(replace(row.setup, recompute="full"))
    return memory.verdict != "does_not_fit"


def validation_document(validation: Validation) -> dict[str, Any]:
    """The `costopt.validate` document of the training table."""
    return {
        "schema": "costopt.validate",
        "schema_version": "1.0",
        "table": "training",
        "rows": validation.rows,
        "skipped": dict(validation.skipped),
        "metrics": {name: _metric(name, [p for p in validation.predictions if p.metric == name]) for name in METRICS},
    }


def _metric(name: str, predictions: Sequence[Prediction]) -> dict[str, Any]:
    made = [p for p in predictions if p.predicted is not None]
    if name == "verdict":
        return {**_agreement(predictions), "by": _by(made, _agreement)}
    worst = sorted(made, key=lambda p: -abs(math.log((p.predicted or 1.0) / p.measured)))[:_WORST]
    return {
        **errors(made),
        "rows": len(predictions),
        "by": _by(made, errors),
        "worst": [
            {"id": p.id, "measured": _round(p.measured), "predicted": _round(p.predicted), **p.groups} for p in worst
        ],
    }


def errors(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Median and 90th percentile of abs(predicted / measured - 1) in percent, bias (median ratio), coverage."""
    sizes = sorted(abs(p.error) * 100 for p in predictions if p.error is not None)
    if not sizes:
        return {"rows": 0, "predicted": 0, "median_abs_pct_error": None, "p90_abs_pct_error": None}
    ratios = sorted((p.predicted or 0.0) / p.measured for p in predictions)
    covered = [p for p in predictions if p.low is not None and p.high is not None and p.low <= p.measured <= p.high]
    return {
        "rows": len(predictions),
        "predicted": len(sizes),
        "median_abs_pct_error": _round(quantile(sizes, 0.5)),
        "p90_abs_pct_error": _round(quantile(sizes, 0.9)),
        "within_1_5x": _round(sum(1 for ratio in ratios if 1 / 1.5 <= ratio <= 1.5) / len(ratios)),
        "bias": _round(quantile(ratios, 0.5)),
        "interval_coverage": _round(len(covered) / len(predictions)),
    }


def _agreement(predictions: Sequence[Prediction]) -> dict[str, Any]:
    made = [p for p in predictions if p.predicted is not None]
    fitting = [p for p in made if p.measured == 1]
    others = [p for p in made if p.measured == 0]
    false_fits = sum(1 for p in others if p.predicted)
    false_rejections = sum(1 for p in fitting if not p.predicted)
    wrong = false_fits + false_rejections
    return {
        "rows": len(predictions),
        "predicted": len(made),
        "agreement": _round(1 - wrong / len(made)) if made else None,
        "false_fits": false_fits,
        "false_rejections": false_rejections,
        "out_of_memory_called_right": _round(1 - false_fits / len(others)) if others else None,
        "fitting_called_right": _round(1 - false_rejections / len(fitting)) if fitting else None,
    }


def _by(predictions: Sequence[Prediction], summary: Any) -> dict[str, dict[str, Any]]:
    """The same figures by accelerator, model, engine, scenario and source."""
    result: dict[str, dict[str, Any]] = {}
    for key in ("accelerator", "model", "engine", "scenario", "source"):
        groups: dict[str, list[Prediction]] = defaultdict(list)
        for prediction in predictions:
            groups[prediction.groups[key]].append(prediction)
        result[key] = {name: summary(groups[name]) for name in sorted(groups)}
    return result


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie, interpolated."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
