"""What one more of a limit would save, the runner-up fleets, and the break-even of a commitment."""

import pytest

from optimizer.program.problem import Limits, Problem, Quota
from optimizer.program.reasons import break_even_share, marginal_values, runner_ups
from optimizer.program.solve import solve
from tests.optimizer.program.builders import make_candidate, make_offer, make_problem, make_workload


def near_and_far(limits: Limits | None = None) -> Problem:
    """Units of 1 USD/h near and 3 USD/h far, for three requests/s."""
    offers = [make_offer("near"), make_offer("far", region="s", provider="q", accelerator="A100", usd_per_hour=3.0)]
    return make_problem(offers, [make_candidate()], [make_workload(rates=(3.0,))], limits=limits or Limits())


def test_one_more_of_a_binding_quota_saves_the_difference_in_price() -> None:
    problem = near_and_far(Limits(quotas=(Quota(id="H100 in r", maximum=2, region="r"),)))
    (marginal,) = marginal_values(problem, solve(problem))
    assert (marginal.limit, marginal.change, marginal.unit) == ("H100 in r", 1, "accelerators")
    assert marginal.usd_per_month == pytest.approx(2 * 730)


def test_a_quota_with_room_saves_nothing() -> None:
    problem = near_and_far(Limits(quotas=(Quota(id="H100 in r", maximum=9, region="r"),)))
    assert marginal_values(problem, solve(problem)) == ()


def test_one_provider_less_is_cheaper() -> None:
    problem = near_and_far(Limits(min_providers=2))
    (marginal,) = marginal_values(problem, solve(problem))
    assert (marginal.limit, marginal.change) == ("min_providers", -1)
    assert marginal.usd_per_month == pytest.approx(2 * 730)


def test_more_budget_buys_more_throughput() -> None:
    limits = Limits(budget_usd_per_month=730 * 9.5)
    offers = [make_offer("near")]
    problem = make_problem(offers, [make_candidate()], [make_workload()], limits=limits, objective="max_throughput")
    (marginal,) = marginal_values(problem, solve(problem))
    assert marginal.limit == "budget"
    assert marginal.scale == pytest.approx(1.0, rel=1e-5)


def test_the_runner_up_is_the_best_plan_without_what_was_chosen() -> None:
    problem = near_and_far()
    (runner_up,) = runner_ups(problem, solve(problem))
    assert runner_up.without == "H100"
    assert runner_up.solution.kept == {"far": 3}
    assert runner_up.usd_per_hour == pytest.approx(6.0)


def test_a_commitment_pays_above_one_less_its_discount() -> None:
    problem = make_problem(
        [make_offer("o"), make_offer("r", purchase_option="reserved_1y", usd_per_hour=0.6)],
        [make_candidate()],
        [make_workload()],
    )
    assert break_even_share(problem, problem.offers[1], problem.offers[0]) == pytest.approx(0.6)
