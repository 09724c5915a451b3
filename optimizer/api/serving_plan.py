"""Turns what a plan for serving is asked with into the request, and the plan into its document."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from optimizer.api import choices, market_view, values, workloads
from optimizer.api.clock import today
from optimizer.api.plan_arguments import PlanArguments
from optimizer.plans.document import plan_document
from optimizer.plans.explain import explain
from optimizer.plans.plan import Plan
from optimizer.plans.planner import Request
from optimizer.program.problem import Limits, Quota
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand


def workloads_of(wanted: PlanArguments) -> workloads.Workloads:
    """The workloads of the file, of the request log, of objects, or of the arguments. Raises UsageError."""
    shape = RequestShape(input_tokens=wanted.input_tokens, output_tokens=wanted.output_tokens)
    workload = InferenceWorkload(
        name="workload",
        model=wanted.model or "",
        demands=(ShapeDemand(shape=shape, requests_per_s=values.rate("--rate", wanted.rate)),),
        slo=SLO(ttft_ms=wanted.ttft_ms, tpot_ms=wanted.tpot_ms),
        precisions=choices.precisions(wanted.precision),
        kv_precision=wanted.kv_precision,
        context_tokens=wanted.context,
        utilization=wanted.max_utilization,
        same_region=wanted.same_region,
    )
    return workloads.chosen(
        workload, wanted.workload, wanted.trace, trace_rate=wanted.trace_rate, trace_shapes=wanted.trace_shapes
    )


def request_of(wanted: PlanArguments, given: workloads.Workloads, offers: market_view.Offers) -> Request:
    """Everything that the planner needs, with what was assumed. Raises UsageError."""
    quotas = market_view.quotas(wanted.quota)
    solver_options = wanted.solver_options
    if wanted.gap is None:
        solver_options = replace(solver_options, gap=market_view.usual_gap(given.pairs))
    return Request(
        workloads=given.pairs,
        budget_usd_per_month=wanted.budget_usd,
        offers=offers.eligible,
        offers_on_file=len(offers.all_on_file),
        rejections=offers.rejections,
        today=today(),
        max_age_days=wanted.max_age_days,
        limits=_limits(wanted, quotas),
        terms=market_view.terms(
            boot_minutes=values.not_negative("--boot-minutes", wanted.boot_minutes),
            spot_margin=wanted.spot_margin,
            horizon=wanted.horizon,
        ),
        holdings=market_view.holdings(wanted.current, offers.all_on_file),
        every_alternative=wanted.show_all,
        reasons=wanted.explain or wanted.show_all,
        solver_options=solver_options,
        pools=offers.pools,
        engine=wanted.engine,
        gpu_memory_utilization=values.share("--gpu-memory-utilization", wanted.gpu_memory_utilization),
        prefix_cache_hit=values.share("--prefix-cache-hit", wanted.prefix_cache_hit, zero=True) or 0.0,
        confidence=choices.confidence(wanted.confidence),
        measured=choices.measured(wanted.measured),
        assumptions=(
            *_assumptions(given.pairs, wanted.engine),
            *choices.sizing_assumptions(wanted.prefix_cache_hit, wanted.confidence, wanted.measured),
            *given.assumptions,
            *market_view.assumed_terms(
                wanted.market,
                given.pairs,
                boot_minutes=wanted.boot_minutes,
                spot_margin=wanted.spot_margin,
                horizon=wanted.horizon,
            ),
            *market_view.assumed_gap(solver_options.gap),
            *offers.remarks,
        ),
        warnings=(*given.warnings, *offers.warnings, *choices.quota_warnings(quotas, offers.all_on_file)),
    )


def document_of(plan: Plan, *, trace: Mapping[str, Any] | None, explained: bool) -> dict[str, Any]:
    """The plan's document, with the statistics of a request log and the explanation where there are such."""
    document = plan_document(plan)
    if trace is not None:
        document["trace"] = dict(trace)
    if explained:
        document["explanation"] = explain(plan)
    return document


def _limits(wanted: PlanArguments, quotas: tuple[Quota, ...]) -> Limits:
    return Limits(
        max_accelerators=wanted.max_gpus,
        max_spot_share=values.share("--max-spot-share", wanted.max_spot_share, zero=True),
        min_providers=wanted.min_providers,
        max_provider_share=values.share("--max-provider-share", wanted.max_provider_share),
        spare_replicas=wanted.spare_replicas,
        minimum_hours_up=values.not_negative("--min-hours-up", wanted.min_hours_up),
        quotas=quotas,
    )


def _assumptions(pairs: Sequence[tuple[InferenceWorkload, Architecture]], engine: str) -> tuple[str, ...]:
    """What was assumed where nothing was said, as lines."""
    lines: list[str] = []
    for workload, model in pairs:
        prefix = f"{workload.name}: " if len(pairs) > 1 else ""
        lines += [f"{prefix}{line}" for line in _workload_assumptions(workload, model)]
    return (
        *lines,
        f"engine {engine}; speed and memory are estimates, with an 80 % interval beside each",
        "a month has 730 hours; prices are list prices without tax, storage, egress and support",
    )


def _workload_assumptions(workload: InferenceWorkload, model: Architecture) -> Iterator[str]:
    shapes = ", ".join(str(demand.shape) for demand in workload.demands)
    precision = ", ".join(workload.precisions) or (
        f"auto (the model's {model.native_dtype}, and fp8 for a 16-bit model where the hardware computes it)"
    )
    slo = workload.slo
    yield f"model {workload.model} is {model.hf_id} ({model.params_total / 1e9:.2f} B parameters)"
    yield f"requests of {shapes} tokens (input + output)"
    yield f"time to first token at most {slo.ttft_ms:g} ms, per output token {slo.tpot_ms:g} ms"
    yield f"replicas loaded to at most {workload.utilization:.0%} of capacity"
    yield f"precision {precision}; KV cache in {workload.kv_precision or '16 bit'}"
