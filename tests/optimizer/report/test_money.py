"""Money is rounded one way everywhere."""

from decimal import Decimal

import pytest

from optimizer.report.money import cents, exact, micros


@pytest.mark.parametrize(
    ("amount", "rounded"),
    [("0.005", "0.01"), ("-0.005", "-0.01"), ("1.004", "1.00"), ("-0.004", "0.00"), ("2", "2.00")],
)
def test_halves_go_away_from_zero_and_nothing_has_no_sign(amount: str, rounded: str) -> None:
    assert str(cents(Decimal(amount))) == rounded


def test_prices_keep_six_decimals() -> None:
    assert str(micros(Decimal("1.2345675"))) == "1.234568"


def test_a_number_is_taken_as_it_is_written() -> None:
    assert exact(0.1) == Decimal("0.1")
