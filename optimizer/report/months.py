"""Turns a named month in a time zone into its real days, hours and the part that has passed."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from providers.errors import InvalidValue
from providers.units import SECONDS_PER_HOUR

_MONTH: Final = re.compile(r"(\d{4})-(\d{2})")
_YEARS: Final = range(2000, 2101)


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A calendar month as people of a time zone live it: where clocks change, it is an hour longer or shorter."""

    year: int
    month: int
    zone: str = "UTC"

    @classmethod
    def parse(cls, what: str, text: str, zone: str = "UTC") -> "Month":
        """`2026-12`. Raises InvalidValue for another form, an unknown month or an unknown time zone."""
        match = _MONTH.fullmatch(text.strip())
        if match is None or not 1 <= int(match[2]) <= 12 or int(match[1]) not in _YEARS:
            raise InvalidValue(what, text, "write a month like 2026-12")
        return cls(int(match[1]), int(match[2]), checked_zone(zone))

    @classmethod
    def of(cls, moment: datetime, zone: str = "UTC") -> "Month":
        """The month that contains the moment."""
        local = moment.astimezone(ZoneInfo(zone))
        return cls(local.year, local.month, zone)

    def plus(self, months: int) -> "Month":
        """The month so many months later."""
        years, index = divmod(self.month - 1 + months, 12)
        return Month(self.year + years, index + 1, self.zone)

    def minus(self, other: "Month") -> int:
        """Months from the other to this one."""
        return (self.year - other.year) * 12 + self.month - other.month

    @property
    def first_day(self) -> date:
        return date(self.year, self.month, 1)

    @property
    def last_day(self) -> date:
        return self.plus(1).first_day - timedelta(days=1)

    @property
    def days(self) -> int:
        return (self.plus(1).first_day - self.first_day).days

    @property
    def start(self) -> datetime:
        """The month's first moment, in UTC."""
        return midnight(self.first_day, self.zone)

    @property
    def end(self) -> datetime:
        """The first moment after the month, in UTC."""
        return self.plus(1).start

    @property
    def hours(self) -> Decimal:
        """Hours that pass in the month, changes of the clock included."""
        return hours_between(self.start, self.end)

    def elapsed_hours(self, moment: datetime) -> Decimal:
        """Hours of the month that have passed at the moment, from 0 to all of them."""
        return hours_between(self.start, min(max(moment, self.start), self.end))

    def day_hours(self, day: int) -> Decimal:
        """Hours of the month's day 1, 2, … : 24, or 23 and 25 where clocks change."""
        first = self.first_day + timedelta(days=day - 1)
        return hours_between(midnight(first, self.zone), midnight(first + timedelta(days=1), self.zone))

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}"


def checked_zone(zone: str) -> str:
    """The name of a time zone that exists. Raises InvalidValue."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidValue("time zone", zone, "give a name like UTC or Europe/Berlin") from None
    return zone


def midnight(day: date, zone: str) -> datetime:
    """The day's first moment in the time zone, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def hours_between(start: datetime, end: datetime) -> Decimal:
    """Hours from one moment to another."""
    return Decimal(int((end - start).total_seconds())) / SECONDS_PER_HOUR
