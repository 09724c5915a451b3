"""`costopt plan --quota`, `--max-gpus` and other limits: kept, named when they bind, and short with a remedy."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

L4 = ("--model", "8B", "--rate", "12", "--gpu", "L4", "--provider", "aws", "--region", "us-east-1")


def planned(costopt: Command, *arguments: object, code: int = 0) -> dict[str, Any]:
    outcome = costopt("plan", *arguments, "--format", "json")
    assert outcome.code == code, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def quota(text: str) -> Path:
    path = Path("q.yaml")
    path.write_text(f"quotas:\n{text}", encoding="utf-8")
    return path


def test_a_quota_of_an_accelerator_in_a_region_is_kept(costopt: Command) -> None:
    path = quota("  - {accelerator: L4, region: us-east-1, maximum: 2}\n")
    flags = ("--model", "8B", "--rate", "12", "--gpu", "L4", "--provider", "aws")
    document = planned(costopt, *flags, "--quota", path)
    there = [line for line in document["instances"] if line["region"] == "us-east-1"]
    assert sum(line["count"] * line["accelerator_count"] for line in there) <= 2


def test_a_quota_that_binds_says_what_one_more_would_save(costopt: Command) -> None:
    path = quota("  - {accelerator: L4, maximum: 1}\n")
    flags = ("--model", "8B", "--rate", "12", "--gpu", "L4", "--gpu", "A10G", "--provider", "aws")
    document = planned(costopt, *flags, "--quota", path)
    (limit,) = document["binding_limits"]
    assert limit["limit"] == "quota of L4"
    assert Decimal(limit["saving_usd_per_month"]) > 0
    table = costopt("plan", *flags, "--quota", path).out
    assert f"Limit: quota of L4 {limit['change']:+g} accelerators would save" in table


def test_a_quota_that_is_short_says_by_how_much_and_what_more_would_cost(costopt: Command) -> None:
    path = quota("  - {accelerator: L4, region: us-east-1, maximum: 2}\n")
    document = planned(costopt, *L4, "--quota", path, code=3)
    (shortfall,) = document["shortfalls"]
    assert (shortfall["available"], shortfall["unit"]) == (2, "accelerators")
    assert shortfall["needed"] > 2
    needed = int(shortfall["needed"])
    costs = {s["flag"]: Decimal(s["usd_per_month"]) for s in document["suggestions"]}
    wider = planned(costopt, *L4)
    assert costs[f"quota of us-east-1 L4: {needed} accelerators"] == Decimal(wider["totals"]["usd_per_month"])
    assert list(costs.values()) == sorted(costs.values())


def test_too_few_accelerators_in_all_are_answered_with_a_number_that_works(costopt: Command) -> None:
    document = planned(costopt, *L4, "--max-gpus", "1", code=3)
    needed = int(document["shortfalls"][0]["needed"])
    followed = planned(costopt, *L4, "--max-gpus", str(needed))
    assert followed["totals"]["gpus"] <= needed
    planned(costopt, *L4, "--max-gpus", str(needed - 1), code=3)


def test_spare_replicas_and_providers_are_kept(costopt: Command) -> None:
    flags = ("--model", "8B", "--rate", "6", "--gpu", "L4", "--provider", "aws", "--provider", "gcp")
    plain = planned(costopt, *flags)
    spare = planned(costopt, *flags, "--spare-replicas", "1")
    both = planned(costopt, *flags, "--min-providers", "2")
    assert Decimal(spare["totals"]["usd_per_month"]) > Decimal(plain["totals"]["usd_per_month"])
    assert {line["provider"] for line in both["instances"]} == {"aws", "gcp"}


def test_a_share_of_spot_is_kept(costopt: Command) -> None:
    flags = (*L4, "--purchase", "spot", "--purchase", "on-demand")
    document = planned(costopt, *flags, "--max-spot-share", "0.5")
    gpus = {True: 0, False: 0}
    for line in document["instances"]:
        gpus[line["purchase_option"] == "spot"] += line["count"] * line["accelerator_count"]
    assert 0 < gpus[True] <= gpus[False]
    assert any(reason["kind"] == "spot" for reason in document["reasons"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  - {accelerator: H100, maximum: 1}\n", "name one of them"),
        ("  - {accelerator: L4, maximum: two}\n", "line 2, quotas.0.maximum"),
        ("  - {accelerator: L4}\n", "quotas.0.maximum: Field required"),
        ("  {}\n", "quotas"),
    ],
)
def test_a_faulty_quota_file_is_one_clear_message(costopt: Command, text: str, message: str) -> None:
    outcome = costopt("plan", *L4, "--quota", quota(text))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_on_demand_is_shown_where_only_spot_was_asked_for(costopt: Command) -> None:
    document = planned(costopt, *L4, "--purchase", "spot")
    shown = {a["name"]: a for a in document["alternatives"] if a["kind"] == "purchase_option"}
    assert "spot" not in shown
    assert shown["on_demand"]["feasible"]
    assert shown["on_demand"]["flag"] == "--purchase on-demand"
