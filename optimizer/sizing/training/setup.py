"""Says how a training job is laid out on accelerators: everything that memory and time depend on."""

from dataclasses import dataclass
from typing import Final

from optimizer.sizing.training.calibration import SOFTWARE_YEAR
from optimizer.workload.architecture import Architecture
from providers.accelerators import Accelerator
from providers.errors import InvalidValue, UnknownName, nearest

RECOMPUTE: Final = ("none", "selective", "full")
"""Activations that the backward pass computes again: nothing, attention's core, or whole layers (arXiv 2205.05198)."""

OFFLOADS: Final = ("optimizer", "params", "activations")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLayout:
    """Tensor-, pipeline-, context-, expert- and data-parallel degrees; a job uses tp x pp x cp x dp accelerators.

    Expert parallelism splits the experts over ranks that hold other data or other slices: it adds no accelerators.
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "cp", "ep", "dp"):
            if getattr(self, name) < 1:
                raise InvalidValue(f"{name} degree", getattr(self, name), "give a whole number of at least 1")

    @property
    def accelerators(self) -> int:
        """Accelerators of the whole job."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def shards(self) -> int:
        """Ranks that hold the same weights, over which ZeRO and FSDP spread the states."""
        return self.cp * self.dp

    @property
    def expert_shards(self) -> int:
        """Ranks that hold the same experts."""
        return max(1, self.tp * self.cp * self.dp // self.ep)

    def __str__(self) -> str:
        degrees = (("TP", self.tp), ("PP", self.pp), ("CP", self.cp), ("EP", self.ep), ("DP", self.dp))
        return " x ".join(f"{name}{value}" for name, value in degrees if value > 1) or "DP1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal nodes: `node_accelerators` each, joined by `link` inside and `network_gbit_per_s` a node between.

    `network_gbit_per_s` None = not known; `domain` is how many accelerators the fast link reaches (72 in an NVL72).
    """

    accelerator: Accelerator
    nodes: int
    node_accelerators: int
    link: str
    network_gbit_per_s: float | None = None
    domain: int | None = None
    host_memory_gib: float | None = None

    @property
    def accelerators(self) -> int:
        return self.nodes * self.node_accelerators

    @property
    def fast_domain(self) -> int:
        """Accelerators that reach each other over the fast link."""
        return self.domain or self.node_accelerators


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """A model, how it is trained, and on what. Token counts are per sequence (`seq_len`) and per optimizer step.

    `mixed` keeps FP32 master weights and moments; False is pure 16-bit. `trains_embeddings` is for adapters with
    embedding and output matrix trained in full. `fused_step` applies the optimizer in the backward pass (no gradient
    buffer); `chunked_loss` never holds all logits at once. `expert_adapters`: LoRA is also on experts;
    `quantised_experts`: a 4-bit base has its experts in 4 bit too. `software_year` is when the software was measured.
    """

    model: Architecture
    cluster: Cluster
    layout: TrainingLayout
    task: str
    stack: str
    seq_len: int
    micro_batch: int
    global_batch_tokens: float
    precision: str = "bf16"
    optimizer: str = "adamw"
    mixed: bool = True
    zero_stage: int = 1
    recompute: str = "none"
    offload: frozenset[str] = frozenset()
    lora_rank: int = 16
    trains_embeddings: bool = False
    sequence_parallel: bool = True
    frozen_gradients: bool = False
    fused_step: bool = False
    chunked_loss: bool = False
    expert_adapters: bool = True
    quantised_experts: bool = True
    software_year: float = SOFTWARE_YEAR

    def __post_init__(self) -> None:
        if self.recompute not in RECOMPUTE:
            raise UnknownName("recomputation", self.recompute, nearest(self.recompute, RECOMPUTE))
        for part in sorted(self.offload - set(OFFLOADS)):
            raise UnknownName("offload", part, nearest(part, OFFLOADS), f"known: {', '.join(OFFLOADS)}")

    @property
    def is_adapter(self) -> bool:
        return self.task in ("lora", "qlora")

    @property
    def stage_layers(self) -> int:
        """Layers of the fullest pipeline stage."""
        return -(-self.model.layers // self.layout.pp)

    @property
    def micro_tokens(self) -> float:
        """Tokens of one micro-batch that one rank holds: sequences x length / CP."""
        return self.micro_batch * self.seq_len / self.layout.cp

    @property
    def micro_steps(self) -> float:
        """Micro-batches that each data-parallel rank runs for one optimizer step, at least 1."""
        return max(1.0, self.global_batch_tokens / (self.layout.dp * self.micro_batch * self.seq_len))
