"""A budget between the best plan and the one that a loose gap stops at is met, not called too small."""

from dataclasses import replace

from optimizer.program.problem import Problem, SolverOptions
from optimizer.program.solve import solve
from providers.units import HOURS_PER_MONTH
from tests.optimizer.program.builders import random_problem

LOOSE = SolverOptions(gap=0.9)
SEEDS = (1, 22, 25, 47, 68, 70)


def with_budget(problem: Problem, usd_per_month: float | None) -> Problem:
    limits = replace(problem.limits, budget_usd_per_month=usd_per_month)
    return replace(problem, objective="min_cost", limits=limits)


def test_a_plan_within_the_budget_is_found_where_a_loose_gap_stops_above_it() -> None:
    stopped_above = 0
    for seed in SEEDS:
        problem = with_budget(random_problem(seed), None)
        best, rough = solve(problem).usd_per_hour, solve(problem, LOOSE).usd_per_hour
        assert best is not None
        assert rough is not None
        stopped_above += rough > best * 1.001
        budget = (best + rough) / 2 * HOURS_PER_MONTH
        found = solve(with_budget(problem, budget), LOOSE)
        assert found.status != "infeasible"
        assert found.usd_per_hour is not None
        assert found.usd_per_hour * HOURS_PER_MONTH <= budget * (1 + 1e-9)
        too_small = solve(with_budget(problem, best * HOURS_PER_MONTH * 0.99), LOOSE)
        assert too_small.status == "infeasible"
    assert stopped_above > 0
