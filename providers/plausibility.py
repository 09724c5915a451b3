"""Says whether a figure is a price at all, and whether it is within the bounds that no seller leaves."""

from decimal import Decimal
from typing import Final

from providers.offers import InstanceType

LOWEST_USD_PER_ACCELERATOR_HOUR: Final = Decimal("0.01")
HIGHEST_USD_PER_ACCELERATOR_HOUR: Final = Decimal(60)
"""The dearest accelerator sold by the hour, GB200 on Azure, is at about 39 USD (2026-06)."""


def not_a_price(usd_per_hour: Decimal) -> str | None:
    """Why the figure cannot be the price of anything, or None."""
    if not usd_per_hour.is_finite():
        return "price is not a number"
    if usd_per_hour == 0:
        return "price of zero"
    if usd_per_hour < 0:
        return "negative price"
    return None


def implausible(usd_per_hour: Decimal, kind: InstanceType) -> str | None:
    """Why the price of a whole instance cannot be one, or None. Fractions are judged by the whole device."""
    reason = not_a_price(usd_per_hour)
    if reason:
        return reason
    per_accelerator = usd_per_hour / Decimal(str(kind.accelerator_count))
    if not LOWEST_USD_PER_ACCELERATOR_HOUR <= per_accelerator <= HIGHEST_USD_PER_ACCELERATOR_HOUR:
        return (
            f"outside {LOWEST_USD_PER_ACCELERATOR_HOUR} to {HIGHEST_USD_PER_ACCELERATOR_HOUR} USD per accelerator-hour"
        )
    return None
