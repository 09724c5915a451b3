"""Turns LLM workloads and dated offers into the cheapest plan: `optimizer.plan` and `optimizer.size` in Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from optimizer.api import PlanResult, SizeResult, plan, size

__all__ = ["PlanResult", "SizeResult", "plan", "size"]

_FROM_API: Final = frozenset(__all__)


def __getattr__(name: str) -> Any:
    """Names of the Python API, whose module is loaded when one of them is first used."""
    if name in _FROM_API:
        return getattr(import_module("optimizer.api"), name)
    raise AttributeError(f"module 'optimizer' has no attribute {name!r}")
