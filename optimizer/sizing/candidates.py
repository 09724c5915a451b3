"""Turns a model and one kind of instance into candidates (layout x dtype within memory and SLO) and rejections."""

from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.sizing.dtypes import (
    WeightFormat,
    auto_precisions,
    kv_bytes_per_element,
    precision_notes,
    unsupported_reason,
    weight_format,
)
from optimizer.sizing.engines import EngineProfile, engine_profile
from optimizer.sizing.intervals import Estimate
from optimizer.sizing.layout import Hardware, Layout, layouts
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
    """

    precision: str
    kv_precision: str
    layout: Layout
    batch: int
    requests_per_s: Estimate
    output_tokens_per_s: Estimate
    ttft_ms: Estimate
    tpot_ms: Estimate
    memory: MemoryEstimate
    notes: tuple[str, ...]

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
) -> tuple[list[SizedCandidate], list[Rejection]]:
    """Every sensible layout x dtype of `model` on one instance of `hardware`.

    `precisions` None = auto (the native dtype, and FP8 for a 16-bit model where computed). Raises UnknownName for a
    precision or an engine that nobody knows.
    """
    profile = engine_profile(engine)
    kv_bytes = kv_bytes_per_element(kv_precision)
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
        for layout in layouts(model, hardware):
            memory = estimate_memory(
                model, hardware.accelerator, layout, fmt, kv_bytes, profile, gpu_memory_utilization
            )
            outcome = _candidate(
                model,
                hardware,
                layout,
                fmt,
                kv_bytes,
                profile,
                memory,
                shape,
                slo,
                context_tokens,
                kv_precision,
                prefix_cache_hit,
            )
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
    kv_bytes: float,
    engine: EngineProfile,
    memory: MemoryEstimate,
    shape: RequestShape,
    slo: SLO,
    context_tokens: int | None,
    kv_precision: str | None,
    prefix_cache_hit: float,
) -> SizedCandidate | str:
    """The candidate, or the reason why it is none."""
    context = max(shape.total_tokens, context_tokens or 0)
    if memory.kv_room_gib <= 0:
        return "weights do not fit"
    if context > model.max_position:
        return "the context exceeds the model's positions"
    if memory.max_context_tokens < context:
        return "KV cache of one request does not fit"
    costs = step_costs(model, hardware, layout, fmt, kv_bytes, engine)
    most = batch_limit(memory, shape, engine, hardware, layout)
    batch = largest_batch(costs, shape, slo, most, prefix_cache_hit)
    if batch == 0:
        alone = operating_point(costs, shape, 1, prefix_cache_hit)
        return "TTFT above the SLO" if alone.ttft_ms > slo.ttft_ms else "TPOT above the SLO"
    performance = with_interval(operating_point(costs, shape, batch, prefix_cache_hit), hardware)
    return SizedCandidate(
        precision=fmt.name,
        kv_precision=kv_precision or "16-bit",
        layout=layout,
        batch=batch,
        requests_per_s=performance.requests_per_s,
        output_tokens_per_s=performance.output_tokens_per_s,
        ttft_ms=performance.ttft_ms,
        tpot_ms=performance.tpot_ms,
        memory=memory,
        notes=precision_notes(hardware.accelerator, fmt),
    )
