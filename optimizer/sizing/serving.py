"""Turns a replica and an SLO into what it serves: batch, TTFT, TPOT, requests and tokens per second, with intervals."""

import math
from dataclasses import dataclass, replace

from optimizer.sizing.calibration import constants, device_class
from optimizer.sizing.dtypes import (
    WeightFormat,
    auto_precisions,
    kv_bytes_per_element,
    precision_notes,
    unsupported_reason,
    weight_format,
)
from optimizer.sizing.engines import EngineProfile, engine_profile, sequence_limit
from optimizer.sizing.intervals import Estimate, interval
from optimizer.sizing.layout import Hardware, Layout, tensor_parallel_problem, valid_tensor_parallel
from optimizer.sizing.load import prompt_of, served_overhead_s, steady
from optimizer.sizing.memory import MemoryEstimate, estimate_memory
from optimizer.sizing.steps import StepCosts, step_costs
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, RequestShape
from providers.errors import InvalidValue
from providers.networks import usual_domain


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """One replica in steady state at `batch` running requests: rates per second, latencies in milliseconds."""

    batch: int
    requests_per_s: float
    output_tokens_per_s: float
    prefill_tokens_per_s: float
    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """An operating point with intervals; None where nothing meets the SLO or the memory."""

    batch: int
    requests_per_s: Estimate
    output_tokens_per_s: Estimate
    prefill_tokens_per_s: Estimate
    ttft_ms: Estimate
    tpot_ms: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEstimate:
    """What `costopt size` answers for one model on one accelerator x count."""

    verdict: str
    precision: str
    kv_precision: str
    layout: Layout
    context_tokens: int
    headroom_tokens: int
    max_concurrency: int
    replicas: int | None
    """Such replicas that the running requests asked for need; None when no number was asked for or nothing fits."""
    min_gpus: int | None
    min_gpus_comfortable: int | None
    valid_tensor_parallel: tuple[int, ...]
    memory: MemoryEstimate
    performance: Performance | None
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def operating_point(costs: StepCosts, shape: RequestShape, batch: int, prefix_cache_hit: float = 0.0) -> OperatingPoint:
    """Steady state of continuous batching with `batch` requests running and requests that arrive at random.

    `prefix_cache_hit` is the share of the prompt that need not be read. TTFT = HTTP and scheduling + reading the prompt
    (in a step with the others' tokens) + wait.
    """
    cached = shape.input_tokens * prefix_cache_hit
    point = steady(costs, shape.input_tokens, shape.output_tokens, batch, cached)
    ttft = served_overhead_s(shape.input_tokens, constants()) + point.reading_s + point.open_wait_s()
    return OperatingPoint(
        batch=batch,
        requests_per_s=point.requests_per_s,
        output_tokens_per_s=point.requests_per_s * shape.output_tokens,
        prefill_tokens_per_s=(shape.input_tokens - cached) / point.prefill_s * costs.lanes,
        ttft_ms=ttft * 1e3,
        tpot_ms=point.tpot_s * 1e3,
    )


def largest_batch(costs: StepCosts, shape: RequestShape, slo: SLO, most: int, prefix_cache_hit: float = 0.0) -> int:
    """The largest batch up to `most` whose TTFT and TPOT meet the SLO (both grow with the batch); 0 if none does."""
    cached = shape.input_tokens * prefix_cache_hit
    prompt = prompt_of(costs, shape.input_tokens, cached)
    overhead = served_overhead_s(shape.input_tokens, constants())

    def meets(batch: int) -> bool:
        point = steady(costs, shape.input_tokens, shape.output_tokens, batch, cached, prompt)
        ttft = overhead + point.reading_s + point.open_wait_s()
        return ttft * 1e3 <= slo.ttft_ms and point.tpot_s * 1e3 <= slo.tpot_ms

    if most < 1 or not meets(1):
        return 0
    if meets(most):
        return most
    low, high = 1, most
    while high - low > 1 + low // 64:
        middle = (low + high) // 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def batch_limit(
    memory: MemoryEstimate, shape: RequestShape, engine: EngineProfile, hardware: Hardware, layout: Layout
) -> int:
    """Running requests that memory and the engine's own limit allow: each may come to hold its whole length."""
    held = shape.input_tokens + shape.output_tokens
    fitting = memory.concurrency(held) * layout.dp
    return min(fitting, sequence_limit(engine, hardware.accelerator) * layout.dp)


def with_interval(point: OperatingPoint, hardware: Hardware) -> Performance:
    """The point with the calibrated 80 % intervals of its device class under load."""
    kind = device_class(hardware.accelerator)

    def around(value: float, metric: str) -> Estimate:
        return interval(value, metric, kind, "loaded")

    return Performance(
        batch=point.batch,
        requests_per_s=around(point.requests_per_s, "throughput"),
        output_tokens_per_s=around(point.output_tokens_per_s, "throughput"),
        prefill_tokens_per_s=around(point.prefill_tokens_per_s, "throughput"),
        ttft_ms=around(point.ttft_ms, "ttft"),
        tpot_ms=around(point.tpot_ms, "tpot"),
    )


def size_serving(
    model: Architecture,
    hardware: Hardware,
    *,
    shape: RequestShape,
    slo: SLO | None = None,
    precision: str | None = None,
    kv_precision: str | None = None,
    engine: str | None = None,
    context_tokens: int | None = None,
    concurrency: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    gpu_memory_utilization: float | None = None,
    prefix_cache_hit: float = 0.0,
    max_sequences: int | None = None,
) -> ServingEstimate:
    """Sizes one model on `hardware.count` accelerators as one replica.

    Without `tp`/`pp`: the widest tensor parallelism that divides the count, the rest pipeline stages.
    `context_tokens` None means the shape's length. With `concurrency`, performance is at that load; else at the
    largest batch that meets `slo`. `max_sequences` takes the place of the engine's own limit on running requests.
    Raises InvalidValue for a layout that the model or the count does not allow.
    """
    fmt, notes = _format(model, hardware, precision)
    profile = engine_profile(engine or ("llama.cpp" if fmt.kernel == "gguf" else "vllm"))
    if max_sequences is not None:
        profile = replace(profile, max_sequences=(max_sequences, max_sequences))
    kv_bytes = kv_bytes_per_element(kv_precision)
    layout, warnings = _layout(model, hardware, tp, pp)
    memory = estimate_memory(model, hardware.accelerator, layout, fmt, kv_bytes, profile, gpu_memory_utilization)
    context = context_tokens or shape.total_tokens
    verdict = memory.verdict(context)
    smallest = smallest_counts(model, hardware, fmt, kv_bytes, profile, context, gpu_memory_utilization)
    performance, replicas = None, None
    if verdict != "does_not_fit":
        costs = step_costs(model, hardware, layout, fmt, kv_bytes, profile)
        most = batch_limit(memory, shape, profile, hardware, layout)
        if concurrency and most:
            replicas = math.ceil(concurrency / most)
            if replicas > 1:
                warnings.append(f"one replica runs {most:,} such requests at once: {concurrency:,} take {replicas}")
        best = largest_batch(costs, shape, slo or SLO(), most, prefix_cache_hit)
        batch = min(most, concurrency or best or 1)
        if batch >= 1:
            point = operating_point(costs, shape, batch, prefix_cache_hit)
            performance = with_interval(point, hardware)
            warnings += _missed(point, slo or SLO())
    if verdict == "tight":
        warnings.append(
            f"little KV-cache headroom: {memory.kv_room_gib:.1f} GiB per accelerator, "
            f"{memory.kv_tokens:,} tokens in all"
        )
    if verdict == "does_not_fit":
        warnings.append(_what_is_short(memory, context))
    if context > model.max_position:
        warnings.append(f"{context:,} tokens exceed the model's {model.max_position:,} positions")
    return ServingEstimate(
        verdict=verdict,
        precision=fmt.name,
        kv_precision=kv_precision or "16-bit",
        layout=layout,
        context_tokens=context,
        headroom_tokens=memory.max_context_tokens - context,
        max_concurrency=memory.concurrency(context),
        replicas=replicas,
        min_gpus=smallest[0],
        min_gpus_comfortable=smallest[1],
        valid_tensor_parallel=valid_tensor_parallel(model, max(8, hardware.count)),
        memory=memory,
        performance=performance,
        assumptions=(*notes, *model.notes, f"engine {profile.name}", "every figure is an estimate"),
        warnings=(*precision_notes(hardware.accelerator, fmt), *warnings),
    )


def _missed(point: OperatingPoint, slo: SLO) -> list[str]:
    """What of the SLO the operating point misses, as lines."""
    return [
        f"{name} of {value:,.0f} ms at batch {point.batch:,} is above the {bound:g} ms asked for"
        for name, value, bound in (("TTFT", point.ttft_ms, slo.ttft_ms), ("TPOT", point.tpot_ms, slo.tpot_ms))
        if value > bound
    ]


def smallest_counts(
    model: Architecture,
    hardware: Hardware,
    fmt: WeightFormat,
    kv_bytes: float,
    engine: EngineProfile,
    context_tokens: int,
    gpu_memory_utilization: float | None,
) -> tuple[int | None, int | None]:
    """The smallest accelerator counts (valid TP, then TP 8 x stages) that hold the model, and that are not tight."""
    fits: int | None = None
    widths = [Layout(tp=tp) for tp in valid_tensor_parallel(model, 8)]
    widest = widths[-1].tp
    stages = [Layout(tp=widest, pp=pp) for pp in (2, 3, 4, 6, 8) if pp <= model.layers]
    for layout in widths + stages:
        memory = estimate_memory(model, hardware.accelerator, layout, fmt, kv_bytes, engine, gpu_memory_utilization)
        verdict = memory.verdict(context_tokens)
        if verdict == "does_not_fit":
            continue
        fits = fits or layout.accelerators
        if verdict == "fits":
            return fits, layout.accelerators
    return fits, None


def _format(model: Architecture, hardware: Hardware, precision: str | None) -> tuple[WeightFormat, list[str]]:
    if precision is None or precision == "auto":
        chosen = auto_precisions(model, hardware.accelerator)
        name = chosen[0] if chosen else model.native_dtype
        return weight_format(name), [f"precision auto: {name}"]
    fmt = weight_format(precision)
    reason = unsupported_reason(hardware.accelerator, fmt)
    if reason and fmt.name == "bf16":
        return weight_format("fp16"), [f"{reason} (needs compute capability 8.0): sized as fp16"]
    return fmt, [reason] if reason else []


def _layout(model: Architecture, hardware: Hardware, tp: int | None, pp: int | None) -> tuple[Layout, list[str]]:
    count = hardware.count
    if tp is None:
        stages = pp or 1
        if count % stages:
            raise InvalidValue("pipeline stages", stages, f"must divide the {count} accelerators")
        share = count // stages
        reached = min(share, usual_domain(hardware.accelerator))
        width = max(t for t in valid_tensor_parallel(model, reached) if share % t == 0)
        layout = Layout(tp=width, pp=stages * (share // width))
        problem = tensor_parallel_problem(model, share)
        if problem is None and share > reached:
            problem = f"the fast link joins {reached} {hardware.accelerator.name}"
        return layout, [
            f"tensor parallelism over {share} is not possible: {problem}; sized as {layout}"
        ] if problem else []
    problem = tensor_parallel_problem(model, tp)
    if problem:
        valid = ", ".join(str(t) for t in valid_tensor_parallel(model, max(8, count)))
        raise InvalidValue("tensor-parallel degree", tp, f"{problem}; valid: {valid}")
    layout = Layout(tp=tp, pp=pp or 1)
    if layout.accelerators > count:
        raise InvalidValue("layout", str(layout), f"needs {layout.accelerators} accelerators, {count} given")
    if layout.accelerators < count:
        used = layout.accelerators
        return layout, [
            f"{layout} uses {used} of {count} accelerators: memory does not pool by itself (set --tp {count})"
        ]
    if tp > usual_domain(hardware.accelerator):
        return layout, [f"TP{tp} reduces over the network between machines: every layer waits for it"]
    return layout, []


def _what_is_short(memory: MemoryEstimate, context_tokens: int) -> str:
    if memory.weights_gib > memory.budget_gib:
        return (
            f"weights need {memory.weights_gib:.1f} GiB per accelerator, {memory.budget_gib:.1f} GiB may be used: "
            "more accelerators or a smaller format"
        )
    if memory.kv_room_gib <= 0:
        return (
            f"{-memory.kv_room_gib:.1f} GiB per accelerator are missing before any cache: little is left after weights"
        )
    return (
        f"little KV-cache headroom: the cache holds a request of {memory.max_context_tokens:,} tokens, "
        f"{math.ceil(context_tokens):,} are asked: shorten the context or add accelerators"
    )
