"""Turns a table of published training measurements into predictions beside them: rates, peaks and verdicts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from optimizer.sizing.accuracy import Prediction, Validation
from optimizer.sizing.training.calibration import MEMORY, TIME, TIME_SPREAD, TimeConstants
from optimizer.sizing.training.measurements import Measurement, measurement
from optimizer.sizing.training.memory import training_memory
from optimizer.sizing.training.time import step_time

METRICS: Final = ("time", "peak_memory", "verdict")
_GB_PER_GIB: Final = 1.073741824


def validate_training(rows: Iterable[Mapping[str, str]], constants: TimeConstants = TIME) -> Validation:
    """Predicts every row in every metric that it measures; rows that cannot be used are counted by reason."""
    skipped: Counter[str] = Counter()
    predictions: list[Prediction] = []
    count = 0
    for row in rows:
        count += 1
        found = measurement(row)
        if isinstance(found, str):
            skipped[found] += 1
            predictions.append(_not_predicted(row, found))
        else:
            predictions.extend(predict(found, constants))
    return Validation(table="training", metrics=METRICS, rows=count, skipped=skipped, predictions=tuple(predictions))


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
    memory = training_memory(row.setup)
    if memory.verdict == "does_not_fit" and not row.recompute_stated:
        memory = training_memory(replace(row.setup, recompute="full"))
    return memory.verdict != "does_not_fit"


def _not_predicted(row: Mapping[str, str], reason: str) -> Prediction:
    """The line of a row that could not be used: of no metric, so that no error counts it."""
    groups = {"accelerator": row.get("gpu") or "", "model": row.get("model") or "", "engine": "", "scenario": ""}
    return Prediction(
        id=row.get("id") or "",
        metric="",
        measured=0.0,
        predicted=None,
        skipped=reason,
        groups={**groups, "source": row.get("source") or ""},
    )
