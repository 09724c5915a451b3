"""Turns the spend of a month so far into what the whole month will cost, by three methods that are shown together."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from optimizer.report.money import ZERO, cents

Method = Literal["run_rate", "trend", "driver"]
METHODS: Final[tuple[Method, ...]] = ("run_rate", "trend", "driver")
FEWEST_DAYS_FOR_A_TREND: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a month is expected to cost, in USD; None where the method has nothing to work on."""

    run_rate_usd: Decimal | None = None
    trend_usd: Decimal | None = None
    driver_usd: Decimal | None = None

    def by(self, method: Method) -> Decimal | None:
        """The figure of one method."""
        return {"run_rate": self.run_rate_usd, "trend": self.trend_usd, "driver": self.driver_usd}[method]


def run_rate(spread_usd: Decimal, once_usd: Decimal, elapsed_hours: Decimal, month_hours: Decimal) -> Decimal | None:
    """spread / elapsed x month + once: the hours to come cost what those that passed did.

    `spread_usd` is charged by the hour or day, `once_usd` once a month or less often (upfronts, fees, credits).
    """
    if elapsed_hours <= 0:
        return None
    return cents(spread_usd / elapsed_hours * month_hours + once_usd)


def trend(
    daily_usd: Sequence[Decimal], to_date_usd: Decimal, partial_day_left: Decimal, days_to_come: int
) -> Decimal | None:
    """Spend to date + a least-squares line through the complete days, continued; a day costs at least 0.

    `daily_usd` are the complete days, oldest first; `partial_day_left` is the part of the running day that is left,
    from 0 to 1, and `days_to_come` the whole days after it. None with fewer than three complete days.
    """
    count = len(daily_usd)
    if count < FEWEST_DAYS_FOR_A_TREND:
        return None
    mean_x = Decimal(count + 1) / 2
    mean_y = sum(daily_usd, ZERO) / count
    spread = sum(((x - mean_x) ** 2 for x in range(1, count + 1)), Decimal(0))
    slope = sum(((x - mean_x) * (y - mean_y) for x, y in enumerate(daily_usd, start=1)), Decimal(0)) / spread
    first = count + 1
    ahead = [(first, partial_day_left)] if partial_day_left > 0 else []
    after = first + len(ahead)
    ahead += [(after + day, Decimal(1)) for day in range(days_to_come)]
    rest = sum((max(ZERO, mean_y + slope * (x - mean_x)) * part for x, part in ahead), ZERO)
    return cents(to_date_usd + rest)


def driver(to_date_usd: Decimal, planned_usd_per_hour: Decimal, hours_to_come: Decimal) -> Decimal:
    """Spend to date + the plan for the month's demand over the hours to come."""
    return cents(to_date_usd + planned_usd_per_hour * hours_to_come)
