"""Turns an engine, an accelerator and a format into rates: physics times a few calibrated constants.

The constants are in `data/calibration.csv`, written by `tests/benchmarks/calibrate_inference.py` from the measurements
that the project carries; their meaning is in `optimizer.sizing.constants`. A rate is always a product of named
constants, so that a constant can be read, checked and refitted alone.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from optimizer.sizing.dtypes import WeightFormat, arithmetic, sixteen_bit_rate
from optimizer.sizing.engines import EngineProfile
from optimizer.workload.architecture import Architecture
from providers.accelerators import Accelerator
from providers.networks import usual_domain

_REFERENCE_YEAR: Final = 2025.0
"""Year of the engines that `overhead.layer_us.*` and `overhead.sequence_us.*` describe."""

_AGELESS: Final = frozenset(["llama.cpp", "transformers"])
"""Engines whose overheads did not fall with the years: their rows of 2023 and 2025 agree, or there are none."""

_MOST_BANDWIDTH: Final = 0.99
_MOST_COMPUTE: Final = 0.95
"""No calibration may pass the data sheet: shares are capped below 1."""

_PCIE_PEER_GB_PER_S: Final = 32.0
"""One direction of PCIe 4.0 x16: what peers reach through the root complex, whatever the slot promises beyond."""

_BRIDGED_RANKS: Final = 2
_NETWORK_GB_PER_S: Final = 50.0
"""One direction of a 400 Gbit/s port per accelerator, as HGX nodes have."""

_OLD_ROCM_YEAR: Final = 2025.3
"""Before this, vLLM on ROCm read the cache once per query head (no grouped-query kernel: measured 7 x on MI300X), and
its matrices reached a fraction of what they do since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one accelerator does under one engine, in bytes, FLOPs and seconds; see `optimizer.sizing.steps`."""

    weight_bytes_per_s: float
    cache_bytes_per_s: float
    dense_flops_per_s: float
    expert_flops_per_s: float
    head_flops_per_s: float
    attention_flops_per_s: float
    layer_s: float
    sequence_s: float
    step_s: float
    serial_attention_s: float
    sharpness: float
    ramp_tokens: float
    tile_tokens: float
    allreduce_s: float
    link_bytes_per_s: float
    exchange_s: float
    hand_over_s: float
    stage_imbalance: float


def device_class(accelerator: Accelerator) -> str:
    """The group whose constants an accelerator takes: by architecture, and by kind of memory where it matters."""
    architecture = accelerator.architecture
    if accelerator.vendor == "AMD":
        return "amd"
    if accelerator.vendor == "Apple":
        return "apple"
    if accelerator.vendor != "NVIDIA":
        return "other"
    if architecture.startswith("Hopper"):
        return "hopper"
    if architecture.startswith("Ampere"):
        return "ampere" if accelerator.memory_type.startswith("HBM") else "ampere_gddr"
    if architecture.startswith("Ada"):
        return "ada"
    if architecture.startswith("Blackwell"):
        return "blackwell" if accelerator.memory_type.startswith("HBM") else "blackwell_gddr"
    return "older"


def is_geforce(accelerator: Accelerator) -> bool:
    """Whether the card halves its tensor rate under 32-bit accumulation, as GeForce cards do (the table's notes)."""
    return accelerator.name.startswith("RTX") and "FP32-accumulate" in accelerator.notes


def is_calibrated(accelerator: Accelerator) -> bool:
    """Whether measurements of its device class went into the constants (TPU, Trainium, Inferentia, Gaudi: none)."""
    return device_class(accelerator) != "other"


@cache
def constants() -> Mapping[str, float]:
    """The calibrated constants by name, in the unit that the name ends with."""
    text = Path(__file__).with_name("data").joinpath("calibration.csv").read_text(encoding="utf-8")
    return MappingProxyType({row["constant"]: float(row["value"]) for row in csv.DictReader(text.splitlines())})


def rates(
    accelerator: Accelerator,
    link: str,
    ranks: int,
    engine: EngineProfile,
    fmt: WeightFormat,
    model: Architecture,
    known: Mapping[str, float] | None = None,
) -> Rates:
    """The rates of one accelerator for one model, format and engine, `ranks` of it joined by `link` in one replica.

    `known` replaces the shipped constants.
    """
    k = constants() if known is None else known
    kind = device_class(accelerator)
    bandwidth = accelerator.memory_bandwidth_gb_per_s * 1e9
    bandwidth *= min(_MOST_BANDWIDTH, k["bandwidth.share"])
    dense, expert, head, attention = _compute(accelerator, engine, fmt, model, kind, k)
    old_rocm = kind == "amd" and engine.year < _OLD_ROCM_YEAR
    age = 1.0 if engine.family in _AGELESS else k["overhead.per_year"] ** (_REFERENCE_YEAR - engine.year)
    reduce_s, link_rate = _links(accelerator, link, ranks, k)
    serial = model.soft_capped and kind in ("ampere", "ampere_gddr", "ada") and engine.family == "vllm"
    return Rates(
        weight_bytes_per_s=bandwidth,
        cache_bytes_per_s=bandwidth
        * k["cache.share"]
        / (k["cache.old_rocm"] if old_rocm and model.heads > model.kv_heads else 1.0),
        dense_flops_per_s=dense,
        expert_flops_per_s=expert,
        head_flops_per_s=head,
        attention_flops_per_s=attention,
        layer_s=_own(k, "overhead.layer_us", engine.family) * _own(k, "overhead.class", kind) * age * 1e-6,
        sequence_s=_own(k, "overhead.sequence_us", engine.family) * age * 1e-6,
        step_s=k["overhead.step_us"] * 1e-6,
        serial_attention_s=k["attention.serial_ns"] * 1e-9 if serial else 0.0,
        sharpness=k["overlap.sharpness"],
        ramp_tokens=k["compute.ramp_tokens"],
        tile_tokens=k["experts.tile_tokens"],
        allreduce_s=reduce_s,
        link_bytes_per_s=link_rate,
        exchange_s=k["experts.exchange_us"] * 1e-6,
        hand_over_s=k["pipeline.hand_over_us"] * 1e-6,
        stage_imbalance=0.0 if engine.family == "llama.cpp" else k["pipeline.imbalance"],
    )


def _own(known: Mapping[str, float], group: str, name: str) -> float:
    """The constant of a group for one member; a member that was never measured takes the group's neutral value."""
    key = f"{group}.{name}"
    return known[key] if key in known else known[f"{group}.default"]


def _compute(
    accelerator: Accelerator,
    engine: EngineProfile,
    fmt: WeightFormat,
    model: Architecture,
    kind: str,
    k: Mapping[str, float],
) -> tuple[float, float, float, float]:
    """FLOP/s of dense matrices, of experts, of the output matrix and of attention.

    16-bit parts of a quantised model (output matrix, attention of MXFP4 and NVFP4 mixtures) run at the 16-bit rate.
    llama.cpp accumulates in 16 bit, which doubles the rate of GeForce cards, and dequantises in its own kernels.
    """
    key, peak = arithmetic(accelerator, fmt)
    sixteen = sixteen_bit_rate(accelerator)
    part = k.get(f"compute.part.{accelerator.name}", 1.0)
    if kind == "amd" and engine.year < _OLD_ROCM_YEAR:
        part *= k["compute.old_rocm"]
    share16 = _own(k, "compute.16bit", kind)
    if engine.family == "llama.cpp":
        doubled = 2.0 if is_geforce(accelerator) else 1.0
        share = share16 * k["compute.llamacpp"] * _own(k, "compute.llamacpp.class", kind) * doubled
        rate = sixteen * min(_MOST_COMPUTE * doubled, share) * part
        return rate, rate, rate, sixteen * k["attention.llamacpp"] * part
    share8 = k["compute.8bit.amd" if kind == "amd" else "compute.8bit"]
    share = {"fp8": share8, "int8": share8, "fp4": k["compute.4bit"]}.get(key, share16)
    weight_only = key in ("16bit", "fp32") and fmt.linear_bits < 16
    dense_share = share * (k["compute.weight_only"] if weight_only and not model.is_moe else 1.0)
    dense = peak * min(_MOST_COMPUTE, dense_share) * part
    if model.is_moe and fmt.compute == "fp4":
        dense = sixteen * min(_MOST_COMPUTE, share16 * k["compute.mixture_dense"]) * part
    expert_share = share * (k["compute.weight_only_experts"] if weight_only else 1.0) / k["compute.experts_slower"]
    expert = peak * min(_MOST_COMPUTE, expert_share) * part
    head = sixteen * min(_MOST_COMPUTE, share16) * part
    return dense, expert, head, sixteen * k["attention.share"] * part


def _links(accelerator: Accelerator, link: str, ranks: int, k: Mapping[str, float]) -> tuple[float, float]:
    """Latency of one all-reduce in seconds, and bytes/s of one direction of the link as collectives reach it.

    Bridges join pairs: more ranks talk over PCIe. Beyond a node of eight, all but NVL72 racks and TPU pods use the
    network. GeForce cards have no peer access: every hop goes through the host's memory.
    """
    one_way = accelerator.link_gb_per_s / 2
    if link == "nvlink_bridge" and ranks <= _BRIDGED_RANKS:
        link = "nvlink"
    if ranks > usual_domain(accelerator):
        return k["allreduce.network_us"] * 1e-6, _NETWORK_GB_PER_S * 1e9 * k["link.share"]
    if link in ("nvlink", "ici", "neuronlink"):
        return k["allreduce.nvlink_us"] * 1e-6, one_way * 1e9 * k["link.share"]
    if link == "infinity_fabric":
        return k["allreduce.infinity_fabric_us"] * 1e-6, one_way * 1e9 * k["link.share"]
    slow = min(one_way, _PCIE_PEER_GB_PER_S)
    if is_geforce(accelerator):
        return k["allreduce.host_us"] * math.log2(max(2, ranks)) * 1e-6, slow * 1e9 * k["link.pcie_share"]
    return k["allreduce.pcie_us"] * 1e-6, slow * 1e9 * k["link.pcie_share"]
