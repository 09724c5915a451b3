"""Turns the name of a target into the module that writes its files."""

from importlib import import_module
from typing import Final

from optimizer.interop.launch_plan import Exported, LaunchPlan
from providers.errors import UnknownName, UsageError, nearest

SERVING: Final = ("vllm", "sglang", "tensorrt-llm", "triton", "triton-tensorrt-llm", "ray")
ROUTERS: Final = ("nginx", "gateway-api", "llm-d")
"""Those that split requests, and say nothing of accelerators."""

TRAINING: Final = ("fsdp", "deepspeed", "megatron", "axolotl")
ORCHESTRATORS: Final = ("kubernetes", "skypilot", "dstack", "slurm", "terraform")
"""Those that take plans of serving and of training."""

_PACKAGES: Final = {
    "serving": SERVING,
    "routers": ROUTERS,
    "orchestrators": ORCHESTRATORS,
    "training": TRAINING,
}
"""Each target is a module of its package with `export(plan)`."""

TARGETS: Final = tuple(name for names in _PACKAGES.values() for name in names)


def export(plan: LaunchPlan, target: str) -> Exported:
    """The target's files. Raises UnknownName for another target, UsageError where the plan has nothing for it."""
    name = target.strip().lower()
    package = next((package for package, names in _PACKAGES.items() if name in names), None)
    if package is None:
        raise UnknownName("target", target, nearest(name, TARGETS), f"known: {', '.join(TARGETS)}")
    if package in ("serving", "routers") and not plan.groups:
        instead = ", ".join((*TRAINING, *ORCHESTRATORS))
        raise UsageError(f"{plan.file} plans training: {name} serves; one of {instead} may do")
    if package == "training" and not plan.jobs:
        instead = ", ".join((*SERVING, *ROUTERS, *ORCHESTRATORS))
        raise UsageError(f"{plan.file} plans serving: {name} trains; one of {instead} may do")
    exported: Exported = import_module(f"optimizer.interop.{package}.{name.replace('-', '_')}").export(plan)
    return exported
