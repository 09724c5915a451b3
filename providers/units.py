"""Conversion factors, in one place: bytes, hours, money per period."""

from typing import Final

GIB: Final = 2**30
"""Bytes in one GiB."""

GB: Final = 10**9
"""Bytes in one GB."""

MIB: Final = 2**20
"""Bytes in one MiB."""

BITS_PER_BYTE: Final = 8

HOURS_PER_DAY: Final = 24

HOURS_PER_WEEK: Final = 168

HOURS_PER_MONTH: Final = 730
"""Hours of a planning month: 8760 / 12. A named calendar month has its own hours."""

HOURS_PER_YEAR: Final = 8760

MINUTES_PER_HOUR: Final = 60

SECONDS_PER_HOUR: Final = 3600

MS_PER_S: Final = 1000

USD_DECIMALS: Final = 6
"""Digits kept of a price per hour; sellers publish at most as many for whole instances."""
