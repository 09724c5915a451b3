"""Turns a model and an instance into the ways of splitting one replica over accelerators."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from optimizer.workload.architecture import Architecture
from providers.accelerators import Accelerator
from providers.errors import InvalidValue

LINKS: Final = frozenset(["nvlink", "nvlink_bridge", "pcie", "infinity_fabric", "ici", "neuronlink", "roce", "none"])
"""What can join the accelerators inside one instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Tensor-, pipeline-, data- and expert-parallel degrees of one replica; it uses tp x pp x dp accelerators."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for what, value in (("tp", self.tp), ("pp", self.pp), ("dp", self.dp), ("ep", self.ep)):
            if value < 1:
                raise InvalidValue(f"{what} degree", value, "give a whole number of at least 1")

    @property
    def accelerators(self) -> int:
        """Accelerators of one replica."""
        return self.tp * self.pp * self.dp

    def __str__(self) -> str:
        parts = [f"{name.upper()}{value}" for name, value in (("tp", self.tp), ("pp", self.pp)) if value > 1]
        parts += [f"{name.upper()}{value}" for name, value in (("dp", self.dp), ("ep", self.ep)) if value > 1]
        return " x ".join(parts) or "TP1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the accelerators of one instance are: variant, count, and the link between them (one of LINKS)."""

    accelerator: Accelerator
    count: int
    link: str

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidValue("accelerator count", self.count, "give a whole number of at least 1")
        if self.link not in LINKS:
            raise InvalidValue("link", self.link, f"one of {', '.join(sorted(LINKS))}")


def tensor_parallel_problem(model: Architecture, tp: int) -> str | None:
    """Why `tp` cannot split the model, or None: it must divide the heads, and divide the KV heads or be a multiple.

    The rule of Megatron-LM (arXiv 1909.08053, section 3) that vLLM, SGLang and TensorRT-LLM check at start.
    """
    if model.heads % tp:
        return f"{model.heads} attention heads do not divide by {tp}"
    if not model.is_mla and model.kv_heads % tp and tp % model.kv_heads:
        return f"{model.kv_heads} KV heads neither divide by {tp} nor divide it"
    return None


@cache
def valid_tensor_parallel(model: Architecture, most: int) -> tuple[int, ...]:
    """Tensor-parallel degrees up to `most` that split the model."""
    return tuple(tp for tp in range(1, most + 1) if tensor_parallel_problem(model, tp) is None)


def layouts(model: Architecture, hardware: Hardware) -> Iterator[Layout]:
    """Sensible layouts of one replica inside one instance: each group size that divides the count, widest valid TP
    first, the rest of the group as pipeline stages. Over PCIe, where all-reduce is slow, also pipelines alone.
    """
    for group in (g for g in range(1, hardware.count + 1) if hardware.count % g == 0):
        widest = max(tp for tp in valid_tensor_parallel(model, group) if group % tp == 0)
        if group // widest <= model.layers:
            yield Layout(tp=widest, pp=group // widest)
        if hardware.link == "pcie" and widest > 2 and group <= model.layers:
            yield Layout(tp=1, pp=group)
