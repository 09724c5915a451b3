"""Turns request logs as JSON lines (vLLM, OpenTelemetry GenAI spans, OpenAI usage) into the lines of a CSV trace."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from providers.errors import UsageError

_TIMES: Final = ("timestamp", "time", "ts", "created", "arrival_time", "start_time", "startTime", "t_s")
_NANOSECONDS: Final = ("startTimeUnixNano", "timeUnixNano", "start_time_unix_nano")
_INPUTS: Final = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "usage.prompt_tokens",
    "usage.input_tokens",
    "prompt_tokens",
    "input_tokens",
    "num_prompt_tokens",
)
_OUTPUTS: Final = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "usage.completion_tokens",
    "usage.output_tokens",
    "completion_tokens",
    "output_tokens",
    "num_generation_tokens",
)
"""Names of the semantic conventions for generative AI (opentelemetry.io, read 2026-11-30), and of engines' own logs."""

HEADER: Final = "timestamp,input_tokens,output_tokens\n"
_LONGEST_LINE: Final = 1_000_000
_DEEPEST: Final = 8


def csv_lines(lines: Iterable[str], name: str) -> Iterator[str]:
    """A header, and a row for each line; one that cannot be read becomes a row that a trace counts as rejected.

    Raises UsageError for a line that is too long.
    """
    yield HEADER
    for number, line in enumerate(lines, start=1):
        if len(line) > _LONGEST_LINE:
            raise UsageError(f"{name}, line {number} has {len(line):,} characters; at most {_LONGEST_LINE:,} are read")
        if line.strip():
            yield _row(line)


def _row(line: str) -> str:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return "no JSON\n"
    if not isinstance(content, dict):
        return "no object\n"
    flat = dict(_flat(content))
    attributes = content.get("attributes")
    if isinstance(attributes, list):
        flat |= dict(_otlp(attributes))
    time = next((flat[key] for key in _TIMES if key in flat), None)
    if time is None:
        nanoseconds = next((flat[key] for key in _NANOSECONDS if key in flat), None)
        time = _seconds(nanoseconds)
    values = (time, *(next((flat[key] for key in keys if key in flat), None) for keys in (_INPUTS, _OUTPUTS)))
    return ",".join("" if value is None else str(value).replace(",", " ").replace("\n", " ") for value in values) + "\n"


def _flat(content: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Leaves by dotted key; `attributes` are leaves of their own name."""
    for key, value in content.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            yield from _flat(value, "" if key == "attributes" else f"{prefix}{key}.", depth + 1)
        else:
            yield f"{prefix}{key}", value


def _otlp(attributes: list[Any]) -> Iterator[tuple[str, Any]]:
    """Attributes as OTLP's JSON has them: [{key, value: {intValue}}]."""
    for item in attributes:
        value = item.get("value") if isinstance(item, dict) else None
        if isinstance(value, dict) and value:
            yield str(item.get("key")), next(iter(value.values()))


def _seconds(nanoseconds: Any) -> float | None:
    try:
        return int(nanoseconds) / 1e9
    except (TypeError, ValueError):
        return None
