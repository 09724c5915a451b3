"""`costopt plan --current`: what runs today against what should."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

FLAGS = ("--model", "8B", "--rate", "2", "--provider", "aws", "--region", "us-east-1")


def planned(costopt: Command, *arguments: object) -> dict[str, Any]:
    outcome = costopt("plan", *arguments, "--format", "json")
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def running(*entries: str) -> Path:
    path = Path("c.yaml")
    path.write_text("running:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries), encoding="utf-8")
    return path


def test_what_is_too_dear_is_ended_and_the_difference_adds_up(costopt: Command) -> None:
    path = running("provider: aws, instance_type: p5.48xlarge, region: us-east-1, count: 1, usd_per_hour: 55.04")
    document = planned(costopt, *FLAGS, "--current", path)
    by_kind = {change["change"]: change for change in document["changes"]}
    assert by_kind["end"]["instance_type"] == "p5.48xlarge"
    assert Decimal(by_kind["end"]["usd_per_month"]) == Decimal("-40179.20")
    total = Decimal("40179.20") + sum(Decimal(change["usd_per_month"]) for change in document["changes"])
    assert total == Decimal(document["totals"]["usd_per_month"])


def test_what_is_committed_is_used_first_and_stays_in_the_total(costopt: Command) -> None:
    path = running(
        "provider: aws, instance_type: p5.48xlarge, region: us-east-1, purchase: reserved-1y, count: 1, "
        "usd_per_hour: 33, committed: true"
    )
    document = planned(costopt, *FLAGS, "--current", path)
    (change,) = document["changes"]
    assert (change["change"], change["count"], Decimal(change["usd_per_month"])) == ("keep", 1, 0)
    assert document["totals"]["usd_per_month"] == "24090.00"
    assert [reason["kind"] for reason in document["reasons"]] == ["committed"]


def test_the_table_shows_each_change(costopt: Command) -> None:
    path = running("provider: aws, instance_type: p5.48xlarge, region: us-east-1, count: 1, usd_per_hour: 55.04")
    out = costopt("plan", *FLAGS, "--current", path).out
    assert "Against what runs today" in out
    assert "-40,179.20" in out


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("provider: aws, instance_type: p5.48xlarg, count: 1", "p5.48xlarge"),
        ("provider: aws, instance_type: p5.48xlarge, count: 0", "running.0.count"),
        ("provider: aws, instance_type: p5.48xlarge, region: mars, count: 1", "give usd_per_hour"),
    ],
)
def test_a_faulty_line_is_one_clear_message(costopt: Command, entry: str, message: str) -> None:
    outcome = costopt("plan", *FLAGS, "--current", running(entry))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_a_short_need_does_not_bind_for_years(costopt: Command) -> None:
    flags = (*FLAGS, "--purchase", "on-demand", "--purchase", "reserved-1y", "--purchase", "reserved-3y")
    long, short = planned(costopt, *flags), planned(costopt, *flags, "--horizon", "30d")
    assert {line["purchase_option"] for line in long["instances"]} & {"reserved_1y", "reserved_3y"}
    assert {line["purchase_option"] for line in short["instances"]} == {"on_demand"}
    assert any(line.startswith("the need lasts 30d") for line in short["assumptions"])
    assert all(reason["break_even_share"] is None or reason["text"] for reason in long["reasons"])
