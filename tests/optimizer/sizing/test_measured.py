"""A user's own benchmark results are read from every tool's file, and stand in place of the estimates they match."""

import json
from typing import Any

import pytest

from optimizer.sizing.candidates import Hardware, size_candidates
from optimizer.sizing.measured import MeasuredPoint, read_measured
from optimizer.workload.architecture import resolve_model
from optimizer.workload.workload import SLO, RequestShape
from providers.accelerators import resolve
from providers.errors import CostoptError, InvalidValue, UsageError

WHERE = {"accelerator": "H100-SXM-80GB", "precision": "bf16", "tp": "1"}
SHAPE = RequestShape(input_tokens=1000, output_tokens=300)

VLLM = {
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "completed": 200,
    "total_input_tokens": 200_000,
    "total_output_tokens": 60_000,
    "request_throughput": 12.5,
    "mean_ttft_ms": 180.0,
    "mean_tpot_ms": 21.0,
}
GUIDELLM = {
    "metadata": {"model": "meta-llama/Llama-3.1-8B", **WHERE},
    "benchmarks": [
        {
            "metrics": {
                "requests_per_second": {"successful": {"mean": 12.5}},
                "prompt_token_count": {"successful": {"mean": 1000}},
                "output_token_count": {"successful": {"mean": 300}},
                "time_to_first_token_ms": {"successful": {"mean": 180}},
                "inter_token_latency_ms": {"successful": {"mean": 21}},
            }
        }
    ],
}
AIPERF = {
    "metadata": {"model": "meta-llama/Llama-3.1-8B", **WHERE},
    "request_throughput": {"avg": 12.5, "unit": "requests/sec"},
    "input_sequence_length": {"avg": 1000},
    "output_sequence_length": {"avg": 300},
    "time_to_first_token": {"avg": 180},
    "inter_token_latency": {"avg": 21},
}
CSV = """model,gpu,precision,tp,input_tokens,output_tokens,output_tokens_per_s,ttft_ms,tpot_ms
llama-3.1-8b,H100,bf16,1,1000,300,3750,180,21
"""


@pytest.mark.parametrize("text", [json.dumps(VLLM), json.dumps(GUIDELLM), json.dumps(AIPERF), CSV])
def test_every_tools_file_gives_the_same_point(text: str) -> None:
    (point,) = read_measured(text, "result", WHERE)
    assert (point.model, point.accelerator, point.precision) == ("meta-llama/Llama-3.1-8B", "H100-SXM5-80GB", "bf16")
    assert point.requests_per_s == pytest.approx(12.5)
    assert (point.input_tokens, point.output_tokens) == (1000, 300)
    assert (point.ttft_ms, point.tpot_ms) == (180, 21)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (json.dumps(VLLM), "does not tell accelerator, precision"),
        ("{", "not valid JSON"),
        ('{"a": 1}', "not a result of"),
        ("model,gpu\n", "holds no measurement"),
        (CSV.replace("3750", "-1"), "give a number above 0"),
        (CSV.replace("llama-3.1-8b", "nobody"), "unknown model"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_it_lacks(text: str, says: str) -> None:
    with pytest.raises(CostoptError, match=says) as caught:
        read_measured(text, "result")
    assert isinstance(caught.value, UsageError | InvalidValue)


def candidates(slo: SLO, points: tuple[MeasuredPoint, ...], **over: Any) -> list[Any]:
    hardware = Hardware(accelerator=resolve("H100-SXM5-80GB"), count=1, link="nvlink")
    model = resolve_model("llama-3.1-8b")
    found, _ = size_candidates(model, hardware, shape=SHAPE, slo=slo, precisions=["bf16"], measured=points, **over)
    return found


def test_a_measured_point_replaces_the_estimate_of_its_configuration_and_shape() -> None:
    (candidate,) = candidates(SLO(ttft_ms=2000, tpot_ms=100), read_measured(CSV, "mine.csv"))
    assert candidate.requests_per_s.value == candidate.planned_requests_per_s == pytest.approx(12.5)
    assert candidate.measured == "mine.csv"
    assert any("measured" in note for note in candidate.notes)


def test_a_measured_point_of_another_shape_or_layout_changes_nothing() -> None:
    slo = SLO(ttft_ms=2000, tpot_ms=100)
    other = read_measured(CSV.replace("1000,300", "4000,300"), "mine.csv")
    assert candidates(slo, other) == candidates(slo, ())


def test_a_measured_point_above_the_slo_is_no_candidate() -> None:
    assert candidates(SLO(ttft_ms=100, tpot_ms=100), read_measured(CSV, "mine.csv")) == []


def test_more_confidence_plans_on_less() -> None:
    slo = SLO(ttft_ms=2000, tpot_ms=100)
    plain, careful, surer = (candidates(slo, (), confidence=level)[0] for level in (None, 0.8, 0.95))
    assert surer.planned_requests_per_s < careful.planned_requests_per_s < plain.planned_requests_per_s
