"""Turns the name of a slice of a TPU pod into its accelerator and how many chips it has."""

import re
from typing import Final

_SLICE: Final = re.compile(r"(?:tpu-)?v(?P<generation>\d+)(?P<kind>litepod|lite|e|p)?-(?P<size>\d{1,5})", re.IGNORECASE)
_CORES_A_CHIP: Final = {"2": 2, "3": 2, "4": 2, "5p": 2}
"""Generations whose names count cores; the others count chips (cloud.google.com/tpu/docs)."""

_NAMES: Final = {"4": "TPU v4", "5litepod": "TPU v5e", "5lite": "TPU v5e", "5e": "TPU v5e", "5p": "TPU v5p"} | {
    "6e": "TPU v6e (Trillium)"
}


def chips(name: str) -> tuple[str, int] | None:
    """Accelerator and chips of `tpu-v6e-8`, `v5litepod-16` or `v5p-8`; None for another name."""
    found = _SLICE.fullmatch(name.strip())
    if found is None:
        return None
    generation = found["generation"] + (found["kind"] or "").lower()
    known = _NAMES.get(generation)
    size = int(found["size"]) // _CORES_A_CHIP.get(generation, 1)
    return (known, size) if known and size else None
