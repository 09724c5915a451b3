"""Turns the clock, or COSTOPT_NOW in its place, into the present moment and day."""

import os
from datetime import UTC, date, datetime
from typing import Final

from providers.errors import InvalidValue

_VARIABLE: Final = "COSTOPT_NOW"


def now() -> datetime:
    """The present moment, or that of COSTOPT_NOW (ISO 8601, UTC where no offset is given) for repeatable output."""
    text = os.environ.get(_VARIABLE)
    if not text:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(_VARIABLE, text, "write it like 2026-11-30 or 2026-11-30T12:00:00+00:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def today() -> date:
    """The present day in UTC."""
    return now().astimezone(UTC).date()
