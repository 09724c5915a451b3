"""Says what every calibrated constant means, where it starts and how far measurements may move it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantKind:
    """A group of constants: name or prefix, meaning, starting value, and the factor that one sigma of doubt is.

    A `held` group keeps its starting value: fitting it predicts sources that the fit has not seen no better.
    """

    prefix: str
    meaning: str
    start: float
    doubt: float
    members: tuple[str, ...] = ()
    held: bool = False


_CLASSES: Final = (
    *("hopper", "ampere", "ampere_gddr", "ada", "blackwell", "blackwell_gddr", "older", "amd", "apple"),
    "default",
)
_FAMILIES: Final = (
    *("vllm", "sglang", "tensorrt-llm", "llama.cpp", "exllamav2", "lmdeploy", "mlc-llm", "deepspeed-mii"),
    *("transformers", "default"),
)

KINDS: Final = (
    ConstantKind(
        prefix="bandwidth.share", meaning="share of memory bandwidth at which weights are read", start=0.82, doubt=1.35
    ),
    ConstantKind(prefix="cache.share", meaning="cache read rate over weight read rate", start=0.75, doubt=1.35),
    ConstantKind(
        prefix="cache.old_rocm",
        meaning="times the cache is read on ROCm before 2025.3 under grouped queries",
        start=2.5,
        doubt=1.65,
    ),
    ConstantKind(
        prefix="compute.16bit", meaning="share of the 16-bit peak in matrices", start=0.55, doubt=1.35, members=_CLASSES
    ),
    ConstantKind(
        prefix="compute.8bit", meaning="share of the 8-bit peak in matrices", start=0.5, doubt=1.35, held=True
    ),
    ConstantKind(
        prefix="compute.8bit.amd",
        meaning="the same on AMD: matrices alone reach 990 of 2,615 TFLOP/s (SemiAnalysis, 2024-12, recalled)",
        start=0.38,
        doubt=1.35,
        held=True,
    ),
    ConstantKind(prefix="compute.4bit", meaning="share of the 4-bit peak in matrices", start=0.3, doubt=1.35),
    ConstantKind(prefix="compute.part", meaning="factor on compute of one accelerator", start=1.0, doubt=1.13),
    ConstantKind(prefix="compute.old_rocm", meaning="factor of ROCm before 2025.3 on compute", start=0.5, doubt=1.65),
    ConstantKind(
        prefix="compute.weight_only", meaning="factor of dequantising kernels on compute", start=0.7, doubt=1.35
    ),
    ConstantKind(prefix="compute.weight_only_experts", meaning="the same in expert matrices", start=0.5, doubt=1.35),
    ConstantKind(
        prefix="compute.experts_slower",
        meaning="times that expert matrices are slower than dense",
        start=1.5,
        doubt=1.5,
    ),
    ConstantKind(
        prefix="compute.mixture_dense",
        meaning="factor on 16-bit compute in the small dense matrices of 4-bit mixtures",
        start=0.7,
        doubt=1.5,
    ),
    ConstantKind(prefix="compute.llamacpp", meaning="factor of llama.cpp on 16-bit compute", start=0.5, doubt=1.65),
    ConstantKind(
        prefix="compute.llamacpp.class",
        meaning="factor on that by device class",
        start=1.0,
        doubt=1.35,
        members=_CLASSES,
    ),
    ConstantKind(
        prefix="compute.ramp_tokens",
        meaning="tokens a prefill pays for before it is efficient",
        start=64,
        doubt=2.0,
        held=True,
    ),
    ConstantKind(
        prefix="attention.share", meaning="share of the 16-bit peak in prefill attention", start=0.35, doubt=1.5
    ),
    ConstantKind(prefix="attention.llamacpp", meaning="the same under llama.cpp", start=0.2, doubt=1.65),
    ConstantKind(
        prefix="attention.serial_ns",
        meaning="ns per layer and token of soft-capped decode attention before Hopper",
        start=30,
        doubt=1.35,
        held=True,
    ),
    ConstantKind(
        prefix="overhead.layer_us",
        meaning="us per layer and step that bytes and FLOPs do not explain, in 2025",
        start=60,
        doubt=1.65,
        members=_FAMILIES,
    ),
    ConstantKind(
        prefix="overhead.class", meaning="factor on it by device class", start=1.0, doubt=1.5, members=_CLASSES
    ),
    ConstantKind(
        prefix="overhead.sequence_us",
        meaning="us per sequence and step, in 2025",
        start=10,
        doubt=2.0,
        members=("vllm", "tensorrt-llm", "default"),
    ),
    ConstantKind(prefix="overhead.step_us", meaning="us per step", start=200, doubt=2.0, held=True),
    ConstantKind(prefix="overhead.per_year", meaning="factor by which overheads fall each year", start=1.3, doubt=1.35),
    ConstantKind(
        prefix="overlap.sharpness", meaning="exponent of the p-norm of reading and multiplying", start=3.0, doubt=1.22
    ),
    ConstantKind(prefix="experts.tile_tokens", meaning="rows of one expert tile", start=32, doubt=2.0, held=True),
    ConstantKind(
        prefix="experts.exchange_us", meaning="us per exchange of tokens between ranks", start=20, doubt=2.0, held=True
    ),
    ConstantKind(prefix="allreduce.nvlink_us", meaning="us per all-reduce over NVLink", start=12, doubt=1.5),
    ConstantKind(
        prefix="allreduce.infinity_fabric_us",
        meaning="us per all-reduce over Infinity Fabric",
        start=20,
        doubt=1.65,
        held=True,
    ),
    ConstantKind(prefix="allreduce.pcie_us", meaning="us per all-reduce over PCIe", start=40, doubt=1.65),
    ConstantKind(
        prefix="allreduce.host_us", meaning="us per hop of an all-reduce through host memory", start=40, doubt=1.65
    ),
    ConstantKind(
        prefix="allreduce.network_us", meaning="us per all-reduce between nodes", start=40, doubt=1.65, held=True
    ),
    ConstantKind(prefix="link.share", meaning="share of NVLink-class bandwidth", start=0.5, doubt=1.5, held=True),
    ConstantKind(
        prefix="link.pcie_share", meaning="share of PCIe bandwidth between peers", start=0.4, doubt=1.5, held=True
    ),
    ConstantKind(
        prefix="pipeline.hand_over_us", meaning="us per hand-over between stages", start=50, doubt=2.0, held=True
    ),
    ConstantKind(
        prefix="pipeline.imbalance", meaning="share that each further stage adds to a step", start=0.05, doubt=2.0
    ),
    ConstantKind(
        prefix="serving.first_token_ms", meaning="ms of HTTP, tokenising and scheduling per request", start=8, doubt=1.5
    ),
    ConstantKind(prefix="serving.prompt_token_us", meaning="us of the same per prompt token", start=4, doubt=1.8),
    ConstantKind(
        prefix="serving.arrival_ms",
        meaning="ms of the server's process per request that comes with others",
        start=1,
        doubt=2.0,
        held=True,
    ),
)


def kind_of(name: str) -> ConstantKind:
    """The group of a constant: the longest prefix that it starts with."""
    return max((k for k in KINDS if name == k.prefix or name.startswith(k.prefix + ".")), key=lambda k: len(k.prefix))
