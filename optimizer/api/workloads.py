"""Turns the workload flags, a workload file or a request log into workloads with their models, and what was assumed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from optimizer.api import choices
from optimizer.api.sources import Source, read_lines, read_text
from optimizer.sizing.document import number
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from optimizer.workload.traces import ReducedTrace, TraceSummary

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
    workload: InferenceWorkload,
    given: Source | tuple[InferenceWorkload, ...] | None,
    trace: Source | None,
    *,
    trace_rate: str,
    trace_shapes: int,
) -> Workloads:
    """The workloads of a file or of objects, of the request log, or the one workload alone.

    Raises UsageError when none is named, or a file together with flags that it replaces.
    """
    choices.one_of("trace rate", trace_rate, TRACE_RATES)
    if given is not None:
        if workload.model or trace is not None or workload.requests_per_s is not None:
            raise UsageError("--workload replaces --model, --trace and --rate: give them in the file")
        return from_objects(given) if isinstance(given, tuple) else from_file(given)
    if not workload.model:
        raise UsageError("no model: give --model, like --model 70B, or --workload FILE")
    if trace is not None:
        return from_trace(trace, workload, at_peak=trace_rate == "peak", max_shapes=trace_shapes)
    return Workloads(pairs=((workload, choices.architecture(workload.model)),))


def from_file(path: Source) -> Workloads:
    """The workloads of a YAML file. Raises UsageError with field, value and line."""
    from optimizer.workload.workload_file import MAX_BYTES, parse_workloads

    return _paired(parse_workloads(read_text(path, "workload file", MAX_BYTES), str(path)), str(path))


def from_objects(workloads: tuple[InferenceWorkload, ...]) -> Workloads:
    """The workloads with their models. Raises UsageError where there is none, or two have one name."""
    if not workloads:
        raise UsageError("no workloads: give at least one")
    names = [one.name for one in workloads]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two workloads are named {twice!r}; give each a name of its own")
    return _paired(workloads, "workload objects")


def from_trace(path: Source, workload: InferenceWorkload, *, at_peak: bool, max_shapes: int) -> Workloads:
    """The workload with the shapes and rates of a request log instead of its own.

    Raises UsageError for a file that is no request log, InvalidValue where all its requests are above the context.
    """
    from optimizer.workload.traces import read_trace, reduce_trace, share_over, summarize

    with read_lines(path) as lines:
        trace = read_trace(lines, str(path))
    summary = summarize(trace)
    reduced = reduce_trace(trace, max_shapes=max_shapes, at_peak=at_peak)
    model = choices.architecture(workload.model)
    limit = workload.context_tokens or min(summary.longest_tokens, model.max_position)
    over = share_over(trace, limit)
    wanted_rate = workload.requests_per_s
    scale = (
        1.0 if wanted_rate is None else wanted_rate / sum(demand.requests_per_s or 0.0 for demand in reduced.demands)
    )
    demands = tuple(
        replace(demand, requests_per_s=(demand.requests_per_s or 0.0) * scale)
        for demand in reduced.demands
        if demand.shape.total_tokens <= limit
    )
    if not demands:
        raise InvalidValue("--context", limit, f"every shape of {path} is longer")
    assumptions = [*_trace_assumptions(summary, reduced, str(path), at_peak=at_peak)]
    if scale != 1.0:
        assumptions.append(f"rates scaled by {scale:.3g} to the {wanted_rate:g} requests/s of --rate")
    planned = replace(workload, demands=demands, profile=reduced.profile, context_tokens=limit)
    return Workloads(
        pairs=((planned, model),),
        assumptions=tuple(assumptions),
        warnings=tuple(_trace_warnings(summary, reduced, str(path), limit=limit, over=over)),
        trace={**_statistics(summary), "context_tokens": limit, "share_over_context": number(over)},
    )


def _trace_assumptions(summary: "TraceSummary", reduced: "ReducedTrace", path: str, *, at_peak: bool) -> Iterator[str]:
    """What the log holds, and what it was reduced to."""
    level = "busiest minute" if at_peak else "mean"
    yield (
        f"{path}: {summary.requests:,} requests in {summary.duration_s:,.0f} s, {summary.mean_requests_per_s:.3f} "
        f"requests/s on average, {summary.peak_minute_requests_per_s:.2f} in the busiest minute"
    )
    yield (
        f"input tokens {summary.input_tokens_mean:.0f} on average ({summary.input_tokens_p50:.0f} median), output "
        f"{summary.output_tokens_mean:.0f} ({summary.output_tokens_p50:.0f}); 30 days at the mean rate have "
        f"{summary.requests_in_30_days:,.0f} requests, {summary.input_tokens_in_30_days / 1e9:,.2f} billion input and "
        f"{summary.output_tokens_in_30_days / 1e9:,.2f} billion output tokens"
    )
    yield (
        f"reduced to {len(reduced.demands)} shapes, whose requests differ from the real ones by "
        f"{reduced.length_loss:.1%} of the tokens on average; sums are kept"
    )
    yield f"rates are those of the {level}: {reduced.peak_factor:.2f} x the mean"
    yield f"{len(reduced.profile)} hourly periods" if reduced.profile else "less than a day: one period stands for all"


def _trace_warnings(
    summary: "TraceSummary", reduced: "ReducedTrace", path: str, *, limit: int, over: float
) -> Iterator[str]:
    """What of the log is not planned for, at a `limit` of tokens that a share `over` of its requests exceeds."""
    for reason, count in sorted(summary.rejected.items()):
        yield f"{path}: {count} rows left out: {reason}"
    if summary.prefill_bound:
        yield (
            f"prefill-bound: {summary.input_over_output:.0f} input tokens per output token; sizing by output tokens "
            "alone would mislead"
        )
    left_out = sum(demand.share for demand in reduced.demands if demand.shape.total_tokens > limit)
    if left_out > 0:
        yield f"{left_out:.1%} of the requests are of shapes above {limit:,} tokens: they are not planned for"
    if over > 0:
        yield f"{over:.1%} of the requests are longer than {limit:,} tokens, which no replica will take"


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


def _paired(workloads: tuple[InferenceWorkload, ...], origin: str) -> Workloads:
    return Workloads(
        pairs=tuple(
            (replace(one, precisions=choices.precisions(one.precisions)), _architecture(one, origin))
            for one in workloads
        )
    )


def _architecture(workload: InferenceWorkload, path: str) -> Architecture:
    try:
        return choices.architecture(workload.model)
    except UsageError as error:
        raise UsageError(f"{path}, workload {workload.name!r}: {error}") from None
