"""The tally: one offer a key, exact prices, and no row that is neither an offer nor counted."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import InvalidAnswer
from providers.offers import Commitment, CommitmentKind, InstanceType, PurchaseOption
from providers.tally import Tally, rounded, usd
from tests.providers.conftest import NOW

prices = st.decimals(min_value="0.08", max_value="480", places=6)


def eight_h100(tally: Tally) -> InstanceType:
    kind = tally.instance_type("p5.48xlarge", "H100", 8)
    assert kind is not None
    return kind


def add(tally: Tally, price: Any, **over: Any) -> None:
    place = {"region": "us-east-1", "source": "test", "row_ids": ["row"]} | over
    tally.offer(eight_h100(tally), price, place.pop("option", PurchaseOption.ON_DEMAND), **place)


@pytest.mark.parametrize(
    ("value", "price"),
    [("55.0400000000", "55.04"), (55, "55"), (0.1, "0.1"), (Decimal("9.0E-4"), "0.0009"), ("9.0E-4", "0.0009")],
)
def test_a_price_is_read_exactly(value: object, price: str) -> None:
    assert usd(value) == Decimal(price)


@pytest.mark.parametrize("value", ["N/A*", "", "1,000", "$5", [], {}, True, "NaN", b"1", float("nan")])
def test_what_is_no_number_is_nan_and_what_is_absent_is_none(value: object) -> None:
    price = usd(value)
    assert price is not None
    assert price.is_nan()
    assert usd(None) is None


@given(prices)
def test_rounding_changes_no_price_of_six_digits(price: Decimal) -> None:
    assert rounded(price) == price
    assert "E" not in str(rounded(price))


@given(st.lists(prices, min_size=1, max_size=6))
def test_several_prices_for_one_key_give_no_offer_and_every_row_is_accounted_for(found: list[Decimal]) -> None:
    tally = Tally("aws", NOW)
    for price in found:
        add(tally, price)
    answer = tally.answer([], [])
    same = len(set(found)) == 1
    assert len(answer.offers) == int(same)
    assert len(answer.offers) + sum(answer.rejections.values()) == len(found)
    assert bool(answer.unreadable) is not same


@given(st.permutations([Decimal(30), Decimal(30), Decimal(40), Decimal("NaN"), Decimal(0)]))
def test_the_order_of_rows_does_not_matter(found: list[Decimal]) -> None:
    tally, ordered = Tally("aws", NOW), Tally("aws", NOW)
    for price in found:
        add(tally, price)
    for price in sorted(found, key=str):
        add(ordered, price)
    one, other = tally.answer([], []), ordered.answer([], [])
    assert (one.offers, one.unreadable) == (other.offers, other.unreadable)
    assert sum(one.rejections.values()) == sum(other.rejections.values()) == len(found)


def test_a_good_price_beside_an_unusable_one_of_the_same_key_counts() -> None:
    tally = Tally("aws", NOW)
    add(tally, Decimal(0))
    add(tally, Decimal("55.04"))
    answer = tally.answer([], [])
    assert [offer.usd_per_hour for offer in answer.offers] == [Decimal("55.04")]
    assert answer.unreadable == frozenset()
    assert answer.rejections == {"price of zero": 1}


def test_places_options_and_commitments_make_different_offers() -> None:
    tally = Tally("aws", NOW)
    plan = Commitment(kind=CommitmentKind.SAVINGS_PLAN, term_months=12)
    add(tally, Decimal(50))
    add(tally, Decimal(51), region="us-west-2")
    add(tally, Decimal(52), zone="use1-az1")
    add(tally, Decimal(20), option=PurchaseOption.SPOT)
    add(tally, Decimal(40), option=PurchaseOption.RESERVED_1Y, commitment=plan)
    compute = Commitment(kind=CommitmentKind.SAVINGS_PLAN, term_months=12, variant="compute")
    add(tally, Decimal(41), option=PurchaseOption.RESERVED_1Y, commitment=compute)
    answer = tally.answer([], [])
    assert len(answer.offers) == 6
    assert answer.rejections == {}


@pytest.mark.parametrize("price", ["0.05", "30000"])
def test_a_price_beyond_the_bounds_is_passed_on_for_a_person_to_see(price: str) -> None:
    tally = Tally("aws", NOW)
    add(tally, Decimal(price))
    assert [offer.usd_per_hour for offer in tally.answer([], []).offers] == [Decimal(price)]


@pytest.mark.parametrize("price", ["1e-9", "1e400", "1000001"])
def test_a_number_that_no_machine_costs_is_none(price: str) -> None:
    tally = Tally("aws", NOW)
    add(tally, Decimal(price))
    answer = tally.answer([], [])
    assert not answer.offers
    assert sum(answer.rejections.values()) == len(answer.unreadable) == 1


def test_what_the_caller_saw_wrong_is_the_reason() -> None:
    tally = Tally("aws", NOW)
    add(tally, Decimal(50), problem="price in CNY, not USD")
    answer = tally.answer([], [])
    assert answer.rejections == {"price in CNY, not USD": 1}
    assert len(answer.unreadable) == 1


def test_a_machine_that_cannot_be_described_is_seen_and_counted() -> None:
    tally = Tally("aws", NOW)
    assert tally.instance_type("g9.xlarge", "R200", 1) is None
    assert tally.instance_type("p9.xlarge", "H100", 1, accelerator_memory_gib=512) is None
    assert tally.instance_type("p9.2xlarge", "H100", 1.5) is None
    answer = tally.answer([], [])
    assert answer.instance_types_seen == 3
    assert answer.rejections == {
        "accelerator without facts: R200": 1,
        "impossible accelerator count or memory": 2,
    }


def test_an_answer_without_any_accelerator_machine_is_none() -> None:
    with pytest.raises(InvalidAnswer, match="earlier prices stay"):
        Tally("aws", NOW).answer([], [])


def test_a_note_is_told_once() -> None:
    tally = Tally("aws", NOW)
    eight_h100(tally)
    tally.note("a note")
    tally.note("a note")
    assert tally.answer([], []).notes == ("a note",)
