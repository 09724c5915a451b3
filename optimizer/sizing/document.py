"""Turns the sizing of one model on one accelerator x count into the JSON document `costopt.size`."""

import math
from typing import Any, Final

from optimizer.sizing.dtypes import kv_bytes_per_element, weight_bytes, weight_format
from optimizer.sizing.intervals import Estimate
from optimizer.sizing.layout import Hardware, Layout
from optimizer.sizing.memory import cache_cost
from optimizer.sizing.serving import ServingEstimate
from optimizer.workload.architecture import Architecture
from providers.units import GIB

SCHEMA: Final = "costopt.size"
SCHEMA_VERSION: Final = "1.0"


def size_document(model: Architecture, hardware: Hardware, sized: ServingEstimate, requests: int = 1) -> dict[str, Any]:
    """The document's keys are those of schema version 1.0. `kv_cache_gib` is of `requests` at the context asked for.

    `weights_gib` and `kv_cache_gib` are of the whole replica, counted once; `per_gpu_gib` is what the fullest
    accelerator holds, replication included; `total_gib` is that times the accelerators of the replica.
    """
    memory = sized.memory
    kv_bytes = kv_bytes_per_element(sized.kv_precision)
    whole_cache = cache_cost(model, Layout(), kv_bytes).bytes_for(sized.context_tokens) * requests / GIB
    per_gpu = memory.fixed_gib + memory.cache.bytes_for(sized.context_tokens) * requests / GIB
    accelerators = sized.layout.accelerators
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "verdict": sized.verdict,
        "model": model.hf_id,
        "parameters": round(model.params_total),
        "accelerator": hardware.accelerator.name,
        "count": hardware.count,
        "precision": sized.precision,
        "kv_precision": sized.kv_precision,
        "tensor_parallel": sized.layout.tp,
        "pipeline_parallel": sized.layout.pp,
        "context_tokens": sized.context_tokens,
        "headroom_tokens": sized.headroom_tokens,
        "replicas": sized.replicas,
        "min_gpus": sized.min_gpus,
        "min_gpus_comfortable": sized.min_gpus_comfortable,
        "valid_tensor_parallel": list(sized.valid_tensor_parallel),
        "memory": {
            "usable_gib_per_gpu": number(memory.usable_gib),
            "budget_gib_per_gpu": number(memory.budget_gib),
            "weights_gib": number(weight_bytes(model, weight_format(sized.precision)).total / GIB),
            "kv_cache_gib": number(whole_cache),
            "kv_bytes_per_token": number(memory.kv_bytes_per_token),
            "kv_room_gib_per_gpu": number(memory.kv_room_gib),
            "kv_tokens": memory.kv_tokens,
            "activations_gib": number(memory.activations_gib * accelerators),
            "optimizer_gib": 0,
            "gradients_gib": 0,
            "overhead_gib": number(memory.overhead_gib * accelerators),
            "total_gib": number(per_gpu * accelerators),
            "per_gpu_gib": number(per_gpu),
            "max_context_tokens": memory.max_context_tokens,
            "max_concurrency": sized.max_concurrency,
        },
        "performance": _performance(sized),
        "assumptions": list(sized.assumptions),
        "warnings": list(sized.warnings),
    }


def number(value: float | None, digits: int = 6) -> float | int | None:
    """A physical quantity to `digits` significant digits; whole numbers without a fraction, infinity as null."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _performance(sized: ServingEstimate) -> dict[str, Any] | None:
    performance = sized.performance
    if performance is None:
        return None
    return {
        "batch": performance.batch,
        "output_tokens_per_s": _estimate(performance.output_tokens_per_s),
        "requests_per_s": _estimate(performance.requests_per_s),
        "prefill_tokens_per_s": _estimate(performance.prefill_tokens_per_s),
        "ttft_ms": _estimate(performance.ttft_ms),
        "tpot_ms": _estimate(performance.tpot_ms),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": number(estimate.value), "low": number(estimate.low), "high": number(estimate.high)}
