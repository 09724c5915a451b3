"""Turns an engine's name and an accelerator into the few constants that physics does not give, each with its source."""

from dataclasses import dataclass
from functools import cache
from typing import Final

from providers.accelerators import Accelerator
from providers.errors import UnknownName, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """An engine and its generation: how it uses memory, and what it costs per step.

    `layer_us` is time per layer and step that neither bandwidth nor FLOP/s explains (launches, small kernels),
    `sequence_us` per sequence and step (scheduling, sampling), `step_us` per step.
    `max_sequences` and `batched_tokens` are the engine's defaults on a card below 70 GiB and from 70 GiB on.
    """

    name: str
    layer_us: float
    sequence_us: float
    step_us: float
    max_sequences: tuple[int, int]
    batched_tokens: tuple[int, int]
    memory_share: float | None
    """Share of the card that the engine takes by default; None = of what is free after loading."""
    process_gib: float
    """CUDA context and library buffers of one process."""
    communicator_gib: float
    """Added per accelerator when a replica spans several."""
    logit_bytes: float
    """Peak bytes per (sequence x vocabulary entry) while sampling."""


VLLM: Final = EngineProfile(
    name="vllm",
    layer_us=60.0,
    sequence_us=10.0,
    step_us=300.0,
    max_sequences=(256, 1024),
    batched_tokens=(2048, 8192),
    memory_share=0.9,
    process_gib=0.2,
    communicator_gib=0.4,
    # Measured start-up profiles: 4.76 GiB at 1,024 x 128,256, 5.56 at 1,024 x 151,936 (llm-d-planner, 2026), 1.26 at
    # 256 x 128,256 (vllm pull request 10511, 2024-11): 37 to 39 bytes.
    logit_bytes=38.5,
)

ENGINES: Final = {
    "vllm": VLLM,
    "sglang": VLLM,
    "tensorrt-llm": VLLM,
    "llama.cpp": EngineProfile(
        name="llama.cpp",
        layer_us=140.0,
        sequence_us=10.0,
        step_us=300.0,
        max_sequences=(1, 1),
        batched_tokens=(512, 512),
        memory_share=None,
        process_gib=0.4,
        communicator_gib=0.1,
        logit_bytes=4.0,
    ),
}

BANDWIDTH_SHARE: Final = 0.82
"""Share of the memory bandwidth that weights and cache are read at: fit of 2,726 published rows, 2026-11."""

GEMM_SHARE: Final = 0.49
"""Share of the dense peak that large matrix products reach: same fit."""

SPREAD: Final = 1.6
"""Half-width of the 80 % interval as a factor, until the residuals of the calibration replace it."""

LARGE_CARD_GIB: Final = 70.0
"""vLLM doubles and quadruples its defaults from this size on (EngineArgs, usage-context defaults)."""


@cache
def engine_profile(name: str) -> EngineProfile:
    """The profile of an engine by name. Raises UnknownName."""
    key = name.strip().lower()
    if key not in ENGINES:
        raise UnknownName("engine", name, nearest(key, ENGINES), f"known: {', '.join(ENGINES)}")
    return ENGINES[key]


def is_large(accelerator: Accelerator) -> bool:
    """Whether engines take their large-card defaults."""
    return accelerator.usable_memory_gib >= LARGE_CARD_GIB


def allreduce_seconds(message_bytes: float, ranks: int, link: str, link_gb_per_s: float) -> float:
    """One all-reduce of `message_bytes` over `ranks`: latency + 2 (n - 1) / n x bytes / (one direction of the link).

    The ring bound of Thakur et al. (2005). NVLink-class links: 10 us and 70 % of the link; PCIe without peer
    bridges: 30 us and 60 %, shared by pairs.
    """
    if ranks == 1:
        return 0.0
    volume = 2 * (ranks - 1) / ranks * message_bytes
    if link in ("pcie", "none"):
        return 30e-6 + volume / (0.6 * 1e9 * min(link_gb_per_s, 64.0) / 2)
    return 10e-6 + volume / (0.7 * 1e9 * link_gb_per_s / 2)


def is_calibrated(accelerator: Accelerator) -> bool:
    """Whether published measurements stand behind the estimates: GPUs yes; TPU, Trainium, Inferentia, Gaudi not yet."""
    return accelerator.vendor in ("NVIDIA", "AMD")
