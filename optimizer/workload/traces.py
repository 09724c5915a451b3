"""Turns a request log into a few request shapes with rates over time, and says what that reduction loses.

A log is CSV with a header: arrival time, input tokens, output tokens, under any of the names in COLUMNS. Times are
seconds from any start, or ISO 8601 (UTC where no offset is written).
"""

import csv
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from optimizer.workload.workload import RequestShape, ShapeDemand
from providers.errors import InvalidValue, UsageError
from providers.units import HOURS_PER_DAY, HOURS_PER_WEEK, SECONDS_PER_HOUR

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "time": ("t_s", "timestamp", "time", "arrival_time", "arrived_at", "arrival_timestamp", "start_time"),
    "input_tokens": (
        "input_tokens",
        "contexttokens",
        "prompt_tokens",
        "num_prefill_tokens",
        "request tokens",
        "input_length",
    ),
    "output_tokens": (
        "output_tokens",
        "generatedtokens",
        "completion_tokens",
        "num_decode_tokens",
        "response tokens",
        "output_length",
    ),
}
MAX_SHAPES: Final = 12
MAX_REQUESTS: Final = 20_000_000
"""Requests of a log: more take gigabytes, and say nothing that a part of them does not."""
PREFILL_BOUND_RATIO: Final = 20.0
"""Input tokens per output token above which reading prompts rules the cost."""
_WINDOW_S: Final = 60.0
_MAX_BAD_SHARE: Final = 0.5
_LONGEST_S: Final = 20 * 365 * HOURS_PER_DAY * SECONDS_PER_HOUR
"""Minutes of a log are counted one by one."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in order of arrival: seconds from the first, input and output tokens (equal lengths, at least two)."""

    times_s: Numbers
    input_tokens: Numbers
    output_tokens: Numbers
    rejected: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What a trace holds; rates in requests/s."""

    requests: int
    duration_s: float
    mean_requests_per_s: float
    peak_minute_requests_per_s: float
    input_tokens_mean: float
    input_tokens_p50: float
    input_tokens_p99: float
    output_tokens_mean: float
    output_tokens_p50: float
    output_tokens_p99: float
    input_over_output: float
    longest_tokens: int
    rejected: Mapping[str, int]

    @property
    def prefill_bound(self) -> bool:
        return self.input_over_output >= PREFILL_BOUND_RATIO

    @property
    def requests_in_30_days(self) -> float:
        """At the mean rate."""
        return self.mean_requests_per_s * SECONDS_PER_HOUR * HOURS_PER_DAY * 30

    @property
    def input_tokens_in_30_days(self) -> float:
        return self.requests_in_30_days * self.input_tokens_mean

    @property
    def output_tokens_in_30_days(self) -> float:
        return self.requests_in_30_days * self.output_tokens_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedTrace:
    """Shapes with mean rates, hourly factors with a mean of 1 (empty below a day), and the loss of the reduction.

    Requests and tokens are kept exactly in sum. `length_loss` is the mean deviation of a request's tokens from those
    of its shape, as a share of the mean request; `peak_factor` is what the rates were raised by, from mean to peak.
    """

    demands: tuple[ShapeDemand, ...]
    profile: tuple[float, ...]
    length_loss: float
    peak_factor: float


def read_trace(lines: Iterable[str], name: str) -> Trace:
    """The requests of a log. Rows that cannot be used are counted by reason.

    Raises UsageError for a log without the columns, without two usable rows, with mostly unusable ones, or too many.
    """
    rows = csv.reader(lines)
    try:
        header = [cell.strip().lower() for cell in next(rows)]
    except StopIteration:
        raise UsageError(f"{name} is empty; give a CSV of timestamp,input_tokens,output_tokens") from None
    except csv.Error as error:
        raise UsageError(f"{name} is no CSV: {error}") from None
    indices = [_column(header, wanted, name) for wanted in COLUMNS]
    found = array("d")
    rejected: dict[str, int] = {}
    try:
        for row in rows:
            request = _request(row, indices)
            if isinstance(request, str):
                rejected[request] = rejected.get(request, 0) + 1
            elif len(found) >= 3 * MAX_REQUESTS:
                raise UsageError(f"{name} has over {MAX_REQUESTS:,} requests: take a part of it, like one week")
            else:
                found.extend(request)
    except csv.Error as error:
        raise UsageError(f"{name}, line {rows.line_num}: no CSV: {error}") from None
    bad, usable = sum(rejected.values()), len(found) // 3
    if usable < 2 or bad > _MAX_BAD_SHARE * (bad + usable):
        reasons = ", ".join(f"{count} × {reason}" for reason, count in rejected.items()) or (
            "no other rows" if found else "no rows"
        )
        raise UsageError(f"{name} has {usable} usable requests ({reasons}); at least two and most rows are needed")
    table = np.frombuffer(found).reshape(-1, 3)
    order = np.lexsort((table[:, 2], table[:, 1], table[:, 0]))
    times, inputs, outputs = (table[order, column] for column in range(3))
    span = float(times[-1] - times[0])
    if not span <= _LONGEST_S:
        raise UsageError(
            f"{name} spans {span / SECONDS_PER_HOUR / HOURS_PER_DAY / 365:,.0f} years, from time {times[0]:g} to "
            f"{times[-1]:g}: are all times in seconds, or one of them wrong?"
        )
    return Trace(times_s=times - times[0], input_tokens=inputs, output_tokens=outputs, rejected=rejected)


def summarize(trace: Trace) -> TraceSummary:
    """Counts, rates and length statistics of a trace."""
    duration = max(float(trace.times_s[-1]), 1e-9)
    inputs, outputs = trace.input_tokens, trace.output_tokens
    return TraceSummary(
        requests=len(inputs),
        duration_s=duration,
        mean_requests_per_s=len(inputs) / duration,
        peak_minute_requests_per_s=_peak_rate(trace.times_s),
        input_tokens_mean=float(inputs.mean()),
        input_tokens_p50=float(np.median(inputs)),
        input_tokens_p99=float(np.quantile(inputs, 0.99)),
        output_tokens_mean=float(outputs.mean()),
        output_tokens_p50=float(np.median(outputs)),
        output_tokens_p99=float(np.quantile(outputs, 0.99)),
        input_over_output=float(inputs.sum() / max(outputs.sum(), 1.0)),
        longest_tokens=int((inputs + outputs).max()),
        rejected=trace.rejected,
    )


def share_over(trace: Trace, context_tokens: int) -> float:
    """Part of the requests whose input and output together exceed a context limit."""
    return float((trace.input_tokens + trace.output_tokens > context_tokens).mean())


def reduce_trace(trace: Trace, *, max_shapes: int = MAX_SHAPES, at_peak: bool = True) -> ReducedTrace:
    """The trace as at most `max_shapes` shapes and an hourly profile.

    Requests are cut into quantiles of input tokens and, within each, of output tokens; a shape is the mean request of
    its cell, so that requests and tokens stay the same in sum. `at_peak` raises each hour to its busiest minute, since
    a plan for the mean breaks the SLO in between.
    """
    cells = _cells(trace, max_shapes)
    requests = len(trace.times_s)
    duration = max(float(trace.times_s[-1]), 1e-9)
    profile, level = _profile(trace.times_s, at_peak=at_peak)
    mean_rate = requests / duration
    demands, deviation = [], 0.0
    for cell in cells:
        shape = RequestShape(
            input_tokens=max(1, round(float(trace.input_tokens[cell].mean()))),
            output_tokens=max(1, round(float(trace.output_tokens[cell].mean()))),
        )
        share = len(cell) / requests
        demands.append(ShapeDemand(shape=shape, requests_per_s=level * share, share=share))
        deviation += float(np.abs(trace.input_tokens[cell] - shape.input_tokens).sum())
        deviation += float(np.abs(trace.output_tokens[cell] - shape.output_tokens).sum())
    tokens = float((trace.input_tokens + trace.output_tokens).sum())
    return ReducedTrace(
        demands=tuple(demands),
        profile=profile,
        length_loss=deviation / max(tokens, 1.0),
        peak_factor=level / mean_rate,
    )


def _column(header: Sequence[str], wanted: str, name: str) -> int:
    for known in COLUMNS[wanted]:
        if known in header:
            return header.index(known)
    raise UsageError(
        f"{name} has no column for {wanted.replace('_', ' ')} (its columns: {', '.join(header) or 'none'}); "
        f"name it one of {', '.join(COLUMNS[wanted])}"
    )


def _request(row: Sequence[str], indices: Sequence[int]) -> tuple[float, float, float] | str:
    """The numbers of a row, or the reason why it cannot be used."""
    if len(row) <= max(indices):
        return "too few columns"
    time, inputs, outputs = (row[index].strip() for index in indices)
    seconds = _seconds(time)
    if seconds is None:
        return "time is neither seconds nor ISO 8601"
    try:
        tokens = float(inputs), float(outputs)
    except ValueError:
        return "tokens are not numbers"
    if not all(math.isfinite(count) and 0 <= count < 1e9 for count in tokens):
        return "tokens out of range"
    if tokens[0] < 1:
        return "no input tokens"
    return seconds, *tokens


def _seconds(text: str) -> float | None:
    """Seconds as written, or since 1970 of a moment, in UTC where it names no offset: not this machine's zone."""
    try:
        value = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return value if math.isfinite(value) else None


def _peak_rate(times_s: Numbers) -> float:
    """Requests/s of the busiest minute, minutes counted from the first request."""
    minutes = np.bincount((times_s // _WINDOW_S).astype(np.int64))
    return float(minutes.max()) / min(_WINDOW_S, max(float(times_s[-1]), 1e-9))


def _profile(times_s: Numbers, *, at_peak: bool) -> tuple[tuple[float, ...], float]:
    """Hourly factors of a day or week with a mean of 1, and the rate that 1 stands for.

    Hours of several days (or weeks) that fall together take the highest. Below a day there is one period.
    """
    hours = float(times_s[-1]) / SECONDS_PER_HOUR
    if hours < HOURS_PER_DAY:
        level = _peak_rate(times_s) if at_peak else len(times_s) / max(float(times_s[-1]), 1e-9)
        return (), level
    cycle = HOURS_PER_WEEK if hours >= HOURS_PER_WEEK else HOURS_PER_DAY
    whole = int(hours)
    rates = _hourly_rates(times_s, whole, at_peak=at_peak)
    folded = np.zeros(cycle)
    for hour in range(whole):
        folded[hour % cycle] = max(folded[hour % cycle], rates[hour])
    level = float(folded.mean())
    return tuple(float(rate / level) for rate in folded), level


def _hourly_rates(times_s: Numbers, hours: int, *, at_peak: bool) -> Numbers:
    if not at_peak:
        counts = np.bincount((times_s // SECONDS_PER_HOUR).astype(np.int64), minlength=hours)[:hours]
        return counts / float(SECONDS_PER_HOUR)
    minutes = np.bincount((times_s // _WINDOW_S).astype(np.int64), minlength=hours * 60)[: hours * 60]
    busiest: Numbers = minutes.reshape(hours, 60).max(axis=1) / _WINDOW_S
    return busiest


def _cells(trace: Trace, max_shapes: int) -> list[NDArray[np.int64]]:
    """Indices of the requests of each cell: input quantiles, each cut at its output median where that allows."""
    if max_shapes < 1:
        raise InvalidValue("number of shapes", max_shapes, "give at least 1")
    rows = max(1, max_shapes // 2)
    cells: list[NDArray[np.int64]] = []
    for part in _quantile_cut(np.arange(len(trace.times_s)), trace.input_tokens, rows):
        cells += _quantile_cut(part, trace.output_tokens, 2 if max_shapes > 1 else 1)
    return cells


def _quantile_cut(indices: NDArray[np.int64], values: Numbers, parts: int) -> list[NDArray[np.int64]]:
    """The indices in up to `parts` groups of equal token volume by value; equal values stay together."""
    order = indices[np.argsort(values[indices], kind="stable")]
    volume = np.cumsum(values[order] + 1.0)
    edges = np.searchsorted(volume, volume[-1] * np.arange(1, parts) / parts)
    bounds = [0]
    for edge in edges.tolist():
        while 0 < edge < len(order) and values[order[edge]] == values[order[edge - 1]]:
            edge += 1
        if bounds[-1] < edge < len(order):
            bounds.append(edge)
    bounds.append(len(order))
    return [order[a:b] for a, b in pairwise(bounds)]
