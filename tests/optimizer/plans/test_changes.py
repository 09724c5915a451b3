"""Against what runs today: what to keep, add and end, and what each change saves."""

from decimal import Decimal

import pytest

from optimizer.plans.changes import changes
from optimizer.plans.market import Holding, Terms
from optimizer.plans.plan import Fleet, Plan, PlannedInstances
from optimizer.plans.planner import plan
from providers.offers import Commitment, CommitmentKind, PurchaseOption
from tests.builders import make_offer, make_request


def lines(answer: Plan) -> list[tuple[str, str, int, Decimal]]:
    return [(c.kind, c.offer.instance_type.name, c.count, c.usd_per_month) for c in answer.changes]


def test_without_holdings_nothing_is_compared() -> None:
    assert plan(make_request(make_offer(), rate=1)).changes == ()


def test_what_is_cheap_enough_stays_and_changes_nothing() -> None:
    held = make_offer(usd="1.5", name="held")
    answer = plan(make_request(make_offer(usd="2", name="new"), rate=1, holdings=(Holding(held, 1),)))
    assert lines(answer) == [("keep", "held", 1, Decimal(0))]
    assert answer.fleet is not None
    assert answer.fleet.usd_per_hour == Decimal("1.5")


def test_what_costs_more_than_the_market_is_ended_and_replaced() -> None:
    held = make_offer(usd="3", name="held")
    answer = plan(make_request(make_offer(usd="2", name="new"), rate=1, holdings=(Holding(held, 2),)))
    assert lines(answer) == [("add", "new", 1, Decimal(1460)), ("end", "held", 2, Decimal(-4380))]


def test_what_is_committed_stays_and_is_paid_whatever_it_costs() -> None:
    held = make_offer(usd="3", name="held", purchase_option=PurchaseOption.RESERVED_1Y)
    answer = plan(make_request(make_offer(usd="0.1", name="new"), rate=1, holdings=(Holding(held, 2, 2),)))
    assert lines(answer) == [("keep", "held", 2, Decimal(0))]
    assert answer.fleet is not None
    assert answer.fleet.usd_per_hour == 6
    assert [reason.kind for reason in answer.reasons] == ["committed"]


def test_of_several_only_as_many_stay_as_are_needed() -> None:
    held = make_offer(usd="1", name="held", gpu="L4")
    answer = plan(make_request(make_offer(usd="2", name="new", gpu="L4"), rate=0.1, holdings=(Holding(held, 3),)))
    assert lines(answer) == [("keep", "held", 1, Decimal(0)), ("end", "held", 2, Decimal(-1460))]


def test_what_runs_for_a_part_of_the_day_stays_and_saves_the_other_hours() -> None:
    held = make_offer(usd="1", name="held")
    fleet = Fleet(instances=(PlannedInstances(offer=held, kept=1, bought=(1, 0), hours=(6.0, 18.0)),), replicas=())
    found = [(c.kind, c.count, c.usd_per_month) for c in changes(fleet, [Holding(held, 4)])]
    assert found == [("keep", 2, Decimal("-547.5")), ("end", 2, Decimal(-1460))]
    assert sum(usd for _, _, usd in found) == fleet.usd_per_month - 4 * held.usd_per_month


def test_what_runs_cannot_grow() -> None:
    held = make_offer(usd="1", name="held", gpu="L4")
    answer = plan(make_request(make_offer(usd="2", name="new", gpu="L4"), rate=12, holdings=(Holding(held, 1),)))
    kinds = {kind: (name, count) for kind, name, count, _ in lines(answer)}
    assert kinds["keep"] == ("held", 1)
    assert kinds["add"][0] == "new"
    assert answer.fleet is not None
    added = sum(usd for kind, _, _, usd in lines(answer) if kind == "add")
    assert answer.fleet.usd_per_month == added + 730


def test_two_that_run_may_alone_hold_a_replica_that_takes_both() -> None:
    fields = {"gpu": "H100-SXM5-80GB", "count": 8, "name": "p5.48xlarge"}
    held = make_offer(usd="30", **fields)
    answer = plan(
        make_request(
            make_offer(usd="55", **fields),
            rate=0.5,
            model="meta-llama/Llama-3.1-405B",
            precisions=("bf16",),
            holdings=(Holding(held, 3, 3),),
        )
    )
    assert answer.fleet is not None
    assert answer.fleet.usd_per_hour == 90
    assert sum(item.count for item in answer.fleet.instances) == 3
    assert {group.kind.machines for group in answer.fleet.replicas} == {2}
    assert sum(count for kind, _, count, _ in lines(answer) if kind == "keep") == 3


def test_a_provider_alone_does_not_use_what_runs_elsewhere() -> None:
    held = make_offer(usd="1", name="held", provider="aws")
    offers = (make_offer(usd="2", name="new", provider="gcp"), make_offer(usd="3", name="new", provider="aws"))
    answer = plan(make_request(*offers, rate=1, holdings=(Holding(held, 1),)))
    alone = {a.name: a.fleet for a in answer.alternatives if a.kind == "provider"}
    assert alone["gcp"] is not None
    assert alone["aws"] is not None
    assert {item.offer.provider for item in alone["gcp"].instances} == {"gcp"}
    assert alone["aws"].usd_per_hour == 1


@pytest.mark.parametrize("committed", [0, 1])
def test_the_sum_of_changes_is_the_difference_in_cost(committed: int) -> None:
    held = make_offer(usd="2.5", name="held", gpu="L4")
    new = make_offer(usd="0.7", name="new", gpu="L4")
    answer = plan(make_request(new, rate=10, holdings=(Holding(held, 2, committed),)))
    assert answer.fleet is not None
    today = Decimal("2.5") * 2 * 730
    assert today + sum(c.usd_per_month for c in answer.changes) == answer.fleet.usd_per_month


def test_a_term_that_began_before_the_need_is_not_paid_again() -> None:
    commitment = Commitment(kind=CommitmentKind.RESERVED_INSTANCE, term_months=12, upfront_usd=Decimal(4380))
    held = make_offer(usd="1", name="held", purchase_option=PurchaseOption.RESERVED_1Y, commitment=commitment)
    answer = plan(
        make_request(make_offer(usd="2"), rate=1, holdings=(Holding(held, 1, 1),), terms=Terms(horizon_hours=730.0))
    )
    assert answer.fleet is not None
    assert answer.fleet.usd_per_hour == 1
    assert answer.proof.bound == pytest.approx(730)
    assert [item.upfront_usd for item in answer.fleet.instances] == [0]


def test_an_added_term_is_counted_to_its_end() -> None:
    held = make_offer(usd="9", name="held")
    reserved = make_offer(usd="1", name="new", purchase_option=PurchaseOption.RESERVED_1Y)
    answer = plan(make_request(reserved, rate=1, holdings=(Holding(held, 1),), terms=Terms(horizon_hours=4380.0)))
    assert lines(answer) == [("add", "new", 1, Decimal(1460)), ("end", "held", 1, Decimal(-6570))]
