"""Sweeps: which values a range means, and one plan for each."""

from dataclasses import replace

import pytest

from optimizer.plans.sweep import MAX_POINTS, PARAMETERS, parse_sweep, sweep_plans
from providers.errors import InvalidValue, UnknownName
from providers.offers import PurchaseOption
from tests.builders import make_offer, make_request


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rate=1:100:log3", (1, 10, 100)),
        ("budget=1000:9000:lin5", (1000, 3000, 5000, 7000, 9000)),
        ("context=4096,8192", (4096, 8192)),
        ("spot-share=0,0.5,1", (0, 0.5, 1)),
        (" rate = 5 ", (5,)),
    ],
)
def test_a_range_is_spread_or_listed(text: str, values: tuple[float, ...]) -> None:
    assert parse_sweep(text).values == pytest.approx(values)


@pytest.mark.parametrize(
    "text",
    [
        "rate=0:5:log3",
        "rate=-1,5",
        "rate=1:2:log1",
        f"rate=1:2:lin{MAX_POINTS + 1}",
        "rate=nan",
        "rate=inf",
        "rate=",
        "rate",
        "rate=a:b:lin3",
        "rate=1:100:cubic3",
        "context=0",
        "context=1.5",
        "spot-share=1.1",
        "budget=0",
        "rate=" + ",".join(["1"] * (MAX_POINTS + 1)),
    ],
)
def test_what_is_no_range_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"--sweep"):
        parse_sweep(text)


def test_an_unknown_parameter_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(UnknownName, match=f"known: {', '.join(PARAMETERS)}"):
        parse_sweep("rates=1,2")


def test_each_rate_is_planned_and_costs_rise() -> None:
    request = make_request(make_offer(gpu="L4"), rate=1)
    plans = list(sweep_plans(request, parse_sweep("rate=1:64:log4")))
    assert [value for value, _ in plans] == [1, 4, 16, 64]
    costs = [answer.fleet.usd_per_hour for _, answer in plans if answer.fleet]
    assert costs == sorted(costs)
    assert [answer.fleet.requests_per_s for _, answer in plans if answer.fleet] == pytest.approx([1, 4, 16, 64])
    assert all(answer.alternatives == () for _, answer in plans)


def test_a_rate_is_shared_out_as_the_workloads_have_it() -> None:
    one = make_request(make_offer(gpu="L4"), rate=1).workloads[0]
    two = (replace(one[0], name="other", demands=make_request(rate=3).workloads[0][0].demands), one[1])
    request = replace(make_request(make_offer(gpu="L4")), workloads=[one, two])
    ((_, answer),) = sweep_plans(request, parse_sweep("rate=8"))
    assert [planned.workload.requests_per_s for planned in answer.workloads] == pytest.approx([2, 6])


def test_budgets_buy_more_and_more() -> None:
    request = make_request(make_offer(gpu="L4"), budget=1)
    plans = list(sweep_plans(request, parse_sweep("budget=1000,1500,6000,9000")))
    served = [answer.fleet.requests_per_s if answer.fleet else 0.0 for _, answer in plans]
    assert served == sorted(served)
    assert served[0] == 0
    assert plans[0][1].status == "infeasible"


def test_a_context_that_does_not_fit_is_a_point_without_a_fleet() -> None:
    request = make_request(make_offer(gpu="L4"), rate=1)
    fleets = [answer.fleet is not None for _, answer in sweep_plans(request, parse_sweep("context=4096,120000"))]
    assert fleets == [True, False]


def test_less_spot_never_costs_less() -> None:
    offers = (make_offer(gpu="L4", usd="1"), make_offer(gpu="L4", usd="0.3", purchase_option=PurchaseOption.SPOT))
    plans = sweep_plans(make_request(*offers, rate=12), parse_sweep("spot-share=0,0.25,0.5,1"))
    costs = [answer.fleet.usd_per_hour for _, answer in plans if answer.fleet]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]
