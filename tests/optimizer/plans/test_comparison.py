"""The exact search for simple questions answers as the integer program does."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.plans.comparison import Undecided, compare, is_simple
from optimizer.plans.desk import desk_of
from optimizer.plans.market import Holding, Terms
from optimizer.program.problem import Limits
from providers.offers import Offer, PurchaseOption
from tests.builders import make_offer, make_request

MACHINES = [("H100", 1), ("H100", 8), ("L4", 1), ("L4", 4), ("A100-80GB", 2), ("A10G", 1), ("MI300X", 1)]
OPTIONS = [PurchaseOption.ON_DEMAND, PurchaseOption.SPOT, PurchaseOption.RESERVED_1Y]
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def offers(draw: Any) -> list[Offer]:
    found = []
    for index in range(draw(st.integers(1, 6))):
        gpu, count = draw(st.sampled_from(MACHINES))
        usd = draw(st.integers(10, 900)) * count
        found.append(
            make_offer(
                gpu=gpu,
                count=count,
                name=f"{gpu}x{count}-{index}",
                provider=draw(st.sampled_from(["aws", "gcp", "lambda"])),
                purchase_option=draw(st.sampled_from(OPTIONS)),
                usd=str(Decimal(usd) / 100),
            )
        )
    return found


@QUICK
@given(market=offers(), rate=st.floats(0.05, 200), margin=st.sampled_from([0.0, 0.1]))
def test_a_rate_is_answered_at_the_price_of_the_program(market: list[Offer], rate: float, margin: float) -> None:
    desk = desk_of(make_request(*market, rate=rate, terms=Terms(spot_margin=margin)))
    found = compare(desk.market, market, "min_cost", Limits())
    chosen = desk.choose(market).fleet
    assert (found is None) == (chosen is None)
    if found is not None and chosen is not None:
        assert float(found.usd_per_hour) == pytest.approx(float(chosen.usd_per_hour), rel=1e-6)
        assert found.requests_per_s == pytest.approx(rate)


@QUICK
@given(market=offers(), budget=st.integers(100, 60_000))
def test_a_budget_buys_as_much_as_in_the_program(market: list[Offer], budget: int) -> None:
    desk = desk_of(make_request(*market, budget=budget))
    found = compare(desk.market, market, "max_throughput", desk.limits)
    chosen = desk.choose(market).fleet
    served = 0.0 if found is None else found.requests_per_s
    assert served == pytest.approx(0.0 if chosen is None else chosen.requests_per_s, rel=1e-4, abs=1e-9)
    assert found is None or found.usd_per_month <= budget


@pytest.mark.parametrize(
    ("over", "limits"),
    [
        ({}, Limits(max_accelerators=4)),
        ({}, Limits(max_spot_share=0.5)),
        ({}, Limits(spare_replicas=1)),
        ({"terms": Terms(horizon_hours=100.0)}, Limits()),
        ({"holdings": (Holding(make_offer(), 1),)}, Limits()),
    ],
)
def test_what_goes_beyond_a_knapsack_is_left_to_the_program(over: dict[str, Any], limits: Limits) -> None:
    desk = desk_of(make_request(make_offer(), rate=1, **over))
    assert not is_simple(desk.market, limits)
    with pytest.raises(Undecided):
        compare(desk.market, [make_offer()], "min_cost", limits)


@pytest.mark.parametrize(
    "rule", [{"minimum_replicas": 2}, {"same_region": True}, {"spot_allowed": False}, {"regions": frozenset({"x"})}]
)
def test_a_workload_with_rules_is_left_to_the_program(rule: dict[str, Any]) -> None:
    request = make_request(make_offer(), rate=1)
    ((workload, model),) = request.workloads
    desk = desk_of(replace(request, workloads=((replace(workload, **rule), model),)))
    assert not is_simple(desk.market, Limits())
