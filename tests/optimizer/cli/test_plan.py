"""`costopt plan` on the shipped prices: filters, careful defaults, statuses and exit codes, what is shown beside."""

import json
from decimal import Decimal
from typing import Any

import pytest

from providers.accelerators import catalogue
from providers.offers import PROVIDERS
from tests.conftest import Command

RATE = ("plan", "--model", "8B", "--rate", "2")


def planned(costopt: Command, *arguments: str, code: int = 0) -> dict[str, Any]:
    outcome = costopt(*arguments, "--format", "json")
    assert outcome.code == code, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def values(document: dict[str, Any], key: str) -> set[Any]:
    return {instance[key] for instance in document["instances"]}


def test_the_main_command_considers_all_five_providers(costopt: Command) -> None:
    document = planned(costopt, "--model", "70B", "--task", "infer", "--budget", "5000")
    assert document["prices"]["offers_considered"] > 5000
    alternatives = {a["name"]: a for a in document["alternatives"] if a["kind"] == "provider"}
    assert set(alternatives) == set(PROVIDERS)
    best = document["totals"]["requests_per_s"]
    assert all(a["requests_per_s"] is None or a["requests_per_s"] <= best * (1 + 1e-6) for a in alternatives.values())


def test_the_budget_is_kept_and_what_it_buys_is_not_less_than_a_smaller_one_buys(costopt: Command) -> None:
    found = [planned(costopt, "--model", "70B", "--budget", str(budget)) for budget in (2500, 5000, 20000)]
    for document, budget in zip(found, (2500, 5000, 20000), strict=True):
        assert Decimal(document["totals"]["usd_per_month"]) <= budget
    rates = [document["totals"]["requests_per_s"] for document in found]
    assert rates == sorted(rates)


def test_a_rate_is_served_within_the_slo_and_the_head_room(costopt: Command) -> None:
    document = planned(costopt, *RATE, "--ttft-ms", "800", "--tpot-ms", "40")
    assert document["totals"]["requests_per_s"] == pytest.approx(2)
    for group in document["replicas"]:
        assert group["ttft_ms"] <= 800
        assert group["tpot_ms"] <= 40
        assert group["utilization"] <= 0.8 + 1e-6


def test_a_budget_is_a_ceiling_where_there_is_a_rate(costopt: Command) -> None:
    cost = planned(costopt, *RATE)["totals"]["usd_per_month"]
    assert planned(costopt, *RATE, "--budget", "90000")["totals"]["usd_per_month"] == cost
    short = planned(costopt, *RATE, "--budget", "1", code=3)
    assert short["shortfalls"][0]["limit"] == "budget"


def test_a_careful_buyer_gets_on_demand_machines_that_the_provider_answers_for(costopt: Command) -> None:
    document = planned(costopt, "--model", "8B", "--budget", "50000")
    assert values(document, "purchase_option") == {"on_demand"}
    assert not any(name.endswith("_COMMUNITY") for name in values(document, "instance_type"))
    vendors = {catalogue()[name].vendor for name in values(document, "accelerator")}
    assert vendors <= {"NVIDIA", "AMD"}
    shown = {a["name"] for a in document["alternatives"]}
    assert {"spot", "reserved_1y", "reserved_3y", "community", "int8", "int4"} <= shown


@pytest.mark.parametrize(
    ("flags", "key", "expected"),
    [
        (("--provider", "gcp"), "provider", {"gcp"}),
        (("--provider", "AWS"), "provider", {"aws"}),
        (("--region", "us-east-1"), "region", {"us-east-1"}),
        (("--gpu", "L40S"), "accelerator", {"L40S"}),
        (("--gpu", "RTX4090-24GB"), "accelerator", {"RTX 4090"}),
        (("--gpu", "nvidia a100-sxm4-80gb"), "accelerator", {"A100-SXM4-80GB"}),
        (("--purchase", "spot"), "purchase_option", {"spot"}),
        (("--purchase", "reserved_3y"), "purchase_option", {"reserved_3y"}),
        (("--purchase", "Reserved-1Y"), "purchase_option", {"reserved_1y"}),
    ],
)
def test_a_filter_is_kept(costopt: Command, flags: tuple[str, ...], key: str, expected: set[str]) -> None:
    assert values(planned(costopt, *RATE, *flags), key) == expected


@pytest.mark.parametrize(
    ("flag", "words"),
    [("--purchase", ("spot", "reserved-1y")), ("--provider", ("aws", "gcp")), ("--precision", ("bf16", "fp8"))],
)
def test_several_words_of_a_flag_may_come_with_commas(costopt: Command, flag: str, words: tuple[str, str]) -> None:
    repeated = planned(costopt, *RATE, flag, words[0], flag, words[1])
    assert planned(costopt, *RATE, flag, ",".join(words)) == repeated
    assert planned(costopt, *RATE, flag, ", ".join(words)) == repeated


def test_a_family_name_means_its_variants_and_says_so(costopt: Command) -> None:
    document = planned(costopt, *RATE, "--gpu", "H100")
    assert values(document, "accelerator") <= {"H100-SXM5-80GB", "H100-PCIe-80GB", "H100-NVL-94GB"}
    assert any(line.startswith("--gpu H100 means H100-SXM5-80GB, ") for line in document["assumptions"])


def test_a_region_leaves_out_offers_without_one_and_counts_them(costopt: Command) -> None:
    document = planned(costopt, *RATE, "--region", "us-east-1")
    assert document["rejections"]["price without a region"] > 0
    assert document["rejections"]["other region"] > 0


@pytest.mark.parametrize(("given", "allowed"), [("fp8", {"fp8"}), ("BF16", {"bf16"}), ("int4-awq", {"int4"})])
def test_a_precision_is_kept(costopt: Command, given: str, allowed: set[str]) -> None:
    document = planned(costopt, *RATE, "--precision", given)
    assert {group["precision"] for group in document["replicas"]} == allowed
    assert document["workloads"][0]["precisions"] == sorted(allowed)


def test_community_hosts_are_taken_when_asked_for(costopt: Command) -> None:
    plain = planned(costopt, *RATE)
    community = planned(costopt, *RATE, "--include", "community")
    assert Decimal(community["totals"]["usd_per_month"]) <= Decimal(plain["totals"]["usd_per_month"])
    assert plain["rejections"].keys() - community["rejections"].keys() == {
        "community machine, only taken when asked for"
    }


def test_an_infeasible_plan_is_printed_with_what_would_fit_within_the_budget(costopt: Command) -> None:
    outcome = costopt("plan", "--model", "70B", "--budget", "600")
    assert outcome.code == 3
    assert outcome.err.startswith("costopt: no feasible plan: budget is short by ")
    assert "Would make it fit" in outcome.out
    document = planned(costopt, "plan", "--model", "70B", "--budget", "600", code=3)
    assert 1 <= len(document["suggestions"]) <= 3
    flags = {suggestion["flag"]: Decimal(suggestion["usd_per_month"]) for suggestion in document["suggestions"]}
    budget = next(flag for flag in flags if flag.startswith("--budget "))
    assert all(cost <= 600 for flag, cost in flags.items() if flag != budget)
    assert planned(costopt, "plan", "--model", "70B", *budget.split())["status"] == "optimal"
    for flag, cost in flags.items():
        if flag != budget:
            followed = planned(costopt, "plan", "--model", "70B", "--budget", "600", *flag.split())
            assert Decimal(followed["totals"]["usd_per_month"]) <= 600
            assert cost <= 600


def test_a_model_that_fits_no_machine_is_infeasible_with_the_reason(costopt: Command) -> None:
    document = planned(costopt, "plan", "--model", "405B", "--rate", "1", "--gpu", "L4", "--precision", "bf16", code=3)
    assert document["rejections"]["hardware: weights do not fit"] > 0


def test_status_and_gap_are_stated(costopt: Command) -> None:
    outcome = costopt("--model", "70B", "--budget", "5000")
    headline = outcome.out.splitlines()[0]
    assert "optimal, proven gap 0.00%" in headline
    assert "USD/month of 5,000.00" in headline


def test_require_optimal_is_met_by_a_proven_plan(costopt: Command) -> None:
    assert costopt(*RATE, "--require-optimal").code == 0


def test_explain_shows_the_arithmetic_and_the_runner_up(costopt: Command) -> None:
    out = costopt(*RATE, "--explain").out
    for words in ("weights", "bytes per token", "running requests", "Runner-up: ", "requests/s"):
        assert words in out
    document = planned(costopt, *RATE, "--explain")
    assert any("= 131,072 bytes per token" in line for line in document["explanation"])
    assert "explanation" not in planned(costopt, *RATE)


def test_timing_is_shown_on_request_only(costopt: Command) -> None:
    assert {"load_s", "sizing_s", "build_s", "solve_s"} <= planned(costopt, *RATE, "--timing")["timing"].keys()
    assert "timing" not in planned(costopt, *RATE)


def test_every_price_shows_its_date_and_old_ones_are_flagged(costopt: Command) -> None:
    document = planned(costopt, *RATE, "--max-age", "30d")
    assert all(instance["as_of"] and instance["source"] for instance in document["instances"])
    assert any("days old" in warning for warning in document["warnings"])
    fresh = planned(costopt, *RATE, "--max-age", "3000d")
    assert fresh["prices"]["stale"] == fresh["prices"]["undated"]
    assert not any("days old" in warning for warning in fresh["warnings"])


def test_a_lower_rate_never_costs_more(costopt: Command) -> None:
    costs = [
        Decimal(planned(costopt, "plan", "--model", "8B", "--rate", rate)["totals"]["usd_per_month"])
        for rate in ("0.01", "1", "5", "30", "200")
    ]
    assert costs == sorted(costs)


def test_more_choice_never_costs_more(costopt: Command) -> None:
    def cost(*flags: str) -> Decimal:
        return Decimal(planned(costopt, *RATE, *flags)["totals"]["usd_per_month"])

    assert cost() <= cost("--provider", "aws", "--provider", "gcp") <= cost("--provider", "aws")
    assert cost("--purchase", "on-demand", "--purchase", "spot") <= cost()
    assert cost("--include", "community,arm64,uncalibrated") <= cost()


def test_a_request_longer_than_the_models_positions_is_named_as_that(costopt: Command) -> None:
    outcome = costopt("plan", "--model", "70B", "--rate", "1", "--input-tokens", "200000", "--format", "json")
    assert outcome.code == 3
    assert json.loads(outcome.out)["shortfalls"] == [
        {
            "limit": "context of meta-llama/Llama-3.1-70B for workload",
            "needed": 200300,
            "available": 131072,
            "unit": "tokens",
        }
    ]
