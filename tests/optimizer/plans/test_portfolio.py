"""Many workloads: shared instances, one budget, priorities, and remedies when the limits are too tight."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from optimizer.plans.document import plan_document
from optimizer.plans.plan import Plan
from optimizer.plans.planner import Request, plan
from optimizer.program.problem import Limits, Quota
from optimizer.workload.architecture import resolve_model
from optimizer.workload.workload import RequestShape, ShapeDemand
from providers.offers import Offer, PurchaseOption
from tests.builders import make_offer, make_request, make_workload


def portfolio(*offers: Offer, workloads: Sequence[dict[str, Any]], **over: Any) -> Request:
    made = [make_workload(**{"name": f"w{i}", **fields}) for i, fields in enumerate(workloads)]
    request = make_request(*offers, **over)
    return replace(request, workloads=[(one, resolve_model(one.model)) for one in made])


def served(answer: Plan) -> dict[str, bool]:
    return {planned.workload.name: planned.served for planned in answer.workloads}


def flags(answer: Plan) -> list[str]:
    return [suggestion.flag for suggestion in answer.suggestions]


def test_replicas_of_several_workloads_share_an_instance() -> None:
    large = make_offer(gpu="H100", count=8, usd="16")
    workloads = [{"model": "70B", "rate": 1, "precisions": ("bf16",)}, {"rate": 1}, {"rate": 1}]
    answer = plan(portfolio(large, workloads=workloads))
    assert answer.fleet is not None
    assert [item.count for item in answer.fleet.instances] == [1]
    used = sum(group.count * group.kind.accelerators_per_replica for group in answer.fleet.replicas)
    assert used <= 8
    assert {group.workload.name for group in answer.fleet.replicas} == {"w0", "w1", "w2"}


def test_a_portfolio_costs_no_more_than_its_workloads_alone() -> None:
    offers = (make_offer(gpu="H100", count=2, usd="4"), make_offer(gpu="L4", usd="0.8"))
    workloads = [{"rate": 3}, {"rate": 0.4, "model": "1.5B"}]
    both = plan(portfolio(*offers, workloads=workloads))
    alone = [plan(portfolio(*offers, workloads=[one])) for one in workloads]
    assert both.fleet is not None
    assert both.fleet.usd_per_hour <= sum(p.fleet.usd_per_hour for p in alone if p.fleet)


def test_a_mixed_fleet_wins_where_short_and_long_requests_come_together() -> None:
    shapes = [
        (RequestShape(input_tokens=128, output_tokens=64), 18.0),
        (RequestShape(input_tokens=8000, output_tokens=500), 1.2),
    ]
    demands = tuple(ShapeDemand(shape=shape, requests_per_s=rate, share=rate / 19.2) for shape, rate in shapes)
    offers = [make_offer(gpu="L4", usd="0.5", name="l"), make_offer(gpu="H100", usd="3.1", name="h")]
    mixed = plan(portfolio(*offers, workloads=[{"demands": demands}]))
    single = [plan(portfolio(one, workloads=[{"demands": demands}])) for one in offers]
    assert mixed.fleet is not None
    assert all(p.fleet is None or mixed.fleet.usd_per_hour <= p.fleet.usd_per_hour for p in single)
    routed = {
        str(group.workload.demands[b].shape): 0.0
        for group in mixed.fleet.replicas
        for b in range(len(group.mean_flows))
    }
    for group in mixed.fleet.replicas:
        for b, flow in enumerate(group.mean_flows):
            routed[str(group.workload.demands[b].shape)] += flow
    assert routed == pytest.approx({"128+64": 18.0, "8000+500": 1.2})


def test_the_first_priorities_are_served_where_the_budget_ends() -> None:
    offer = make_offer(gpu="L4", usd="1")
    workloads = [{"rate": 0.2, "priority": 2}, {"rate": 0.2, "priority": 1}, {"rate": 0.2, "priority": 3}]
    limits = Limits(spare_replicas=0)
    free = plan(portfolio(offer, workloads=workloads, limits=limits))
    assert free.fleet is not None
    assert free.fleet.usd_per_month == 3 * 730
    answer = plan(portfolio(offer, workloads=workloads, budget=2 * 730))
    assert served(answer) == {"w0": True, "w1": True, "w2": False}
    assert answer.fleet is not None
    assert answer.fleet.usd_per_month <= 2 * 730
    one = plan(portfolio(offer, workloads=workloads, budget=730))
    assert served(one) == {"w0": False, "w1": True, "w2": False}


def test_a_fleet_that_leaves_workloads_out_is_not_compared_with_one_that_serves_others() -> None:
    here, there = make_offer(gpu="L4", usd="1"), make_offer(gpu="L4", usd="3", provider="gcp")
    workloads = [{"rate": 0.2, "priority": 1}, {"rate": 0.2, "priority": 2}, {"rate": 0.2, "priority": 3}]
    answer = plan(portfolio(here, there, workloads=workloads, budget=3 * 730, every_alternative=True))
    assert served(answer) == {"w0": True, "w1": True, "w2": True}
    assert answer.title == "3 workloads"
    (other,) = (a for a in answer.alternatives if a.kind == "provider" and a.name == "gcp")
    assert other.note == "does not serve w1, w2"
    (row,) = (a for a in plan_document(answer)["alternatives"] if a["name"] == "gcp")
    assert (row["usd_per_month"], row["difference_usd_per_month"]) == ("2190.00", None)


def test_what_the_budget_leaves_out_is_in_the_title_and_the_warnings() -> None:
    workloads = [{"rate": 0.2, "priority": 2}, {"rate": 0.2, "priority": 1}]
    answer = plan(portfolio(make_offer(gpu="L4", usd="1"), workloads=workloads, budget=730))
    assert answer.title == "1 of 2 workloads"
    assert answer.unserved == ("w0",)
    assert "not served within the budget: w0" in answer.warnings


def test_a_rate_for_some_and_none_for_others_is_refused() -> None:
    from providers.errors import UsageError

    with pytest.raises(UsageError, match="workloads w1 have no rate while w0 have one"):
        plan(portfolio(make_offer(), workloads=[{"rate": 1}, {}]))


def test_too_few_accelerators_are_answered_with_how_many_it_takes() -> None:
    offer = make_offer(gpu="L4", usd="1")
    answer = plan(make_request(offer, rate=20, limits=Limits(max_accelerators=2)))
    assert answer.status == "infeasible"
    (shortfall,) = answer.shortfalls
    assert "--max-gpus" in shortfall.limit
    (flag,) = flags(answer)
    assert flag == f"--max-gpus {shortfall.needed:g}"
    followed = plan(make_request(offer, rate=20, limits=Limits(max_accelerators=int(shortfall.needed))))
    assert followed.fleet is not None
    assert answer.suggestions[0].usd_per_month == followed.fleet.usd_per_month
    short = plan(make_request(offer, rate=20, limits=Limits(max_accelerators=int(shortfall.needed) - 1)))
    assert short.fleet is None


def test_a_quota_that_is_short_is_named_with_what_it_needs_and_its_cost() -> None:
    quota = Quota(id="quota of us-east-1 L4", maximum=1, region="us-east-1", accelerator="L4")
    answer = plan(make_request(make_offer(gpu="L4", usd="1"), rate=10, limits=Limits(quotas=(quota,))))
    (suggestion,) = answer.suggestions
    needed = int(answer.shortfalls[0].needed)
    assert suggestion.flag == f"quota of us-east-1 L4: {needed} accelerators"
    assert suggestion.usd_per_month == needed * 730


def test_limits_that_must_give_way_together_are_suggested_together() -> None:
    quota = Quota(id="quota of L4", maximum=1, accelerator="L4")
    limits = Limits(max_accelerators=1, quotas=(quota,))
    answer = plan(make_request(make_offer(gpu="L4", usd="1"), rate=10, limits=limits))
    (suggestion,) = answer.suggestions
    assert "--max-gpus" in suggestion.flag
    assert "quota of L4" in suggestion.flag
    assert " and " in suggestion.flag
    assert suggestion.usd_per_month > 730


@pytest.mark.parametrize(
    ("limits", "flag"),
    [(Limits(min_providers=2), "--min-providers 1"), (Limits(max_provider_share=0.5), "--max-provider-share 1")],
)
def test_a_rule_on_providers_that_cannot_be_met_is_named(limits: Limits, flag: str) -> None:
    answer = plan(make_request(make_offer(), rate=1, limits=limits))
    assert answer.status == "infeasible"
    assert flag in flags(answer)


def test_a_region_list_without_offers_is_named_in_the_files_words() -> None:
    workloads = [{"rate": 1, "regions": frozenset({"eu-west-1"})}]
    answer = plan(portfolio(make_offer(usd="2", region="us-east-1"), workloads=workloads))
    assert [s.limit for s in answer.shortfalls] == ["allowed regions of w0"]
    assert [(s.flag, s.usd_per_month) for s in answer.suggestions] == [("workload w0: any region", Decimal(1460))]


def test_no_spot_where_only_spot_is_sold_is_named() -> None:
    spot = make_offer(usd="1", purchase_option=PurchaseOption.SPOT)
    answer = plan(portfolio(spot, workloads=[{"rate": 1, "spot_allowed": False}]))
    assert flags(answer) == ["workload w0: spot: true"]


def test_a_binding_quota_says_what_one_more_would_save() -> None:
    quota = Quota(id="quota of L4", maximum=1, accelerator="L4")
    offers = (make_offer(gpu="L4", usd="0.5"), make_offer(gpu="A10G", usd="2"))
    bound = plan(make_request(*offers, rate=5, limits=Limits(quotas=(quota,))))
    (limit,) = bound.binding_limits
    assert (limit.limit, limit.change, limit.unit) == ("quota of L4", 1, "accelerators")
    wider = plan(make_request(*offers, rate=5, limits=Limits(quotas=(replace(quota, maximum=2),))))
    assert bound.fleet is not None
    assert wider.fleet is not None
    saved = bound.fleet.usd_per_month - wider.fleet.usd_per_month
    assert float(limit.saving_usd_per_month) == pytest.approx(float(saved))
    assert saved > 0
