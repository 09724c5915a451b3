"""`costopt plan --sweep`: a plan per value, as a table, JSON, CSV, Markdown and a page with charts."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal

import pytest

from optimizer.cli import sweep
from optimizer.plans.plan import Plan
from optimizer.plans.planner import Request
from optimizer.plans.sweep import Sweep, sweep_plans
from optimizer.program.problem import Status
from tests.conftest import Command

FLAGS = ("plan", "--model", "8B", "--provider", "aws", "--region", "us-east-1", "--gpu", "L4", "--gpu", "L40S")


def test_costs_rise_with_the_rate(costopt: Command) -> None:
    outcome = costopt(*FLAGS, "--sweep", "rate=1:64:log4", "--format", "json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert (document["schema"], document["parameter"]) == ("costopt.sweep", "rate")
    assert [point["value"] for point in document["points"]] == [1, 4, 16, 64]
    costs = [Decimal(point["usd_per_month"]) for point in document["points"]]
    assert costs == sorted(costs)


def test_a_point_that_does_not_fit_is_null_and_the_others_stand(costopt: Command) -> None:
    outcome = costopt(*FLAGS, "--sweep", "budget=100,5000", "--format", "json")
    assert outcome.code == 0, outcome.err
    first, second = json.loads(outcome.out)["points"]
    assert (first["usd_per_month"], first["status"]) == (None, "infeasible")
    assert Decimal(second["usd_per_month"]) <= 5000


def test_a_sweep_without_any_plan_is_infeasible(costopt: Command) -> None:
    assert costopt(*FLAGS, "--sweep", "budget=10,20").code == 3


def test_a_sweep_with_a_plan_that_is_not_proven_fails_where_proof_is_required(
    costopt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (*FLAGS, "--sweep", "rate=1,2,3", "--require-optimal")
    assert costopt(*arguments).code == 0
    unproven = replace_status("feasible", at=2)
    monkeypatch.setattr(sweep, "sweep_plans", unproven)
    assert costopt(*arguments).code == 5
    assert costopt(*arguments[:-1]).code == 0


def replace_status(status: Status, *, at: float) -> Callable[..., Iterator[tuple[float, Plan]]]:
    def plans(request: Request, sweep: Sweep) -> Iterator[tuple[float, Plan]]:
        for value, plan in sweep_plans(request, sweep):
            yield value, replace(plan, status=status) if value == at else plan

    return plans


def test_csv_has_a_row_a_value(costopt: Command) -> None:
    outcome = costopt(*FLAGS, "--sweep", "rate=1,2,3", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert [row["value"] for row in rows] == ["1", "2", "3"]


def test_a_page_has_a_chart(costopt: Command) -> None:
    outcome = costopt(*FLAGS, "--sweep", "rate=1,2", "--format", "html")
    assert outcome.code == 0, outcome.err
    assert outcome.out.lstrip().lower().startswith("<!doctype html>")
    assert "<svg" in outcome.out


@pytest.mark.parametrize("text", ["rate=0:1:log3", "speed=1,2", "rate=", "context=1.5"])
def test_a_faulty_range_is_one_clear_message(costopt: Command, text: str) -> None:
    outcome = costopt(*FLAGS, "--sweep", text)
    assert (outcome.code, outcome.out) == (2, "")
    assert len(outcome.err.strip().splitlines()) == 1
