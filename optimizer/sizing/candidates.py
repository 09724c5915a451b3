"""Turns a model and one kind of instance into candidates (layout x dtype within memory and SLO) and rejections."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from optimizer.sizing.calibration import device_class
from optimizer.sizing.dtypes import (
    WeightFormat,
    auto_precisions,
    kv_bytes_per_element,
    precision_notes,
    unsupported_reason,
    weight_format,
)
from optimizer.sizing.engines import EngineProfile, engine_profile
from optimizer.sizing.intervals import Estimate, interval
from optimizer.sizing.layout import Hardware, Layout, layouts
from optimizer.sizing.measured import MeasuredPoint, best_match
from optimizer.sizing.memory import MemoryEstimate, estimate_memory
from optimizer.sizing.serving import batch_limit, largest_batch, operating_point, with_interval
from optimizer.sizing.steps import step_costs
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, RequestShape

__all__ = ["Hardware", "Layout", "Rejection", "SizedCandidate", "size_candidates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedCandidate:
    """One replica's way to run on one kind of instance, and what it serves within the SLO, alone, at full load.

    Rates are per replica, before the head-room of the plan; latencies are those at that load.
    `planned_requests_per_s` is what a plan may count on: the estimate, or its careful end where a confidence is asked.
    `memory_share` is what the engine is given of the card, of what is free after loading where it counts so.
    """

    precision: str
    kv_precision: str
    engine: str
    memory_share: float
    prefix_cache_hit: float
    layout: Layout
    batch: int
    requests_per_s: Estimate
    planned_requests_per_s: float
    output_tokens_per_s: Estimate
    ttft_ms: Estimate
    tpot_ms: Estimate
    memory: MemoryEstimate
    notes: tuple[str, ...]
    measured: str = ""
    """The file whose measurement stands in place of the estimate; empty = estimated."""

    @property
    def accelerators_per_replica(self) -> int:
        """Accelerators that one replica takes."""
        return self.layout.accelerators


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a layout and dtype is no candidate: a short stable reason, and what was tried."""

    reason: str
    precision: str
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What is asked of every candidate."""

    shape: RequestShape
    slo: SLO
    kv_precision: str
    kv_bytes: float
    engine: EngineProfile
    context_tokens: int
    memory_share: float | None
    prefix_cache_hit: float
    confidence: float | None
    measured: Sequence[MeasuredPoint]


def size_candidates(
    model: Architecture,
    hardware: Hardware,
    *,
    shape: RequestShape,
    slo: SLO,
    precisions: Sequence[str] | None = None,
    kv_precision: str | None = None,
    engine: str = "vllm",
    context_tokens: int | None = None,
    gpu_memory_utilization: float | None = None,
    prefix_cache_hit: float = 0.0,
    confidence: float | None = None,
    measured: Sequence[MeasuredPoint] = (),
) -> tuple[list[SizedCandidate], list[Rejection]]:
    """Every sensible layout x dtype of `model` on one instance of `hardware`.

    `precisions` None = auto (the native dtype, and FP8 for a 16-bit model where computed). With a `confidence`, SLO and
    planned rate are met at the careful end of the interval of that level. A point of `measured` stands in place of the
    estimate for the configuration and shape that it measured. Raises UnknownName for a precision or an engine that
    nobody knows.
    """
    request = _Request(
        shape=shape,
        slo=slo,
        kv_precision=kv_precision or "16-bit",
        kv_bytes=kv_bytes_per_element(kv_precision),
        engine=engine_profile(engine),
        context_tokens=max(shape.total_tokens, context_tokens or 0),
        memory_share=gpu_memory_utilization,
        prefix_cache_hit=prefix_cache_hit,
        confidence=confidence,
        measured=measured,
    )
    candidates: list[SizedCandidate] = []
    rejections: list[Rejection] = []
    names = auto_precisions(model, hardware.accelerator) if precisions is None else tuple(dict.fromkeys(precisions))
    if not names:
        rejections.append(Rejection(reason="the native dtype does not run on this accelerator", precision="auto"))
    for name in names:
        fmt = weight_format(name)
        if unsupported_reason(hardware.accelerator, fmt):
            rejections.append(Rejection(reason="the accelerator does not support the dtype", precision=fmt.name))
            continue
        asked = request
        if fmt.kernel == "gguf" and request.engine.family != "llama.cpp":
            # A GGUF file is llama.cpp's: no other engine serves it at speed.
            asked = replace(request, engine=engine_profile("llama.cpp"))
        for layout in layouts(model, hardware):
            memory = estimate_memory(
                model,
                hardware.accelerator,
                layout,
                fmt,
                asked.kv_bytes,
                asked.engine,
                asked.memory_share,
                asked.context_tokens,
            )
            outcome = _candidate(model, hardware, layout, fmt, memory, asked)
            if isinstance(outcome, SizedCandidate):
                candidates.append(outcome)
            else:
                rejections.append(Rejection(reason=outcome, precision=fmt.name, layout=layout))
    return candidates, rejections


def _candidate(
    model: Architecture,
    hardware: Hardware,
    layout: Layout,
    fmt: WeightFormat,
    memory: MemoryEstimate,
    request: _Request,
) -> SizedCandidate | str:
    """The candidate, or the reason why it is none."""
    shape = request.shape
    point = _measured(model, hardware, layout, fmt, request) if request.measured else None
    if point is not None:
        return _as_measured(point, layout, fmt, memory, request)
    if memory.kv_room_gib <= 0:
        return "weights do not fit"
    if request.context_tokens > model.max_position:
        return "the context exceeds the model's positions"
    if memory.max_context_tokens < request.context_tokens:
        return "KV cache of one request does not fit"
    costs = step_costs(model, hardware, layout, fmt, request.kv_bytes, request.engine)
    most = batch_limit(memory, shape, request.engine, hardware, layout)
    slo = _careful(request, hardware)
    batch = largest_batch(costs, shape, slo, most, request.prefix_cache_hit)
    if batch == 0:
        alone = operating_point(costs, shape, 1, request.prefix_cache_hit)
        return "TTFT above the SLO" if alone.ttft_ms > slo.ttft_ms else "TPOT above the SLO"
    performance = with_interval(operating_point(costs, shape, batch, request.prefix_cache_hit), hardware)
    rate = performance.requests_per_s
    return SizedCandidate(
        precision=fmt.name,
        kv_precision=request.kv_precision,
        engine=request.engine.name,
        memory_share=request.memory_share or request.engine.memory_share,
        prefix_cache_hit=request.prefix_cache_hit,
        layout=layout,
        batch=batch,
        requests_per_s=rate,
        planned_requests_per_s=rate.at_confidence(request.confidence) if request.confidence else rate.value,
        output_tokens_per_s=performance.output_tokens_per_s,
        ttft_ms=performance.ttft_ms,
        tpot_ms=performance.tpot_ms,
        memory=memory,
        notes=(*precision_notes(hardware.accelerator, fmt), *_engine_notes(fmt)),
    )


def _engine_notes(fmt: WeightFormat) -> tuple[str, ...]:
    return ("served by llama.cpp, whose format it is",) if fmt.kernel == "gguf" else ()


def _careful(request: _Request, hardware: Hardware) -> SLO:
    """The SLO that estimates must meet so that the careful end of their interval meets the one asked for."""
    if request.confidence is None:
        return request.slo
    kind = device_class(hardware.accelerator)
    ttft, tpot = (
        interval(1.0, metric, kind, "loaded").at_confidence(request.confidence, worse_is_higher=True)
        for metric in ("ttft", "tpot")
    )
    return SLO(ttft_ms=request.slo.ttft_ms / ttft, tpot_ms=request.slo.tpot_ms / tpot)


def _measured(
    model: Architecture, hardware: Hardware, layout: Layout, fmt: WeightFormat, request: _Request
) -> MeasuredPoint | None:
    return best_match(
        request.measured,
        model.hf_id,
        hardware.accelerator.name,
        fmt.name,
        layout.tp,
        layout.pp,
        request.shape,
    )


def _as_measured(
    point: MeasuredPoint, layout: Layout, fmt: WeightFormat, memory: MemoryEstimate, request: _Request
) -> SizedCandidate | str:
    """The measured point as a candidate: no interval, and the batch that its rate and latencies imply (Little)."""
    ttft, tpot = point.ttft_ms or 0.0, point.tpot_ms or 0.0
    if ttft > request.slo.ttft_ms:
        return "measured TTFT above the SLO"
    if tpot > request.slo.tpot_ms:
        return "measured TPOT above the SLO"
    shape = request.shape
    seconds = (ttft + tpot * (shape.output_tokens - 1)) / 1e3

    def exactly(value: float) -> Estimate:
        return Estimate(value=value, low=value, high=value)

    return SizedCandidate(
        precision=fmt.name,
        kv_precision=request.kv_precision,
        engine=request.engine.name,
        memory_share=request.memory_share or request.engine.memory_share,
        prefix_cache_hit=request.prefix_cache_hit,
        layout=layout,
        batch=max(1, round(point.requests_per_s * seconds)),
        requests_per_s=exactly(point.requests_per_s),
        planned_requests_per_s=point.requests_per_s,
        output_tokens_per_s=exactly(point.requests_per_s * shape.output_tokens),
        ttft_ms=exactly(ttft),
        tpot_ms=exactly(tpot),
        memory=memory,
        notes=(f"measured ({point.source}), not estimated",),
        measured=point.source,
    )
