"""Turns a problem into a smaller one with the same optimum; every reduction carries its proof of exactness.

All proofs are exchanges: whatever feasible plan uses what was removed can be changed, at no higher cost and without
breaking a limit, into one that does not.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf

from optimizer.program.market import Place, pool_key, preference
from optimizer.program.packing import counting_is_exact
from optimizer.program.problem import Period, Problem, ProgramCandidate, ProgramOffer, ProgramWorkload

Traits = tuple[str, Place, bool, frozenset[str], frozenset[int], int, bool]
"""Provider, place, spot, eligible workloads, quotas, instances per unit, whether sold by the period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """The smaller problem, and for each period of the original one the index of the period that stands for it."""

    problem: Problem
    period_of: tuple[int, ...]


def reduce(problem: Problem) -> Reduced:
    """Apply all reductions."""
    problem = drop_useless(problem)
    problem = drop_dominated_candidates(problem)
    problem = drop_finer_candidates(problem)
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


def drop_finer_candidates(problem: Problem) -> Problem:
    """A candidate of g accelerators beside one of m g that does at least m times as much, where all else is so coarse.

    Exact where the unit and every other replica that the hardware may hold are multiples of m g: what they leave free
    is one too, so r replicas of the fine candidate leave room for ceil(r / m) of the coarse one, which do as much. The
    number of replicas falls, but not to none, so no minimum above 1 may be asked for; what a lost unit takes along
    changes, so not with spares.
    """
    counted = {one.id for one in problem.workloads if _counts_replicas(one)}
    if problem.limits.spare_replicas:
        return problem
    size = {offer.hardware: offer.accelerators_per_unit for offer in problem.offers}
    kept: list[ProgramCandidate] = []
    for hardware, group in _by_hardware(problem.candidates).items():
        left = sorted(group, key=lambda one: (one.accelerators_per_replica, one.id))
        while len(left) > 1 and left[0].workload not in counted and _has_coarser(left, size[hardware], problem):
            left = left[1:]
        kept += left
    return replace(problem, candidates=sorted(kept, key=lambda one: one.id))


def _counts_replicas(workload: ProgramWorkload) -> bool:
    """Whether fewer, but some, replicas that do as much could break a minimum."""
    return max(workload.minimum_replicas, *workload.minimum_replicas_by_region.values(), 0) > 1


def _has_coarser(ranked: Sequence[ProgramCandidate], unit: int, problem: Problem) -> bool:
    """Whether the first and finest of one hardware's candidates gives way to another."""
    fine, others = ranked[0], ranked[1:]
    coarse = others[0].accelerators_per_replica
    times = coarse // fine.accelerators_per_replica
    if times < 1 or coarse % fine.accelerators_per_replica or unit % coarse:
        return False
    if any(other.accelerators_per_replica % coarse for other in others):
        return False
    return any(
        rival.workload == fine.workload
        and rival.accelerators_per_replica == coarse
        and not (len(problem.periods) > 1 and rival.boot_hours < fine.boot_hours)
        and all(rival.requests_per_s.get(shape, 0.0) >= times * rate for shape, rate in fine.requests_per_s.items())
        for rival in others
    )


def drop_dominated_offers(problem: Problem) -> Problem:
    """An offer beside an unlimited one of the same hardware that costs no more and that no limit likes less.

    Exact: move each unit of the dominated offer to the dominating one, replicas and all. It costs no more; the pool is
    the same up to spot (never from firm to spot), so every share, minimum and residency rule sees the same or better;
    the dominating offer is in no quota that the other is not in; it can be bought whenever the other can, because an
    offer sold by the period can also be kept, without a start, in all periods.
    """
    rules = _Dominance(problem)
    unlimited: dict[str, list[ProgramOffer]] = defaultdict(list)
    settled: set[tuple[str, Traits]] = set()
    kept: list[ProgramOffer] = []
    for offer in sorted(problem.offers, key=preference(problem)):
        rivals = unlimited[offer.hardware]
        kind = (offer.hardware, rules.traits(offer))
        if not offer.committed:
            if kind in settled:
                continue
            if any(rules.dominates(rival, offer) for rival in rivals):
                settled.add(kind)
                continue
        kept.append(offer)
        if offer.maximum is None and offer.minimum_order == 1:
            rivals.append(offer)
    return replace(problem, offers=kept)


class _Dominance:
    """Which of two equally priced or dearer units a problem's limits may prefer."""

    def __init__(self, problem: Problem) -> None:
        self._key_of = pool_key(problem)
        self._quotas = problem.limits.quotas
        self._timed = len(problem.periods) > 1
        self._seen: dict[tuple[object, ...], Traits] = {}

    def traits(self, offer: ProgramOffer) -> Traits:
        """What limits can tell about the offer: its pool but for the hardware, its quotas, when it can be bought."""
        look: tuple[object, ...] = (offer.provider, offer.region, offer.purchase_option)
        if self._quotas:
            look = (*look, offer.accelerator, offer.instance_type, offer.instances_per_unit)
        known = self._seen.get(look)
        if known is None:
            _, provider, place, spot, eligible = self._key_of(offer)
            covering = frozenset(index for index, quota in enumerate(self._quotas) if quota.covers(offer))
            instances = offer.instances_per_unit if covering else 1
            flexible = offer.by_period or not self._timed
            known = self._seen[look] = (provider, place, spot, eligible, covering, instances, flexible)
        return known

    def dominates(self, rival: ProgramOffer, offer: ProgramOffer) -> bool:
        """Whether a unit of `offer` may always be exchanged for one of `rival`, hardware and price aside."""
        mine, other = self.traits(rival), self.traits(offer)
        if mine == other:
            return True
        provider, place, spot, eligible, quotas, instances, flexible = mine
        return (
            (provider, place) == other[:2]
            and spot <= other[2]
            and eligible >= other[3]
            and quotas <= other[4]
            and (not quotas or instances <= other[5])
            and flexible >= other[6]
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
    room: dict[tuple[str, Traits], float] = defaultdict(float)
    kept = []
    for offer in sorted(problem.offers, key=preference(problem)):
        kind = (offer.hardware, rules.traits(offer))
        if room[kind] >= need.get(offer.hardware, inf) and not offer.committed:
            continue
        kept.append(offer)
        if offer.minimum_order == 1 and (offer.by_period or not timed):
            room[kind] += inf if offer.maximum is None else offer.maximum
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
    """An offer beside an unlimited one of other hardware, j units of which do all that a unit of the first does.

    Exact: put j units in the place of each; they cost no more and do as much (see `_HardwareDominance`), and no limit
    that tells the two apart is in force (traits as for offers of one hardware). Limits on accelerators need j G' = G,
    limits on instances j = 1. With spare units the classes at risk change, so nothing is dropped.
    """
    limits = problem.limits
    if limits.spare_replicas:
        return problem
    counted = limits.max_accelerators is not None or bool(limits.quotas)
    counted = counted or limits.max_spot_share is not None or limits.max_provider_share is not None
    by_instance = any(quota.unit == "instances" for quota in limits.quotas)
    rules, hardware = _Dominance(problem), _HardwareDominance(problem)
    price = problem.effective_usd_per_hour

    def replaces(rival: ProgramOffer, offer: ProgramOffer) -> bool:
        if rival.hardware == offer.hardware or not rules.dominates(rival, offer):
            return False
        units = hardware.units_in_place_of(rival, offer)
        if counted and units * rival.accelerators_per_unit != offer.accelerators_per_unit:
            return False
        return units * price(rival) <= price(offer) and not (by_instance and units > 1)

    kept: list[ProgramOffer] = []
    unlimited: list[ProgramOffer] = []
    for offer in sorted(problem.offers, key=preference(problem)):
        if not offer.committed and any(replaces(rival, offer) for rival in unlimited):
            continue
        kept.append(offer)
        if offer.maximum is None and offer.minimum_order == 1:
            unlimited.append(offer)
    return drop_useless(replace(problem, offers=kept))


class _HardwareDominance:
    """How many units of one hardware class do all that one unit of another does, remembered by pair."""

    def __init__(self, problem: Problem) -> None:
        self._timed = len(problem.periods) > 1
        self._known: dict[tuple[str, str], float] = {}
        self._candidates: Mapping[str, list[ProgramCandidate]] = _by_hardware(problem.candidates)
        (first, *others) = problem.workloads
        self._exchangeable = not others and not _counts_replicas(first)

    def units_in_place_of(self, rival: ProgramOffer, offer: ProgramOffer) -> float:
        """j, inf if no number of units does."""
        pair = (rival.hardware, offer.hardware)
        if pair not in self._known:
            mine, other = (self._candidates.get(hardware, []) for hardware in pair)
            sizes = (rival.accelerators_per_unit, offer.accelerators_per_unit)
            if self._timed and _longest_boot(mine) > _longest_boot(other):
                self._known[pair] = inf
            else:
                service = self._units_for_service(mine, other, *sizes) if self._exchangeable else inf
                self._known[pair] = min(self._units_for_replicas(mine, other, *sizes), service)
        return self._known[pair]

    @staticmethod
    def _units_for_replicas(
        mine: Sequence[ProgramCandidate], other: Sequence[ProgramCandidate], size: int, other_size: int
    ) -> float:
        """Move the content as it is: each c has a c' of its workload with g' <= g and kappa' >= kappa for every shape.

        On one unit if G' >= G; on ceil(G / G') if counting accelerators is exact for the sizes g' on G'.
        """
        twins = []
        for candidate in other:
            twin = next((one for one in mine if _same_or_better(one, candidate)), None)
            if twin is None:
                return inf
            twins.append(twin.accelerators_per_replica)
        if size >= other_size:
            return 1
        return -(-other_size // size) if counting_is_exact(twins, size) else inf

    @staticmethod
    def _units_for_service(
        mine: Sequence[ProgramCandidate], other: Sequence[ProgramCandidate], size: int, other_size: int
    ) -> float:
        """Serve with other replicas, for one workload without minima above 1: a unit of k carries at most

            sum_c r_c max_b(kappa_cb / kappa'_b)  <=  G max_c max_b (kappa_cb / kappa'_b) / g_c

        replicas' worth of c' (floor(G / g) in place of G / g_c for a single c); j units of k' hold j floor(G' / g').
        """
        best = inf
        for one in mine:
            per_unit = size // one.accelerators_per_replica
            worth = max(
                (
                    (
                        other_size // c.accelerators_per_replica
                        if len(other) == 1
                        else other_size / c.accelerators_per_replica
                    )
                    * max((k / one.requests_per_s.get(b, 1e-300) for b, k in c.requests_per_s.items()), default=0.0)
                    for c in other
                ),
                default=0.0,
            )
            if per_unit and worth < 1e9:
                best = min(best, max(1, ceil(worth / per_unit)))
        return best


def _longest_boot(candidates: Iterable[ProgramCandidate]) -> float:
    return max((one.boot_hours for one in candidates), default=0.0)


def _same_or_better(rival: ProgramCandidate, candidate: ProgramCandidate) -> bool:
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
