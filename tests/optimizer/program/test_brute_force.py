"""The program against trying everything, on random small problems with every kind of limit."""

from dataclasses import replace
from random import Random

import pytest

import optimizer.program.solve as solving
from optimizer.program.problem import Problem, Solution, SolverOptions
from optimizer.program.solve import solve
from tests.optimizer.program.brute_force import MOST_UNITS, BruteForce
from tests.optimizer.program.builders import random_problem

PROBLEMS = 520
BLOCK = 20


def goes_beyond_what_is_tried(problem: Problem, solution: Solution) -> bool:
    """Whether the plan takes more units of an unlimited offer than brute force tries."""
    return any(
        offer.maximum is None and solution.units(offer.id, period.id) > MOST_UNITS
        for offer in problem.offers
        for period in problem.periods
    )


def same_optimum(problem: Problem, options: SolverOptions) -> None:
    expected = BruteForce(problem).least_cost()
    solution = solve(problem, options)
    if expected is None:
        assert solution.status == "infeasible" or goes_beyond_what_is_tried(problem, solution)
    elif goes_beyond_what_is_tried(problem, solution):
        assert solution.usd_per_hour is not None
        assert solution.usd_per_hour <= expected + 1e-6
    else:
        assert solution.status == "optimal"
        assert solution.usd_per_hour == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("first", range(0, PROBLEMS, BLOCK))
def test_the_cheapest_plan_is_that_of_trying_everything(first: int) -> None:
    for seed in range(first, first + BLOCK):
        same_optimum(random_problem(seed), SolverOptions())


@pytest.mark.parametrize("first", range(0, PROBLEMS // 2, BLOCK))
def test_without_reductions_the_optimum_is_the_same(first: int) -> None:
    for seed in range(first, first + BLOCK):
        problem = random_problem(seed)
        plain, reduced = solve(problem, SolverOptions(reduce=False)), solve(problem)
        assert plain.status == reduced.status
        assert (plain.usd_per_hour or 0.0) == pytest.approx(reduced.usd_per_hour or 0.0, rel=1e-6)


@pytest.mark.parametrize("first", range(0, 80, BLOCK))
def test_the_most_throughput_is_that_of_trying_everything(first: int) -> None:
    for seed in range(first, first + BLOCK):
        problem = with_budget(random_problem(seed), seed)
        if not any(rate for workload in problem.workloads for row in workload.demand for rate in row):
            continue
        expected = BruteForce(problem).largest_scale()
        solution = solve(problem)
        if solution.status == "infeasible":
            assert expected == 0
        else:
            assert solution.scale == pytest.approx(expected, rel=1e-5, abs=1e-9)


def with_budget(problem: Problem, seed: int) -> Problem:
    """One period, all offers limited, and a budget for a few units."""
    offers = [replace(o, maximum=MOST_UNITS if o.maximum is None else o.maximum) for o in problem.offers]
    workloads = [replace(one, demand=one.demand[:1]) for one in problem.workloads]
    limits = replace(problem.limits, budget_usd_per_month=Random(seed).uniform(500, 8000))
    return replace(
        problem,
        offers=offers,
        workloads=workloads,
        periods=problem.periods[:1],
        limits=limits,
        objective="max_throughput",
    )


@pytest.mark.parametrize("first", range(0, 100, BLOCK))
def test_cuts_of_whole_replicas_and_units_leave_the_optimum(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems as if they were large: relaxed with all cuts, by period, then as integers."""
    monkeypatch.setattr(solving, "SMALL", 0)
    for seed in range(first, first + BLOCK):
        same_optimum(random_problem(seed), SolverOptions())


@pytest.mark.parametrize("first", range(0, 40, BLOCK))
def test_a_plan_by_period_is_feasible_and_its_gap_honest(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "SMALL", 0)
    monkeypatch.setattr(solving, "LARGE", 0)
    for seed in range(first, first + BLOCK):
        problem = random_problem(seed)
        solution = solve(problem, SolverOptions(gap=0.01))
        expected = BruteForce(problem).least_cost()
        if expected is None or goes_beyond_what_is_tried(problem, solution):
            continue
        assert solution.usd_per_hour is not None
        assert solution.bound is not None
        assert solution.bound - 1e-6 <= expected <= solution.usd_per_hour + 1e-6
        assert (solution.status == "feasible") == (solution.gap is not None and solution.gap > 0.01 + 1e-6)
