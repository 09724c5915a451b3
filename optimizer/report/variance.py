"""Turns budgets, spend and forecasts into variances, fired alerts, and a change into price, volume and mix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from optimizer.report.money import ZERO, cents

Basis = Literal["actual", "forecast"]
Level = Literal["ok", "watch", "over"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Shares of a budget at which somebody wants to hear: of what was spent, and of what is forecast."""

    actual: tuple[float, ...] = (0.5, 0.8, 1.0)
    forecast: tuple[float, ...] = (1.0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A threshold of a budget, and whether it is reached."""

    subject: str
    basis: Basis
    threshold: float
    budget_usd: Decimal
    amount_usd: Decimal

    @property
    def fired(self) -> bool:
        return self.amount_usd >= self.budget_usd * Decimal(repr(self.threshold))

    def __str__(self) -> str:
        return f"{self.basis}>={self.threshold:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance:
    """Forecast against budget; a positive `usd` is over budget. `share` is of the budget."""

    usd: Decimal
    share: float | None
    level: Level


def variance(budget_usd: Decimal | None, forecast_usd: Decimal | None, watch_from: float = 0.9) -> Variance | None:
    """forecast - budget; `watch` from `watch_from` of the budget on, `over` above it. None where one is unknown."""
    if budget_usd is None or forecast_usd is None:
        return None
    usd = forecast_usd - budget_usd
    level: Level = "over" if usd > 0 else "watch" if forecast_usd >= budget_usd * Decimal(repr(watch_from)) else "ok"
    return Variance(usd=usd, share=float(usd / budget_usd) if budget_usd else None, level=level)


def alerts(
    subject: str,
    budget_usd: Decimal | None,
    actual_usd: Decimal | None,
    forecast_usd: Decimal | None,
    thresholds: Thresholds,
) -> list[Alert]:
    """Every threshold of a budget with what it is held against; none without a budget."""
    if budget_usd is None:
        return []
    amounts: Sequence[tuple[Basis, Decimal | None, tuple[float, ...]]] = (
        ("actual", actual_usd, thresholds.actual),
        ("forecast", forecast_usd, thresholds.forecast),
    )
    return [
        Alert(subject=subject, basis=basis, threshold=threshold, budget_usd=budget_usd, amount_usd=amount)
        for basis, amount, shares in amounts
        if amount is not None
        for threshold in shares
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bought:
    """A quantity of one thing bought in a period, and its price per unit in USD; the price may be unknown."""

    quantity: Decimal
    usd_per_unit: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of cost, split so that price + volume + mix = after - before, to the cent."""

    before_usd: Decimal
    after_usd: Decimal
    price_usd: Decimal
    volume_usd: Decimal
    mix_usd: Decimal
    unpriced: tuple[str, ...] = ()
    """Things whose earlier price is not known: taken as unchanged, so that they count as mix."""

    @property
    def usd(self) -> Decimal:
        return self.after_usd - self.before_usd


def split_change(
    before: Mapping[str, Bought], after: Mapping[str, Bought], known: Mapping[str, Decimal] | None = None
) -> Change:
    """Price, volume and mix of a change between two periods, over things measured in one unit.

    `known` are earlier prices of things that were not bought before.

    With q, p quantity and price of thing i, Q = sum q, P0 = sum(q0 p0) / Q0:
    price = sum (p1 - p0) q1;  volume = (Q1 - Q0) P0;  mix = sum p0 q1 - P0 Q1. Where nothing was bought before, all of
    sum p0 q1 is volume. An unknown p0 of a thing bought after is taken as p1 and named in `unpriced`.
    """
    spent_before = sum((_cost(item) for item in before.values()), ZERO)
    spent_after = sum((_cost(item) for item in after.values()), ZERO)
    quantity_before = sum((item.quantity for item in before.values()), ZERO)
    quantity_after = sum((item.quantity for item in after.values()), ZERO)
    earlier = dict(known or {})
    earlier |= {key: item.usd_per_unit for key, item in before.items() if item.usd_per_unit is not None}
    unpriced = tuple(sorted(key for key in after if key not in earlier))
    at_old_prices = sum(
        (item.quantity * (earlier.get(key) or item.usd_per_unit or ZERO) for key, item in after.items()), ZERO
    )
    volume = (quantity_after - quantity_before) * spent_before / quantity_before if quantity_before else at_old_prices
    change, price, volume = cents(spent_after) - cents(spent_before), cents(spent_after - at_old_prices), cents(volume)
    return Change(
        before_usd=cents(spent_before),
        after_usd=cents(spent_after),
        price_usd=price,
        volume_usd=volume,
        mix_usd=change - price - volume,
        unpriced=unpriced,
    )


def _cost(item: Bought) -> Decimal:
    return item.quantity * (item.usd_per_unit or ZERO)
