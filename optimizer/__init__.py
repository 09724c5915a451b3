"""Turns LLM workloads and dated offers into the cheapest plan: `plan`, `size`, `compare` and `offers` in Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from optimizer.api.functions import compare, offers, plan, size
    from optimizer.api.results import CompareResult, LaunchFiles, OffersResult, PlanResult, SizeResult
    from optimizer.workload.architecture import Architecture
    from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand
    from providers.errors import (
        CacheError,
        CostoptError,
        InvalidValue,
        NoUsablePrices,
        SolverError,
        UnknownName,
        UsageError,
    )
    from providers.offers import Commitment, InstanceType, Offer, PurchaseOption

__all__ = [
    "SLO",
    "Architecture",
    "CacheError",
    "Commitment",
    "CompareResult",
    "CostoptError",
    "InferenceWorkload",
    "InstanceType",
    "InvalidValue",
    "LaunchFiles",
    "NoUsablePrices",
    "Offer",
    "OffersResult",
    "PlanResult",
    "PurchaseOption",
    "RequestShape",
    "ShapeDemand",
    "SizeResult",
    "SolverError",
    "UnknownName",
    "UsageError",
    "compare",
    "offers",
    "plan",
    "size",
]

_MODULES: Final = {
    "optimizer.api.functions": ("compare", "offers", "plan", "size"),
    "optimizer.api.results": ("CompareResult", "LaunchFiles", "OffersResult", "PlanResult", "SizeResult"),
    "optimizer.workload.architecture": ("Architecture",),
    "optimizer.workload.workload": ("SLO", "InferenceWorkload", "RequestShape", "ShapeDemand"),
    "providers.errors": (
        *("CacheError", "CostoptError", "InvalidValue", "NoUsablePrices", "SolverError", "UnknownName", "UsageError"),
    ),
    "providers.offers": ("Commitment", "InstanceType", "Offer", "PurchaseOption"),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A name of the Python API, whose module is loaded when it is first used."""
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'optimizer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
