"""Turns a table of measurements into predictions beside them: inference runs, and reports of memory."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Final

from optimizer.sizing.accuracy import Prediction, Validation
from optimizer.sizing.calibration import device_class
from optimizer.sizing.intervals import factors
from optimizer.sizing.memory_reports import MemoryReport, read_report
from optimizer.sizing.runs import MeasuredRun, RunPrediction, SkippedRun, batch_bound, predict_run, read_run

INFERENCE_METRICS: Final = ("throughput", "tpot", "ttft", "latency")
MEMORY_METRICS: Final = ("verdict", "weights", "kv_tokens")


def validate_inference(rows: Iterable[Mapping[str, str]]) -> Validation:
    """Predicts every row in every metric that it measures; rows that cannot be read are counted by reason."""
    skipped: Counter[str] = Counter()
    predictions: list[Prediction] = []
    count = 0
    for row in rows:
        count += 1
        try:
            predictions.extend(_of_run(row))
        except SkippedRun as reason:
            skipped[str(reason)] += 1
            predictions.append(_not_predicted(row, str(reason)))
    return Validation(
        table="inference", metrics=INFERENCE_METRICS, rows=count, skipped=skipped, predictions=tuple(predictions)
    )


def validate_memory(rows: Iterable[Mapping[str, str]]) -> Validation:
    """Predicts verdict, weights and cache of every report; rows that cannot be read are counted by reason."""
    skipped: Counter[str] = Counter()
    predictions: list[Prediction] = []
    count = 0
    for row in rows:
        count += 1
        try:
            predictions.extend(_of_report(read_report(row)))
        except SkippedRun as reason:
            skipped[str(reason)] += 1
            predictions.append(_not_predicted(row, str(reason)))
    return Validation(
        table="memory", metrics=MEMORY_METRICS, rows=count, skipped=skipped, predictions=tuple(predictions)
    )


def carried_rows(table: str) -> list[dict[str, str]]:
    """The measurements of `table` (inference, training, memory) that the project carries: those of its calibration."""
    import csv
    import gzip

    packed = files("optimizer.sizing").joinpath("data", f"measured_{table}.csv.gz").read_bytes()
    return list(csv.DictReader(gzip.decompress(packed).decode("utf-8").splitlines()))


def _of_run(row: Mapping[str, str]) -> Iterator[Prediction]:
    run = read_run(row)
    predicted = predict_run(run, batch_bound(run))
    groups = {
        "accelerator": run.hardware.accelerator.name,
        "model": run.model.hf_id,
        "engine": run.engine.name,
        "scenario": run.scenario or run.kind,
        "source": run.source,
    }
    kind = device_class(run.hardware.accelerator)
    for metric, measured, value in _pairs(run, predicted):
        # A run's latency is the inverse of its rate: so are the factors.
        low, high = factors("throughput" if metric == "latency" else metric, kind, run.kind)
        if metric == "latency":
            low, high = 1 / high, 1 / low
        yield Prediction(
            id=run.id,
            metric=metric,
            measured=measured,
            predicted=value,
            low=value * low,
            high=value * high,
            groups=groups,
        )


def _pairs(run: MeasuredRun, predicted: RunPrediction) -> Iterator[tuple[str, float, float]]:
    """(metric, measured, predicted) of what the row has; throughput is the first of output, total tokens, requests."""
    rates = (
        (run.output_tokens_per_s, predicted.output_tokens_per_s),
        (run.total_tokens_per_s, predicted.total_tokens_per_s),
        (run.requests_per_s, predicted.requests_per_s),
    )
    for measured, value in rates:
        if measured and value > 0:
            yield "throughput", measured, value
            break
    times = (
        ("tpot", run.tpot_s, predicted.tpot_s),
        ("ttft", run.ttft_s, predicted.ttft_s),
        ("latency", run.latency_s, predicted.latency_s),
    )
    for metric, seconds, guess in times:
        if seconds and math.isfinite(guess):
            yield metric, seconds * 1e3, guess * 1e3


def _of_report(report: MemoryReport) -> Iterator[Prediction]:
    groups = {
        "accelerator": report.accelerator,
        "model": report.model,
        "engine": report.engine,
        "scenario": "memory",
        "source": report.source,
    }
    values = (
        ("verdict", float(report.fits), float(report.predicted_fits)),
        ("weights", report.weights_gib, report.predicted_weights_gib),
        ("kv_tokens", report.kv_tokens, report.predicted_kv_tokens),
    )
    for metric, measured, value in values:
        if measured is not None:
            yield Prediction(id=report.id, metric=metric, measured=measured, predicted=value, groups=groups)


def _not_predicted(row: Mapping[str, str], reason: str) -> Prediction:
    groups = {
        "accelerator": row.get("gpu", ""),
        "model": row.get("model", ""),
        "engine": row.get("engine", ""),
        "scenario": row.get("scenario", ""),
        "source": row.get("id", "").split("-")[0],
    }
    return Prediction(id=row.get("id", ""), metric="none", measured=0.0, predicted=None, skipped=reason, groups=groups)
