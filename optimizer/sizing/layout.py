"""Turns a model and an instance into the ways of splitting one replica over accelerators."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from optimizer.workload.architecture import Architecture
from providers.accelerators import Accelerator
from providers.errors import InvalidValue
from providers.networks import usual_domain

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
    """What a replica may run on: accelerator variant, count in all, and the link inside an instance (one of LINKS).

    `machines` equal instances hold the `count`: each its part, with a network between them.
    """

    accelerator: Accelerator
    count: int
    link: str
    machines: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidValue("accelerator count", self.count, "give a whole number of at least 1")
        if self.link not in LINKS:
            raise InvalidValue("link", self.link, f"one of {', '.join(sorted(LINKS))}")
        if self.machines < 1 or self.count % self.machines:
            raise InvalidValue("machines", self.machines, f"must divide the {self.count} accelerators")


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
    Over several instances the replica takes all of them.
    """
    if hardware.machines > 1:
        yield from _spread(model, hardware)
        return
    for group in (g for g in range(1, hardware.count + 1) if hardware.count % g == 0):
        widest = max(tp for tp in valid_tensor_parallel(model, group) if group % tp == 0)
        if group // widest <= model.layers:
            yield Layout(tp=widest, pp=group // widest)
        if hardware.link == "pcie" and widest > 2 and group <= model.layers:
            yield Layout(tp=1, pp=group)


def _spread(model: Architecture, hardware: Hardware) -> Iterator[Layout]:
    """Layouts over all of several instances: pipeline stages cross between them, an all-reduce only where the fast
    link of a rack or pod reaches all accelerators.
    """
    inside = hardware.count // hardware.machines
    # Instances of one rack share its NVLink; TPU instances bought one by one share no pod.
    rack_scale = hardware.link == "nvlink" and usual_domain(hardware.accelerator) >= hardware.count
    reached = hardware.count if rack_scale else inside
    for group in dict.fromkeys((reached, inside)):
        widest = max(tp for tp in valid_tensor_parallel(model, group) if group % tp == 0)
        if hardware.count // widest <= model.layers:
            yield Layout(tp=widest, pp=hardware.count // widest)
