"""Turns what users type for numbers, money and durations into values, or into one clear message."""

import math
import re
from dataclasses import fields
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from providers.errors import InvalidValue

BOOT_MINUTES: Final = 10.0
"""Boot of a machine and load of a model, assumed where nothing is said."""

SPOT_MARGIN: Final = 0.1
"""Part of spot capacity taken as lost to interruptions, assumed where nothing is said."""

MAX_AGE: Final = "30d"
"""Age above which prices are flagged, where nothing is said."""

MOST_WHOLE: Final = 10**12
"""Of a whole number that has no other bound: what is above it cannot be reckoned with."""

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([hdwm]?)")
_LONG_BITS: Final = 200
_MAX_USD: Final = Decimal(10) ** 9
_MAX_RATE: Final = 1e6
_MAX_DURATION_HOURS: Final = 24.0 * 365 * 1000
_HOURS: Final = {"h": 1.0, "d": 24.0, "w": 168.0, "m": 730.0, "": 24.0}


def flag_of(parameter: str) -> str:
    """The flag of a parameter: `--max-age` of `max_age`."""
    return "--" + parameter.replace("_", "-")


def check_whole_numbers(arguments: Any) -> None:
    """Raises InvalidValue for a whole number among the fields that is above MOST_WHOLE."""
    for field in fields(arguments):
        value = getattr(arguments, field.name)
        if isinstance(value, int) and value > MOST_WHOLE:
            raise InvalidValue(flag_of(field.name), shown(value), f"give at most {MOST_WHOLE:,}")


def shown(number: int) -> object:
    """A whole number for a message: long ones by their length."""
    return number if number.bit_length() < _LONG_BITS else f"number of {number.bit_length():,} bits"


def money(what: str, text: str | None) -> Decimal | None:
    """USD as an exact positive amount. Raises InvalidValue for anything else, `5k` and `nan` included."""
    if text is None:
        return None
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        raise InvalidValue(what, text, "write USD as a plain number, like 5000 or 5000.50") from None
    if not amount.is_finite() or amount <= 0:
        raise InvalidValue(what, text, "give an amount above 0 USD")
    if amount > _MAX_USD:
        raise InvalidValue(what, text, f"give at most {_MAX_USD:,} USD")
    return amount


def rate(what: str, value: float | None) -> float | None:
    """Requests per second above 0, at most 10^6. Raises InvalidValue."""
    if positive(what, value) is not None and value is not None and value > _MAX_RATE:
        raise InvalidValue(what, value, f"give at most {_MAX_RATE:,.0f} requests per second")
    return value


def positive(what: str, value: float | None) -> float | None:
    """A finite number above 0. Raises InvalidValue."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise InvalidValue(what, value, "give a finite number above 0")
    return value


def not_negative(what: str, value: float) -> float:
    """A finite number from 0 on. Raises InvalidValue."""
    if not (math.isfinite(value) and value >= 0):
        raise InvalidValue(what, value, "give a finite number from 0 on")
    return value


def hours(what: str, value: float | None) -> float | None:
    """A finite number of hours above 0, of at most 1000 years. Raises InvalidValue."""
    if positive(what, value) is not None and value is not None and value > _MAX_DURATION_HOURS:
        raise InvalidValue(what, value, f"give at most {_MAX_DURATION_HOURS:,.0f} hours")
    return value


def share(what: str, value: float | None, *, zero: bool = False) -> float | None:
    """A number above 0 (or from 0 on, with `zero`) up to 1. Raises InvalidValue."""
    if value is not None and not (0 < value <= 1 or (zero and value == 0)):
        raise InvalidValue(what, value, "give a share from 0 to 1" if zero else "give a share above 0, at most 1")
    return value


def day(what: str, text: str | None) -> date | None:
    """A day like 2026-08-31. Raises InvalidValue."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidValue(what, text, "write a day like 2026-08-31") from None


def past_day(what: str, text: str | None, today: date) -> date | None:
    """A day like 2026-08-31 that is not ahead of today. Raises InvalidValue."""
    found = day(what, text)
    if found is not None and found > today:
        raise InvalidValue(what, text, f"what will be known then is not known yet; give {today} or a day before")
    return found


def duration_hours(what: str, text: str, *, months: bool = False) -> float:
    """Hours of `12h`, `30d`, `2w` or a bare number of days; `6m` only with `months`, since it could mean minutes.

    Raises InvalidValue.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    hours = float(match[1]) * _HOURS[match[2]] if match and (months or match[2] != "m") else 0.0
    if not 0 < hours <= _MAX_DURATION_HOURS:
        like = "90d, 26w or 6m (months)" if months else "12h, 30d or 2w"
        raise InvalidValue(what, text, f"write a duration above 0 and up to 1000 years, like {like}")
    return hours
