"""An impossible problem names the limits that are too tight, by how much, and what relaxing them costs."""

import pytest

from optimizer.program.diagnose import diagnose
from optimizer.program.problem import Limits, Problem, Quota
from tests.optimizer.program.builders import make_candidate, make_offer, make_problem, make_workload


def three_replicas(**over: object) -> Problem:
    """Three requests/s, so three units of 1 USD/h, in regions r and s of providers p and q."""
    offers = over.pop("offers", [make_offer("near"), make_offer("far", region="s", provider="q", usd_per_hour=2.0)])
    workload = make_workload(rates=(3.0,), **over.pop("workload", {}))  # type: ignore[arg-type]
    return make_problem(offers, [make_candidate()], [workload], **over)  # type: ignore[arg-type]


def test_a_feasible_problem_has_no_shortfalls() -> None:
    assert diagnose(three_replicas()) == ()


def test_the_limit_on_accelerators_is_short_by_one() -> None:
    (shortfall,) = diagnose(three_replicas(limits=Limits(max_accelerators=2)))
    assert (shortfall.limit, shortfall.needed, shortfall.available) == ("max_accelerators", 3, 2)
    assert shortfall.unit == "accelerators"
    assert shortfall.usd_per_hour == pytest.approx(3.0)


def test_each_quota_that_would_do_alone_is_named_with_its_cost_cheapest_first() -> None:
    quotas = (Quota(id="p", maximum=1, provider="p"), Quota(id="q", maximum=1, provider="q"))
    found = diagnose(three_replicas(limits=Limits(quotas=quotas)))
    assert [(one.limit, one.needed, one.available) for one in found] == [("p", 2, 1), ("q", 2, 1)]
    assert [one.usd_per_hour for one in found] == [pytest.approx(3.0), pytest.approx(5.0)]


def test_known_stock_is_a_limit_in_accelerators() -> None:
    offers = [make_offer(accelerators_per_unit=2, maximum=1)]
    (shortfall,) = diagnose(three_replicas(offers=offers))
    assert (shortfall.limit, shortfall.needed, shortfall.available) == ("stock of H100", 4, 2)


def test_a_spot_share_is_reported_to_the_percent() -> None:
    offers = [make_offer("firm", maximum=1), make_offer("spot", purchase_option="spot", usd_per_hour=0.4)]
    found = {one.limit: one for one in diagnose(three_replicas(offers=offers, limits=Limits(max_spot_share=0.5)))}
    assert found["max_spot_share"].needed == pytest.approx(0.67)
    assert found["max_spot_share"].available == 0.5


def test_providers_asked_for_that_do_not_exist() -> None:
    found = diagnose(three_replicas(limits=Limits(min_providers=3)))
    assert [(one.limit, one.needed, one.available) for one in found] == [("min_providers", 2, 3)]


def test_a_region_without_offers_names_the_rule() -> None:
    found = diagnose(three_replicas(workload={"regions": frozenset({"nowhere"})}))
    assert [one.limit for one in found] == ["allowed regions of w"]


def test_two_limits_that_must_give_way_together_are_both_named() -> None:
    limits = Limits(max_accelerators=2, quotas=(Quota(id="all", maximum=2, accelerator="H100"),))
    found = diagnose(three_replicas(limits=limits))
    assert {(one.limit, one.needed) for one in found} == {("max_accelerators", 3), ("all", 3)}


def test_the_budget_is_short_by_the_price_of_the_cheapest_plan() -> None:
    (shortfall,) = diagnose(three_replicas(limits=Limits(budget_usd_per_month=2000)))
    assert (shortfall.limit, shortfall.unit) == ("budget", "USD/month")
    assert shortfall.needed == pytest.approx(3 * 730)


def test_a_shape_that_nobody_serves_comes_first() -> None:
    problem = make_problem([make_offer()], [make_candidate(requests_per_s={})], [make_workload()])
    (shortfall,) = diagnose(problem)
    assert shortfall.limit == "no candidate serves w/b"
