"""Turns a plan into the arithmetic and the reasons behind it, as lines of text."""

from collections.abc import Iterable
from decimal import Decimal

from optimizer.plans.plan import Alternative, Fleet, Plan, PlannedReplicas
from optimizer.sizing.dtypes import kv_bytes_per_element, weight_format
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.units import GB, GIB, SECONDS_PER_HOUR


def explain(plan: Plan) -> list[str]:
    """The sizing of each kind of replica, the load that it carries, and why the chosen fleet beat the runner-up."""
    lines = [f"Model: {plan.architecture.hf_id}, {plan.architecture.params_total / 1e9:.2f} B parameters"]
    if plan.fleet is None:
        return [*lines, "Nothing fits: see the shortfalls and suggestions."]
    seen: set[tuple[str, str, str]] = set()
    for group in plan.fleet.replicas:
        key = (group.offer.instance_type.accelerator, group.candidate.precision, str(group.candidate.layout))
        if key not in seen:
            seen.add(key)
            lines += ["", *_sizing(plan.architecture, plan.workload, group)]
    lines += ["", *_load(plan)]
    if plan.runner_up is not None:
        lines += ["", *_against(plan, plan.runner_up)]
    return lines


def memory_gib_per_accelerator(group: PlannedReplicas, workload: InferenceWorkload) -> float:
    """GiB that one accelerator needs at the planned batch: weights, activations, overhead and the cache in use."""
    candidate = group.candidate
    memory = candidate.memory
    lanes = max(1, candidate.layout.dp)
    held = candidate.batch / lanes * memory.cache.bytes_for(_held_tokens(workload)) / GIB
    return memory.fixed_gib + min(held, memory.kv_room_gib)


def _held_tokens(workload: InferenceWorkload) -> float:
    """Tokens that a running request holds on average: its input and half of its output."""
    shape = workload.demands[0].shape
    return shape.input_tokens + shape.output_tokens / 2


def _sizing(model: Architecture, workload: InferenceWorkload, group: PlannedReplicas) -> Iterable[str]:
    candidate = group.candidate
    memory = candidate.memory
    accelerators = candidate.accelerators_per_replica
    shape = workload.demands[0].shape
    whole = memory.weights_gib * accelerators
    bits = weight_format(candidate.precision).linear_bits
    where = f"{accelerators} x {group.offer.instance_type.accelerator}"
    yield f"One replica: {where}, {candidate.precision}, {candidate.layout}"
    yield (
        f"  weights       {model.params_total / 1e9:.2f} B parameters, {bits:g} bits in the matrices "
        f"= {whole:.1f} GiB ({whole * GIB / GB:.1f} GB), {memory.weights_gib:.1f} GiB per accelerator"
    )
    arithmetic = _kv_arithmetic(model, candidate.kv_precision)
    yield f"  KV cache      {arithmetic} = {memory.kv_bytes_per_token:,.0f} bytes per token"
    yield (
        f"  memory        {memory.usable_gib:.1f} GiB usable, {memory.budget_gib:.1f} for the engine, "
        f"{memory.activations_gib:.1f} activations, {memory.overhead_gib:.1f} overhead, "
        f"{memory.kv_room_gib:.1f} left for the cache = {memory.kv_tokens:,} tokens"
    )
    yield (
        f"  batch         {candidate.batch} running requests (memory would hold "
        f"{memory.concurrency(_held_tokens(workload))} of {_held_tokens(workload):.0f} tokens)"
    )
    ttft, tpot, slo = candidate.ttft_ms, candidate.tpot_ms, workload.slo
    yield (
        f"  latency       TTFT {ttft.value:.0f} ms ({ttft.low:.0f} to {ttft.high:.0f}; at most {slo.ttft_ms:g}), "
        f"TPOT {tpot.value:.1f} ms ({tpot.low:.1f} to {tpot.high:.1f}; at most {slo.tpot_ms:g})"
    )
    yield (
        f"  capacity      {candidate.requests_per_s.value:.3g} requests/s alone ({candidate.requests_per_s.low:.3g} to "
        f"{candidate.requests_per_s.high:.3g}), {candidate.output_tokens_per_s.value:,.0f} output tokens/s "
        f"for {shape.input_tokens} + {shape.output_tokens} tokens"
    )


def _kv_arithmetic(model: Architecture, kv_precision: str) -> str:
    element_bytes = kv_bytes_per_element("auto" if kv_precision == "16-bit" else kv_precision)
    groups = " + ".join(
        f"{group.layers} layers x {group.elements} values"
        + (f" (last {group.window} tokens)" if group.window is not None else "")
        for group in model.cache_groups
    )
    return f"({groups}) x {element_bytes:g} bytes"


def _load(plan: Plan) -> Iterable[str]:
    fleet = plan.fleet
    if fleet is None:
        return
    yield f"Load: replicas are loaded to at most {plan.workload.utilization:.0%} of what they can serve"
    for group in fleet.replicas:
        yield (
            f"  {group.count} x {group.candidate.layout} on {group.offer.provider} {group.offer.instance_type.name}: "
            f"{group.requests_per_s:.3g} requests/s, {group.utilization:.0%} of capacity"
        )
    price = fleet.usd_per_million_output_tokens
    if price is not None:
        yield (
            f"Cost: {_usd(fleet.usd_per_hour)}/h / ({fleet.output_tokens_per_s:,.0f} output tokens/s "
            f"x {SECONDS_PER_HOUR} s) = {_usd(price)} per million output tokens; only at that sustained load"
        )


def _against(plan: Plan, other: Alternative) -> Iterable[str]:
    fleet, rival = plan.fleet, other.fleet
    if fleet is None or rival is None:
        return
    yield f"Runner-up: {other.name} alone ({describe_fleet(rival)})"
    if plan.objective == "max_throughput":
        less = 1 - rival.requests_per_s / fleet.requests_per_s if fleet.requests_per_s else 0.0
        yield f"  {rival.requests_per_s:.3g} requests/s for {_usd(rival.usd_per_month)}/month: {less:.1%} less"
    else:
        more = rival.usd_per_month - fleet.usd_per_month
        yield f"  {_usd(rival.usd_per_month)}/month: {_usd(more)} more"
    for label, some in (("chosen", fleet), ("runner-up", rival)):
        yield f"  {label}: {_per_rate(some)}"


def _per_rate(fleet: Fleet) -> str:
    capacity = sum(g.candidate.requests_per_s.value * g.count for g in fleet.replicas)
    per_unit = fleet.usd_per_hour / Decimal(capacity) if capacity else Decimal(0)
    return (
        f"{_usd(fleet.usd_per_hour)}/h for a capacity of {capacity:.3g} requests/s = {_usd(per_unit)}/h per request/s"
    )


def describe_fleet(fleet: Fleet) -> str:
    """The instances in one line: `2 x aws p5.48xlarge (us-east-1, on_demand)`."""
    return " + ".join(
        f"{item.count} x {item.offer.provider} {item.offer.instance_type.name} "
        f"({item.offer.zone or item.offer.region or 'any region'}, {item.offer.purchase_option})"
        for item in fleet.instances
    )


def _usd(amount: Decimal) -> str:
    return f"{amount:,.2f} USD"
