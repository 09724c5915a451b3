"""Turns a model's name into the disk that a machine needs for its published checkpoint."""

import math
from typing import Final

from optimizer.sizing.dtypes import weight_bytes, weight_format
from optimizer.workload.architecture import resolve_model
from providers.errors import UnknownName, UsageError

_BESIDE_GB: Final = 60
"""For the system, the drivers and the engine's image, which takes 10 to 30 GB unpacked."""

_STEP_GB: Final = 50


def disk_gb(model: str, least: int) -> int:
    """GB of a disk that holds the checkpoint beside the system: at least `least`, which stands for unknown models."""
    try:
        shape = resolve_model(model)
        stored = weight_bytes(shape, weight_format(shape.native_dtype)).total / 1e9
    except (UnknownName, UsageError):
        return least
    return max(least, math.ceil((stored + _BESIDE_GB) / _STEP_GB) * _STEP_GB)
