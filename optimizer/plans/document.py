"""Turns a plan into the JSON document `costopt.plan`: money as decimal strings, physical quantities as numbers."""

import math
from collections.abc import Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

from optimizer.plans.explain import memory_gib_per_accelerator
from optimizer.plans.plan import (
    Alternative,
    Fleet,
    Plan,
    PlannedInstances,
    PlannedReplicas,
    PlannedWorkload,
    PurchaseReason,
)
from optimizer.sizing.document import number
from providers.offers import Offer
from providers.units import HOURS_PER_MONTH

SCHEMA: Final = "costopt.plan"
SCHEMA_VERSION: Final = "1.0"
_PRICE_DIGITS: Final = 9
_CENT: Final = Decimal("0.01")
_TOKEN_PRICE: Final = Decimal("0.0001")


def plan_document(plan: Plan) -> dict[str, Any]:
    """The document's keys are those of schema version 1.0; rates and latencies carry `low` and `high` beside them."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "status": plan.status,
        "objective": plan.objective,
        "prices": {
            "as_of_oldest": _day(plan.prices.as_of_oldest),
            "as_of_newest": _day(plan.prices.as_of_newest),
            "offers_considered": plan.prices.offers_considered,
            "offers_eligible": plan.prices.offers_eligible,
            "undated": plan.prices.undated,
            "stale": plan.prices.stale,
            "max_age_days": plan.prices.max_age_days,
        },
        "workloads": [_workload(planned) for planned in plan.workloads],
        "budget_usd_per_month": _cents(plan.budget_usd_per_month),
        **_fleet(plan.fleet),
        "routing": [] if plan.fleet is None else routing(plan.fleet),
        "proof": _proof(plan),
        "cheapest": None if plan.cheapest is None else _fleet(plan.cheapest),
        "runner_up": None if plan.runner_up is None else _alternative(plan.runner_up, plan.fleet),
        "alternatives": [_alternative(alternative, plan.fleet) for alternative in plan.alternatives],
        "binding_limits": [
            {
                "limit": b.limit,
                "change": number(b.change),
                "unit": b.unit,
                "saving_usd_per_month": _cents(b.saving_usd_per_month),
                "more_requests_per_s": number(b.more_requests_per_s),
            }
            for b in plan.binding_limits
        ],
        "reasons": [_reason(reason) for reason in plan.reasons],
        "runner_ups": [_alternative(other, plan.fleet) for other in plan.runner_ups],
        "changes": [
            {"change": c.kind, "count": c.count, "usd_per_month": _cents(c.usd_per_month), **offer_name(c.offer)}
            for c in plan.changes
        ],
        "rejections": dict(plan.rejections),
        "assumptions": list(plan.assumptions),
        "warnings": list(plan.warnings),
    }
    if plan.status == "infeasible":
        document["shortfalls"] = [
            {"limit": s.limit, "needed": number(s.needed), "available": number(s.available), "unit": s.unit}
            for s in plan.shortfalls
        ]
        document["suggestions"] = [
            {"flag": s.flag, "usd_per_month": _cents(s.usd_per_month), "note": s.note} for s in plan.suggestions
        ]
    if plan.timing_s:
        document["timing"] = {key: number(value) for key, value in plan.timing_s.items()}
    return document


def offer_document(offer: Offer) -> dict[str, Any]:
    """One offer: what, where, how it is bought, at which dated price."""
    kind = offer.instance_type
    commitment = offer.commitment
    return {
        "provider": kind.provider,
        "instance_type": kind.name,
        "region": offer.region,
        "zone": offer.zone,
        "purchase_option": offer.purchase_option.value,
        "commitment": None
        if commitment is None
        else {
            "kind": commitment.kind.value,
            "term_months": commitment.term_months,
            "upfront_usd": str(commitment.upfront_usd),
        },
        "accelerator": kind.accelerator,
        "accelerator_count": number(kind.accelerator_count),
        "usd_per_hour": str(offer.usd_per_hour),
        "usd_per_month": _cents(offer.usd_per_month),
        "as_of": _day(offer.observed_on),
        "source": offer.source,
    }


def offer_name(offer: Offer) -> dict[str, Any]:
    """What tells one offer from another, for people."""
    document = offer_document(offer)
    keys = ("provider", "instance_type", "region", "zone", "purchase_option", "accelerator", "accelerator_count")
    return {key: document[key] for key in keys}


def _workload(planned: PlannedWorkload) -> dict[str, Any]:
    workload = planned.workload
    return {
        "name": workload.name,
        "owner": workload.owner,
        "model": planned.architecture.hf_id,
        "parameters": round(planned.architecture.params_total),
        "task": "infer",
        "served": planned.served,
        "shapes": [
            {
                "input_tokens": demand.shape.input_tokens,
                "output_tokens": demand.shape.output_tokens,
                "requests_per_s": number(demand.requests_per_s),
                "share": number(demand.share),
            }
            for demand in workload.demands
        ],
        "profile": [number(factor) for factor in workload.profile],
        "slo": {"ttft_ms": number(workload.slo.ttft_ms), "tpot_ms": number(workload.slo.tpot_ms)},
        "precisions": list(workload.precisions) or ["auto"],
        "kv_precision": workload.kv_precision,
        "context_tokens": workload.needed_context_tokens,
        "max_utilization": number(workload.utilization),
    }


def _fleet(fleet: Fleet | None) -> dict[str, Any]:
    if fleet is None:
        return {"instances": [], "replicas": [], "totals": None}
    return {
        "instances": [_instances(item) for item in fleet.instances],
        "replicas": [_replicas(item) for item in fleet.replicas],
        "totals": {
            "usd_per_hour": exact_usd(fleet.usd_per_hour),
            "usd_per_month": _cents(fleet.usd_per_month),
            "usd_per_million_output_tokens": _quantized(fleet.usd_per_million_output_tokens, _TOKEN_PRICE),
            "requests_per_s": number(fleet.requests_per_s),
            "output_tokens_per_s": number(fleet.output_tokens_per_s),
            "gpus": fleet.accelerators,
            "upfront_usd": _cents(sum((item.upfront_usd for item in fleet.instances), Decimal(0))),
        },
    }


def _instances(item: PlannedInstances) -> dict[str, Any]:
    """An offer's document with how many run; its prices are of one instance, totals of all in an average hour."""
    document = {
        **offer_document(item.offer),
        "count": item.count,
        "total_usd_per_hour": exact_usd(item.usd_per_hour),
        "total_usd_per_month": _cents(item.usd_per_hour * HOURS_PER_MONTH),
    }
    if len(item.bought) > 1:
        document |= {"kept": item.kept, "counts_by_period": [item.kept + more for more in item.bought]}
    return document


def _replicas(item: PlannedReplicas) -> dict[str, Any]:
    """A group of equal replicas: rates are of the group in an average hour, latencies and memory of one.

    Latencies are the longest over the shapes that it serves; engine, memory share, caches and the memory of one
    accelerator are what a launch needs beside the layout; `capacity_requests_per_s` is of the routed mix.
    """
    ttft, tpot = item.ttft_ms, item.tpot_ms
    sized = item.kind.any_shape
    memory = sized.memory
    document: dict[str, Any] = {
        "workload": item.workload.name,
        "instance_type": item.offer.instance_type.name,
        "provider": item.offer.provider,
        "region": item.offer.region,
        "purchase_option": item.offer.purchase_option.value,
        "accelerator": item.offer.instance_type.accelerator,
        "precision": item.kind.precision,
        "tensor_parallel": item.kind.layout.tp,
        "pipeline_parallel": item.kind.layout.pp,
        "data_parallel": item.kind.layout.dp,
        "expert_parallel": item.kind.layout.ep,
        "instances_per_replica": item.kind.machines,
        "count": item.count,
        "requests_per_s": number(item.requests_per_s),
        "output_tokens_per_s": number(item.output_tokens_per_s),
        "batch": max(one.batch for one in item.sized),
        "engine": sized.engine,
        "kv_precision": sized.kv_precision,
        "gpu_memory_utilization": number(sized.memory_share),
        "prefix_cache_hit": number(sized.prefix_cache_hit),
        "ttft_ms": number(ttft.value),
        "ttft_ms_low": number(ttft.low),
        "ttft_ms_high": number(ttft.high),
        "tpot_ms": number(tpot.value),
        "tpot_ms_low": number(tpot.low),
        "tpot_ms_high": number(tpot.high),
        "memory_gib_per_gpu": number(memory_gib_per_accelerator(item)),
        "memory": {
            "usable_gib_per_gpu": number(memory.usable_gib),
            "weights_gib": number(memory.weights_gib),
            "activations_gib": number(memory.activations_gib),
            "overhead_gib": number(memory.overhead_gib),
            "kv_room_gib": number(memory.kv_room_gib),
        },
        "utilization": number(item.utilization),
    }
    if len(item.counts) > 1:
        document["counts_by_period"] = list(item.counts)
    return document


def routing(fleet: Fleet) -> list[dict[str, Any]]:
    """Which part of which shape goes to which group of replicas, in an average hour; by period where that differs."""
    totals: dict[tuple[str, int], float] = {}
    for group in fleet.replicas:
        for b, flow in enumerate(group.mean_flows):
            totals[group.workload.name, b] = totals.get((group.workload.name, b), 0.0) + flow
    rows = []
    for index, group in enumerate(fleet.replicas):
        for b, flow in enumerate(group.mean_flows):
            total = totals[group.workload.name, b]
            if flow <= 0 or total <= 0:
                continue
            shape = group.workload.demands[b].shape
            row: dict[str, Any] = {
                "workload": group.workload.name,
                "input_tokens": shape.input_tokens,
                "output_tokens": shape.output_tokens,
                "replica_group": index,
                "share": number(flow / total),
                "requests_per_s": number(flow),
            }
            if len(group.hours) > 1:
                row["requests_per_s_by_period"] = [number(flows[b]) for flows in group.flows]
            rows.append(row)
    return rows


def _reason(reason: PurchaseReason) -> dict[str, Any]:
    return {
        "kind": reason.kind,
        "provider": reason.provider,
        "instance_type": reason.instance_type,
        "region": reason.region,
        "purchase_option": reason.purchase_option,
        "count": reason.count,
        "used_share": number(reason.used_share),
        "break_even_share": number(reason.break_even_share),
        "against": reason.against,
        "text": reason.text,
    }


def _proof(plan: Plan) -> dict[str, Any]:
    proof = plan.proof
    key = "bound_requests_per_s" if plan.objective == "max_throughput" else "bound_usd_per_month"
    bound = number(proof.bound, digits=12) if plan.objective == "max_throughput" else _cents_of_float(proof.bound)
    return {
        key: bound,
        "gap": number(proof.gap),
        "solver": proof.solver,
        "variables": proof.variables,
        "constraints": proof.constraints,
    }


def _alternative(alternative: Alternative, chosen: Fleet | None) -> dict[str, Any]:
    """The alternative's totals, and its difference to the chosen fleet where that serves the same workloads."""
    fleet = alternative.fleet
    document: dict[str, Any] = {
        "kind": alternative.kind,
        "name": alternative.name,
        "flag": alternative.flag,
        "feasible": fleet is not None and alternative.within_budget,
        "usd_per_month": None,
        "requests_per_s": None,
        "usd_per_million_output_tokens": None,
        "difference_usd_per_month": None,
        "instances": [],
        "note": alternative.note,
    }
    if fleet is None:
        return document
    alike = chosen is not None and chosen.served == fleet.served
    difference = fleet.usd_per_month - chosen.usd_per_month if chosen is not None and alike else None
    return document | {
        "usd_per_month": _cents(fleet.usd_per_month),
        "requests_per_s": number(fleet.requests_per_s),
        "usd_per_million_output_tokens": _quantized(fleet.usd_per_million_output_tokens, _TOKEN_PRICE),
        "difference_usd_per_month": _cents(difference),
        "instances": [_brief(item) for item in fleet.instances],
    }


def _brief(item: PlannedInstances) -> Mapping[str, Any]:
    return {**offer_name(item.offer), "count": item.count, "usd_per_hour": str(item.offer.usd_per_hour)}


def _cents(value: Decimal | None) -> str | None:
    return _quantized(value, _CENT)


def exact_usd(value: Decimal) -> str:
    """All digits of a sum of prices, without zeros behind them; an average over periods to nine decimals."""
    text = f"{round(value, _PRICE_DIGITS):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _cents_of_float(value: float | None) -> str | None:
    return None if value is None or not math.isfinite(value) else _cents(Decimal(value))


def _quantized(value: Decimal | None, unit: Decimal) -> str | None:
    return None if value is None else str(value.quantize(unit, ROUND_HALF_UP))


def _day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()
