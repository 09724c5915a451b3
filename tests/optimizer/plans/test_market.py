"""The market: what the program is told of offers, terms and replicas, and what its solution means as a fleet."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.plans.document import plan_document
from optimizer.plans.market import Terms
from optimizer.plans.plan import Plan
from optimizer.plans.planner import Request, plan
from optimizer.plans.sizer import NO_NETWORK, SLOW_NETWORK
from optimizer.program.problem import Limits
from optimizer.workload.workload import InferenceWorkload
from providers.offers import Commitment, CommitmentKind, Offer, PurchaseOption
from tests.builders import make_offer, make_request

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LARGE = "meta-llama/Llama-3.1-405B"


def changed(request: Request, **over: object) -> Request:
    """The request with its workload changed."""

    def one(workload: InferenceWorkload) -> InferenceWorkload:
        return replace(workload, **over)  # type: ignore[arg-type]  # fields of the workload

    return replace(request, workloads=[(one(workload), model) for workload, model in request.workloads])


def cost(answer: Plan) -> float:
    assert answer.fleet is not None
    return float(answer.fleet.usd_per_hour)


def big_h100(**over: object) -> Offer:
    """AWS's p5.48xlarge, whose network between machines is documented."""
    fields: dict[str, object] = {"gpu": "H100-SXM5-80GB", "count": 8, "name": "p5.48xlarge", "usd": "55.04"}
    return make_offer(**(fields | over))


def test_a_replica_larger_than_an_instance_takes_whole_instances_of_one_kind() -> None:
    answer = plan(make_request(big_h100(), rate=0.5, model=LARGE, precisions=("bf16",)))
    assert answer.fleet is not None
    (line,), (group,) = answer.fleet.instances, answer.fleet.replicas
    assert (line.count, group.count, group.kind.machines) == (2, 1, 2)
    assert (group.kind.layout.tp, group.kind.layout.pp) == (8, 2)
    assert answer.fleet.usd_per_hour == Decimal("110.08")
    assert answer.fleet.accelerators == 16
    document = plan_document(answer)
    assert document["instances"][0]["count"] == 2
    assert document["replicas"][0]["instances_per_replica"] == 2
    assert any("one replica of workload spans 2 instances of p5.48xlarge" in w for w in document["warnings"])


def test_the_tensor_parallel_group_stays_inside_an_instance_and_stages_cross() -> None:
    answer = plan(make_request(big_h100(), rate=0.5, model="deepseek-ai/DeepSeek-V3"))
    assert answer.fleet is not None
    assert {(g.kind.layout.tp, g.kind.layout.pp) for g in answer.fleet.replicas} == {(8, 2)}


def test_a_replica_is_not_spread_where_no_network_is_documented() -> None:
    machine = big_h100(provider="lambda", name="gpu_8x_h100_sxm5")
    answer = plan(make_request(machine, rate=0.5, model=LARGE, precisions=("bf16",)))
    assert answer.status == "infeasible"
    assert answer.rejections[f"hardware: {NO_NETWORK}"] == 1


def test_a_replica_is_not_spread_over_a_network_that_its_stages_would_fill() -> None:
    kind = replace(big_h100(provider="lambda", name="slow").instance_type, network_gbit_per_s=0.01)
    offer = make_offer()
    answer = plan(make_request(replace(offer, instance_type=kind), rate=0.5, model=LARGE, precisions=("bf16",)))
    assert answer.status == "infeasible"
    assert answer.rejections[f"hardware: {SLOW_NETWORK}"] == 1


@pytest.mark.parametrize("over", [{"region": None}, {"purchase_option": PurchaseOption.SPOT}])
def test_a_bundle_is_not_taken_as_spot_or_without_a_region(over: dict[str, object]) -> None:
    answer = plan(make_request(big_h100(**over), rate=0.5, model=LARGE, precisions=("bf16",)))
    assert answer.status == "infeasible"
    assert any("not taken as spot or without a region" in reason for reason in answer.rejections)


def test_small_models_share_the_offers_with_bundles() -> None:
    request = make_request(big_h100(), rate=0.5, model=LARGE, precisions=("bf16",))
    small = make_request(big_h100(), rate=1).workloads[0]
    both = replace(request, workloads=[*request.workloads, (replace(small[0], name="small"), small[1])])
    answer = plan(both)
    assert answer.fleet is not None
    assert sum(line.count for line in answer.fleet.instances) == 3
    assert cost(answer) == pytest.approx(3 * 55.04)


def test_a_term_longer_than_the_need_is_paid_to_its_end() -> None:
    reserved = make_offer(usd="1", purchase_option=PurchaseOption.RESERVED_1Y)
    answer = plan(make_request(reserved, rate=0.5, terms=Terms(horizon_hours=4380.0)))
    assert answer.fleet is not None
    assert answer.fleet.usd_per_hour == 2
    assert answer.proof.bound == pytest.approx(float(answer.fleet.usd_per_month))


def test_a_short_need_is_bought_by_the_hour_and_a_long_one_committed() -> None:
    reserved, hourly = make_offer(usd="1", purchase_option=PurchaseOption.RESERVED_1Y), make_offer(usd="1.5")
    chosen = {}
    for hours in (4380.0, 8760.0, None):
        fleet = plan(make_request(reserved, hourly, rate=0.5, terms=Terms(horizon_hours=hours))).fleet
        assert fleet is not None
        chosen[hours] = fleet.instances[0].offer.purchase_option
    assert chosen == {4380.0: "on_demand", 8760.0: "reserved_1y", None: "reserved_1y"}


def test_what_is_paid_upfront_is_said() -> None:
    commitment = Commitment(kind=CommitmentKind.RESERVED_INSTANCE, term_months=12, upfront_usd=Decimal(8760))
    offer = make_offer(usd="1", purchase_option=PurchaseOption.RESERVED_1Y, commitment=commitment)
    answer = plan(make_request(offer, rate=0.5))
    assert cost(answer) == 1
    assert plan_document(answer)["totals"]["upfront_usd"] == "8760.00"


def test_the_reason_names_the_use_from_which_a_term_pays() -> None:
    reserved, hourly = make_offer(usd="0.6", purchase_option=PurchaseOption.RESERVED_1Y), make_offer(usd="1")
    (reason,) = plan(make_request(reserved, hourly, rate=0.5)).reasons
    assert (reason.kind, reason.count, reason.used_share) == ("term", 1, 1.0)
    assert reason.break_even_share == pytest.approx(0.6)
    assert "pay from 60% use on" in reason.text


def test_a_reason_is_against_what_the_search_left_out_too() -> None:
    hourly = make_offer(usd="1")
    reserved = make_offer(usd="0.6", purchase_option=PurchaseOption.RESERVED_1Y)
    one_machine = replace(reserved, instance_type=hourly.instance_type)
    (reason,) = plan(make_request(hourly, one_machine, rate=0.5)).reasons
    assert reason.against == "aws 1x-H100-SXM5-80GB (us-east-1, on_demand)"


def test_the_reason_for_spot_counts_what_interruptions_take() -> None:
    spot, hourly = make_offer(usd="0.9", purchase_option=PurchaseOption.SPOT), make_offer(usd="2")
    (reason,) = plan(make_request(spot, hourly, rate=0.5, terms=Terms(spot_margin=0.1))).reasons
    assert reason.kind == "spot"
    assert reason.break_even_share == pytest.approx(0.5)
    assert "1.0000 USD per hour that is not interrupted, against 2.0000" in reason.text


def test_runner_ups_are_the_best_fleets_without_each_accelerator_in_use() -> None:
    offers = (make_offer(gpu="H100", usd="2"), make_offer(gpu="L4", usd="1"), make_offer(gpu="A10G", usd="1.1"))
    assert plan(make_request(*offers, rate=0.5)).runner_ups == ()
    answer = plan(make_request(*offers, rate=0.5, reasons=True))
    (runner_up,) = answer.runner_ups
    assert (runner_up.name, runner_up.flag) == ("L4", "without L4")
    assert runner_up.fleet is not None
    assert runner_up.fleet.usd_per_hour == Decimal("1.1")


def test_spare_replicas_survive_the_loss_of_an_instance() -> None:
    offer = make_offer(gpu="L4", usd="1")
    alone, spared = (plan(make_request(offer, rate=0.5, limits=Limits(spare_replicas=spare))) for spare in (0, 1))
    assert cost(spared) == cost(alone) + 1


def test_a_region_list_keeps_replicas_there_even_where_it_costs_more() -> None:
    cheap, allowed = make_offer(usd="1", region="us-east-1"), make_offer(usd="3", region="eu-west-1")
    request = make_request(cheap, allowed, make_offer(usd="0.5", region=None, name="anywhere"), rate=1)
    answer = plan(changed(request, regions=frozenset({"eu-west-1"})))
    assert answer.fleet is not None
    assert {line.offer.region for line in answer.fleet.instances} == {"eu-west-1"}


def test_replicas_of_one_region_are_not_mixed_where_that_is_asked() -> None:
    offers = [
        make_offer(gpu="H100", usd="2", region="a", name="large"),
        make_offer(gpu="L4", usd="0.3", region="b", name="small"),
        make_offer(gpu="L4", usd="0.6", region="a", name="small"),
    ]
    request = make_request(*offers, rate=13)
    free, bound = plan(request), plan(changed(request, same_region=True))
    assert bound.fleet is not None
    assert len({line.offer.region for line in bound.fleet.instances}) == 1
    assert cost(bound) >= cost(free)


def test_minimum_replicas_by_region_are_kept() -> None:
    offers = [make_offer(usd="1", region="a"), make_offer(usd="2", region="b")]
    answer = plan(changed(make_request(*offers, rate=1), minimum_replicas_by_region={"b": 1}))
    assert answer.fleet is not None
    assert "b" in {line.offer.region for line in answer.fleet.instances}


def test_each_workload_keeps_its_own_head_room() -> None:
    offer = make_offer(gpu="L4", usd="1")
    request = make_request(offer, rate=5)
    ((workload, model),) = request.workloads
    pair = [(replace(workload, name=f"w{u}", utilization=u), model) for u in (0.4, 0.8)]
    both = plan(replace(request, workloads=pair))
    assert both.fleet is not None
    for group in both.fleet.replicas:
        assert group.utilization <= group.workload.utilization * (1 + 1e-6)
    alone = [cost(plan(replace(request, workloads=[one]))) for one in pair]
    assert cost(both) == pytest.approx(sum(alone))


PRICES = st.lists(st.integers(20, 400), min_size=3, max_size=3)


def three(prices: list[int], factor: int = 1) -> list[Offer]:
    return [
        make_offer(gpu=gpu, count=count, name=gpu, usd=str(Decimal(price * count * factor) / 100))
        for (gpu, count), price in zip((("H100", 2), ("L4", 1), ("A100-80GB", 1)), prices, strict=True)
    ]


@QUICK
@given(prices=PRICES, rate=st.floats(0.1, 60), more=st.floats(1.0, 3.0))
def test_more_demand_never_costs_less(prices: list[int], rate: float, more: float) -> None:
    less, greater = (cost(plan(make_request(*three(prices), rate=r, alternatives=False))) for r in (rate, rate * more))
    assert greater >= less - 1e-9


@QUICK
@given(prices=PRICES, budget=st.integers(800, 20_000), more=st.integers(0, 10_000))
def test_more_budget_never_buys_less(prices: list[int], budget: int, more: int) -> None:
    served = []
    for usd in (budget, budget + more):
        fleet = plan(make_request(*three(prices), budget=usd, alternatives=False)).fleet
        served.append(0.0 if fleet is None else fleet.requests_per_s)
        assert fleet is None or fleet.usd_per_month <= usd
    assert served[1] >= served[0] * (1 - 1e-5)


@QUICK
@given(prices=PRICES, rate=st.floats(0.1, 60), extra=st.integers(20, 400), spare=st.integers(0, 1))
def test_one_more_offer_never_costs_more(prices: list[int], rate: float, extra: int, spare: int) -> None:
    other = make_offer(gpu="A10G", name="extra", usd=str(Decimal(extra) / 100), provider="lambda")
    limits = Limits(spare_replicas=spare)
    few = plan(make_request(*three(prices), rate=rate, limits=limits, alternatives=False))
    many = plan(make_request(*three(prices), other, rate=rate, limits=limits, alternatives=False))
    assert cost(many) <= cost(few) + 1e-9


@QUICK
@given(prices=PRICES, rate=st.floats(0.1, 60), factor=st.integers(2, 9))
def test_prices_scaled_scale_the_cost(prices: list[int], rate: float, factor: int) -> None:
    plain, scaled = (plan(make_request(*three(prices, f), rate=rate, alternatives=False)).fleet for f in (1, factor))
    assert plain is not None
    assert scaled is not None
    assert scaled.usd_per_hour == plain.usd_per_hour * factor


@QUICK
@given(prices=PRICES, rate=st.floats(0.1, 60))
def test_totals_are_re_added_in_decimal_and_repeat_to_the_byte(prices: list[int], rate: float) -> None:
    request = make_request(*three(prices), rate=rate)
    first, second = (plan_document(replace(plan(request), timing_s={})) for _ in range(2))
    assert first == second
    total = sum(Decimal(line["usd_per_hour"]) * line["count"] for line in first["instances"])
    assert Decimal(first["totals"]["usd_per_hour"]) == total
    assert Decimal(first["totals"]["usd_per_month"]) == (total * 730).quantize(Decimal("0.01"))
    assert float(first["proof"]["bound_usd_per_month"]) <= float(total * 730) * (1 + 1e-6) + 0.01
