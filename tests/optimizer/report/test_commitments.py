"""Commitments: effective price, cash, utilisation, coverage and waste."""

from datetime import date
from decimal import Decimal

import pytest

from optimizer.report.commitments import breakage, commitment_month
from optimizer.report.months import Month
from providers.errors import InvalidValue
from tests.optimizer.report.builders import DECEMBER, make_commitment, usd


def test_an_upfront_is_spread_over_the_hours_of_the_term() -> None:
    held = make_commitment(
        count=1, usd_per_hour=usd("0.50"), upfront_usd=usd(4380), start=date(2026, 12, 1), term_months=12
    )
    assert held.term_hours == 8760
    assert held.effective_usd_per_hour == 1


def test_cash_is_paid_in_the_month_of_the_upfront_and_amortised_in_every_month() -> None:
    held = make_commitment(
        count=1, usd_per_hour=usd("0.50"), upfront_usd=usd(4380), start=date(2026, 12, 1), term_months=12
    )
    first = commitment_month(held, DECEMBER, Decimal(744), Decimal(744))
    second = commitment_month(held, DECEMBER.plus(1), Decimal(744), Decimal(744))
    assert (first.cash_usd, first.amortised_usd) == (usd("4752.00"), usd("744.00"))
    assert (second.cash_usd, second.amortised_usd) == (usd("372.00"), usd("744.00"))


@pytest.mark.parametrize(
    ("reserved", "used", "price", "recovery", "lost"),
    [(12000, 8900, "4.80", 0.35, "9672.00"), (6000, 5700, "3.00", 0.0, "900.00"), (10, 20, "1", 0.0, "0.00")],
)
def test_unused_hours_are_lost_but_for_what_is_recovered(
    reserved: int, used: int, price: str, recovery: float, lost: str
) -> None:
    assert breakage(Decimal(reserved), Decimal(used), Decimal(price), recovery) == Decimal(lost)


def test_utilisation_is_of_what_was_bought_and_coverage_of_what_was_used() -> None:
    held = make_commitment(count=2)
    found = commitment_month(held, DECEMBER, Decimal(744), Decimal(2976))
    assert found.available_hours == 1488
    assert (found.utilization, found.coverage) == (0.5, 0.25)
    assert found.waste_usd == usd("24552.00")


def test_a_term_that_begins_in_the_month_counts_from_its_day() -> None:
    held = make_commitment(count=1, start=date(2026, 12, 16))
    assert held.hours_in(DECEMBER) == 16 * 24
    assert held.hours_in(Month(2026, 11)) == 0


def test_a_term_ends_on_the_same_day_of_a_later_month() -> None:
    assert make_commitment(start=date(2026, 1, 31), term_months=1).end == date(2026, 2, 28)
    assert make_commitment(start=date(2026, 6, 1), term_months=12).end == date(2027, 6, 1)


def test_a_commitment_without_a_region_covers_all_regions_of_its_machine() -> None:
    held = make_commitment()
    assert held.covers("aws", "p5.48xlarge", "us-east-1")
    assert not held.covers("aws", "p4d.24xlarge", "us-east-1")
    assert not make_commitment(region="us-west-2").covers("aws", "p5.48xlarge", "us-east-1")


def test_a_commitment_that_costs_nothing_is_refused() -> None:
    with pytest.raises(InvalidValue, match="hourly price or upfront"):
        make_commitment(usd_per_hour=Decimal(0), upfront_usd=Decimal(0))
