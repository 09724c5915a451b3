"""Request logs of every usual form come to the same requests."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from optimizer.interop.readers.request_log import csv_lines, is_log_header, is_log_json
from optimizer.workload.traces import Trace, read_trace
from providers.errors import UsageError


def read(lines: Iterable[str], columns: list[str] | None = None) -> Trace:
    return read_trace(csv_lines(lines, "log", columns), "log")


def attributes(**over: Any) -> list[dict[str, Any]]:
    values = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 30}
    values |= over
    typed = {int: "intValue", str: "stringValue"}
    return [{"key": key, "value": {typed[type(value)]: str(value)}} for key, value in values.items()]


def span(second: int, **over: Any) -> dict[str, Any]:
    return {"startTimeUnixNano": str((1_700_000_000 + second) * 10**9), "attributes": attributes(**over)}


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


AGENT = span(3, **{"gen_ai.operation.name": "invoke_agent"})
OTHER = {"startTimeUnixNano": "1", "attributes": [{"key": "http.method", "value": {"stringValue": "GET"}}]}
LITELLM = {"created_at": "2026-11-01T00:00:00Z", "response": {"usage": {"prompt_tokens": 120, "completion_tokens": 30}}}
JAEGER = {
    "data": [
        {
            "spans": [
                {
                    "traceID": "a",
                    "startTime": 1_700_000_000_000_000 + second * 1_000_000,
                    "tags": [
                        {"key": "gen_ai.usage.prompt_tokens", "type": "int64", "value": 120},
                        {"key": "gen_ai.usage.completion_tokens", "type": "int64", "value": 30},
                    ],
                }
                for second in (0, 10)
            ]
        }
    ]
}
BENCHMARK = {"input_lens": [120, 120], "output_lens": [30, 30], "duration": 20.0}

FORMS = {
    "an OTLP export in one document": [json.dumps(otlp(span(0), AGENT, OTHER, span(10)), indent=1)],
    "OTLP exports by line": [json.dumps(otlp(span(0))) + "\n", json.dumps(otlp(span(10), AGENT)) + "\n"],
    "Jaeger": [json.dumps(JAEGER)],
    "spans by line": [json.dumps(span(0)) + "\n", json.dumps(span(10)) + "\n"],
    "a benchmark with times": [json.dumps(BENCHMARK | {"start_times": [5.0, 15.0]})],
    "a benchmark without": [json.dumps(BENCHMARK)],
    "a list": [json.dumps([{"ts": second, "prompt_tokens": 120, "completion_tokens": 30} for second in (0, 10)])],
    "LiteLLM": [json.dumps(LITELLM) + "\n", json.dumps(LITELLM | {"created_at": "2026-11-01T00:00:10Z"}) + "\n"],
    "milliseconds": ["timestamp,prompt_tokens,completion_tokens\n", "1700000000000,120,30\n", "1700000010000,120,30\n"],
    "semicolons": ["Start time;Prompt tokens;Generated tokens\n", "0;120;30\n", "10;120;30\n"],
    "other names": ["id,request_started_at,model,tokens_in,tokens_out\n", "1,0,m,120,30\n", "2,10,m,120,30\n"],
}


@pytest.mark.parametrize("lines", FORMS.values(), ids=FORMS.keys())
def test_every_form_gives_the_same_two_requests(lines: list[str]) -> None:
    trace = read([line for text in lines for line in text.splitlines(keepends=True)])
    assert trace.times_s.tolist() == [0, 10]
    assert trace.input_tokens.tolist() == [120, 120]
    assert trace.output_tokens.tolist() == [30, 30]


def test_columns_of_any_name_are_read_where_they_are_named() -> None:
    trace = read(["when,a,b,total\n", "0,120,30,150\n", "10,120,30,150\n"], ["when", "a", "b"])
    assert trace.input_tokens.tolist() == [120, 120]


def test_a_column_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="no column 'c'; its columns: when, a, b"):
        read(["when,a,b\n", "0,1,2\n"], ["when", "a", "c"])


def test_two_columns_that_could_be_meant_are_not_chosen_from() -> None:
    with pytest.raises(UsageError, match="--columns TIME,INPUT,OUTPUT"):
        read(["timestamp,cached_prompt_tokens_a,cached_prompt_tokens_b,output_tokens\n", "0,1,2,3\n"])


def test_an_engines_text_log_is_refused_with_what_has_the_figures() -> None:
    with pytest.raises(UsageError, match="otlp-traces-endpoint"):
        read(["INFO 11-30 logger.py:39] Received request cmpl-1: prompt: 'a', params: SamplingParams(n=1)\n"])


def test_damaged_lines_are_counted_not_fatal() -> None:
    good = json.dumps({"ts": 1, "prompt_tokens": 5, "completion_tokens": 5}) + "\n"
    trace = read([good, "{broken\n", good, "[1, 2]\n", good, good])
    assert len(trace.times_s) == 4
    assert sum(trace.rejected.values()) == 3


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "{", '{"a": 1}'])
def test_hostile_json_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        read([text])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "is_log"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens", True),
        ("t_s,input_tokens,output_tokens", True),
        ("vendor,gpu,price", False),
        ("resources:", False),
        ("", False),
    ],
)
def test_a_header_of_a_log_has_time_and_both_tokens(line: str, is_log: bool) -> None:
    assert is_log_header(line) == is_log


@pytest.mark.parametrize(
    ("text", "is_log"),
    [
        (json.dumps(otlp(span(0)), indent=2), True),
        (json.dumps(BENCHMARK), True),
        ('[{"ts": 1, "prompt_tokens": 3}]', True),
        ('{"gpu_info": {}}', False),
        ('{"architectures": ["LlamaForCausalLM"]}', False),
        ("[1, 2, 3]", False),
    ],
)
def test_a_log_in_json_is_known_by_what_is_in_it(text: str, is_log: bool) -> None:
    assert is_log_json(text) == is_log
