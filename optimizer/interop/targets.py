"""Turns the name of a target into the module that writes its files."""

from importlib import import_module
from typing import Final

from optimizer.interop.launch_plan import Exported, LaunchPlan
from providers.errors import UnknownName, UsageError, nearest

SERVING: Final = (
    *("vllm", "sglang", "tensorrt-llm", "triton", "triton-tensorrt-llm", "ray"),
    *("nginx", "gateway-api", "llm-d"),
)
ROUTERS: Final = ("nginx", "gateway-api", "llm-d")
"""Those that split requests, and say nothing of accelerators."""

TRAINING: Final = ("fsdp", "deepspeed", "megatron", "axolotl")
BOTH: Final = ("kubernetes", "skypilot", "dstack", "slurm", "terraform")
TARGETS: Final = (*SERVING, *BOTH, *TRAINING)
"""Each is a module of this package with `export(plan)`; BOTH take plans of serving and of training."""


def export(plan: LaunchPlan, target: str) -> Exported:
    """The target's files. Raises UnknownName for another target, UsageError where the plan has nothing for it."""
    name = target.strip().lower()
    if name not in TARGETS:
        raise UnknownName("target", target, nearest(name, TARGETS), f"known: {', '.join(TARGETS)}")
    if name in SERVING and not plan.groups:
        raise UsageError(f"{plan.file} plans training: {name} serves; one of {', '.join((*TRAINING, *BOTH))} may do")
    if name in TRAINING and not plan.jobs:
        raise UsageError(f"{plan.file} plans serving: {name} trains; one of {', '.join((*SERVING, *BOTH))} may do")
    exported: Exported = import_module(f"optimizer.interop.{name.replace('-', '_')}").export(plan)
    return exported
