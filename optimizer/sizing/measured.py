"""Turns a user's own benchmark results into points that override the model for the configuration they measured.

Reads the result files of vLLM's `benchmark_serving`, GuideLLM and AIPerf, and CSV. The tools do not write which
accelerator, layout and precision served: those come from the file's own metadata keys, its CSV columns, or `defaults`.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from optimizer.sizing.dtypes import weight_format
from optimizer.workload.architecture import resolve_model
from optimizer.workload.workload import RequestShape
from providers.accelerators import resolve
from providers.errors import InvalidValue, UsageError

SAME_LENGTH: Final = 0.10
"""Relative difference of input or output lengths up to which a measurement counts for a shape."""

_NEEDED: Final = ("model", "accelerator", "precision", "input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """What one replica of a configuration served: requests per second, and mean latencies in ms (None = not told)."""

    model: str
    accelerator: str
    precision: str
    tp: int
    pp: int
    input_tokens: float
    output_tokens: float
    requests_per_s: float
    ttft_ms: float | None
    tpot_ms: float | None
    source: str

    def matches(self, model: str, accelerator: str, precision: str, tp: int, pp: int, shape: RequestShape) -> bool:
        """Whether it measured that configuration on requests of (nearly) that shape."""
        same = (self.model, self.accelerator, self.precision) == (model, accelerator, precision)
        near = all(
            abs(measured - asked) <= SAME_LENGTH * asked
            for measured, asked in (
                (self.input_tokens, shape.input_tokens),
                (self.output_tokens, shape.output_tokens),
            )
        )
        return same and (self.tp, self.pp) == (tp, pp) and near


def read_measured(text: str, name: str, defaults: Mapping[str, str] | None = None) -> tuple[MeasuredPoint, ...]:
    """The points of a file's `text`; `name` is what errors call it, `defaults` fill in what it does not tell.

    Raises UsageError for a file of no known kind, InvalidValue for a value that is missing or no positive number.
    """
    known = dict(defaults or {})
    if text.lstrip().startswith(("{", "[")):
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise UsageError(f"{name}: not valid JSON ({error.msg} in line {error.lineno})") from None
        rows: Iterable[Mapping[str, Any]] = _json_rows(content, name)
    else:
        rows = list(csv.DictReader(text.splitlines()))
    points = tuple(_point({**known, **_told(row)}, name) for row in rows)
    if not points:
        raise UsageError(f"{name}: holds no measurement")
    return points


def best_match(
    points: Sequence[MeasuredPoint], model: str, accelerator: str, precision: str, tp: int, pp: int, shape: RequestShape
) -> MeasuredPoint | None:
    """The point with the highest rate that measured that configuration, or None."""
    found = [p for p in points if p.matches(model, accelerator, precision, tp, pp, shape)]
    return max(found, key=lambda p: p.requests_per_s, default=None)


def _json_rows(content: Any, name: str) -> Iterator[Mapping[str, Any]]:
    entries = content if isinstance(content, list) else [content]
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise UsageError(f"{name}: holds {type(entry).__name__} where a benchmark's result was expected")
        if isinstance(entry.get("benchmarks"), list):
            yield from (_guidellm(entry, benchmark) for benchmark in entry["benchmarks"])
        elif isinstance(entry.get("request_throughput"), Mapping):
            yield _aiperf(entry)
        elif "request_throughput" in entry:
            yield _vllm(entry)
        else:
            raise UsageError(
                f"{name}: not a result of vLLM's benchmark_serving, GuideLLM or AIPerf (no `request_throughput`, no "
                "`benchmarks`)"
            )


def _vllm(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """`benchmark_serving.py --save-result`: totals over `completed` requests; `--metadata k=v` becomes keys."""
    completed = float(entry.get("completed") or 0)
    lengths = {}
    if completed:
        lengths = {
            "input_tokens": float(entry.get("total_input_tokens") or 0) / completed,
            "output_tokens": float(entry.get("total_output_tokens") or 0) / completed,
        }
    return {
        **entry,
        **lengths,
        "model": entry.get("model") or entry.get("model_id"),
        "requests_per_s": entry["request_throughput"],
        "ttft_ms": entry.get("mean_ttft_ms"),
        "tpot_ms": entry.get("mean_tpot_ms"),
    }


def _guidellm(report: Mapping[str, Any], benchmark: Mapping[str, Any]) -> Mapping[str, Any]:
    """GuideLLM: `metrics.<name>.successful.mean`; its time per output token includes the first, so the gap counts."""
    metrics = benchmark.get("metrics")
    found = metrics if isinstance(metrics, Mapping) else {}

    def mean(key: str) -> Any:
        value = found.get(key)
        successful = value.get("successful") if isinstance(value, Mapping) else None
        return successful.get("mean") if isinstance(successful, Mapping) else None

    metadata = report.get("metadata")
    return {
        **(metadata if isinstance(metadata, Mapping) else {}),
        "requests_per_s": mean("requests_per_second"),
        "input_tokens": mean("prompt_token_count"),
        "output_tokens": mean("output_token_count"),
        "ttft_ms": mean("time_to_first_token_ms"),
        "tpot_ms": mean("inter_token_latency_ms"),
    }


def _aiperf(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """AIPerf: `<metric>.avg`, latencies in milliseconds."""

    def average(key: str) -> Any:
        value = entry.get(key)
        return value.get("avg") if isinstance(value, Mapping) else None

    metadata = entry.get("metadata")
    return {
        **(metadata if isinstance(metadata, Mapping) else {}),
        "requests_per_s": average("request_throughput"),
        "input_tokens": average("input_sequence_length"),
        "output_tokens": average("output_sequence_length"),
        "ttft_ms": average("time_to_first_token"),
        "tpot_ms": average("inter_token_latency"),
    }


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the row tells; `gpu` is another word for the accelerator, `weight_dtype` for the precision."""
    told = {key: value for key, value in row.items() if value not in (None, "")}
    for short, key in (("gpu", "accelerator"), ("weight_dtype", "precision"), ("dtype", "precision")):
        if short in told:
            told.setdefault(key, told[short])
    return told


def _point(told: Mapping[str, Any], name: str) -> MeasuredPoint:
    missing = [key for key in _NEEDED if key not in told]
    if missing:
        raise UsageError(
            f"{name}: does not tell {', '.join(missing)}; add them as columns or as metadata keys of the result"
        )
    output_tokens = _positive(told, "output_tokens", name)
    if "requests_per_s" in told:
        rate = _positive(told, "requests_per_s", name)
    elif "output_tokens_per_s" in told:
        rate = _positive(told, "output_tokens_per_s", name) / output_tokens
    else:
        raise UsageError(f"{name}: tells neither requests_per_s nor output_tokens_per_s")
    return MeasuredPoint(
        model=resolve_model(str(told["model"])).hf_id,
        accelerator=resolve(str(told["accelerator"])).name,
        precision=weight_format(str(told["precision"])).name,
        tp=int(_positive({"tp": told.get("tp", 1)}, "tp", name)),
        pp=int(_positive({"pp": told.get("pp", 1)}, "pp", name)),
        input_tokens=_positive(told, "input_tokens", name),
        output_tokens=output_tokens,
        requests_per_s=rate,
        ttft_ms=_positive(told, "ttft_ms", name) if "ttft_ms" in told else None,
        tpot_ms=_positive(told, "tpot_ms", name) if "tpot_ms" in told else None,
        source=name,
    )


def _positive(told: Mapping[str, Any], key: str, name: str) -> float:
    try:
        value = float(told[key])
    except (TypeError, ValueError):
        raise InvalidValue(f"{name}: {key}", told[key], "give a number above 0") from None
    if not 0 < value < float("inf"):
        raise InvalidValue(f"{name}: {key}", told[key], "give a number above 0")
    return value
