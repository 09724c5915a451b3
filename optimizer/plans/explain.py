"""Turns a plan into the arithmetic and the reasons behind it, as lines of text."""

from collections.abc import Iterable
from decimal import Decimal

from optimizer.plans.plan import Alternative, Fleet, Plan, PlannedReplicas, PurchaseReason
from optimizer.plans.sizer import ReplicaKind
from optimizer.sizing.candidates import SizedCandidate
from optimizer.sizing.dtypes import kv_bytes_per_element, weight_format
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, RequestShape
from providers.units import GB, GIB, SECONDS_PER_HOUR


def explain(plan: Plan) -> list[str]:
    """The sizing of each kind of replica, the load that it carries, and why the chosen fleet beat the runner-up."""
    lines: list[str] = []
    for planned in plan.workloads:
        model = planned.architecture
        lines.append(f"{planned.workload.name}: {model.hf_id}, {model.params_total / 1e9:.2f} B parameters")
    if plan.fleet is None:
        return [*lines, "Nothing fits: see the shortfalls and suggestions."]
    models = {planned.workload.name: planned.architecture for planned in plan.workloads}
    seen: set[tuple[str, str, ReplicaKind]] = set()
    for group in plan.fleet.replicas:
        key = (group.workload.name, group.offer.instance_type.accelerator, group.kind)
        if key not in seen:
            seen.add(key)
            lines += ["", *_sizing(models[group.workload.name], group)]
    lines += ["", *_load(plan.fleet)]
    lines += ["", "Why each is bought as it is", *(_purchase(reason) for reason in plan.reasons)]
    if plan.runner_up is not None:
        lines += ["", *_against(plan, plan.runner_up)]
    if plan.runner_ups:
        lines += ["", "Best fleets without what was chosen", *(_without(plan, other) for other in plan.runner_ups)]
    return lines


def memory_gib_per_accelerator(group: PlannedReplicas) -> float:
    """GiB that one accelerator needs at the planned batch: weights, activations, overhead and the cache in use."""
    memory = group.kind.any_shape.memory
    lanes = max(1, group.kind.layout.dp)
    held = max(
        sized.batch / lanes * memory.cache.bytes_for(_held_tokens(demand.shape)) / GIB
        for sized, demand in zip(group.kind.by_shape, group.workload.demands, strict=True)
        if sized is not None
    )
    return memory.fixed_gib + min(held, memory.kv_room_gib)


def describe_fleet(fleet: Fleet) -> str:
    """The instances in one line: `2 x aws p5.48xlarge (us-east-1, on_demand)`."""
    return " + ".join(
        f"{item.count} x {item.offer.provider} {item.offer.instance_type.name} "
        f"({item.offer.zone or item.offer.region or 'any region'}, {item.offer.purchase_option})"
        for item in fleet.instances
    )


def _held_tokens(shape: RequestShape) -> float:
    """Tokens that a running request holds on average: its input and half of its output."""
    return shape.input_tokens + shape.output_tokens / 2


def _sizing(model: Architecture, group: PlannedReplicas) -> Iterable[str]:
    kind = group.kind
    memory = kind.any_shape.memory
    accelerators = kind.accelerators_per_replica
    whole = memory.weights_gib * accelerators
    bits = weight_format(kind.precision).linear_bits
    where = f"{accelerators} x {group.offer.instance_type.accelerator}"
    spread = f" over {kind.machines} instances" if kind.machines > 1 else ""
    yield f"One replica of {group.workload.name}: {where}, {kind.precision}, {kind.layout}{spread}"
    yield (
        f"  weights       {model.params_total / 1e9:.2f} B parameters, {bits:g} bits in the matrices "
        f"= {whole:.1f} GiB ({whole * GIB / GB:.1f} GB), {memory.weights_gib:.1f} GiB per accelerator"
    )
    arithmetic = _kv_arithmetic(model, kind.any_shape.kv_precision)
    yield f"  KV cache      {arithmetic} = {memory.kv_bytes_per_token:,.0f} bytes per token"
    yield (
        f"  memory        {memory.usable_gib:.1f} GiB usable, {memory.budget_gib:.1f} for the engine, "
        f"{memory.activations_gib:.1f} activations, {memory.overhead_gib:.1f} overhead, "
        f"{memory.kv_room_gib:.1f} left for the cache = {memory.kv_tokens:,} tokens"
    )
    for sized, demand in zip(kind.by_shape, group.workload.demands, strict=True):
        if sized is not None:
            yield from _shape(sized, demand.shape, group.workload.slo)


def _shape(sized: SizedCandidate, shape: RequestShape, slo: SLO) -> Iterable[str]:
    held = _held_tokens(shape)
    yield (
        f"  {shape} tokens: batch {sized.batch} running requests "
        f"(memory would hold {sized.memory.concurrency(held)} of {held:.0f} tokens)"
    )
    ttft, tpot, rate = sized.ttft_ms, sized.tpot_ms, sized.requests_per_s
    yield (
        f"    latency     TTFT {ttft.value:.0f} ms ({ttft.low:.0f} to {ttft.high:.0f}; at most {slo.ttft_ms:g}), "
        f"TPOT {tpot.value:.1f} ms ({tpot.low:.1f} to {tpot.high:.1f}; at most {slo.tpot_ms:g})"
    )
    yield (
        f"    capacity    {rate.value:.3g} requests/s alone ({rate.low:.3g} to {rate.high:.3g}), "
        f"{sized.output_tokens_per_s.value:,.0f} output tokens/s"
    )


def _kv_arithmetic(model: Architecture, kv_precision: str) -> str:
    element_bytes = kv_bytes_per_element("auto" if kv_precision == "16-bit" else kv_precision)
    groups = " + ".join(
        f"{group.layers} layers x {group.elements} values"
        + (f" (last {group.window} tokens)" if group.window is not None else "")
        for group in model.cache_groups
    )
    return f"({groups}) x {element_bytes:g} bytes"


def _load(fleet: Fleet) -> Iterable[str]:
    most = max((group.workload.utilization for group in fleet.replicas), default=0.0)
    yield f"Load: replicas are loaded to at most {most:.0%} of what they can serve"
    for group in fleet.replicas:
        yield (
            f"  {group.workload.name}: {group.count} x {group.kind.layout} on {group.offer.provider} "
            f"{group.offer.instance_type.name}: {group.requests_per_s:.3g} requests/s, "
            f"{group.utilization:.0%} of capacity at the most"
        )
    price = fleet.usd_per_million_output_tokens
    if price is not None:
        yield (
            f"Cost: {_usd(fleet.usd_per_hour)}/h / ({fleet.output_tokens_per_s:,.0f} output tokens/s "
            f"x {SECONDS_PER_HOUR} s) = {_usd(price)} per million output tokens; only at that sustained load"
        )


def _purchase(reason: PurchaseReason) -> str:
    """Why instances are kept or bought by the hour, with the use from which the other way would pay."""
    what = f"{reason.provider} {reason.instance_type} ({reason.region or 'any region'}, {reason.purchase_option})"
    return f"  {reason.count} x {what}: {reason.text}"


def _without(plan: Plan, other: Alternative) -> str:
    if plan.fleet is None or other.fleet is None:
        return f"  {other.flag}: nothing fits"
    if plan.objective == "max_throughput":
        less = 1 - other.fleet.requests_per_s / plan.fleet.requests_per_s if plan.fleet.requests_per_s else 0.0
        return f"  {other.flag}: {less:.1%} fewer requests/s: {describe_fleet(other.fleet)}"
    more = other.fleet.usd_per_month - plan.fleet.usd_per_month
    return f"  {other.flag}: {_usd(more)}/month more: {describe_fleet(other.fleet)}"


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
    served = fleet.requests_per_s
    per_unit = fleet.usd_per_hour / Decimal(served) if served else Decimal(0)
    return f"{_usd(fleet.usd_per_hour)}/h for {served:.3g} requests/s = {_usd(per_unit)}/h per request/s"


def _usd(amount: Decimal) -> str:
    return f"{amount:,.2f} USD"
