"""Fits the constants of training time to a table of measurements, and checks them by leaving each source out.

    python tests/benchmarks/calibrate_training.py [TABLE.csv] [--check-only] [--write]

Prints the constants to write into `optimizer/sizing/training/calibration.py`, the errors with them, and the errors on
each source with constants that were fitted to the others; `--write` keeps those for the page on accuracy.

Residuals are logarithms of predicted over measured rate, under a soft-L1 loss (a bad row pulls less), each source
weighed by the fifth root of its rows. A weak prior keeps each constant near the value that was guessed for it before
any row was looked at. Needs scipy (a development dependency).
"""

import argparse
import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from optimizer.sizing.accuracy import quantile
from optimizer.sizing.training.calibration import TIME, TIME_SPREAD, TimeConstants
from optimizer.sizing.training.measurements import Measurement, calibration_rows, measurement
from optimizer.sizing.training.validation import seconds_per_token

LEFT_OUT = Path(__file__).parents[2] / "optimizer" / "sizing" / "data" / "left_out_training.csv"
SIGNED = frozenset({"yearly", "expert_yearly"})
FIXED = frozenset({"host_bytes_per_s", "cdna_share"})
PRIOR = TimeConstants(
    megatron_share=0.75,
    old_share=0.6,
    fsdp_share=0.7,
    hf_share=0.65,
    xla_share=0.7,
    hopper_share=0.8,
    blackwell_share=0.95,
    tpu_share=1.0,
    tuned_fp8_share=0.7,
    plain_fp8_share=0.5,
    fp4_share=0.5,
    expert_share=0.5,
    yearly=0.03,
    expert_yearly=0.25,
    small_expert_tokens=500.0,
    attention_share=0.4,
    tuned_elementwise=60.0,
    plain_elementwise=100.0,
    expert_traffic=0.3,
    logit_traffic=30.0,
    tuned_launch_s=0.5e-3,
    plain_launch_s=1.5e-3,
    hf_launch_s=5e-3,
    expert_launch_s=4e-3,
    link_share=0.7,
    tensor_exposed=0.7,
    expert_exposed=0.7,
    gather_exposed=0.5,
    data_exposed=0.5,
    bubble=0.3,
    straggler=0.01,
    dequantised_per_s=6.4e10,
    goodput=0.88,
)
WIDTHS = dict.fromkeys(("megatron_share", "fsdp_share", "hf_share", "xla_share", "hopper_share", "tpu_share"), 0.2)
WIDTHS |= {"link_share": 0.15, "goodput": 0.05, "yearly": 0.05, "expert_yearly": 0.3, "old_share": 0.3}
WIDTHS |= dict.fromkeys(("tuned_elementwise", "plain_elementwise", "attention_share", "bubble"), 0.4)
WIDTHS |= {"expert_launch_s": 0.1, "small_expert_tokens": 0.7, "logit_traffic": 0.4}
NAMES = [field.name for field in fields(TimeConstants) if field.name not in FIXED]
_WIDTH = np.array([WIDTHS.get(name, 0.5) for name in NAMES])
_LOSS_SCALE = 0.15


def main() -> None:
    """Fits, prints, and leaves each source out in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", type=Path)
    parser.add_argument("--write", action="store_true", help=f"keep the errors on left-out sources in {LEFT_OUT}")
    parser.add_argument("--check-only", action="store_true", help="errors of the constants in force, no fit")
    arguments = parser.parse_args()
    table = calibration_rows()
    if arguments.table:
        with arguments.table.open(newline="", encoding="utf-8-sig") as stream:
            table = list(csv.DictReader(stream))
    rows = [found for found in map(measurement, table) if isinstance(found, Measurement)]
    rows = [row for row in rows if row.tokens_per_s_per_accelerator]
    print(f"{len(rows)} rates; constants in force: {summary(residuals(rows, TIME))}")
    if arguments.check_only:
        return
    fitted = fit(rows, PRIOR, evaluations=60)
    for field in fields(fitted):
        print(f"    {field.name}: float = {getattr(fitted, field.name):.3g}")
    print(f"fitted to all: {summary(residuals(rows, fitted))}")
    left_out: dict[str, np.ndarray] = {}
    for source in sorted({row.source for row in rows}):
        others = [row for row in rows if row.source != source]
        own = [row for row in rows if row.source == source]
        errors = residuals(own, fit(others, fitted, evaluations=6))
        left_out[source] = errors
        print(f"  without {source[:70]}: {summary(errors)}")
    together = np.concatenate(list(left_out.values()))
    print(f"leave-one-source-out: {summary(together)}")
    if arguments.write:
        write_left_out({"all": together, **left_out})


def write_left_out(by_source: Mapping[str, np.ndarray]) -> None:
    """The errors on each source that the constants had not seen, as a table that the page on accuracy reads."""
    with LEFT_OUT.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["source", "rows", "median_abs_pct_error", "p90_abs_pct_error", "bias", "interval_coverage"])
        for source, errors in sorted(by_source.items(), key=lambda item: (-len(item[1]), item[0])):
            sizes = sorted(np.abs(np.exp(errors) - 1) * 100)
            covered = float(np.mean(np.abs(errors) <= math.log(TIME_SPREAD)))
            figures = (quantile(sizes, 0.5), quantile(sizes, 0.9), math.exp(np.median(errors)), covered)
            writer.writerow([source, len(errors), *(f"{figure:.3g}" for figure in figures)])


def residuals(rows: Sequence[Measurement], constants: TimeConstants) -> np.ndarray:
    """log(predicted time / measured time) of each row."""
    return np.array(
        [math.log(seconds_per_token(row, constants) * (row.tokens_per_s_per_accelerator or 1.0)) for row in rows]
    )


def fit(rows: Sequence[Measurement], start: TimeConstants, *, evaluations: int) -> TimeConstants:
    """The constants that explain the rows best, near their priors."""
    counts = Counter(row.source for row in rows)
    weights = np.array([counts[row.source] ** -0.2 for row in rows])
    weights /= weights.mean()
    prior = _vector(PRIOR)

    def distances(vector: np.ndarray) -> np.ndarray:
        own = weights * residuals(rows, _constants(vector))
        return np.concatenate([own, (vector - prior) / _WIDTH])

    solved = least_squares(distances, _vector(start), loss="soft_l1", f_scale=_LOSS_SCALE, max_nfev=evaluations)
    return _constants(solved.x)


def summary(errors: np.ndarray) -> str:
    """Median and 90th percentile of abs(predicted / measured - 1), bias, and the 80 % spread as a factor."""
    sizes = sorted(np.abs(np.exp(errors) - 1) * 100)
    spread = math.exp(quantile(sorted(np.abs(errors)), 0.8))
    return (
        f"median {quantile(sizes, 0.5):.1f} %, p90 {quantile(sizes, 0.9):.1f} %, "
        f"bias {math.exp(np.median(errors)):.2f}, 80 % within x {spread:.2f}, {len(sizes)} rows"
    )


def _vector(constants: TimeConstants) -> np.ndarray:
    return np.array([v if n in SIGNED else math.log(v) for n in NAMES for v in (getattr(constants, n),)])


def _constants(vector: np.ndarray) -> TimeConstants:
    values = {n: float(v) if n in SIGNED else math.exp(v) for n, v in zip(NAMES, vector, strict=True)}
    return replace(PRIOR, **values)


if __name__ == "__main__":
    main()
