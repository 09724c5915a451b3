"""A budget too small for all workloads serves those that come first."""

from optimizer.program.priority import solve_by_priority
from optimizer.program.problem import Limits, Problem
from tests.optimizer.program.builders import make_candidate, make_offer, make_problem, make_workload


def three_workloads(usd_per_hour: float) -> Problem:
    rates = {"chat": (2.0, 1), "batch": (3.0, 2), "lab": (1.0, 3)}
    workloads = [make_workload(name, rates=(rate,), priority=rank) for name, (rate, rank) in rates.items()]
    candidates = [make_candidate(f"c-{name}", workload=name) for name in rates]
    limits = Limits(budget_usd_per_month=730 * usd_per_hour)
    return make_problem([make_offer()], candidates, workloads, limits=limits)


def test_a_budget_for_all_serves_all() -> None:
    solution = solve_by_priority(three_workloads(6.0))
    assert solution.status == "optimal"
    assert solution.unserved == ()
    assert solution.kept == {"a": 6}


def test_what_does_not_fit_is_left_out_and_a_smaller_one_below_still_served() -> None:
    solution = solve_by_priority(three_workloads(4.0))
    assert solution.unserved == ("batch",)
    assert solution.kept == {"a": 3}
    assert {candidate for candidate, _ in solution.replicas} == {"c-chat", "c-lab"}


def test_a_budget_for_none_is_infeasible() -> None:
    assert solve_by_priority(three_workloads(0.5)).status == "infeasible"
