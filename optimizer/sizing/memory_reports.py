"""Turns one published report of "it fits" or "out of memory" into a prediction: verdict, weights, tokens of cache."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from optimizer.sizing.dtypes import kv_bytes_per_element, weight_bytes
from optimizer.sizing.engines import engine_in_table
from optimizer.sizing.layout import Layout
from optimizer.sizing.memory import estimate_memory
from optimizer.sizing.runs import SkippedRun, format_in_table
from optimizer.workload.architecture import Architecture, resolve_model
from providers.accelerators import Accelerator, resolve
from providers.errors import InvalidValue, UsageError
from providers.units import GIB

_ISSUE = re.compile(r"github\.com/([\w-]+/[\w.-]+)/(?:issues|pull)/(\d+)")
_VERSION = re.compile(r"vllm (\d+\.\d+)", re.IGNORECASE)
_CLASS = re.compile(r"(\d+)GB-class")
_NUMBERS_BY_YEAR: Final[Mapping[str, tuple[tuple[int, float], ...]]] = {
    "vllm-project/vllm": (
        *((0, 2023.4), (1000, 2023.7), (2400, 2024.0), (5000, 2024.42), (10000, 2024.85), (12500, 2025.08)),
        *((16000, 2025.27), (20000, 2025.55), (25000, 2025.75), (30000, 2026.0)),
    ),
    "QwenLM/Qwen3": ((0, 2024.1), (300, 2024.3), (700, 2024.55), (1300, 2025.35)),
}
"""Issue numbers of projects and when they were given out: they date a report, and with it the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """What was reported: does it fit, GiB of weights per accelerator, tokens that the cache holds. None = not told."""

    id: str
    source: str
    model: str
    accelerator: str
    engine: str
    fits: bool
    weights_gib: float | None
    kv_tokens: float | None
    predicted_fits: bool
    predicted_weights_gib: float
    predicted_kv_tokens: float


def read_report(row: Mapping[str, str]) -> MemoryReport:
    """The report and its prediction. Raises SkippedRun for an unknown model, accelerator or dtype, or a bad number."""
    try:
        return _report(row)
    except (ValueError, OverflowError, InvalidValue) as error:
        raise SkippedRun("unreadable number") from error


def _report(row: Mapping[str, str]) -> MemoryReport:
    try:
        model, accelerator = resolve_model(row["model"]), _accelerator(row["gpu"])
        engine = engine_in_table(row.get("engine", ""), _version(row), _year(row))
        fmt, kv_bytes = (
            format_in_table(row.get("weight_dtype") or model.native_dtype),
            kv_bytes_per_element(row.get("kv_dtype")),
        )
    except UsageError as error:
        raise SkippedRun(_short(error)) from error
    if not row.get("fits"):
        raise SkippedRun("no verdict")
    layout = Layout(tp=int(row.get("tp") or row.get("gpu_count") or 1), pp=int(row.get("pp") or 1))
    asked = int(float(row["max_model_len"])) if row.get("max_model_len") else None
    context = _context(model, asked, engine.family)
    share = float(row["gpu_memory_utilization"]) if row.get("gpu_memory_utilization") else None
    if not 0 < (share or 1) <= 1 or not 0 <= context < math.inf:
        raise ValueError("utilisation or length outside its domain")
    memory = estimate_memory(model, accelerator, layout, fmt, kv_bytes, engine, share, context or None)
    weights = memory.weights_gib
    if engine.embedding_on_host:
        # A file's size counts the embedding, wherever it is kept.
        weights = weight_bytes(model, fmt).total / GIB / layout.accelerators
    return MemoryReport(
        id=row.get("id", ""),
        source=row.get("source", ""),
        model=model.hf_id,
        accelerator=accelerator.name,
        engine=engine.name,
        fits=row["fits"].strip().lower() in ("yes", "true", "1"),
        weights_gib=_positive(row.get("weights_gib_per_gpu")),
        kv_tokens=_positive(row.get("kv_cache_tokens")),
        predicted_fits=memory.kv_room_gib > 0 and memory.kv_tokens >= context,
        predicted_weights_gib=weights,
        predicted_kv_tokens=float(memory.kv_tokens),
    )


def _context(model: Architecture, asked: int | None, family: str) -> int:
    """Tokens that must fit: vLLM wants its longest context, by default the model's own (times its rope factor)."""
    if asked is None:
        return model.max_position if family == "vllm" else 0
    return asked * model.rope_factor if family == "vllm" and asked == model.max_position else asked


def _accelerator(name: str) -> Accelerator:
    """The accelerator; `80GB-class`, of reports that do not tell which, is the usual card of that label."""
    unnamed = _CLASS.fullmatch(name.strip())
    return resolve(f"A100-{unnamed[1]}GB" if unnamed else name)


def _version(row: Mapping[str, str]) -> str:
    found = _VERSION.search(row.get("notes", ""))
    return row.get("engine_version") or (found[1] if found else "")


def _year(row: Mapping[str, str]) -> float | None:
    """When the report was written, from its issue number; None = not known."""
    found = _ISSUE.search(row.get("source", ""))
    if not found or found[1] not in _NUMBERS_BY_YEAR:
        return None
    number, known = int(found[2]), _NUMBERS_BY_YEAR[found[1]]
    below = [entry for entry in known if entry[0] <= number][-1]
    above = next((entry for entry in known if entry[0] > number), None)
    if above is None:
        return below[1]
    return below[1] + (above[1] - below[1]) * (number - below[0]) / (above[0] - below[0])


def _short(error: UsageError) -> str:
    """`unknown model`, `unknown accelerator`, `unknown precision`: the kind without the value."""
    return str(error).split(" '")[0]


def _positive(text: str | None) -> float | None:
    value = float(text) if text and text.strip() else 0.0
    return value if 0 < value < math.inf else None
