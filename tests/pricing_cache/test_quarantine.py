"""The verdict on an answer: what is used, what is kept apart, and what a person may override."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing_cache.quarantine import Verdict, far_off_others, judge
from providers.base import Answer, Coverage
from providers.offers import Offer, PurchaseOption
from tests.pricing_cache.builders import make_answer, make_offer, make_type

prices = st.decimals(min_value="0.08", max_value="480", places=4)


def verdict(answer: Answer, *last_good: Offer, types_seen: int | None = None, accept: bool = False) -> Verdict:
    return judge(answer, {offer.key: offer for offer in last_good}, types_seen, accept=accept)


def only_reason(found: Verdict) -> str:
    (held,) = found.held.values()
    return held.reason


def test_an_answer_without_a_single_instance_type_is_refused() -> None:
    found = verdict(make_answer(instance_types_seen=0))
    assert found.refusal == "the answer has no accelerator instance type at all"


def test_no_capacity_is_an_answer() -> None:
    found = verdict(make_answer(instance_types_seen=22), make_offer(), types_seen=22)
    assert found.refusal == ""
    assert not found.held


@pytest.mark.parametrize(("seen", "refused"), [(9, True), (10, False), (20, False), (40, False)])
def test_fewer_than_half_of_the_last_good_answers_types_is_refused(seen: int, refused: bool) -> None:
    before = [make_offer(f"machine-{number}") for number in range(20)]
    found = verdict(make_answer(instance_types_seen=seen), *before, types_seen=20)
    assert bool(found.refusal) is refused


def test_an_answer_for_fewer_regions_is_compared_with_what_was_there_in_those() -> None:
    before = [
        make_offer(f"machine-{number}", region="us-east-1" if number < 4 else "elsewhere") for number in range(20)
    ]
    part = Coverage(purchase_option=PurchaseOption.ON_DEMAND, regions=frozenset({"us-east-1"}))
    answers = {seen: make_answer(instance_types_seen=seen, coverage=(part,)) for seen in (1, 2)}
    refused = {seen: verdict(answer, *before, types_seen=20).refusal for seen, answer in answers.items()}
    assert refused == {1: "the answer has 1 instance types, the last good one had 4", 2: ""}


def test_a_first_answer_has_nothing_to_be_compared_with() -> None:
    assert verdict(make_answer(make_offer(), instance_types_seen=1)).refusal == ""


@pytest.mark.parametrize(
    ("usd", "reason"),
    [
        ("72.01", "more than 3 x above its last good price"),
        ("7.99", "more than 3 x below its last good price"),
        ("72.00", None),
        ("8.00", None),
    ],
)
def test_a_price_more_than_three_times_off_its_own_last_good_one_is_held(usd: str, reason: str | None) -> None:
    found = verdict(make_answer(make_offer(usd=usd)), make_offer(usd="24"))
    assert [held.reason for held in found.held.values()] == ([reason] if reason else [])


@pytest.mark.parametrize("usd", ["0.0799", "480.01"])
def test_a_price_outside_the_bounds_per_accelerator_hour_is_held(usd: str) -> None:
    found = verdict(make_answer(make_offer(usd=usd)))
    assert only_reason(found) == "outside 0.01 to 60 USD per accelerator-hour"


@pytest.mark.parametrize("usd", ["0.08", "480"])
def test_the_bounds_themselves_are_prices(usd: str) -> None:
    assert not verdict(make_answer(make_offer(usd=usd))).held


def test_a_held_price_names_the_one_that_stays_in_use() -> None:
    offer = make_offer(usd="240")
    found = verdict(make_answer(offer), make_offer(usd="24"))
    assert found.held[offer.key].last_good_usd_per_hour == Decimal(24)
    assert found.held[offer.key].offer == offer
    assert not found.usable


def test_the_other_offers_of_the_answer_are_used() -> None:
    good, odd = make_offer("good"), make_offer("odd", usd="9999")
    assert set(verdict(make_answer(good, odd)).usable) == {good.key}


def test_two_prices_for_one_offer_are_both_held_even_when_a_person_accepts() -> None:
    cheap, dear = make_offer(usd="20"), make_offer(usd="21")
    for accept in (False, True):
        found = verdict(make_answer(cheap, dear), accept=accept)
        assert only_reason(found) == "listed twice at different prices"
        assert not found.usable


def test_the_same_row_twice_is_one_offer() -> None:
    offer = make_offer()
    assert verdict(make_answer(offer, offer)).usable == {offer.key: offer}


def test_a_person_may_take_a_held_price_and_a_refused_answer_and_both_are_named() -> None:
    offer = make_offer(usd="240")
    before = [make_offer(usd="24"), *(make_offer(f"machine-{number}") for number in range(8))]
    found = verdict(make_answer(offer, instance_types_seen=1), *before, types_seen=9, accept=True)
    assert found.refusal == ""
    assert found.usable == {offer.key: offer}
    assert found.accepted == (
        "the answer has 1 instance types, the last good one had 9",
        f"{offer.key}: more than 3 x above its last good price",
    )


def test_what_cannot_be_read_cannot_be_accepted() -> None:
    offer = make_offer()
    found = verdict(make_answer(unreadable=frozenset({offer.key})), offer, accept=True)
    assert found.held[offer.key].offer is None


def test_an_odd_price_that_a_person_took_is_not_held_again() -> None:
    accepted = make_offer(usd="600")
    assert not verdict(make_answer(make_offer(usd="610")), accepted).held


def test_a_fraction_of_a_device_is_judged_by_the_whole_device() -> None:
    slice_ = make_offer(usd="0.0159", instance_type=make_type(accelerator_count=1 / 6, link="none"))
    assert not verdict(make_answer(slice_)).held


@given(usd=prices, before=prices)
def test_every_listed_offer_is_either_used_or_held_and_accepting_uses_it(usd: Decimal, before: Decimal) -> None:
    offer, last_good = make_offer(usd=str(usd)), make_offer(usd=str(before))
    found = verdict(make_answer(offer), last_good)
    assert set(found.usable) ^ set(found.held) == {offer.key}
    assert (offer.key in found.held) == (usd > 3 * before or 3 * usd < before)
    assert set(verdict(make_answer(offer), last_good, accept=True).usable) == {offer.key}


def test_being_far_from_other_providers_is_only_a_warning() -> None:
    community = make_offer(usd="8")
    others = [make_offer(usd="80", provider="aws"), make_offer(usd="88", provider="gcp")]
    assert far_off_others([community], others) == (
        "H100-SXM5-80GB on_demand: median 1.00 USD per accelerator-hour, other providers 10.50",
    )
    assert not verdict(make_answer(community)).held


def test_there_is_no_warning_without_another_seller() -> None:
    assert far_off_others([make_offer(usd="8")], []) == ()
