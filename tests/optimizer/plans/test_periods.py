"""A day's traffic: what is kept, what is bought by the hour, what starts cost, and why."""

from dataclasses import replace
from decimal import Decimal

import pytest

from optimizer.plans.document import plan_document
from optimizer.plans.market import Terms
from optimizer.plans.plan import Plan
from optimizer.plans.planner import Request, plan
from optimizer.program.problem import Limits
from providers.offers import Offer, PurchaseOption
from tests.builders import make_offer, make_request

DAY = (1.0,) * 12 + (3.0,) * 6 + (1.0,) * 6


def by_the_hour(*offers: Offer, rate: float, profile: tuple[float, ...] = DAY, **over: object) -> Request:
    """A request whose rate follows a profile; `rate` is that of factor 1."""
    mean = sum(profile) / len(profile)
    request = make_request(*offers, rate=rate * mean, alternatives=False, **over)
    ((workload, model),) = request.workloads
    return replace(request, workloads=((replace(workload, profile=tuple(f / mean for f in profile)), model),))


def one_l4_serves() -> float:
    """Requests/s that one L4 may be loaded with."""
    answer = plan(make_request(make_offer(gpu="L4"), rate=0.1))
    assert answer.fleet is not None
    group = answer.fleet.replicas[0]
    return (group.kind.requests_per_s(0) or 0.0) * group.workload.utilization


def counts(answer: Plan) -> dict[str, tuple[int, tuple[int, ...]]]:
    assert answer.fleet is not None
    return {item.offer.purchase_option.value: (item.kept, item.bought) for item in answer.fleet.instances}


def test_a_base_is_reserved_and_the_peak_bought_by_the_hour() -> None:
    reserved = make_offer(gpu="L4", usd="0.6", purchase_option=PurchaseOption.RESERVED_1Y)
    hourly = make_offer(gpu="L4", usd="1")
    answer = plan(by_the_hour(reserved, hourly, rate=one_l4_serves() * 0.99))
    assert counts(answer) == {
        "reserved_1y": (1, (0,) * 24),
        "on_demand": (0, (0,) * 12 + (2,) * 6 + (0,) * 6),
    }
    assert answer.fleet is not None
    assert answer.fleet.usd_per_hour == Decimal("0.6") + 2 * Decimal(6) / 24
    reasons = {reason.kind: reason for reason in answer.reasons}
    assert reasons["term"].break_even_share == pytest.approx(0.6)
    assert reasons["by_the_hour"].used_share == pytest.approx(0.25)
    assert "runs 25% of the time" in reasons["by_the_hour"].text
    assert "would pay from 60% use on" in reasons["by_the_hour"].text


def test_a_long_peak_is_reserved_too() -> None:
    reserved = make_offer(gpu="L4", usd="0.6", purchase_option=PurchaseOption.RESERVED_1Y)
    hourly = make_offer(gpu="L4", usd="1")
    profile = (3.0,) * 16 + (1.0,) * 8
    answer = plan(by_the_hour(reserved, hourly, rate=one_l4_serves() * 0.99, profile=profile))
    assert counts(answer) == {"reserved_1y": (3, (0,) * 24)}


def test_each_start_is_paid_before_it_serves() -> None:
    hourly = make_offer(gpu="L4", usd="1")
    request = by_the_hour(hourly, rate=one_l4_serves() * 0.99, terms=Terms(boot_hours=0.5))
    answer = plan(request)
    assert answer.fleet is not None
    assert counts(answer)["on_demand"][0] == 1
    assert float(answer.fleet.usd_per_hour) == pytest.approx(1 + (2 * 6 + 2 * 0.5) / 24)
    assert answer.proof.bound == pytest.approx(float(answer.fleet.usd_per_month), rel=1e-6)


def test_a_start_that_costs_more_than_idling_is_not_made() -> None:
    hourly = make_offer(gpu="L4", usd="1")
    profile = ((2.0,) * 2 + (1.0,)) * 8
    busy = plan(by_the_hour(hourly, rate=one_l4_serves() * 0.99, profile=profile, terms=Terms(boot_hours=2.0)))
    assert counts(busy)["on_demand"] == (2, (0,) * 24)


def test_every_hour_is_served_within_the_head_room() -> None:
    offers = (make_offer(gpu="L4", usd="1"), make_offer(gpu="H100", usd="4"))
    answer = plan(by_the_hour(*offers, rate=5))
    assert answer.fleet is not None
    for t, factor in enumerate(DAY):
        assert sum(group.flows[t][0] for group in answer.fleet.replicas) == pytest.approx(5 * factor, rel=1e-6)
    assert all(group.utilization <= 0.8 * (1 + 1e-6) for group in answer.fleet.replicas)


def test_spot_stays_within_its_share_in_every_hour() -> None:
    spot = make_offer(gpu="L4", usd="0.3", purchase_option=PurchaseOption.SPOT)
    firm = make_offer(gpu="L4", usd="1")
    answer = plan(by_the_hour(spot, firm, rate=8, limits=Limits(max_spot_share=0.5), terms=Terms(spot_margin=0.1)))
    assert answer.fleet is not None
    for t in range(24):
        running = {i.offer.purchase_option: i.kept + i.bought[t] for i in answer.fleet.instances}
        assert running[PurchaseOption.SPOT] <= running[PurchaseOption.ON_DEMAND]


def test_the_document_has_counts_and_rates_by_period() -> None:
    answer = plan(by_the_hour(make_offer(gpu="L4", usd="1"), rate=one_l4_serves() * 0.99))
    document = plan_document(answer)
    (line,) = document["instances"]
    assert line["counts_by_period"] == [1] * 12 + [3] * 6 + [1] * 6
    assert line["count"] == 3
    assert Decimal(line["total_usd_per_hour"]) == Decimal("1.5")
    assert document["replicas"][0]["counts_by_period"] == line["counts_by_period"]
    (route,) = document["routing"]
    assert route["share"] == 1
    assert len(route["requests_per_s_by_period"]) == 24
    assert Decimal(document["totals"]["usd_per_month"]) == Decimal(1095)


def test_a_quiet_hour_keeps_the_minimum_of_replicas() -> None:
    profile = (0.0,) * 12 + (1.0,) * 12
    answer = plan(by_the_hour(make_offer(gpu="L4", usd="1"), rate=one_l4_serves() * 0.99, profile=profile))
    assert counts(answer)["on_demand"] == (1, (0,) * 24)


def test_what_is_started_stays_up_as_long_as_is_asked() -> None:
    """Two are started for one hour; then two must stay, of which the one that ran before may be ended instead."""
    hourly = make_offer(gpu="L4", usd="1")
    profile = (1.0,) * 12 + (3.0,) + (1.0,) * 11
    request = by_the_hour(hourly, rate=one_l4_serves() * 0.99, profile=profile)
    assert counts(plan(request))["on_demand"] == (1, (0,) * 12 + (2,) + (0,) * 11)
    kept, bought = counts(plan(replace(request, limits=Limits(minimum_hours_up=3.0))))["on_demand"]
    assert (kept, sum(bought), bought[12]) == (1, 4, 2)
