"""Forecasts: run rate, trend and driver, each by hand."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from optimizer.report.forecast import driver, run_rate, trend

amounts = st.decimals(min_value=0, max_value=10**6, places=2)


def test_the_run_rate_continues_the_hours_so_far() -> None:
    # 940 USD in ten of thirty days.
    assert run_rate(Decimal(940), Decimal(0), Decimal(240), Decimal(720)) == Decimal("2820.00")


def test_what_is_charged_once_is_not_multiplied() -> None:
    assert run_rate(Decimal(100), Decimal(4380), Decimal(240), Decimal(720)) == Decimal("4680.00")


def test_there_is_no_run_rate_before_the_first_hour() -> None:
    assert run_rate(Decimal(0), Decimal(0), Decimal(0), Decimal(720)) is None


def test_a_trend_goes_on_in_a_straight_line() -> None:
    # Days cost 10, 20, 30; then 40 and 50.
    days = [Decimal(10), Decimal(20), Decimal(30)]
    assert trend(days, Decimal(60), Decimal(0), 2) == Decimal("150.00")


def test_a_falling_trend_ends_at_nothing_and_not_below() -> None:
    days = [Decimal(30), Decimal(20), Decimal(10)]
    assert trend(days, Decimal(60), Decimal(0), 10) == Decimal("60.00")


def test_the_running_day_counts_for_the_part_that_is_left() -> None:
    days = [Decimal(10), Decimal(10), Decimal(10)]
    assert trend(days, Decimal(35), Decimal("0.5"), 1) == Decimal("50.00")


def test_two_days_make_no_trend() -> None:
    assert trend([Decimal(1), Decimal(2)], Decimal(3), Decimal(0), 5) is None


def test_the_driver_adds_the_plan_for_the_hours_to_come() -> None:
    assert driver(Decimal(100), Decimal("2.5"), Decimal(40)) == Decimal("200.00")


@given(amount=amounts, days=st.integers(3, 28))
def test_on_even_days_trend_and_run_rate_agree(amount: Decimal, days: int) -> None:
    spent = amount * days
    by_trend = trend([amount] * days, spent, Decimal(0), 30 - days)
    by_rate = run_rate(spent, Decimal(0), Decimal(24 * days), Decimal(720))
    assert by_trend is not None
    assert by_rate is not None
    assert abs(by_trend - by_rate) <= Decimal("0.01")
