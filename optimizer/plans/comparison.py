"""Finds what the program would choose from other offers, fast, where nothing but a budget limits the choice.

For one workload of one shape at a constant rate, the cheapest offer of each hardware, filled with the replicas that
serve most per accelerator, is all that a best plan needs, and the program is a knapsack (`program.covering`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Final

from optimizer.plans.market import Market, in_order
from optimizer.plans.plan import Fleet, PlannedInstances, PlannedReplicas
from optimizer.plans.sizer import ReplicaKind, Sizer, hardware_of
from optimizer.program.covering import Kind, cheapest_cover, largest_cover
from optimizer.program.problem import Limits, Objective
from providers.offers import Offer, PurchaseOption
from providers.units import HOURS_PER_MONTH

_SPOT: Final = PurchaseOption.SPOT
_ROUNDING: Final = Decimal("1e-9")


class Undecided(Exception):
    """The question goes beyond a knapsack, or the search grew too large: the program has to be solved."""


@dataclass(frozen=True, slots=True)
class _Lot:
    """One instance of an offer with as many equal replicas as it holds; their size divides the instance.

    Or the instances that one replica takes together.
    """

    offer: Offer
    kind: ReplicaKind
    replicas: int
    requests_per_s: float
    """Of the whole instance, after head-room and what interruptions of spot take."""


def is_simple(market: Market, limits: Limits) -> bool:
    """Whether the exact search answers: one workload, shape and period, and no limit but a budget."""
    workload = market.sizers[0].workload
    return (
        len(market.sizers) == 1
        and len(workload.demands) == 1
        and not workload.profile
        and workload.minimum_replicas <= 1
        and not workload.minimum_replicas_by_region
        and workload.regions is None
        and not workload.same_region
        and workload.spot_allowed
        and not market.holdings
        and not market.stock
        and market.terms.horizon_hours is None
        and replace(limits, budget_usd_per_month=None) == Limits()
    )


def compare(
    market: Market,
    offers: Iterable[Offer],
    objective: Objective,
    limits: Limits,
    *,
    precisions: tuple[str, ...] = (),
    at_all: bool = False,
) -> Fleet | None:
    """The fleet of `Market.choose` with the same arguments, but without a ceiling on cost for `min_cost`.

    Raises Undecided where only the program can tell.
    """
    if not is_simple(market, limits):
        raise Undecided
    sizer = market.sizers[0]
    lots = [
        lot
        for offer in _cheapest_by_hardware(
            affordable(offers, objective, limits), partial(market.bundles, precisions=precisions)
        )
        for machines in market.bundles(offer, precisions)
        if (lot := _lot(market, sizer, offer, precisions, machines)) is not None
    ]
    if not lots:
        return None
    kinds = [Kind(float(lot.offer.usd_per_hour) * lot.kind.machines, lot.requests_per_s) for lot in lots]
    rate = 0.0 if at_all else sizer.workload.requests_per_s or 0.0
    counts = _counts(kinds, objective, limits, rate)
    if not any(counts):
        return None
    chosen = [(lot, count) for lot, count in zip(lots, counts, strict=True) if count]
    capacity = sum(lot.requests_per_s * count for lot, count in chosen)
    if objective == "max_throughput" or rate == 0:
        rate = capacity
    return Fleet(
        instances=in_order(PlannedInstances(offer=lot.offer, kept=count * lot.kind.machines) for lot, count in chosen),
        replicas=tuple(
            PlannedReplicas(
                workload=sizer.workload,
                kind=lot.kind,
                offer=lot.offer,
                counts=(lot.replicas * count,),
                flows=((rate * lot.requests_per_s * count / capacity,),),
            )
            for lot, count in chosen
        ),
    )


def _counts(kinds: Sequence[Kind], objective: Objective, limits: Limits, requests_per_s: float) -> tuple[int, ...]:
    if objective == "max_throughput":
        counts = largest_cover(kinds, (limits.budget_usd_per_month or 0.0) / HOURS_PER_MONTH)
    elif requests_per_s > 0:
        counts = cheapest_cover(kinds, requests_per_s)
    else:
        first = min(range(len(kinds)), key=lambda i: (kinds[i].price, -kinds[i].capacity))
        counts = tuple(int(i == first) for i in range(len(kinds)))
    if counts is None:
        raise Undecided
    return counts


def cheapest_of_each(offers: Iterable[Offer]) -> list[Offer]:
    """The cheapest offer of each instance type, spot and offers without a region apart; ties go by place.

    Exact where neither places nor counts are limited: any other offer can be exchanged for it at no higher cost.
    """
    best: dict[tuple[int, bool, bool], Offer] = {}
    for offer in offers:
        key = (id(offer.instance_type), offer.region is None, offer.purchase_option is _SPOT)
        other = best.get(key)
        if (
            other is None
            or offer.usd_per_hour < other.usd_per_hour
            or (offer.usd_per_hour == other.usd_per_hour and _place(offer) < _place(other))
        ):
            best[key] = offer
    return list(best.values())


def _place(offer: Offer) -> tuple[str, str, str]:
    """The part of the key in which offers of one instance type differ."""
    return offer.region or "", offer.zone or "", offer.purchase_option


def affordable(offers: Iterable[Offer], objective: Objective, limits: Limits) -> list[Offer]:
    """The cheapest offer of each instance type, and where a budget is to be filled, only those within it.

    Exact: one instance that costs more than the whole budget is in no plan within it.
    """
    able = cheapest_of_each(offers)
    most = most_usd_per_hour(objective, limits)
    return able if most is None else [offer for offer in able if offer.usd_per_hour <= most]


def most_usd_per_hour(objective: Objective, limits: Limits) -> Decimal | None:
    """The dearest that an instance may be where a budget is to be filled; None where it is not."""
    if objective == "min_cost" or limits.budget_usd_per_month is None:
        return None
    return Decimal(limits.budget_usd_per_month) * (1 + _ROUNDING) / HOURS_PER_MONTH


def _cheapest_by_hardware(offers: Iterable[Offer], bundles: Callable[[Offer], tuple[int, ...]]) -> list[Offer]:
    """One offer a hardware, spot and other options apart, since spot serves less; ties go by key.

    Where a replica takes several instances, what lies between them is part of the hardware.
    """
    best: dict[tuple[str, bool], Offer] = {}
    for offer in offers:
        key = (hardware_of(offer.instance_type, bundles(offer)[0]), offer.purchase_option is _SPOT)
        other = best.get(key)
        if other is None or (offer.usd_per_hour, offer.key) < (other.usd_per_hour, other.key):
            best[key] = offer
    return list(best.values())


def _lot(market: Market, sizer: Sizer, offer: Offer, precisions: tuple[str, ...], machines: int) -> _Lot | None:
    kinds = sizer.replica_kinds(offer.instance_type, precisions, machines=machines)
    if not kinds:
        return None
    best = max(kinds, key=lambda kind: (kind.requests_per_s(0) or 0.0) / kind.accelerators_per_replica)
    replicas = machines * int(offer.instance_type.accelerator_count) // best.accelerators_per_replica
    kept = 1.0 - (market.terms.spot_margin if offer.purchase_option is _SPOT else 0.0)
    served = (best.requests_per_s(0) or 0.0) * replicas * sizer.workload.utilization * kept
    return _Lot(offer, best, replicas, served)
