"""`costopt plan --melange`: problems of Melange's kind, with flows divided at will."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

EXAMPLE: dict[str, Any] = {
    "gpu_info": {
        "A10G": {"cost": 1.01, "tputs": [[2, 1], [5, 2]]},
        "A100-80GB": {"cost": 3.67, "tputs": [[20, 20], [40, 20]]},
    },
    "workload_distribution": [[0.2, 0.1], [0.5, 0.2]],
    "total_request_rate": 30.0,
    "slice_factor": 1,
}


def written(document: object) -> Path:
    path = Path("m.json")
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_the_split_of_the_published_example_costs_less_than_whole_slices(costopt: Command) -> None:
    """4.68 USD/h; with a slice factor of 1 the paper's formulation needs 6.70, with 8 it needs 5.69."""
    outcome = costopt("plan", "--melange", written(EXAMPLE), "--format", "json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert document["totals"]["usd_per_hour"] == "4.68"
    assert {line["instance_type"]: line["count"] for line in document["instances"]} == {"A10G": 1, "A100-80GB": 1}
    assert (document["schema"], document["status"]) == ("costopt.plan", "optimal")


@pytest.mark.parametrize("factor", [1, 4, 8])
def test_the_slice_factor_changes_nothing(costopt: Command, factor: int) -> None:
    outcome = costopt("plan", "--melange", written(EXAMPLE | {"slice_factor": factor}), "--format", "json")
    assert json.loads(outcome.out)["totals"]["usd_per_hour"] == "4.68"


def test_the_routing_split_serves_each_shape_within_the_capacity(costopt: Command) -> None:
    document = json.loads(costopt("plan", "--melange", written(EXAMPLE), "--format", "json").out)
    served: dict[str, float] = {}
    load: dict[str, float] = {}
    for row in document["routing"]:
        i, j = (int(part) for part in row["shape"].split(","))
        served[row["shape"]] = served.get(row["shape"], 0.0) + row["requests_per_s"]
        capacity = EXAMPLE["gpu_info"][row["instance_type"]]["tputs"][i][j]
        load[row["instance_type"]] = load.get(row["instance_type"], 0.0) + row["requests_per_s"] / capacity
    assert served == pytest.approx({"0,0": 6, "0,1": 3, "1,0": 15, "1,1": 6})
    counts = {line["instance_type"]: line["count"] for line in document["instances"]}
    assert all(load[name] <= counts[name] * (1 + 1e-6) for name in load)


def test_a_rate_overrides_that_of_the_file(costopt: Command) -> None:
    document = json.loads(costopt("plan", "--melange", written(EXAMPLE), "--rate", "300", "--format", "json").out)
    assert document["totals"]["requests_per_s"] == 300
    assert float(document["totals"]["usd_per_hour"]) > 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu_info": {}}, ""),
        ({"total_request_rate": -1}, "total_request_rate"),
        ({"workload_distribution": [[0.2]]}, "tputs"),
        ({"workload_distribution": "x"}, "workload_distribution"),
    ],
)
def test_a_faulty_problem_is_one_clear_message(costopt: Command, change: dict[str, Any], message: str) -> None:
    outcome = costopt("plan", "--melange", written(EXAMPLE | change))
    assert outcome.code in (2, 3)
    assert "unexpected failure" not in outcome.err
    assert message in outcome.err


@pytest.mark.parametrize("content", ["", "[]", "{", "null", "[" * 5000])
def test_what_is_no_problem_is_refused(costopt: Command, content: str) -> None:
    path = Path("m.json")
    path.write_text(content, encoding="utf-8")
    outcome = costopt("plan", "--melange", path)
    assert (outcome.code, outcome.out) == (2, "")
    assert "Melange file 'm.json'" in outcome.err


@pytest.mark.parametrize("flags", [("--model", "8B"), ("--workload", "w.yaml"), ("--gpu", "L4"), ("--all",)])
def test_a_flag_without_effect_on_a_problem_is_refused(costopt: Command, flags: tuple[str, ...]) -> None:
    outcome = costopt("plan", "--melange", written(EXAMPLE), *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.strip() == f"costopt: {flags[0]} has no effect on --melange; leave it out"


@pytest.mark.parametrize("format_", ["table", "csv", "md"])
def test_every_format_has_the_mix(costopt: Command, format_: str) -> None:
    outcome = costopt("plan", "--melange", written(EXAMPLE), "--format", format_)
    assert outcome.code == 0
    assert "A100-80GB" in outcome.out
