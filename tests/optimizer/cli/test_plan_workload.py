"""`costopt plan --workload`: portfolios and a day's traffic on the shipped prices."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

TWO = """\
workloads:
  - name: chat
    model: 8B
    owner: team-a
    rate: 4
    shapes:
      - {input_tokens: 500, output_tokens: 200, share: 0.8}
      - {input_tokens: 3000, output_tokens: 300, share: 0.2}
  - name: code
    model: 1.5B
    rate: 3
    priority: 2
"""
DAY = ", ".join(["1"] * 12 + ["3"] * 6 + ["1"] * 6)
MARKET = ("--provider", "aws", "--region", "us-east-1", "--gpu", "L4", "--gpu", "L40S", "--gpu", "A10G")


def planned(costopt: Command, *arguments: object, code: int = 0) -> dict[str, Any]:
    outcome = costopt("plan", *arguments, "--format", "json")
    assert outcome.code == code, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def written(text: str) -> Path:
    path = Path("w.yaml")
    path.write_text(text, encoding="utf-8")
    return path


def test_a_portfolio_is_served_with_its_routing_split(costopt: Command) -> None:
    document = planned(costopt, "--workload", written(TWO), *MARKET)
    assert [w["name"] for w in document["workloads"]] == ["chat", "code"]
    assert document["workloads"][0]["owner"] == "team-a"
    assert document["totals"]["requests_per_s"] == pytest.approx(7)
    shares: dict[tuple[str, int], float] = {}
    for row in document["routing"]:
        key = row["workload"], row["input_tokens"]
        shares[key] = shares.get(key, 0.0) + row["share"]
        assert document["replicas"][row["replica_group"]]["workload"] == row["workload"]
    assert shares == pytest.approx({("chat", 500): 1, ("chat", 3000): 1, ("code", 1000): 1})


def test_a_days_traffic_is_bought_by_the_hour_within_the_gap(costopt: Command) -> None:
    text = f"workloads: [{{name: chat, model: 8B, rate: 30, profile: [{DAY}]}}]"
    document = planned(costopt, "--workload", written(text), *MARKET)
    assert document["status"] in ("optimal", "within_gap")
    assert document["proof"]["gap"] <= 0.001 + 1e-9
    assert any("proven gap of 0.10%" in line for line in document["assumptions"])
    assert any("paid for 10 minutes before it serves" in line for line in document["assumptions"])
    counts = [sum(line["counts_by_period"][t] for line in document["instances"]) for t in range(24)]
    assert max(counts[12:18]) > max(counts[:11])
    bound = float(document["proof"]["bound_usd_per_month"])
    assert bound <= float(document["totals"]["usd_per_month"]) + 0.01
    assert {reason["kind"] for reason in document["reasons"]} & {"by_the_hour", "always_on"}


def test_a_flat_plan_costs_at_least_what_following_the_day_does(costopt: Command) -> None:
    flat = planned(costopt, "--model", "8B", "--rate", "60", *MARKET)
    text = f"workloads: [{{name: chat, model: 8B, rate: 30, profile: [{DAY}]}}]"
    following = planned(costopt, "--workload", written(text), *MARKET)
    assert Decimal(following["totals"]["usd_per_month"]) < Decimal(flat["totals"]["usd_per_month"])


def test_a_budget_that_is_too_small_serves_the_first_priorities(costopt: Command) -> None:
    whole = Decimal(planned(costopt, "--workload", written(TWO), *MARKET)["totals"]["usd_per_month"])
    document = planned(costopt, "--workload", written(TWO), *MARKET, "--budget", str(whole - 100))
    served = {w["name"]: w["served"] for w in document["workloads"]}
    assert served == {"chat": True, "code": False}
    assert Decimal(document["totals"]["usd_per_month"]) <= whole - 100
    table = costopt("plan", "--workload", "w.yaml", *MARKET, "--budget", str(whole - 100))
    assert "Not served within the budget: code" in table.out


def test_the_same_file_gives_the_same_bytes(costopt: Command) -> None:
    path = written(TWO)
    runs = {costopt("plan", "--workload", path, *MARKET, "--format", "json").out for _ in range(2)}
    assert len(runs) == 1


def test_faults_are_named_with_line_field_and_value(costopt: Command) -> None:
    outcome = costopt("plan", "--workload", written(TWO.replace("rate: 4", "rate: -4")))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.strip() == (
        "costopt: w.yaml: line 5, workloads.0.rate: Input should be greater than 0 (value -4)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO.replace("model: 8B", "model: 9999Z"), "workload 'chat'"),
        (TWO.replace("    rate: 3\n", ""), "workloads code have no rate while chat have one"),
        (TWO.replace("owner: team-a", "precisions: [fp7]"), "fp7"),
    ],
)
def test_a_workload_that_cannot_be_planned_is_named(costopt: Command, text: str, message: str) -> None:
    outcome = costopt("plan", "--workload", written(text))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


@pytest.mark.parametrize("flags", [("--model", "8B"), ("--rate", "2"), ("--trace", "t.csv")])
def test_a_file_replaces_the_flags_of_a_single_workload(costopt: Command, flags: tuple[str, str]) -> None:
    outcome = costopt("plan", "--workload", written(TWO), *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--workload replaces" in outcome.err


@pytest.mark.parametrize(
    "flags",
    [
        ("--input-tokens", "500"),
        ("--output-tokens", "50"),
        ("--context", "4096"),
        ("--ttft-ms", "500"),
        ("--tpot-ms", "50"),
        ("--precision", "bf16"),
        ("--kv-precision", "fp8"),
        ("--max-utilization", "0.5"),
        ("--same-region",),
    ],
)
def test_a_flag_without_effect_on_a_file_is_refused(costopt: Command, flags: tuple[str, ...]) -> None:
    outcome = costopt("plan", "--workload", written(TWO), *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{flags[0]} has no effect on --workload: give it in the file" in outcome.err


def test_a_default_of_a_single_workload_stays_beside_a_file(costopt: Command) -> None:
    Path("costopt.toml").write_text("[plan]\ninput-tokens = 500\n", encoding="utf-8")
    assert costopt("plan", "--workload", written(TWO), *MARKET).code == 0


def test_a_missing_file_is_said_once(costopt: Command) -> None:
    outcome = costopt("plan", "--workload", "nowhere.yaml")
    assert (outcome.code, outcome.out) == (2, "")
    assert "workload file 'nowhere.yaml' cannot be read" in outcome.err


def test_one_region_for_all_replicas_costs_no_less(costopt: Command) -> None:
    flags = ("--model", "8B", "--rate", "40", "--gpu", "L4", "--gpu", "H100", "--provider", "aws", "--provider", "gcp")
    free, bound = planned(costopt, *flags), planned(costopt, *flags, "--same-region")
    assert len({(line["provider"], line["region"]) for line in bound["instances"]}) == 1
    assert Decimal(bound["totals"]["usd_per_month"]) >= Decimal(free["totals"]["usd_per_month"])


def test_a_model_larger_than_any_instance_takes_several(costopt: Command) -> None:
    document = planned(costopt, "--model", "moonshotai/Kimi-K2-Instruct", "--gpu", "H100", "--rate", "1")
    (line,), (group,) = document["instances"], document["replicas"]
    assert line["count"] == group["count"] * group["instances_per_replica"] > 1
    assert line["region"] is not None
    assert any("spans" in warning for warning in document["warnings"])
    assert any("no network between them is documented" in reason for reason in document["rejections"])


def test_a_region_that_nobody_sells_in_is_named_with_the_way_out(costopt: Command) -> None:
    path = written("workloads: [{name: chat, model: 8B, rate: 1, regions: [atlantis]}]")
    outcome = costopt("plan", "--workload", path, *MARKET)
    assert outcome.code == 3
    assert "allowed regions of chat: 1 regions asked for, none of it possible" in outcome.err
    assert "workload chat: any region" in outcome.out
