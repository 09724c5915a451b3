"""What must hold of optima whatever the problem."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.program.problem import Problem, Solution
from optimizer.program.solve import solve
from tests.optimizer.program.builders import make_offer, random_problem

seeds = st.integers(10_000, 1_000_000)
a_few = settings(max_examples=40, deadline=None, derandomize=True)


def cost(solution: Solution) -> float:
    return float("inf") if solution.usd_per_hour is None else solution.usd_per_hour


def with_demand_times(problem: Problem, factor: float) -> Problem:
    workloads = [
        replace(one, demand=tuple(tuple(rate * factor for rate in row) for row in one.demand))
        for one in problem.workloads
    ]
    return replace(problem, workloads=workloads)


@a_few
@given(seeds, st.floats(1.0, 3.0))
def test_more_demand_never_costs_less(seed: int, factor: float) -> None:
    problem = random_problem(seed)
    assert cost(solve(with_demand_times(problem, factor))) >= cost(solve(problem)) - 1e-6


@a_few
@given(seeds, st.floats(0.1, 2.0))
def test_another_offer_never_costs_more(seed: int, price: float) -> None:
    problem = random_problem(seed)
    size = problem.offers[0].accelerators_per_unit
    more = make_offer("new", hardware=problem.offers[0].hardware, accelerators_per_unit=size, usd_per_hour=price)
    assert cost(solve(replace(problem, offers=[*problem.offers, more]))) <= cost(solve(problem)) + 1e-6


@a_few
@given(seeds, st.floats(0.01, 100.0))
def test_scaling_prices_scales_the_cost(seed: int, factor: float) -> None:
    problem = random_problem(seed)
    scaled = [replace(offer, usd_per_hour=offer.usd_per_hour * factor) for offer in problem.offers]
    expected, found = solve(problem), solve(replace(problem, offers=scaled))
    assert found.status == expected.status
    assert (found.usd_per_hour or 0) == pytest.approx((expected.usd_per_hour or 0) * factor, rel=1e-6)


@a_few
@given(seeds, st.floats(500, 5000), st.floats(1.0, 2.0))
def test_more_budget_never_buys_less(seed: int, budget: float, factor: float) -> None:
    problem = random_problem(seed)
    if not any(rate for workload in problem.workloads for row in workload.demand for rate in row):
        return
    scales = []
    for money in (budget, budget * factor):
        limits = replace(problem.limits, budget_usd_per_month=money)
        scales.append(solve(replace(problem, limits=limits, objective="max_throughput")).scale or 0.0)
    assert scales[1] >= scales[0] * (1 - 1e-5)


@a_few
@given(seeds)
def test_the_order_of_offers_and_candidates_does_not_matter(seed: int) -> None:
    problem = random_problem(seed)
    turned = replace(problem, offers=problem.offers[::-1], candidates=problem.candidates[::-1])
    assert solve(turned) == solve(problem)


@a_few
@given(seeds)
def test_a_bound_is_never_above_the_cost(seed: int) -> None:
    solution = solve(random_problem(seed))
    if solution.usd_per_hour is not None:
        assert solution.bound is not None
        assert solution.bound <= solution.usd_per_hour * (1 + 1e-6) + 1e-9
