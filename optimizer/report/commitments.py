"""Turns commitments already bought and the hours that use them into cost, utilisation, coverage and waste."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from optimizer.report.money import ZERO, cents
from optimizer.report.months import Month, hours_between, midnight
from providers.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCommitment:
    """`count` instances committed to for `term_months` from `start`: paid upfront, by the hour, or both.

    `usd_per_hour` and `upfront_usd` are of one instance. `region` None = any region of the provider.
    `recovery_share` is what selling or re-using unused hours brings back, from 0 to 1.
    """

    name: str
    provider: str
    instance_type: str
    count: int
    usd_per_hour: Decimal
    upfront_usd: Decimal
    start: date
    term_months: int
    kind: str = "reserved_instance"
    region: str | None = None
    owner: str | None = None
    recovery_share: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidValue(f"count of commitment {self.name}", self.count, "give at least 1")
        if not self.upfront_usd >= 0 or not self.usd_per_hour >= 0 or not self.upfront_usd + self.usd_per_hour > 0:
            raise InvalidValue(f"price of commitment {self.name}", self.usd_per_hour, "give an hourly price or upfront")

    @property
    def end(self) -> date:
        """The first day after the term."""
        return _months_later(self.start, self.term_months)

    @property
    def effective_usd_per_hour(self) -> Decimal:
        """Of one instance: hourly price + upfront / hours of the term."""
        return self.usd_per_hour + self.upfront_usd / self.term_hours

    @property
    def term_hours(self) -> Decimal:
        return Decimal((self.end - self.start).days * 24)

    def hours_in(self, month: Month) -> Decimal:
        """Hours of the month within the term, of one instance."""
        start, end = midnight(self.start, month.zone), midnight(self.end, month.zone)
        return max(ZERO, hours_between(max(start, month.start), min(end, month.end)))

    def covers(self, provider: str, instance_type: str, region: str | None) -> bool:
        """Whether hours of that machine draw on the commitment."""
        return (self.provider, self.instance_type) == (provider, instance_type) and self.region in (None, region)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentMonth:
    """One commitment in one month, in instance-hours and USD."""

    commitment: HeldCommitment
    available_hours: Decimal
    used_hours: Decimal
    eligible_hours: Decimal
    amortised_usd: Decimal
    cash_usd: Decimal
    waste_usd: Decimal

    @property
    def utilization(self) -> float | None:
        """used / available."""
        return float(self.used_hours / self.available_hours) if self.available_hours else None

    @property
    def coverage(self) -> float | None:
        """used / all hours that could have drawn on it."""
        return float(self.used_hours / self.eligible_hours) if self.eligible_hours else None


def commitment_month(
    commitment: HeldCommitment, month: Month, used_hours: Decimal, eligible_hours: Decimal
) -> CommitmentMonth:
    """Cost and use of a commitment in a month.

    amortised = hours x count x effective price; cash = hours x count x hourly price, + the upfront in the month that
    it is paid; waste = unused hours x effective price x (1 - recovery).
    """
    hours = commitment.hours_in(month) * commitment.count
    starts_here = month.first_day <= commitment.start <= month.last_day
    upfront = commitment.upfront_usd * commitment.count if starts_here else ZERO
    return CommitmentMonth(
        commitment=commitment,
        available_hours=hours,
        used_hours=used_hours,
        eligible_hours=eligible_hours,
        amortised_usd=cents(hours * commitment.effective_usd_per_hour),
        cash_usd=cents(hours * commitment.usd_per_hour + upfront),
        waste_usd=breakage(hours, used_hours, commitment.effective_usd_per_hour, commitment.recovery_share),
    )


def breakage(reserved_hours: Decimal, used_hours: Decimal, usd_per_hour: Decimal, recovery_share: float) -> Decimal:
    """What unused hours cost: (reserved - used) x price x (1 - recovery), at least 0."""
    return cents(max(ZERO, reserved_hours - used_hours) * usd_per_hour * (1 - Decimal(repr(recovery_share))))


def _months_later(start: date, months: int) -> date:
    later = Month(start.year, start.month).plus(months)
    return date(later.year, later.month, min(start.day, later.days))
