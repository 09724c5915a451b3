"""A named month has its real days and hours, in the time zone of those who pay for it."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from optimizer.report.months import Month
from providers.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "zone", "days", "hours"),
    [
        ("2026-12", "UTC", 31, 744),
        ("2026-02", "UTC", 28, 672),
        ("2028-02", "UTC", 29, 696),
        ("2026-03", "Europe/Berlin", 31, 743),
        ("2026-10", "Europe/Berlin", 31, 745),
        ("2026-11", "America/New_York", 30, 721),
    ],
)
def test_a_month_is_as_long_as_its_clocks_say(text: str, zone: str, days: int, hours: int) -> None:
    month = Month.parse("month", text, zone)
    assert (month.days, month.hours) == (days, Decimal(hours))
    assert sum(month.day_hours(day) for day in range(1, days + 1)) == hours


def test_a_month_begins_at_midnight_of_its_zone() -> None:
    assert Month.parse("month", "2026-12", "America/New_York").start == datetime(2026, 12, 1, 5, tzinfo=UTC)


def test_the_same_moment_is_in_another_month_elsewhere() -> None:
    moment = datetime(2026, 12, 1, 3, tzinfo=UTC)
    assert str(Month.of(moment, "UTC")) == "2026-12"
    assert str(Month.of(moment, "America/Los_Angeles")) == "2026-11"


def test_elapsed_hours_stay_within_the_month() -> None:
    month = Month(2026, 12)
    assert month.elapsed_hours(datetime(2026, 11, 1, tzinfo=UTC)) == 0
    assert month.elapsed_hours(datetime(2026, 12, 2, 12, tzinfo=UTC)) == 36
    assert month.elapsed_hours(datetime(2027, 3, 1, tzinfo=UTC)) == 744


def test_months_go_over_the_end_of_a_year_and_back() -> None:
    assert str(Month(2026, 12).plus(1)) == "2027-01"
    assert str(Month(2026, 1).plus(-1)) == "2025-12"
    assert Month(2027, 2).minus(Month(2026, 12)) == 2


@pytest.mark.parametrize("text", ["2026-13", "2026-00", "12-2026", "2026-1", "2026", "1999-01", "next"])
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="write a month like 2026-12"):
        Month.parse("--month", text)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../../etc/passwd", "CEST"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidValue, match="time zone"):
        Month.parse("--month", "2026-12", zone)
