"""Variance, alerts, and the split of a change in price, volume and mix."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.report.variance import Bought, Thresholds, alerts, split_change, variance

quantities = st.decimals(min_value=0, max_value=10**5, places=2)
prices = st.decimals(min_value="0.01", max_value=10**3, places=4)
baskets = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.builds(lambda q, p: Bought(quantity=q, usd_per_unit=p), quantities, prices),
)


@pytest.mark.parametrize(
    ("forecast", "usd", "share", "level"),
    [(80, -20, -0.2, "ok"), (90, -10, -0.1, "watch"), (100, 0, 0.0, "watch"), (101, 1, 0.01, "over")],
)
def test_a_variance_is_over_budget_when_it_is_positive(forecast: int, usd: int, share: float, level: str) -> None:
    found = variance(Decimal(100), Decimal(forecast))
    assert found is not None
    assert (found.usd, found.share, found.level) == (usd, share, level)


def test_without_a_budget_there_is_no_variance_and_no_alert() -> None:
    assert variance(None, Decimal(5)) is None
    assert alerts("total", None, Decimal(5), Decimal(5), Thresholds()) == []


def test_a_budget_of_nothing_has_no_percentage() -> None:
    found = variance(Decimal(0), Decimal(5))
    assert found is not None
    assert found.share is None
    assert found.level == "over"


def test_only_the_thresholds_that_are_reached_fire() -> None:
    found = alerts("total", Decimal(2500), Decimal(940), Decimal(2820), Thresholds())
    assert [str(alert) for alert in found if alert.fired] == ["forecast>=100%"]
    assert [str(alert) for alert in found if not alert.fired] == ["actual>=50%", "actual>=80%", "actual>=100%"]


def test_an_unknown_actual_fires_nothing() -> None:
    found = alerts("total", Decimal(100), None, Decimal(200), Thresholds())
    assert {alert.basis for alert in found} == {"forecast"}


def test_a_dearer_price_is_price() -> None:
    change = split_change({"a": bought(10, 2)}, {"a": bought(10, 3)})
    assert (change.price_usd, change.volume_usd, change.mix_usd) == (10, 0, 0)


def test_more_of_the_same_is_volume() -> None:
    change = split_change({"a": bought(10, 2)}, {"a": bought(15, 2)})
    assert (change.price_usd, change.volume_usd, change.mix_usd) == (0, 10, 0)


def test_a_shift_to_the_dearer_thing_is_mix() -> None:
    before = {"a": bought(10, 2), "b": bought(10, 4)}
    after = {"a": bought(5, 2), "b": bought(15, 4)}
    change = split_change(before, after)
    assert (change.price_usd, change.volume_usd, change.mix_usd) == (0, 0, 10)


def test_a_new_thing_uses_the_price_that_history_knows() -> None:
    change = split_change({"a": bought(10, 2)}, {"b": bought(10, 5)}, {"b": Decimal(4)})
    assert (change.price_usd, change.volume_usd, change.mix_usd, change.unpriced) == (10, 0, 20, ())


def test_a_new_thing_of_unknown_price_is_named() -> None:
    change = split_change({"a": bought(10, 2)}, {"b": bought(10, 5)})
    assert (change.price_usd, change.mix_usd, change.unpriced) == (0, 30, ("b",))


def test_where_nothing_was_bought_all_is_volume() -> None:
    change = split_change({}, {"a": bought(10, 2)}, {"a": Decimal(1)})
    assert (change.price_usd, change.volume_usd, change.mix_usd) == (10, 10, 0)


@given(before=baskets, after=baskets)
def test_the_parts_add_up_to_the_change(before: dict[str, Bought], after: dict[str, Bought]) -> None:
    change = split_change(before, after)
    assert change.price_usd + change.volume_usd + change.mix_usd == change.usd


def bought(quantity: int, price: int) -> Bought:
    return Bought(quantity=Decimal(quantity), usd_per_unit=Decimal(price))
