"""Fits the constants of `optimizer.sizing` to a table of measurements, and reports leave-one-source-out errors.

    python tests/benchmarks/calibrate_inference.py TABLE.csv [--leave-one-out] [--write]

Each constant is fitted in logarithms by robust least squares, held to its starting value by its doubt (both in
`optimizer.sizing.constants`). `--write` replaces the constants, the intervals and the carried measurements.
"""

import argparse
import csv
import gzip
import io
import math
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from optimizer.sizing.calibration import device_class
from optimizer.sizing.constants import KINDS, kind_of
from optimizer.sizing.intervals import LEVEL, load_group
from optimizer.sizing.runs import MeasuredRun, RunPrediction, SkippedRun, batch_bound, predict_run, read_run

DATA = Path(__file__).parents[2] / "optimizer" / "sizing" / "data"
ENOUGH_ROWS = 60
ENOUGH_ROWS_OF_PART = 50
"""Rows from which an accelerator has a factor of its own: one that few rows name would take over their errors."""
FEW_REQUESTS = 16
CLASS_SCALE = (0.75, 1.35)
LEAST_WIDTH = 0.05
WANTED_COVERAGE = 0.81
METRICS = ("throughput", "tpot", "ttft")
WEIGHTS = {"throughput": 1.0, "tpot": 0.8, "ttft": 0.35}
SOFTNESS = 0.15
"""Log error from which a residual counts linearly instead of quadratically."""
PRIOR_WEIGHT = 0.15
NOTES = (
    r"\d+ (?:prompts|requests)",
    r"\d+ ShareGPT prompts|ShareGPT",
    r"enable_attention_dp",
    r"vLLM \d+\.\d+(?:\.\d+)?",
)
RUN_COLUMNS = (
    *("id", "model", "weight_dtype", "kv_dtype", "engine", "engine_version", "gpu", "gpu_count", "tp", "pp", "dp"),
    *("input_tokens", "output_tokens", "concurrency_or_rate", "scenario", "output_tok_per_s_total", "total_tok_per_s"),
    *("requests_per_s", "ttft_ms", "tpot_ms", "latency_ms", "source", "source_date", "notes"),
)
REPORT_COLUMNS = (
    *("id", "model", "weight_dtype", "gpu", "gpu_count", "tp", "max_model_len", "gpu_memory_utilization", "fits"),
    *("weights_gib_per_gpu", "kv_cache_tokens", "source", "engine", "pp", "kv_dtype", "notes"),
)


class Recording(dict[str, float]):
    """Constants that remember which of them were read."""

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> float:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: float = 1.0) -> float:
        self.read.update({key} & self.keys())
        return super().get(key, default)


class Fit:
    """The runs, the constants they read, and residuals with a sparse Jacobian."""

    def __init__(self, runs: Sequence[MeasuredRun]) -> None:
        self.runs = list(runs)
        self.bounds = [batch_bound(run) for run in self.runs]
        self.start = starting_values(self.runs)
        used = [self._names(i) for i in range(len(self.runs))]
        read = sorted(set().union(*used))
        self.users = {name: [i for i, names in enumerate(used) if name in names] for name in read}
        self.names = [name for name in read if not kind_of(name).held]
        self.prior = np.array([math.log(self.start[name]) for name in self.names])
        self.doubt = np.array([math.log(kind_of(name).doubt) for name in self.names])
        self.measured = [measured_values(run) for run in self.runs]

    def _names(self, index: int) -> set[str]:
        known = Recording(self.start)
        predict_run(self.runs[index], self.bounds[index], known)
        return known.read

    def constants(self, x: np.ndarray) -> dict[str, float]:
        return self.start | dict(zip(self.names, np.exp(x), strict=True))

    def log_errors(self, known: Mapping[str, float], indices: Sequence[int] | None = None) -> np.ndarray:
        """ln(predicted / measured) by run and metric; NaN where nothing was measured."""
        chosen = range(len(self.runs)) if indices is None else indices
        out = np.full((len(chosen), len(METRICS)), np.nan)
        for row, i in enumerate(chosen):
            values = predicted_values(self.runs[i], predict_run(self.runs[i], self.bounds[i], known))
            for column, metric in enumerate(METRICS):
                truth = self.measured[i].get(metric)
                if truth and values[metric] > 0:
                    out[row, column] = math.log(values[metric] / truth)
        return out

    def solve(self, mask: np.ndarray, x: np.ndarray, steps: int) -> np.ndarray:
        """The constants (logarithms) that fit the runs under `mask`, from `x`."""
        indices = np.flatnonzero(mask)
        position = {i: n for n, i in enumerate(indices)}
        weight = np.array([WEIGHTS[m] for m in METRICS])
        base = self.log_errors(self.constants(x), indices)
        seen = np.isfinite(base)

        def softened(errors: np.ndarray) -> np.ndarray:
            z = errors * weight / SOFTNESS
            return np.where(seen, SOFTNESS * np.sign(z) * np.sqrt(2 * (np.sqrt(1 + z * z) - 1)), 0.0)

        def residuals(y: np.ndarray) -> np.ndarray:
            errors = np.nan_to_num(self.log_errors(self.constants(y), indices))
            return np.concatenate([softened(errors).ravel(), PRIOR_WEIGHT * (y - self.prior) / self.doubt])

        def jacobian(y: np.ndarray) -> np.ndarray:
            known = self.constants(y)
            now = np.nan_to_num(self.log_errors(known, indices))
            soft = softened(now)
            columns = len(METRICS)
            out = np.zeros((now.size + len(y), len(y)))
            for j, name in enumerate(self.names):
                users = [i for i in self.users[name] if i in position]
                if users:
                    moved = now.copy()
                    rows = [position[i] for i in users]
                    moved[rows] = np.nan_to_num(self.log_errors({**known, name: known[name] * math.exp(1e-4)}, users))
                    change = (softened(moved) - soft)[rows] / 1e-4
                    for row, values in zip(rows, change, strict=True):
                        out[row * columns : row * columns + columns, j] = values
                out[now.size + j, j] = PRIOR_WEIGHT / self.doubt[j]
            return out

        found = least_squares(residuals, x, jac=jacobian, max_nfev=steps)
        covariance = np.linalg.pinv(found.jac.T @ found.jac) * 2 * found.cost / max(1, seen.sum() - len(x))
        self.spread = np.exp(np.sqrt(np.maximum(np.diag(covariance), 0)))
        return np.asarray(found.x)

    def leave_one_out(self, x: np.ndarray, steps: int) -> np.ndarray:
        """Log errors of every run under constants that were fitted anew without its source, two sources at a time."""
        sources = np.array([run.source for run in self.runs])
        names = list(dict.fromkeys(sources))
        out = np.full((len(self.runs), len(METRICS)), np.nan)
        # Forked workers inherit the fit, which cannot be pickled.
        forked = get_context("fork")
        with ProcessPoolExecutor(2, mp_context=forked, initializer=_share, initargs=(self,)) as pool:
            for name, errors in zip(names, pool.map(_left_out, names, repeat(x), repeat(steps)), strict=True):
                out[sources == name] = errors
                print(f"without {name}", flush=True)
        return out


_shared: list[Fit] = []


def _share(fit: Fit) -> None:
    _shared.append(fit)


def _left_out(source: str, x: np.ndarray, steps: int) -> np.ndarray:
    """Log errors of the runs of `source` under constants fitted to the others."""
    fit = _shared[-1]
    sources = np.array([run.source for run in fit.runs])
    found = fit.solve(sources != source, x, steps)
    return fit.log_errors(fit.constants(found), np.flatnonzero(sources == source).tolist())


def starting_values(runs: Sequence[MeasuredRun]) -> dict[str, float]:
    start: dict[str, float] = {}
    for kind in KINDS:
        if kind.prefix == "compute.part":
            ran = Counter(run.hardware.accelerator.name for run in runs)
            start |= {f"{kind.prefix}.{name}": kind.start for name, rows in ran.items() if rows >= ENOUGH_ROWS_OF_PART}
        elif kind.members:
            start |= {f"{kind.prefix}.{member}": kind.start for member in kind.members}
        else:
            start[kind.prefix] = kind.start
    start["overhead.layer_us.llama.cpp"] = 120.0
    # Not in the tables: 25 to 35 ms per token of a 7B in 16 bit on A100, of which its bytes explain 8.
    start["overhead.layer_us.transformers"] = 650.0
    return start


def measured_values(run: MeasuredRun) -> dict[str, float | None]:
    throughput = run.output_tokens_per_s or run.total_tokens_per_s or run.requests_per_s
    if run.kind == "prompt":
        throughput = run.total_tokens_per_s
    return {"throughput": throughput, "tpot": run.tpot_s, "ttft": run.ttft_s, "latency": run.latency_s}


def predicted_values(run: MeasuredRun, p: RunPrediction) -> dict[str, float]:
    throughput = p.output_tokens_per_s if run.output_tokens_per_s else p.total_tokens_per_s
    return {"throughput": throughput, "tpot": p.tpot_s, "ttft": p.ttft_s, "latency": p.latency_s}


def summary(errors: np.ndarray) -> str:
    e = np.abs(np.exp(errors[np.isfinite(errors)]) - 1) * 100
    if not len(e):
        return "-"
    bias = np.exp(np.median(errors[np.isfinite(errors)]))
    return f"{np.median(e):5.1f} / {np.percentile(e, 90):5.0f} (n {len(e)}, bias {bias:.2f})"


def read_runs(path: Path) -> tuple[list[MeasuredRun], dict[str, int]]:
    runs, skipped = [], {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            try:
                runs.append(read_run(row))
            except SkippedRun as reason:
                skipped[str(reason)] = skipped.get(str(reason), 0) + 1
    return runs, skipped


def report(fit: Fit, errors: np.ndarray) -> Iterator[str]:
    few = np.array([run.concurrency is not None and run.concurrency <= 16 for run in fit.runs])
    yield f"throughput {summary(errors[:, 0])}  tpot {summary(errors[:, 1])}"
    yield f"ttft to 16 {summary(errors[few, 2])}  ttft {summary(errors[:, 2])}"
    for source in dict.fromkeys(run.source for run in fit.runs):
        mask = np.array([run.source == source for run in fit.runs])
        yield f"  {source:8s} " + " | ".join(f"{m} {summary(errors[mask, c])}" for c, m in enumerate(METRICS))


def write_constants(fit: Fit, x: np.ndarray) -> None:
    """`calibration.csv`: every constant, its value, the factor of one standard error, and the runs that read it."""
    values = fit.constants(x)
    spread = dict(zip(fit.names, fit.spread, strict=True))
    with (DATA / "calibration.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["constant", "value", "spread_factor", "runs"])
        for name in sorted(values):
            writer.writerow([name, f"{values[name]:.4g}", f"{spread.get(name, 1.0):.3g}", len(fit.users.get(name, ()))])


def interval_rows(runs: Sequence[MeasuredRun], errors: np.ndarray, stretch: Sequence[float]) -> Iterator[list[object]]:
    """Ends of the intervals, from errors on sources that the constants had not seen.

    The ends of a load are quantiles of its errors, each source weighted by the root of its rows, times the metric's
    `stretch` (in logarithms). A device class moves them by the root of its mean error over that of all classes.
    """
    classes = np.array([device_class(run.hardware.accelerator) for run in runs])
    loads = np.array([load_group(run.kind) for run in runs])
    weights = source_weights(runs)
    for column, metric in enumerate(METRICS):
        found = np.isfinite(errors[:, column])
        for load in ("all", *sorted(set(loads))):
            mask = found & ((loads == load) | (load == "all"))
            if mask.sum() < ENOUGH_ROWS:
                continue
            ends = [
                -weighted_quantile(errors[mask, column], weights[mask], q) for q in ((1 + LEVEL) / 2, (1 - LEVEL) / 2)
            ]
            typical = np.average(np.abs(errors[mask, column]), weights=weights[mask])
            for kind in ("all", *(sorted(set(classes)) if load != "all" else ())):
                chosen = mask & ((classes == kind) | (kind == "all"))
                if chosen.sum() >= ENOUGH_ROWS:
                    own = np.average(np.abs(errors[chosen, column]), weights=weights[chosen])
                    scale = float(np.clip(np.sqrt(own / typical), *CLASS_SCALE)) * stretch[column]
                    low, high = min(ends[0] * scale, -LEAST_WIDTH), max(ends[1] * scale, LEAST_WIDTH)
                    yield [metric, kind, load, int(chosen.sum()), f"{np.exp(low):.4g}", f"{np.exp(high):.4g}"]


def source_weights(runs: Sequence[MeasuredRun]) -> np.ndarray:
    """One over the root of the source's rows: large tables count more than small ones, but not in proportion."""
    sources = [run.source for run in runs]
    return np.array([1 / math.sqrt(sources.count(source)) for source in sources])


def weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(len(values) - 1, int(np.searchsorted(reached, share)))])


def stretches(runs: Sequence[MeasuredRun], errors: np.ndarray) -> list[float]:
    """How far quantiles must be stretched to hold WANTED_COVERAGE of the rows of a source that did not make them."""
    low, high = np.full(len(METRICS), 0.7), np.full(len(METRICS), 2.5)
    for _ in range(7):
        middle = (low + high) / 2
        held = covered(runs, errors, list(middle))
        short = np.nanmean(np.where(np.isfinite(errors), held, np.nan), axis=0) < WANTED_COVERAGE
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return [float(value) for value in high]


def write_intervals(runs: Sequence[MeasuredRun], errors: np.ndarray, stretch: Sequence[float]) -> None:
    with (DATA / "intervals.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["metric", "device_class", "load", "rows", "low", "high"])
        writer.writerows(interval_rows(runs, errors, stretch))


def left_out_rows(runs: Sequence[MeasuredRun], errors: np.ndarray, stretch: Sequence[float]) -> Iterator[list[object]]:
    """Errors of each source under constants and intervals that had not seen it, and of all sources together."""
    sources = np.array([run.source for run in runs])
    few = np.array([run.concurrency is not None and run.concurrency <= FEW_REQUESTS for run in runs])
    held = covered(runs, errors, stretch)
    for column, metric in enumerate((*METRICS, "ttft up to 16 requests")):
        c = min(column, len(METRICS) - 1)
        chosen = few if column == len(METRICS) else np.ones(len(runs), bool)
        for source in ("all", *dict.fromkeys(sources)):
            mask = chosen & np.isfinite(errors[:, c]) & ((sources == source) | (source == "all"))
            if mask.any():
                sizes = np.abs(np.exp(errors[mask, c]) - 1) * 100
                bias = np.exp(np.median(errors[mask, c]))
                figures = (np.median(sizes), np.percentile(sizes, 90), bias, held[mask, c].mean())
                yield [metric, source, int(mask.sum()), *(f"{figure:.3g}" for figure in figures)]


def covered(runs: Sequence[MeasuredRun], errors: np.ndarray, stretch: Sequence[float]) -> np.ndarray:
    """Whether the interval that the other sources give holds the measurement, by run and metric."""
    sources = np.array([run.source for run in runs])
    held = np.zeros(errors.shape, bool)
    for source in dict.fromkeys(sources):
        others = np.flatnonzero(sources != source)
        table = {
            (row[0], row[1], row[2]): (float(str(row[4])), float(str(row[5])))
            for row in interval_rows([runs[i] for i in others], errors[others], stretch)
        }
        for i in np.flatnonzero(sources == source):
            kind, load = device_class(runs[i].hardware.accelerator), load_group(runs[i].kind)
            for c, metric in enumerate(METRICS):
                keys = [(metric, kind, load), (metric, "all", load), (metric, "all", "all")]
                low, high = next(table[key] for key in keys if key in table)
                held[i, c] = low <= np.exp(-errors[i, c]) <= high
    return held


def write_left_out(runs: Sequence[MeasuredRun], errors: np.ndarray, stretch: Sequence[float]) -> None:
    with (DATA / "left_out.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["metric", "source", "rows", "median_pct", "p90_pct", "bias", "interval_coverage"])
        writer.writerows(left_out_rows(runs, errors, stretch))


def carry(table: Path, name: str, columns: Sequence[str]) -> None:
    """Packs the columns that predictions read; of the notes only what they read of them."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        kept = [found[0] for pattern in NOTES for found in [re.search(pattern, row.get("notes", ""))] if found]
        writer.writerow({**row, "notes": "; ".join(kept)})
    packed = gzip.compress(text.getvalue().encode("utf-8"), 9, mtime=0)
    (DATA / f"measured_{name}.csv.gz").write_bytes(packed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--memory", type=Path, help="also carry this table of memory reports")
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--only-left-out", action="store_true", help="leave the constants as they are")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    runs, skipped = read_runs(options.table)
    print(f"{len(runs)} runs, skipped {skipped}")
    began = time.perf_counter()
    fit = Fit(runs)
    x = fit.prior if options.only_left_out else fit.solve(np.ones(len(runs), bool), fit.prior, 25)
    print(f"fitted {len(x)} constants in {time.perf_counter() - began:.0f} s")
    for line in report(fit, fit.log_errors(fit.constants(x))):
        print(line)
    if options.write and not options.only_left_out:
        write_constants(fit, x)
        carry(options.table, "inference", RUN_COLUMNS)
    if options.write and options.memory:
        carry(options.memory, "memory", REPORT_COLUMNS)
    if options.leave_one_out or options.only_left_out:
        errors = fit.leave_one_out(fit.prior, 12)
        print("leaving one source out")
        for line in report(fit, errors):
            print(line)
        if options.write:
            stretch = stretches(runs, errors)
            write_intervals(runs, errors, stretch)
            write_left_out(runs, errors, stretch)


if __name__ == "__main__":
    main()
