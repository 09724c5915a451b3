"""Turns a problem into a smaller one with the same optimum; every reduction carries its proof of exactness.

All proofs are exchanges: whatever feasible plan uses what was removed can be changed, at no higher cost and without
breaking a limit, into one that does not.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf

from optimizer.program.market import PoolKey, pool_key, preference
from optimizer.program.problem import Period, Problem, ProgramCandidate, ProgramOffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """The smaller problem, and for each period of the original one the index of the period that stands for it."""

    problem: Problem
    period_of: tuple[int, ...]


def reduce(problem: Problem) -> Reduced:
    """Apply all reductions."""
    problem = drop_useless(problem)
    problem = drop_dominated_candidates(problem)
    problem = drop_dominated_offers(problem)
    problem = drop_offers_beyond_need(problem)
    problem = drop_dominated_hardware(problem)
    return merge_equal_periods(problem)


def unreduced(problem: Problem) -> Reduced:
    return Reduced(problem=problem, period_of=tuple(range(len(problem.periods))))


def drop_useless(problem: Problem) -> Problem:
    """Offers that no candidate runs on or that are not to be had, and candidates that no offer carries.

    Exact: such an offer cannot carry a replica; leaving it out of a plan saves its price and, as limits only bound
    counts from above or ask for replicas, breaks none. Committed units stay: they are paid in every plan.
    """
    used = {candidate.hardware for candidate in problem.candidates}
    offers = [offer for offer in problem.offers if offer.committed or (offer.hardware in used and offer.maximum != 0)]
    carried = {offer.hardware for offer in offers}
    candidates = [candidate for candidate in problem.candidates if candidate.hardware in carried]
    return replace(problem, offers=offers, candidates=candidates)


def drop_dominated_candidates(problem: Problem) -> Problem:
    """A candidate beside another of its workload and hardware that does as much with what fits into its place.

    Exact: with j = g // g' copies of c' in the place of one replica of c, packing holds because j g' <= g, capacity
    because j kappa'_b >= kappa_b for every shape b, and replica minima because j >= 1. With spare units only j = 1 and
    an equal number per unit are compared: max(r - L, 0) + max(r' - L, 0) <= max(r + r' - L, 0) is left after a loss.
    A start costs the longest boot on the hardware: over several periods a candidate that sets it stays.
    """
    rivals: dict[tuple[str, str], list[ProgramCandidate]] = defaultdict(list)
    for candidate in problem.candidates:
        rivals[candidate.workload, candidate.hardware].append(candidate)
    size = {offer.hardware: offer.accelerators_per_unit for offer in problem.offers}
    kept: list[ProgramCandidate] = []
    for group in rivals.values():
        ranked = sorted(group, key=lambda one: (one.accelerators_per_replica, -one.boot_hours, one.id))
        best: list[ProgramCandidate] = []
        for candidate in ranked:
            if not any(_replaces(rival, candidate, problem, size[candidate.hardware]) for rival in best):
                best = [one for one in best if not _replaces(candidate, one, problem, size[candidate.hardware])]
                best.append(candidate)
        kept += best
    return replace(problem, candidates=sorted(kept, key=lambda one: one.id))


def _replaces(rival: ProgramCandidate, candidate: ProgramCandidate, problem: Problem, units: int) -> bool:
    copies = candidate.accelerators_per_replica // rival.accelerators_per_replica
    if copies < 1 or (len(problem.periods) > 1 and rival.boot_hours < candidate.boot_hours):
        return False
    if problem.limits.spare_replicas:
        if units // rival.accelerators_per_replica != units // candidate.accelerators_per_replica:
            return False
        copies = 1
    return _serves_all(rival, candidate, copies)


def _serves_all(rival: ProgramCandidate, candidate: ProgramCandidate, copies: int = 1) -> bool:
    offered = rival.requests_per_s
    return all(copies * offered.get(shape, 0.0) >= rate for shape, rate in candidate.requests_per_s.items())


def drop_dominated_offers(problem: Problem) -> Problem:
    """An offer beside an unlimited one of the same hardware that costs no more and that no limit likes less.

    Exact: move each unit of the dominated offer to the dominating one, replicas and all. It costs no more; the pool is
    the same up to spot (never from firm to spot), so every share, minimum and residency rule sees the same or better;
    the dominating offer is in no quota that the other is not in; it can be bought whenever the other can, because an
    offer sold by the period can also be kept, without a start, in all periods.
    """
    rules = _Dominance(problem)
    order = preference(problem)
    by_hardware: dict[str, list[ProgramOffer]] = defaultdict(list)
    for offer in problem.offers:
        by_hardware[offer.hardware].append(offer)
    kept: list[ProgramOffer] = []
    for offers in by_hardware.values():
        unlimited: list[ProgramOffer] = []
        for offer in sorted(offers, key=order):
            if not offer.committed and any(rules.dominates(rival, offer) for rival in unlimited):
                continue
            kept.append(offer)
            if offer.maximum is None and offer.minimum_order == 1:
                unlimited.append(offer)
    return replace(problem, offers=kept)


class _Dominance:
    """Which of two equally priced or dearer units a problem's limits may prefer."""

    def __init__(self, problem: Problem) -> None:
        self._key_of = pool_key(problem)
        self._quotas = problem.limits.quotas
        self._timed = len(problem.periods) > 1
        self._seen: dict[str, tuple[PoolKey, frozenset[int]]] = {}

    def traits(self, offer: ProgramOffer) -> tuple[PoolKey, frozenset[int]]:
        """The offer's pool and the quotas that it counts against."""
        known = self._seen.get(offer.id)
        if known is None:
            covering = frozenset(index for index, quota in enumerate(self._quotas) if quota.covers(offer))
            known = self._seen[offer.id] = (self._key_of(offer), covering)
        return known

    def dominates(self, rival: ProgramOffer, offer: ProgramOffer) -> bool:
        """Whether a unit of `offer` may always be exchanged for one of `rival`, price aside, on the same hardware."""
        if self._timed and offer.by_period and not rival.by_period:
            return False
        (_, provider, place, spot, eligible), quotas = self.traits(rival)
        (_, other_provider, other_place, other_spot, other_eligible), other_quotas = self.traits(offer)
        return (
            provider == other_provider
            and place == other_place
            and spot <= other_spot
            and eligible >= other_eligible
            and quotas <= other_quotas
            and (not quotas or rival.instances_per_unit <= offer.instances_per_unit)
        )


def drop_offers_beyond_need(problem: Problem) -> Problem:
    """Offers behind so many cheaper units of the same kind that the last of those is never needed.

    Exact: some optimal plan has at most `need` units of a hardware class in a period, the units on which every workload
    could run all its demand with each candidate there, since further units could be dropped. If cheaper units of the
    same traits number at least `need`, then whenever a unit of a dearer offer is in use one of them is free in that
    period and can take its place. This needs units that can be bought by the period (or a single period), no start
    cost, and no limit that could ask for more units than the demand does.
    """
    limits = problem.limits
    timed = len(problem.periods) > 1
    starts_cost = timed and (limits.minimum_hours_up > 0 or any(one.boot_hours for one in problem.candidates))
    shares = limits.max_spot_share is not None or limits.max_provider_share is not None or limits.min_providers > 1
    by_region = any(one.minimum_replicas_by_region for one in problem.workloads)
    if problem.objective == "max_throughput" or starts_cost or shares or by_region:
        return problem
    need = _units_ever_needed(problem)
    rules = _Dominance(problem)
    room: dict[object, float] = defaultdict(float)
    kept = []
    for offer in sorted(problem.offers, key=preference(problem)):
        traits = rules.traits(offer)
        if room[traits] >= need.get(offer.hardware, inf) and not offer.committed:
            continue
        kept.append(offer)
        if offer.minimum_order == 1 and (offer.by_period or not timed):
            room[traits] += inf if offer.maximum is None else offer.maximum
    return replace(problem, offers=kept)


def _units_ever_needed(problem: Problem) -> dict[str, int]:
    size = {offer.hardware: offer.accelerators_per_unit for offer in problem.offers}
    workloads = {workload.id: workload for workload in problem.workloads}
    need: dict[str, int] = defaultdict(int)
    for candidate in problem.candidates:
        per_unit = size[candidate.hardware] // candidate.accelerators_per_replica
        if per_unit:
            workload = workloads[candidate.workload]
            most = replicas_for_all(candidate, workload.shapes, workload.demand, problem)
            need[candidate.hardware] += ceil(max(most, workload.minimum_replicas) / per_unit)
            need[candidate.hardware] += problem.limits.spare_replicas
    return need


def replicas_for_all(
    candidate: ProgramCandidate, shapes: Sequence[str], demand: Sequence[Sequence[float]], problem: Problem
) -> int:
    """Replicas on which the candidate carries, in any period, all that it can serve of a workload."""
    rho = problem.utilisation * (1 - problem.spot_margin)
    shares = [(index, 1 / rate) for index, shape in enumerate(shapes) if (rate := candidate.requests_per_s.get(shape))]
    return max((ceil(sum(row[i] * share for i, share in shares) / rho - 1e-9) for row in demand), default=0) + 1


def drop_dominated_hardware(problem: Problem) -> Problem:
    """An offer beside an unlimited one of other hardware that runs all that the first does, unit for unit.

    Exact: if every candidate c on hardware k has a c' on k' of its workload with g' <= g and kappa' >= kappa for every
    shape, G' >= G and no longer boot, the content of a unit of k moves to a unit of k' as it is. Price and traits as
    for offers of one hardware. Limits on accelerators need G' = G; with spare units the classes at risk change, so
    nothing is dropped.
    """
    limits = problem.limits
    if limits.spare_replicas:
        return problem
    counted = limits.max_accelerators is not None or bool(limits.quotas)
    counted = counted or limits.max_spot_share is not None or limits.max_provider_share is not None
    rules = _Dominance(problem)
    hardware = _HardwareDominance(problem, equal_size=counted)
    kept: list[ProgramOffer] = []
    unlimited: list[ProgramOffer] = []
    for offer in sorted(problem.offers, key=preference(problem)):
        if not offer.committed and any(
            rival.hardware != offer.hardware and rules.dominates(rival, offer) and hardware.covers(rival, offer)
            for rival in unlimited
        ):
            continue
        kept.append(offer)
        if offer.maximum is None and offer.minimum_order == 1:
            unlimited.append(offer)
    return drop_useless(replace(problem, offers=kept))


class _HardwareDominance:
    """Whether one hardware class runs all that another does, remembered by pair."""

    def __init__(self, problem: Problem, *, equal_size: bool) -> None:
        self._timed = len(problem.periods) > 1
        self._equal_size = equal_size
        self._known: dict[tuple[str, str], bool] = {}
        self._candidates: Mapping[str, list[ProgramCandidate]] = _by_hardware(problem.candidates)

    def covers(self, rival: ProgramOffer, offer: ProgramOffer) -> bool:
        pair = (rival.hardware, offer.hardware)
        if pair not in self._known:
            self._known[pair] = self._runs_all(rival, offer)
        return self._known[pair]

    def _runs_all(self, rival: ProgramOffer, offer: ProgramOffer) -> bool:
        size, other_size = rival.accelerators_per_unit, offer.accelerators_per_unit
        if size < other_size or (self._equal_size and size != other_size):
            return False
        if self._timed and self._boot(rival.hardware) > self._boot(offer.hardware):
            return False
        return all(
            any(self._same_or_better(better, candidate) for better in self._candidates.get(rival.hardware, ()))
            for candidate in self._candidates.get(offer.hardware, ())
        )

    def _boot(self, hardware: str) -> float:
        return max((one.boot_hours for one in self._candidates.get(hardware, ())), default=0.0)

    def _same_or_better(self, rival: ProgramCandidate, candidate: ProgramCandidate) -> bool:
        return (
            rival.workload == candidate.workload
            and rival.accelerators_per_replica <= candidate.accelerators_per_replica
            and _serves_all(rival, candidate)
        )


def _by_hardware(candidates: Iterable[ProgramCandidate]) -> dict[str, list[ProgramCandidate]]:
    grouped: dict[str, list[ProgramCandidate]] = defaultdict(list)
    for candidate in candidates:
        grouped[candidate.hardware].append(candidate)
    return grouped


def merge_equal_periods(problem: Problem) -> Reduced:
    """Periods of equal demand as one period of their summed hours.

    Exact without start costs and minimum up-time: periods are then coupled only by what is kept, so the cheaper of two
    equal periods' purchases serves both. With start costs only neighbours merge (the last and the first are
    neighbours), since by the triangle inequality switching in between never saves a start. With a minimum up-time
    longer than a period nothing merges.
    """
    if len(problem.periods) == 1:
        return unreduced(problem)
    starts = problem.limits.minimum_hours_up > 0 or any(one.boot_hours for one in problem.candidates)
    if starts and problem.limits.minimum_hours_up > min(period.hours for period in problem.periods):
        return unreduced(problem)
    columns = [tuple(tuple(w.demand[t]) for w in problem.workloads) for t in range(len(problem.periods))]
    period_of = _stretches(columns) if starts else _classes(columns)
    return Reduced(problem=_with_periods(problem, period_of), period_of=period_of)


def _classes(columns: Sequence[object]) -> tuple[int, ...]:
    first: dict[object, int] = {}
    return tuple(first.setdefault(column, len(first)) for column in columns)


def _stretches(columns: Sequence[object]) -> tuple[int, ...]:
    numbers = [0]
    for before, column in pairwise(columns):
        numbers.append(numbers[-1] + (column != before))
    if columns[0] == columns[-1]:
        numbers = [number if number != numbers[-1] else 0 for number in numbers]
    return tuple(numbers)


def _with_periods(problem: Problem, period_of: Sequence[int]) -> Problem:
    first = {merged: index for index, merged in reversed(list(enumerate(period_of)))}
    merged = sorted(first)
    hours = [sum(p.hours for p, m in zip(problem.periods, period_of, strict=True) if m == number) for number in merged]
    return replace(
        problem,
        periods=tuple(
            Period(id=problem.periods[first[number]].id, hours=total)
            for number, total in zip(merged, hours, strict=True)
        ),
        workloads=tuple(
            replace(workload, demand=tuple(workload.demand[first[number]] for number in merged))
            for workload in problem.workloads
        ),
    )
