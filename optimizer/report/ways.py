"""Says what one way to get the capacity costs: by the hour, over months, at a part of the hours, against another."""

import math
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Final, Literal

from optimizer.report.money import ZERO, cents, micros
from providers.units import HOURS_PER_MONTH

WayKind = Literal["mixed plan", "provider", "quote", "hardware", "hosted API"]
HORIZONS: Final = (12, 36)
UTILIZATIONS: Final = (0.3, 0.5, 0.7, 0.9)
_LATEST_BREAK_EVEN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Tco:
    """Cost over a number of months, in USD to the cent; a part that is not known is None and not in the total."""

    months: int
    compute_usd: Decimal
    storage_usd: Decimal | None
    egress_usd: Decimal | None
    support_usd: Decimal | None

    @property
    def usd(self) -> Decimal:
        """What is known, added up."""
        parts = (self.storage_usd, self.egress_usd, self.support_usd)
        return self.compute_usd + sum((part for part in parts if part is not None), ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to get the capacity.

    `usd_per_hour` recurs for all of it, `upfront_usd` is paid at the start of each term. `by_use`: hours that are not
    needed cost nothing. `bound`: the hourly price is owed to the end of the term; hardware that is owned can be
    switched off. `gpus` None = not known to the buyer. `gaps` keep it from being compared; `flags` are to be asked.
    """

    kind: WayKind
    name: str
    seller: str
    purchase_option: str
    how: str
    accelerators: str
    gpus: int | None
    region: str | None
    term_months: int | None
    upfront_usd: Decimal
    usd_per_hour: Decimal | None
    by_use: bool
    bound: bool
    commitment_kind: str | None = None
    storage_usd_per_month: Decimal | None = None
    egress_usd_per_month: Decimal | None = None
    support_share: Decimal | None = None
    tokens_per_month: Decimal | None = None
    usd_per_useful_gpu_hour: Decimal | None = None
    as_of: date | None = None
    source: str = ""
    interruption: str = ""
    capacity: str = ""
    risks: tuple[str, ...] = field(default=())
    flags: tuple[str, ...] = field(default=())
    gaps: tuple[str, ...] = field(default=())

    @property
    def effective_usd_per_hour(self) -> Decimal | None:
        """Hourly price + upfront over the term's hours."""
        if self.usd_per_hour is None:
            return None
        if not self.upfront_usd:
            return self.usd_per_hour
        return self.usd_per_hour + self.upfront_usd / ((self.term_months or 1) * HOURS_PER_MONTH)

    @property
    def usd_per_month(self) -> Decimal | None:
        """Effective price of a planning month of 730 hours, all of them needed."""
        hourly = self.effective_usd_per_hour
        return None if hourly is None else cents(hourly * HOURS_PER_MONTH)

    def bound_months(self, months: int) -> int:
        """Months that are paid for where so many are needed: whole terms."""
        return math.ceil(months / self.term_months) * self.term_months if self.term_months else months

    def tco(self, months: int) -> Tco | None:
        """Cost of needing the capacity for so many months, every hour; None without a price.

        compute = upfronts of whole terms + hourly price x hours; a term is owed to its end. Support is a share of it.
        """
        if self.usd_per_hour is None:
            return None
        paid = self.bound_months(months) if self.bound else months
        terms = self.bound_months(months) // self.term_months if self.term_months else 1
        compute = cents(self.upfront_usd * terms + self.usd_per_hour * HOURS_PER_MONTH * paid)
        return Tco(
            months=months,
            compute_usd=compute,
            storage_usd=_times(self.storage_usd_per_month, months),
            egress_usd=_times(self.egress_usd_per_month, months),
            support_usd=None if self.support_share is None else cents(compute * self.support_share),
        )

    def job_usd(self, hours: Decimal) -> Decimal | None:
        """Compute cost of a job that needs the capacity once, for so many hours."""
        if self.usd_per_hour is None:
            return None
        if self.by_use:
            return cents(self.usd_per_hour * hours)
        months = math.ceil(hours / HOURS_PER_MONTH)
        if self.bound:
            found = self.tco(months)
            return None if found is None else found.compute_usd
        terms = self.bound_months(months) // self.term_months if self.term_months else 1
        return cents(self.upfront_usd * terms + self.usd_per_hour * hours)

    def usd_per_million_tokens(self, utilization: float = 1.0) -> Decimal | None:
        """Compute per million tokens, input and output, where the capacity is needed in that share of the hours.

        What is paid by use costs the same per token; all else is spread over fewer tokens.
        """
        month = self.effective_usd_per_hour
        if month is None or not self.tokens_per_month:
            return None
        share = Decimal(1) if self.by_use else Decimal(repr(utilization))
        return micros(month * HOURS_PER_MONTH * 1_000_000 / (self.tokens_per_month * share))

    def month_usd(self, utilization: float) -> Decimal | None:
        """Compute of a month in which the capacity is needed in that share of the hours."""
        hourly = self.effective_usd_per_hour
        if hourly is None:
            return None
        share = Decimal(repr(utilization)) if self.by_use else Decimal(1)
        return cents(hourly * HOURS_PER_MONTH * share)

    def paid_until(self, month: int) -> Decimal | None:
        """Cash paid for compute until the end of a month, all hours needed; upfronts at the start of each term."""
        if self.usd_per_hour is None:
            return None
        terms = math.ceil(month / self.term_months) if self.term_months else 1
        return cents(self.upfront_usd * terms + self.usd_per_hour * HOURS_PER_MONTH * month)


def break_even_utilization(way: Way, reference: Way) -> float | None:
    """The share of hours from which `way`, paid in all of them, is cheaper than `reference`, paid by use.

    None where `way` is paid by use itself, or is dearer even when every hour is needed.
    """
    ours, theirs = way.effective_usd_per_hour, reference.effective_usd_per_hour
    if way.by_use or ours is None or not theirs or ours > theirs:
        return None
    return float(ours / theirs)


def break_even_month(way: Way, reference: Way) -> int | None:
    """The first month at whose end no more was paid for `way` than for `reference`, all hours needed.

    None where there is nothing to wait for (no upfront), or where it never comes within five years.
    """
    if way is reference or not way.upfront_usd:
        return None
    for month in range(1, _LATEST_BREAK_EVEN + 1):
        ours, theirs = way.paid_until(month), reference.paid_until(month)
        if ours is None or theirs is None:
            return None
        if ours <= theirs:
            return month
    return None


def _times(usd_per_month: Decimal | None, months: int) -> Decimal | None:
    return None if usd_per_month is None else cents(usd_per_month * months)
