"""Turns what users type for numbers, money and durations into values, or into one clear message."""

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Final

from providers.errors import InvalidValue

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([hdwm]?)")
_HOURS: Final = {"h": 1.0, "d": 24.0, "w": 168.0, "m": 730.0, "": 24.0}


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
    return amount


def positive(what: str, value: float | None) -> float | None:
    """A finite number above 0. Raises InvalidValue."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise InvalidValue(what, value, "give a finite number above 0")
    return value


def share(what: str, value: float | None) -> float | None:
    """A number from 0 to 1. Raises InvalidValue."""
    if value is not None and not 0 <= value <= 1:
        raise InvalidValue(what, value, "give a share between 0 and 1")
    return value


def duration_hours(what: str, text: str) -> float:
    """Hours of `12h`, `30d`, `2w` or a bare number of days. Raises InvalidValue."""
    match = _DURATION.fullmatch(text.strip().lower())
    hours = float(match[1]) * _HOURS[match[2]] if match else 0.0
    if not 0 < hours < math.inf:
        raise InvalidValue(what, text, "write a duration above 0 like 12h, 30d or 2w")
    return hours
