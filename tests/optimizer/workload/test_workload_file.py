"""Workload files: what they mean, and that each fault is answered with its field, value and line."""

import math

import pytest

from optimizer.workload.workload_file import MAX_BYTES, parse_workloads
from providers.errors import UsageError

FULL = """\
workloads:
  - name: chat
    model: 70B
    owner: team-a
    rate: 5
    shapes:
      - {input_tokens: 800, output_tokens: 250, share: 3}
      - {input_tokens: 6000, output_tokens: 400, share: 1}
    slo: {ttft_ms: 1500, tpot_ms: 40}
    precisions: [bf16, fp8]
    kv_precision: fp8
    context: 8192
    utilization: 0.7
    regions: [us-east-1, eu-west-1]
    minimum_replicas: 2
    minimum_replicas_by_region: {us-east-1: 1}
    same_region: true
    spot: false
    priority: 2
  - name: code
    model: 8B
"""


def parsed(text: str) -> object:
    return parse_workloads(text, "w.yaml")


def test_every_field_reaches_the_workload() -> None:
    chat, code = parse_workloads(FULL, "w.yaml")
    assert (chat.name, chat.model, chat.owner) == ("chat", "70B", "team-a")
    assert [str(demand.shape) for demand in chat.demands] == ["800+250", "6000+400"]
    assert [demand.requests_per_s for demand in chat.demands] == [3.75, 1.25]
    assert [demand.share for demand in chat.demands] == [0.75, 0.25]
    assert (chat.slo.ttft_ms, chat.slo.tpot_ms) == (1500, 40)
    assert (chat.precisions, chat.kv_precision) == (("bf16", "fp8"), "fp8")
    assert (chat.needed_context_tokens, chat.utilization) == (8192, 0.7)
    assert chat.regions == {"us-east-1", "eu-west-1"}
    assert (chat.minimum_replicas, dict(chat.minimum_replicas_by_region)) == (2, {"us-east-1": 1})
    assert (chat.same_region, chat.spot_allowed, chat.priority) == (True, False, 2)
    assert code.requests_per_s is None
    assert (code.spot_allowed, code.regions, code.priority, code.minimum_replicas) == (True, None, 1, 1)
    assert str(code.demands[0].shape) == "1000+300"


def test_a_profile_with_a_rate_is_relative_and_has_a_mean_of_one() -> None:
    (workload,) = parse_workloads(
        f"workloads: [{{name: a, model: 8B, rate: 6, profile: {[1] * 12 + [3] * 12}}}]", "w.yaml"
    )
    assert workload.requests_per_s == 6
    assert workload.profile == (0.5,) * 12 + (1.5,) * 12


def test_a_profile_without_a_rate_is_in_requests_per_second() -> None:
    (workload,) = parse_workloads(f"workloads: [{{name: a, model: 8B, profile: {[1] * 84 + [3] * 84}}}]", "w.yaml")
    assert workload.requests_per_s == pytest.approx(2)
    assert math.fsum(workload.profile) == pytest.approx(168)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rate: -1", r"line 4, workloads\.0\.rate: .*greater than 0 \(value -1\)"),
        ("rate: .inf", r"line 4, workloads\.0\.rate: .*finite"),
        ("rate: fast", r"line 4, workloads\.0\.rate: .*\(value 'fast'\)"),
        ("rat: 1", r"line 4, workloads\.0\.rat: Extra inputs are not permitted; did you mean rate.* \(value 1\)"),
        ("slo: {ttft: 9}", r"line 4, workloads\.0\.slo\.ttft: .*; did you mean ttft_ms.* \(value 9\)"),
        ("shapes: [{input: 9}]", r"line 4, workloads\.0\.shapes\.0\.input: .*; did you mean input_tokens"),
        ("zzzz: 1", r"line 4, workloads\.0\.zzzz: Extra inputs are not permitted \(value 1\)"),
        ("shapes: [{input_tokens: 0, output_tokens: 1}]", r"line 4, workloads\.0\.shapes\.0\.input_tokens: .*value 0"),
        ("shapes: [{input_tokens: 1}]", r"line 4, workloads\.0\.shapes\.0\.output_tokens: Field required"),
        ("slo: {ttft_ms: 0}", r"line 4, workloads\.0\.slo\.ttft_ms: .*value 0"),
        ("profile: [1, 2]", r"line 2, workloads\.0: profile has 2 numbers; give 24 or 168"),
        (f"profile: {[0] * 24}", r"line 2, workloads\.0: profile is 0 in every hour"),
        ("utilization: 1.5", r"line 4, workloads\.0\.utilization: .*value 1\.5"),
        ("priority: 0", r"line 4, workloads\.0\.priority: .*value 0"),
        ("regions: []", r"line 4, workloads\.0\.regions: .*at least 1"),
        ("spot: maybe", r"line 4, workloads\.0\.spot: .*value 'maybe'"),
        ("minimum_replicas_by_region: {eu: -1}", r"line 4, workloads\.0\.minimum_replicas_by_region\.eu: .*value -1"),
    ],
)
def test_a_fault_is_named_with_line_field_and_value(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parsed(f"workloads:\n  - name: a\n    model: 8B\n    {line}\n")


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(UsageError, match=r"workloads\.0\.rate.*workloads\.1\.model"):
        parsed("workloads:\n  - {name: a, model: 8B, rate: 0}\n  - {name: b}\n")


def test_shapes_and_single_tokens_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="give shapes, or input_tokens and output_tokens, not both"):
        parsed("workloads: [{name: a, model: 8B, input_tokens: 5, shapes: [{input_tokens: 1, output_tokens: 1}]}]")


def test_names_must_differ() -> None:
    with pytest.raises(UsageError, match="names must differ; twice: a"):
        parsed("workloads: [{name: a, model: 8B}, {name: a, model: 8B}]")


@pytest.mark.parametrize("text", ["", "[]", "workloads: []", "workloads: 5", "just text", "workload: []"])
def test_what_is_no_workload_file_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^w\.yaml"):
        parsed(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "file: is empty"),
        ("# nothing yet", "file: is empty"),
        ("- model: 8B", "file: must be keys with values"),
        ("workloads: [chat]", r"workloads\.0: must be keys with values, like `name: value` \(value 'chat'\)"),
    ],
)
def test_what_a_file_lacks_is_said_without_names_of_classes(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parsed(text)
    assert "_File" not in str(caught.value)


def test_broken_yaml_is_named_with_its_line() -> None:
    with pytest.raises(UsageError, match=r"w\.yaml, line 2: no valid YAML"):
        parsed("workloads:\n  - {name: a: b}\n")


def test_anchors_are_refused_since_they_can_mean_gigabytes() -> None:
    with pytest.raises(UsageError, match="line 1: anchors and aliases are not read"):
        parsed("workloads: &all\n  - *all\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workloads: []\nworkloads: []\n", "line 2: 'workloads' is given twice, first on line 1"),
        ("workloads:\n  - <<: {name: a}\n", "line 2: merge keys"),
        ("workloads:\n  - name: " + "9" * 5000, "line 2: .* cannot be read as a value"),
        ("workloads: [" + "1," * 250_000 + "1]", "more than 200,000 values"),
    ],
    ids=["twice", "merge", "huge number", "many values"],
)
def test_what_yaml_allows_and_nobody_means_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parsed(text)


def test_a_file_that_is_too_long_or_too_deep_is_refused() -> None:
    with pytest.raises(UsageError, match="at most"):
        parsed("#" * (MAX_BYTES + 1))
    with pytest.raises(UsageError, match="nested too deeply"):
        parsed("workloads: " + "[" * 3000 + "]" * 3000)
