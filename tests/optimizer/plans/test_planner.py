"""The planner on hand-made offers: what is chosen, beside what, and what would make the impossible possible."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from optimizer.plans import market
from optimizer.plans.plan import Alternative, Plan
from optimizer.plans.planner import Pool, plan
from optimizer.program.problem import Limits, Problem, Solution, SolverOptions
from optimizer.program.solve import solve
from optimizer.workload.workload import SLO, RequestShape
from providers.errors import NoUsablePrices, UsageError
from providers.offers import Offer, PurchaseOption
from tests.builders import TODAY, make_offer, make_request

HOURS = 730


def bought(answer: Plan) -> dict[str, int]:
    """Counts by provider and machine."""
    assert answer.fleet is not None
    return {f"{i.offer.provider} {i.offer.instance_type.name}": i.count for i in answer.fleet.instances}


def alternative(answer: Plan, kind: str, name: str) -> Alternative:
    return next(a for a in answer.alternatives if (a.kind, a.name) == (kind, name))


def spot_pool(*offers: Offer) -> Pool:
    return Pool(kind="purchase_option", name="spot", flag="--purchase spot", offers=offers, note="can be taken away")


def test_of_two_sellers_of_one_machine_the_cheaper_is_taken() -> None:
    dear, cheap = make_offer(usd="3", name="dear"), make_offer(usd="2", provider="lambda", name="cheap")
    answer = plan(make_request(dear, cheap, rate=1))
    assert bought(answer) == {"lambda cheap": 1}
    assert answer.status == "optimal"
    assert answer.fleet is not None
    assert answer.fleet.usd_per_month == 2 * HOURS


@pytest.mark.parametrize("turned", [False, True])
def test_a_tie_in_price_goes_by_provider_region_and_name(turned: bool) -> None:
    offers = [
        make_offer(provider="runpod", name="a"),
        make_offer(provider="aws", region="us-west-2", name="a"),
        make_offer(provider="aws", region="us-east-1", name="b"),
        make_offer(provider="aws", region="us-east-1", name="a"),
    ]
    answer = plan(make_request(*(reversed(offers) if turned else offers), rate=1))
    assert answer.fleet is not None
    assert [str(item.offer.key) for item in answer.fleet.instances] == ["aws/a/us-east-1/on_demand"]


def test_a_budget_buys_a_mix_of_sellers_where_that_serves_more() -> None:
    large = make_offer(provider="lambda", gpu="H100", usd="2", name="large")
    small = make_offer(provider="runpod", gpu="L4", usd="0.5", name="small")
    answer = plan(make_request(large, small, budget="1900"))
    assert bought(answer) == {"lambda large": 1, "runpod small": 1}
    assert answer.objective == "max_throughput"
    assert answer.fleet is not None
    for name in ("lambda", "runpod"):
        alone = alternative(answer, "provider", name).fleet
        assert alone is not None
        assert {item.offer.provider for item in alone.instances} == {name}
        assert alone.requests_per_s < answer.fleet.requests_per_s
        assert alone.usd_per_month <= 1900


def test_beside_the_most_throughput_stands_the_cheapest_that_runs_at_all() -> None:
    large, small = make_offer(gpu="H100", usd="2", name="large"), make_offer(gpu="L4", usd="0.5", name="small")
    answer = plan(make_request(large, small, budget="20000"))
    assert answer.cheapest is not None
    assert answer.cheapest.usd_per_month == Decimal("0.5") * HOURS
    assert [item.offer.instance_type.name for item in answer.cheapest.instances] == ["small"]


def test_more_requests_take_more_machines_and_each_is_loaded_to_its_head_room() -> None:
    one = plan(make_request(make_offer(gpu="L4"), rate=0.1))
    many = plan(make_request(make_offer(gpu="L4"), rate=50))
    assert one.fleet is not None
    assert many.fleet is not None
    assert many.fleet.accelerators > one.fleet.accelerators == 1
    assert many.fleet.requests_per_s == pytest.approx(50)
    assert all(group.utilization <= 0.8 + 1e-6 for group in many.fleet.replicas)
    held = sum(group.count * (group.kind.requests_per_s(0) or 0) for group in many.fleet.replicas)
    assert held * 0.8 >= 50 * (1 - 1e-6)


def test_without_rate_and_budget_the_cheapest_that_runs_at_all_is_planned() -> None:
    answer = plan(make_request(make_offer(gpu="H100", usd="2", name="h"), make_offer(gpu="L4", usd="0.6", name="l")))
    assert bought(answer) == {"aws l": 1}


def test_a_replica_is_never_split_over_machines() -> None:
    answer = plan(make_request(make_offer(gpu="L4"), rate=1, model="70B"))
    assert answer.status == "infeasible"
    assert answer.fleet is None
    assert any("weights do not fit" in reason for reason in answer.rejections)


def test_the_runner_up_uses_another_accelerator() -> None:
    offers = (make_offer(gpu="H100", usd="2"), make_offer(gpu="L4", usd="1"), make_offer(gpu="A10G", usd="1.1"))
    answer = plan(make_request(*offers, rate=0.5))
    assert bought(answer) == {"aws 1x-L4": 1}
    assert answer.runner_up is not None
    assert answer.runner_up.name == "A10G"


def test_other_purchase_options_are_shown_and_not_taken() -> None:
    spot = make_offer(usd="0.2", purchase_option=PurchaseOption.SPOT)
    answer = plan(make_request(make_offer(usd="2"), rate=1, pools=(spot_pool(spot),)))
    assert bought(answer) == {"aws 1x-H100-SXM5-80GB": 1}
    assert answer.fleet is not None
    assert answer.fleet.usd_per_hour == 2
    shown = alternative(answer, "purchase_option", "spot")
    assert shown.fleet is not None
    assert shown.fleet.usd_per_hour == Decimal("0.2")


def test_lossy_dtypes_are_shown_with_a_note_and_not_taken() -> None:
    answer = plan(make_request(make_offer(gpu="H100"), rate=1))
    assert answer.fleet is not None
    assert all(group.kind.precision in ("bf16", "fp8") for group in answer.fleet.replicas)
    assert "quality" in alternative(answer, "precision", "int4").note
    asked = plan(make_request(make_offer(gpu="H100"), rate=1, precisions=("int4",)))
    assert asked.fleet is not None
    assert {group.kind.precision for group in asked.fleet.replicas} == {"int4"}
    assert not [a for a in asked.alternatives if a.kind == "precision"]


def test_a_short_budget_is_answered_with_what_is_missing_and_flags_that_fit_it() -> None:
    spot = make_offer(usd="0.1", purchase_option=PurchaseOption.SPOT)
    answer = plan(make_request(make_offer(usd="2"), rate=1, budget="100", pools=(spot_pool(spot),)))
    assert answer.status == "infeasible"
    assert answer.fleet is None
    assert [s.limit for s in answer.shortfalls] == ["budget"]
    assert answer.shortfalls[0].needed == pytest.approx(1460)
    assert answer.shortfalls[0].available == pytest.approx(100)
    assert "USD" in answer.shortfalls[0].unit
    assert answer.cheapest is not None
    assert answer.cheapest.usd_per_month == 1460
    assert [(s.flag, s.usd_per_month) for s in answer.suggestions] == [
        ("--purchase spot", Decimal("73.0")),
        ("--budget 1460", Decimal(1460)),
    ]


def test_a_budget_that_runs_nothing_is_short_of_the_cheapest_that_runs_whatever_its_rate() -> None:
    offers = (make_offer(gpu="L4", usd="1"), make_offer(gpu="H100", usd="2"))
    answer = plan(make_request(*offers, budget="100", shape=RequestShape(input_tokens=1000, output_tokens=1000)))
    assert answer.objective == "max_throughput"
    assert answer.cheapest is not None
    assert answer.cheapest.requests_per_s < 1
    (short,) = answer.shortfalls
    assert short.limit == "budget"
    assert short.needed == pytest.approx(730)
    assert [s.flag for s in answer.suggestions] == ["--budget 730"]


@pytest.mark.parametrize(("bound_per_month", "said"), [(90, True), (110, False)])
def test_a_budget_that_was_not_proven_too_small_is_said_not_to_be(
    monkeypatch: pytest.MonkeyPatch, bound_per_month: float, said: bool
) -> None:
    def stopped_early(problem: Problem, options: SolverOptions) -> Solution:
        return replace(solve(problem, options), bound=bound_per_month / 730)

    monkeypatch.setattr(market, "solve", stopped_early)
    answer = plan(make_request(make_offer(usd="2"), rate=1, budget="100"))
    assert answer.status == "infeasible"
    assert any(line.startswith("not proven: a plan from 90.00 USD/month on") for line in answer.warnings) == said


def test_a_flag_that_would_still_exceed_the_budget_is_not_suggested() -> None:
    spot = make_offer(usd="1", purchase_option=PurchaseOption.SPOT)
    answer = plan(make_request(make_offer(usd="2"), rate=1, budget="100", pools=(spot_pool(spot),)))
    assert [s.flag for s in answer.suggestions] == ["--budget 1460"]
    shown = alternative(answer, "purchase_option", "spot")
    assert not shown.within_budget
    assert shown.fleet is not None


def test_the_suggested_budget_is_enough_and_a_dollar_less_is_not() -> None:
    offer = make_offer(usd="1.2345")
    refused = plan(make_request(offer, rate=1, budget="10"))
    suggested = int(refused.suggestions[-1].flag.removeprefix("--budget "))
    assert plan(make_request(offer, rate=1, budget=suggested)).status == "optimal"
    assert plan(make_request(offer, rate=1, budget=suggested - 1)).status == "infeasible"


def test_a_bound_on_latency_that_nothing_meets_is_answered_with_one_that_the_cheapest_meets() -> None:
    offer = make_offer(gpu="L4", usd="0.7")
    refused = plan(make_request(offer, rate=0.1, slo=SLO(ttft_ms=5, tpot_ms=200)))
    assert refused.status == "infeasible"
    assert [s.limit for s in refused.shortfalls] == ["hardware that serves the requests within memory and SLO"]
    assert any("TTFT above the SLO" in reason for reason in refused.rejections)
    (suggestion,) = refused.suggestions
    flag, bound = suggestion.flag.split()
    assert flag == "--ttft-ms"
    followed = plan(make_request(offer, rate=0.1, slo=SLO(ttft_ms=float(bound), tpot_ms=200)))
    assert followed.fleet is not None
    assert followed.fleet.usd_per_month == suggestion.usd_per_month


def test_there_are_at_most_three_suggestions_cheapest_first() -> None:
    pools = tuple(
        Pool(kind="include", name=f"kind{n}", flag=f"--include kind{n}", offers=(make_offer(usd=f"0.0{n}"),))
        for n in (5, 4, 3, 2)
    )
    answer = plan(make_request(make_offer(usd="2"), rate=1, budget="100", pools=pools))
    costs = [s.usd_per_month for s in answer.suggestions]
    assert len(costs) == 3
    assert costs == sorted(costs)
    assert answer.suggestions[0].flag == "--include kind2"


def test_a_limit_on_accelerators_is_named_with_what_it_is_short_of() -> None:
    answer = plan(make_request(make_offer(gpu="L4"), rate=100, limits=Limits(max_accelerators=1)))
    assert answer.status == "infeasible"
    assert answer.shortfalls
    assert all(s.needed > s.available for s in answer.shortfalls)
    assert any("accelerator" in f"{s.limit} {s.unit}" for s in answer.shortfalls)


def test_a_price_without_a_date_is_flagged() -> None:
    answer = plan(make_request(make_offer(observed_on=None), rate=1))
    assert (answer.prices.undated, answer.prices.stale) == (1, 1)
    assert any("the price has no date" in warning for warning in answer.warnings)


@pytest.mark.parametrize(("days", "stale"), [(0, 0), (30, 0), (31, 1)])
def test_a_price_older_than_the_limit_is_flagged(days: int, stale: int) -> None:
    answer = plan(make_request(make_offer(observed_on=TODAY - timedelta(days=days)), rate=1, max_age_days=30))
    assert answer.prices.stale == stale
    assert any(f"the price is {days} days old" in warning for warning in answer.warnings) == bool(stale)


def test_unknown_stock_is_said() -> None:
    unknown = plan(make_request(make_offer(), rate=1))
    known = plan(make_request(make_offer(in_stock=True), rate=1))
    assert any("not a promise of capacity" in warning for warning in unknown.warnings)
    assert not any("not a promise of capacity" in warning for warning in known.warnings)


def test_no_offers_is_an_error_that_counts_the_reasons() -> None:
    with pytest.raises(NoUsablePrices, match=r"no offer passes the filters \(3 × other region\)"):
        plan(make_request(rate=1, rejections={"other region": 3}))


def test_no_offers_is_an_error_that_carries_the_warnings() -> None:
    with pytest.raises(NoUsablePrices, match="gcp: a4 is not sold on demand"):
        plan(make_request(rate=1, warnings=("gcp: a4 is not sold on demand",)))


def test_rates_are_given_for_all_workloads_or_for_none() -> None:
    (with_rate,) = make_request(make_offer(), rate=1).workloads
    request = make_request(make_offer(), budget=5000)
    with pytest.raises(UsageError, match="give all or none"):
        plan(make_request(make_offer(), budget=5000, workloads=(*request.workloads, with_rate)))


def test_the_same_request_gives_the_same_plan_whatever_the_order_of_the_offers() -> None:
    offers = [
        make_offer(gpu=gpu, usd=usd, provider=provider, name=f"{gpu}-{usd}")
        for gpu, usd in (("H100", "2.2"), ("L4", "0.7"), ("A100-80GB", "1.4"))
        for provider in ("aws", "lambda")
    ]
    one, other = plan(make_request(*offers, budget=4000)), plan(make_request(*reversed(offers), budget=4000))
    assert one.fleet == other.fleet
    assert one.cheapest == other.cheapest
