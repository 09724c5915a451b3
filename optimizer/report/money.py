"""Rounds money the one way that every format of a report uses: lines to the cent, totals by adding lines."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

CENT: Final = Decimal("0.01")
MICRO: Final = Decimal("0.000001")
ZERO: Final = Decimal("0.00")


def cents(amount: Decimal) -> Decimal:
    """USD to the cent, halves away from zero; what rounds to nothing has no sign."""
    return amount.quantize(CENT, ROUND_HALF_UP) + ZERO


def micros(amount: Decimal) -> Decimal:
    """A price per unit to 10^-6 USD, as sellers publish them."""
    return amount.quantize(MICRO, ROUND_HALF_UP)


def exact(value: float) -> Decimal:
    """The decimal that a number is written as: 0.1 is 0.1."""
    return Decimal(repr(value))
