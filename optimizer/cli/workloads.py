"""Turns the workload flags, a workload file or a request log into workloads with their models, and what was assumed."""

import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optimizer.cli import choices
from optimizer.sizing.document import number
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from optimizer.workload.traces import TraceSummary

MAX_TRACE_BYTES: Final = 4_000_000_000
TRACE_RATES: Final = ("peak", "mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """The workloads, what was assumed for them, and what a reader should be warned of."""

    pairs: tuple[tuple[InferenceWorkload, Architecture], ...]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    trace: Mapping[str, Any] | None = None
    """Statistics of the request log, where there is one."""


def chosen(
    workload: InferenceWorkload, file: str | None, trace: str | None, *, trace_rate: str, trace_shapes: int
) -> Workloads:
    """The workloads of the file, of the request log, or of the flags alone.

    Raises UsageError when none is named, or a file together with flags that it replaces.
    """
    choices.one_of("trace rate", trace_rate, TRACE_RATES)
    if file is not None:
        if workload.model or trace is not None or workload.requests_per_s is not None:
            raise UsageError("--workload replaces --model, --trace and --rate: give them in the file")
        return from_file(file)
    if not workload.model:
        raise UsageError("no model: give --model, like --model 70B, or --workload FILE")
    if trace is not None:
        return from_trace(trace, workload, at_peak=trace_rate == "peak", max_shapes=trace_shapes)
    return Workloads(pairs=((workload, choices.architecture(workload.model)),))


def from_file(path: str) -> Workloads:
    """The workloads of a YAML file. Raises UsageError with field, value and line."""
    from optimizer.workload.workload_file import MAX_BYTES, parse_workloads

    workloads = parse_workloads(read_text(path, "workload file", MAX_BYTES), path)
    return Workloads(
        pairs=tuple(
            (replace(one, precisions=choices.precisions(one.precisions)), _architecture(one, path)) for one in workloads
        )
    )


def from_trace(path: str, workload: InferenceWorkload, *, at_peak: bool, max_shapes: int) -> Workloads:
    """The workload with the shapes and rates of a request log instead of its own."""
    from optimizer.workload.traces import read_trace, reduce_trace, share_over, summarize

    with read_lines(path) as lines:
        trace = read_trace(lines, path)
    summary = summarize(trace)
    reduced = reduce_trace(trace, max_shapes=max_shapes, at_peak=at_peak)
    model = choices.architecture(workload.model)
    limit = workload.context_tokens or min(summary.longest_tokens, model.max_position)
    over = share_over(trace, limit)
    scale = 1.0
    if workload.requests_per_s is not None:
        scale = workload.requests_per_s / sum(demand.requests_per_s or 0.0 for demand in reduced.demands)
    demands = tuple(
        replace(demand, requests_per_s=(demand.requests_per_s or 0.0) * scale)
        for demand in reduced.demands
        if demand.shape.total_tokens <= limit
    )
    if not demands:
        raise InvalidValue("--context", limit, f"every shape of {path} is longer")
    level = "busiest minute" if at_peak else "mean"
    assumptions = [
        f"{path}: {summary.requests:,} requests in {summary.duration_s:,.0f} s, {summary.mean_requests_per_s:.3f} "
        f"requests/s on average, {summary.peak_minute_requests_per_s:.2f} in the busiest minute",
        f"input tokens {summary.input_tokens_mean:.0f} on average ({summary.input_tokens_p50:.0f} median), output "
        f"{summary.output_tokens_mean:.0f} ({summary.output_tokens_p50:.0f}); 30 days at the mean rate have "
        f"{summary.requests_in_30_days:,.0f} requests, {summary.input_tokens_in_30_days / 1e9:,.2f} billion input and "
        f"{summary.output_tokens_in_30_days / 1e9:,.2f} billion output tokens",
        f"reduced to {len(reduced.demands)} shapes, whose requests differ from the real ones by "
        f"{reduced.length_loss:.1%} of the tokens on average; sums are kept",
        f"rates are those of the {level}: {reduced.peak_factor:.2f} x the mean",
        f"{len(reduced.profile)} hourly periods" if reduced.profile else "less than a day: one period stands for all",
    ]
    warnings = [f"{path}: {count} rows left out: {reason}" for reason, count in sorted(summary.rejected.items())]
    if summary.prefill_bound:
        warnings.append(
            f"prefill-bound: {summary.input_over_output:.0f} input tokens per output token; sizing by output tokens "
            "alone would mislead"
        )
    left_out = sum(demand.share for demand in reduced.demands if demand.shape.total_tokens > limit)
    if left_out > 0:
        warnings.append(
            f"{left_out:.1%} of the requests are of shapes above {limit:,} tokens: they are not planned for"
        )
    if over > 0:
        warnings.append(f"{over:.1%} of the requests are longer than {limit:,} tokens, which no replica will take")
    if scale != 1.0:
        assumptions.append(f"rates scaled by {scale:.3g} to the {workload.requests_per_s:g} requests/s of --rate")
    planned = replace(workload, demands=demands, profile=reduced.profile, context_tokens=limit)
    return Workloads(
        pairs=((planned, model),),
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
        trace={**_statistics(summary), "context_tokens": limit, "share_over_context": number(over)},
    )


def _statistics(summary: "TraceSummary") -> dict[str, Any]:
    """What a request log holds, for the JSON document."""
    return {
        "requests": summary.requests,
        "duration_s": number(summary.duration_s),
        "mean_requests_per_s": number(summary.mean_requests_per_s),
        "peak_minute_requests_per_s": number(summary.peak_minute_requests_per_s),
        "input_tokens_mean": number(summary.input_tokens_mean),
        "input_tokens_p50": number(summary.input_tokens_p50),
        "input_tokens_p99": number(summary.input_tokens_p99),
        "output_tokens_mean": number(summary.output_tokens_mean),
        "output_tokens_p50": number(summary.output_tokens_p50),
        "output_tokens_p99": number(summary.output_tokens_p99),
        "input_over_output": number(summary.input_over_output),
        "prefill_bound": summary.prefill_bound,
        "longest_tokens": summary.longest_tokens,
        "requests_in_30_days": number(summary.requests_in_30_days),
        "input_tokens_in_30_days": number(summary.input_tokens_in_30_days),
        "output_tokens_in_30_days": number(summary.output_tokens_in_30_days),
        "rejected": dict(summary.rejected),
    }


def read_text(path: str, what: str, most_bytes: int) -> str:
    """The text of a file. Raises UsageError when it is missing, too large or not text."""
    file = Path(path)
    try:
        if file.stat().st_size > most_bytes:
            raise UsageError(f"{what} {path!r} has {file.stat().st_size:,} bytes; at most {most_bytes:,} are read")
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{what} {path!r} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{what} {path!r} is not UTF-8 text") from None


def _architecture(workload: InferenceWorkload, path: str) -> Architecture:
    try:
        return choices.architecture(workload.model)
    except UsageError as error:
        raise UsageError(f"{path}, workload {workload.name!r}: {error}") from None


@contextmanager
def read_lines(path: str) -> Iterator[Iterator[str]]:
    """The lines of a file, unpacked where it is gzip. Raises UsageError when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            raw = gzip.GzipFile(fileobj=file) if packed else file
            with io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
                yield _bounded(text, path)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UsageError(f"trace {path!r} is damaged: {error}") from None
    except OSError as error:
        raise UsageError(f"trace {path!r} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"trace {path!r} is not UTF-8 text") from None


def _bounded(lines: Iterator[str], path: str) -> Iterator[str]:
    total = 0
    for line in lines:
        total += len(line)
        if total > MAX_TRACE_BYTES:
            raise UsageError(f"trace {path!r} unpacks to more than {MAX_TRACE_BYTES:,} bytes")
        yield line
