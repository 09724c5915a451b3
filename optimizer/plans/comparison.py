"""Finds what the program would choose from other offers, fast, where nothing but a budget limits the choice.

Without further limits the cheapest offer of each hardware, filled with the replicas that serve most per accelerator,
is all that a best plan needs, and the program is a knapsack (`program.covering`): the same optimum without a solver.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from optimizer.plans.market import merged, planned_replicas
from optimizer.plans.plan import Fleet, PlannedInstances
from optimizer.plans.sizer import Sizer
from optimizer.program.covering import Kind, cheapest_cover, largest_cover
from optimizer.program.problem import Limits, Objective
from optimizer.sizing.candidates import SizedCandidate
from providers.offers import Offer
from providers.units import HOURS_PER_MONTH


class Undecided(Exception):
    """The limits go beyond a budget, or the search grew too large."""


@dataclass(frozen=True, slots=True)
class _Lot:
    """One instance of an offer with as many equal replicas as it holds; their size divides the instance."""

    offer: Offer
    candidate: SizedCandidate
    replicas: int

    @property
    def requests_per_s(self) -> float:
        """Of the whole instance, before head-room."""
        return self.candidate.requests_per_s.value * self.replicas


def compare(
    sizer: Sizer,
    offers: Iterable[Offer],
    objective: Objective,
    limits: Limits,
    *,
    requests_per_s: float,
    precisions: tuple[str, ...] = (),
) -> Fleet | None:
    """The fleet of `Market.choose` with the same arguments, but without a ceiling on cost for `min_cost`.

    Raises Undecided where only the program can tell.
    """
    if replace(limits, budget_usd_per_month=None) != Limits():
        raise Undecided
    lots = [lot for offer in _cheapest_by_hardware(sizer, offers) if (lot := _lot(sizer, offer, precisions))]
    if not lots:
        return None
    utilization = sizer.workload.utilization
    kinds = [Kind(float(lot.offer.usd_per_hour), lot.requests_per_s * utilization) for lot in lots]
    counts = _counts(kinds, objective, limits, requests_per_s)
    if not any(counts):
        return None
    chosen = [(lot, count) for lot, count in zip(lots, counts, strict=True) if count]
    capacity = sum(lot.requests_per_s * count for lot, count in chosen)
    sought = objective == "max_throughput" or requests_per_s == 0
    rate = capacity * utilization if sought else requests_per_s
    return Fleet(
        instances=merged(PlannedInstances(offer=lot.offer, count=count) for lot, count in chosen),
        replicas=tuple(
            planned_replicas(
                sizer,
                lot.candidate,
                lot.offer,
                lot.replicas * count,
                requests_per_s=rate * lot.requests_per_s * count / capacity,
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


def _cheapest_by_hardware(sizer: Sizer, offers: Iterable[Offer]) -> list[Offer]:
    """One offer a hardware; ties go by key."""
    best: dict[str, Offer] = {}
    for offer in offers:
        hardware = sizer.hardware(offer.instance_type)
        other = best.get(hardware)
        if (
            other is None
            or offer.usd_per_hour < other.usd_per_hour
            or (offer.usd_per_hour == other.usd_per_hour and offer.key < other.key)
        ):
            best[hardware] = offer
    return list(best.values())


def _lot(sizer: Sizer, offer: Offer, precisions: tuple[str, ...]) -> _Lot | None:
    candidates = sizer.candidates(offer.instance_type, precisions)
    if not candidates:
        return None
    best = max(candidates, key=lambda c: c.requests_per_s.value / c.accelerators_per_replica)
    return _Lot(offer, best, int(offer.instance_type.accelerator_count) // best.accelerators_per_replica)
