"""Turns request logs of any usual form into the lines of a CSV trace.

Read are CSV with other names of columns, JSON lines (vLLM, LiteLLM, OpenAI usage), OpenTelemetry spans as lines, as
OTLP exports or as Jaeger's JSON, and the detailed results of vLLM's and SGLang's serving benchmarks.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from providers.errors import UsageError, nearest

HEADER: Final = "timestamp,input_tokens,output_tokens\n"

_TIMES: Final = (
    *(
        "timestamp",
        "time",
        "ts",
        "t_s",
        "created",
        "created_at",
        "arrival_time",
        "arrived_at",
        "start_time",
        "starttime",
    ),
    *("request_time", "requested_at", "arrival_timestamp", "started_at", "date", "datetime", "@timestamp"),
    *("starttimeunixnano", "timeunixnano", "observedtimeunixnano", "start_time_unix_nano"),
)
_INPUTS: Final = (
    *("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "usage.prompt_tokens", "usage.input_tokens"),
    *("prompt_tokens", "input_tokens", "num_prompt_tokens", "contexttokens", "context_tokens", "num_prefill_tokens"),
    *("request_tokens", "request tokens", "input_length", "input_len", "prompt_len", "response.usage.prompt_tokens"),
    *("llm.token_count.prompt", "body.usage.prompt_tokens", "response.body.usage.prompt_tokens"),
)
_OUTPUTS: Final = (
    *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "usage.completion_tokens", "usage.output_tokens"),
    *("completion_tokens", "output_tokens", "num_generation_tokens", "generatedtokens", "generated_tokens"),
    *("num_decode_tokens", "response_tokens", "response tokens", "output_length", "output_len", "completion_len"),
    *("response.usage.completion_tokens", "llm.token_count.completion", "body.usage.completion_tokens"),
    *("response.body.usage.completion_tokens",),
)
"""Names in lower case: the semantic conventions for generative AI (opentelemetry.io, read 2026-11-30), OpenInference,
OpenAI's usage, and engines' and gateways' own logs."""

_LIKE: Final = (
    re.compile(r"timestamp|arriv|created|^start|^date|^time$|_at$|^ts$"),
    re.compile(r"(?:prompt|input|context|prefill|request)\w*[ _.-]?tokens?|tokens?_?(?:in|input|prompt)$"),
    re.compile(r"(?:completion|output|generat\w*|response|decode)[ _.-]?tokens?|tokens?_?(?:out|output|completion)$"),
)
"""What columns of other names look like, where none of the known names is there."""

_OPERATIONS: Final = ("chat", "text_completion", "generate_content", "completion", "responses")
"""Operations of `gen_ai.operation.name` that are one request to a model; agents and tools only contain such."""

_LISTS: Final = ("requests", "records", "entries", "logs", "results", "items", "spans", "data")
_TEXT_LOG: Final = re.compile(
    r"^(?:\([^()\n]{1,80}\) )?(?:INFO |\[20\d\d-).{0,200}"
    r"(?:Received request |Avg prompt throughput|API server version|gen throughput)",
    re.MULTILINE,
)
"""Lines that vLLM and SGLang write while they serve."""

_WHAT: Final = ("the time of a request", "input tokens", "output tokens")
_LONGEST_HEADER: Final = 10_000
_LONGEST_LINE: Final = 50_000_000
_MOST_OF_A_DOCUMENT: Final = 100_000_000
_DEEPEST: Final = 8
_SECONDS_BELOW: Final = 1e11
"""Numbers from here on are no seconds since 1970 but milliseconds, microseconds or nanoseconds."""


def csv_lines(lines: Iterable[str], name: str, columns: Sequence[str] | None = None) -> Iterator[str]:
    """A header, and a row for each request; what cannot be read becomes a row that a trace counts as rejected.

    `columns` names those of the time, the input and the output tokens, where they have unusual names. Raises
    UsageError for a log without such columns, with a line or a document that is too long, or a text log.
    """
    rest = iter(lines)
    first = next((line for line in rest if line.strip()), "").removeprefix("\ufeff")
    check_text_log(first, name)
    everything = chain([first], rest)
    yield HEADER
    if first.lstrip().startswith(("{", "[")):
        for content in _documents(everything, name):
            yield from _rows(content, columns)
    else:
        yield from _table_rows(everything, name, columns)


def check_text_log(head: str, name: str) -> None:
    """Raises UsageError for what an engine writes while it serves."""
    if _TEXT_LOG.search(head):
        raise UsageError(
            f"{name} is an engine's text log, which has no output tokens by request: export OpenTelemetry spans "
            "(vllm serve --otlp-traces-endpoint), or log usage at the gateway"
        )


def is_log_header(line: str) -> bool:
    """Whether a line of CSV names a time, input and output tokens."""
    if len(line) > _LONGEST_HEADER:
        return False
    header = [_plain(cell) for cell in next(csv.reader([line], delimiter=_delimiter(line)), [])]
    return all(_place(header, index) is not None for index in range(len(_WHAT)))


def is_log_json(head: str) -> bool:
    """Whether the beginning of a JSON file is that of a log: several objects, spans, or a benchmark's results."""
    text = head.lstrip()
    if re.search(r'"(?:resourceSpans|resourceLogs|input_lens|traceID|traceId)"\s*:', text):
        return True
    first, _, rest = text.partition("\n")
    if first.startswith("{"):
        return first.rstrip().endswith("}") and rest.lstrip().startswith("{")
    is_list = bool(re.match(r"\[\s*\{", text))
    return is_list and any(f'"{name.rpartition(".")[2]}"' in text.lower() for name in (*_INPUTS, *_OUTPUTS))


def _documents(lines: Iterable[str], name: str) -> Iterator[Any]:
    """The values of JSON lines; of a file that is one value over several lines, that one."""
    rest = iter(lines)
    first = next(rest, "")
    try:
        yield _parsed(first, name, 1)
    except ValueError:
        text = [first]
        size = len(first)
        for line in rest:
            size += len(line)
            if size > _MOST_OF_A_DOCUMENT:
                raise UsageError(
                    f"{name} is one JSON document above {_MOST_OF_A_DOCUMENT:,} characters: write one object a line"
                ) from None
            text.append(line)
        try:
            yield _parsed("".join(text), name, 1)
        except ValueError as error:
            yield from _lines(text, name, error)
        return
    for number, line in enumerate(rest, start=2):
        yield from _line(line, name, number)


def _lines(text: Sequence[str], name: str, error: ValueError) -> Iterator[Any]:
    """Lines of which the first is damaged; raises UsageError where the others are no JSON either."""
    if not any(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in text[1:3]):
        raise UsageError(f"{name} is no valid JSON: {error}") from None
    for number, line in enumerate(text, start=1):
        yield from _line(line, name, number)


def _line(line: str, name: str, number: int) -> Iterator[Any]:
    if not line.strip():
        return
    try:
        yield _parsed(line, name, number)
    except ValueError:
        yield None


def _parsed(text: str, name: str, number: int) -> Any:
    """A value of JSON. Raises ValueError for text that is none, UsageError for a line that is too long."""
    if len(text) > max(_LONGEST_LINE, _MOST_OF_A_DOCUMENT if number == 1 else 0):
        raise UsageError(f"{name}, line {number} has {len(text):,} characters; at most {_LONGEST_LINE:,} are read")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _rows(content: Any, columns: Sequence[str] | None) -> Iterator[str]:
    """The rows of one value: a request, a list of them, an export of spans, or a benchmark."""
    if isinstance(content, list):
        for item in content:
            yield from _rows(item, columns)
        return
    if not isinstance(content, dict):
        yield "no JSON object\n"
        return
    spans = list(_spans(content))
    if spans:
        for span in spans:
            yield from _span_row(span, columns)
        return
    if isinstance(content.get("input_lens"), list):
        yield from _benchmark_rows(content)
        return
    inner = next((content[key] for key in _LISTS if _is_objects(content.get(key))), None)
    if inner is not None and not _has_usage(content):
        yield from _rows(inner, columns)
        return
    yield _row(_leaves(content), columns)


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value[:3])


def _has_usage(content: Mapping[str, Any]) -> bool:
    flat = _leaves(content)
    return any(name in flat for name in (*_INPUTS, *_OUTPUTS))


def _spans(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Spans and log records of an OTLP export."""
    for outer, middles, inner in (
        ("resourceSpans", ("scopeSpans", "instrumentationLibrarySpans"), "spans"),
        ("resourceLogs", ("scopeLogs",), "logRecords"),
    ):
        for resource in _objects(content.get(outer)):
            for middle in middles:
                for scope in _objects(resource.get(middle)):
                    yield from _objects(scope.get(inner))


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (item for item in (value if isinstance(value, list) else ()) if isinstance(item, dict))


def _span_row(span: Mapping[str, Any], columns: Sequence[str] | None) -> Iterator[str]:
    """A span of a request to a model; the others are no requests."""
    flat = _leaves(span)
    operation = flat.get("gen_ai.operation.name")
    if _has_usage(span) and (operation is None or str(operation).lower() in _OPERATIONS):
        yield _row(flat, columns)


def _benchmark_rows(content: Mapping[str, Any]) -> Iterator[str]:
    """The requests of a benchmark; without times they are spread evenly over its duration."""
    inputs = content.get("input_lens") or []
    outputs = content.get("output_lens")
    outputs = outputs if isinstance(outputs, list) else []
    starts = content.get("start_times")
    duration = content.get("duration")
    for index, (asked, given) in enumerate(zip(inputs, outputs, strict=False)):
        if isinstance(starts, list) and index < len(starts):
            time: Any = starts[index]
        elif isinstance(duration, (int, float)) and duration > 0:
            time = duration * index / len(inputs)
        else:
            time = None
        yield _cells(time, asked, given)


def _leaves(content: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves by dotted key in lower case; attributes and tags, as objects or as lists, by their own name."""
    found: dict[str, Any] = {}
    stack: list[tuple[str, Mapping[str, Any], int]] = [("", content, 0)]
    while stack:
        prefix, value, depth = stack.pop()
        for key, inner in value.items():
            if isinstance(inner, dict) and depth < _DEEPEST:
                stack.append(("" if key == "attributes" else f"{prefix}{key}.", inner, depth + 1))
            elif key in ("attributes", "tags") and isinstance(inner, list):
                found |= {str(name).lower(): leaf for name, leaf in _attributes(inner)}
            else:
                found[f"{prefix}{key}".lower()] = inner
    return found


def _attributes(attributes: list[Any]) -> Iterator[tuple[Any, Any]]:
    """OTLP's [{key, value: {intValue}}] and Jaeger's [{key, value}]."""
    for item in _objects(attributes):
        value = item.get("value")
        yield item.get("key"), next(iter(value.values()), None) if isinstance(value, dict) else value


def _row(flat: Mapping[str, Any], columns: Sequence[str] | None) -> str:
    names = [[name.lower()] for name in columns] if columns else [_TIMES, _INPUTS, _OUTPUTS]
    return _cells(*(next((flat[key] for key in keys if flat.get(key) is not None), None) for keys in names))


def _cells(time: Any, inputs: Any, outputs: Any) -> str:
    line = f"{_shown(_seconds(time))},{_shown(inputs)},{_shown(outputs)}\n"
    plain = line.count(",") == 2 and '"' not in line and line.count("\n") == 1 and "\r" not in line
    return line if plain else "no plain values\n"


def _shown(value: Any) -> str:
    return "" if value is None else str(value)[:100]


def _seconds(time: Any) -> Any:
    """Seconds of a number that is milliseconds, microseconds or nanoseconds since 1970; anything else as it is."""
    try:
        number = float(time)
    except (TypeError, ValueError, OverflowError):
        return time
    if abs(number) < _SECONDS_BELOW:
        return time
    for factor in (1e3, 1e6, 1e9):
        if abs(number) / factor < _SECONDS_BELOW:
            return number / factor
    return time


def _table_rows(lines: Iterable[str], name: str, columns: Sequence[str] | None) -> Iterator[str]:
    rest = iter(lines)
    first = next(rest, "")
    delimiter = _delimiter(first)
    reader = csv.reader(chain([first], rest), delimiter=delimiter)
    try:
        header = [_plain(cell) for cell in next(reader, [])]
        places = [_column(header, index, name, columns) for index in range(len(_WHAT))]
        for row in reader:
            if len(row) > max(places):
                yield _cells(*(row[place].strip() for place in places))
            elif row:
                yield "too few columns\n"
    except csv.Error as error:
        raise UsageError(f"{name}, line {reader.line_num}: no CSV: {error}") from None


def _delimiter(line: str) -> str:
    """The separator that the header has most of."""
    return max(",;\t", key=line.count)


def _plain(cell: str) -> str:
    return cell.strip().strip("\ufeff").lower()


def _column(header: Sequence[str], index: int, name: str, columns: Sequence[str] | None) -> int:
    if columns is not None:
        wanted = columns[index].strip().lower()
        if wanted not in header:
            near = nearest(wanted, header)
            hint = f"did you mean {', '.join(near)}?" if near else f"its columns: {', '.join(header)[:500]}"
            raise UsageError(f"{name} has no column {columns[index]!r}; {hint}")
        return header.index(wanted)
    place = _place(header, index)
    if place is None:
        raise UsageError(
            f"{name} has no column for {_WHAT[index]} (its columns: {', '.join(header)[:500] or 'none'}); name them: "
            "--columns TIME,INPUT,OUTPUT"
        )
    return place


def _place(header: Sequence[str], index: int) -> int | None:
    """Where the column stands: under a known name, else under the one name that looks like it."""
    names = (_TIMES, _INPUTS, _OUTPUTS)[index]
    for known in names:
        if known in header:
            return header.index(known)
    alike = [place for place, cell in enumerate(header) if _LIKE[index].search(cell)]
    return alike[0] if len(alike) == 1 else None
