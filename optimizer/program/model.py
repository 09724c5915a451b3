"""Builds the integer program of a problem, one function per constraint family; `build` is its table of contents.

Columns, besides those that a family names in its docstring:

    n_o, m_ot   units of offer o kept, and bought in period t (an offer has either: one sold by the period is kept by
                buying it in every period, which costs the same)
    N_pt        units of pool p in period t
    r_cpt       replicas of candidate c on pool p in period t
    E_ct        effective replicas: sum_p (1 - margin if p is spot) r_cpt; an expression, no column
    s           the factor on all demand, for max_throughput

Integrality: r and N are integer. n and m of an offer that is in no other row than its pool's supply and the money are
left continuous: with N integer they fill the pool cheapest first up to integer limits, so whole numbers are optimal,
and `solve` writes them so.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf
from typing import TypeGuard

import numpy as np

from optimizer.program.linear import LinearProgram, Term
from optimizer.program.market import Place, Pool, pools_of
from optimizer.program.packing import counting_is_exact, patterns
from optimizer.program.problem import Problem, ProgramCandidate, ProgramOffer, Quota
from optimizer.program.reduce import replicas_for_all
from optimizer.program.route import Service, Vector, cut_value
from providers.units import HOURS_PER_MONTH

Key = tuple[str, int, int]
"""Candidate id, pool index, period index."""


FEW_CANDIDATES = 12
"""Up to so many candidates the cut of each on its own is worth its row; beyond, only those that turn out violated."""

UNLIMITED_UNITS = 10_000.0
"""Stands for "no limit" where a finite number is needed and units are free of charge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A loss that workload w must survive in period t: what is left of each candidate must serve `fraction` of demand.

    `remaining[c]` are the terms of the effective replicas left of the service's c-th candidate.
    """

    workload: int
    period: int
    fraction: float
    losing: bool
    remaining: tuple[tuple[Term, ...], ...]


@dataclass(slots=True, kw_only=True)
class Model:
    """The linear program and what its columns mean.

    scenarios_of  indices of a workload's scenarios;  cuts  rows of the cuts of a scenario, by its index
    supply_rows   the row of each pool and period that sums its offers;
    packing_rows  the rows that couple replicas with units;  running  (candidate, pool) by (period, workload)
    """

    problem: Problem
    pools: tuple[Pool, ...]
    services: tuple[Service, ...]
    demand: tuple[Vector, ...]
    linear: LinearProgram = field(default_factory=LinearProgram)
    kept: dict[str, int] = field(default_factory=dict)
    bought: dict[tuple[str, int], int] = field(default_factory=dict)
    units: dict[tuple[int, int], int] = field(default_factory=dict)
    replicas: dict[Key, int] = field(default_factory=dict)
    patterns: dict[tuple[int, int, tuple[int, ...]], int] = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    free: set[str] = field(default_factory=set)
    scenarios: list[Scenario] = field(default_factory=list)
    scale: int | None = None
    supply_rows: dict[tuple[int, int], int] = field(default_factory=dict)
    packing_rows: range = range(0)
    cuts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    scenarios_of: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    running: dict[tuple[int, str], list[tuple[ProgramCandidate, int]]] = field(default_factory=dict)

    @property
    def periods(self) -> range:
        return range(len(self.problem.periods))

    def hours_share(self, period: int) -> float:
        """h_t / H: what a unit bought in the period adds to the average price per hour."""
        return self.problem.periods[period].hours / self.problem.cycle_hours

    def amount(self, offer: ProgramOffer, period: int) -> int:
        """The column of the offer's units in a period."""
        return self.bought[offer.id, period] if offer.by_period else self.kept[offer.id]

    def replica_terms(self, workload: str, period: int) -> list[tuple[ProgramCandidate, int, int]]:
        """(candidate, pool, column) of all that a workload may run in a period."""
        return [
            (candidate, pool, self.replicas[candidate.id, pool, period])
            for candidate, pool in self.running.get((period, workload), ())
        ]


def build(problem: Problem, *, peak_of: Quota | None = None) -> Model:
    """The program; with `peak_of`, minimise the most that is ever used of a quota in place of the cost."""
    model = _empty(problem)
    define_units(model)
    define_replicas(model)
    define_packing(model)
    define_minimum_replicas(model)
    define_scenarios(model)
    define_minimum_orders(model)
    define_starts(model)
    define_quotas(model)
    define_accelerator_shares(model)
    define_minimum_providers(model)
    define_regions(model)
    define_objective(model, peak_of)
    define_first_cuts(model)
    return model


def _empty(problem: Problem) -> Model:
    candidates: dict[str, list[ProgramCandidate]] = defaultdict(list)
    for candidate in sorted(problem.candidates, key=lambda one: one.id):
        candidates[candidate.workload].append(candidate)
    return Model(
        problem=problem,
        pools=pools_of(problem),
        services=tuple(Service.of(workload, candidates[workload.id]) for workload in problem.workloads),
        demand=tuple(np.array(workload.demand, dtype=np.float64) for workload in problem.workloads),
    )


def define_units(model: Model) -> None:
    """N_pt = sum_{o in p} (n_o + m_ot),   committed_o <= n_o, m_ot <= maximum_o."""
    timed = len(model.periods) > 1
    for index, pool in enumerate(model.pools):
        for offer in pool.offers:
            if _is_free(model, pool, offer, timed):
                model.free.add(offer.id)
            _define_amounts(model, offer)
        most = sum(inf if offer.maximum is None else offer.maximum for offer in pool.offers)
        for t in model.periods:
            column = model.units[index, t] = model.linear.column(upper=most, integer=True, block=t)
            supply = [(model.amount(offer, t), 1.0) for offer in pool.offers]
            model.supply_rows[index, t] = len(model.linear.rows)
            model.linear.equal([*supply, (column, -1.0)], 0.0)


def _define_amounts(model: Model, offer: ProgramOffer) -> None:
    price = model.problem.effective_usd_per_hour(offer)
    upper = inf if offer.maximum is None else offer.maximum
    integer = offer.id not in model.free
    if not offer.by_period:
        model.kept[offer.id] = model.linear.column(cost=price, lower=offer.committed, upper=upper, integer=integer)
        return
    for t in model.periods:
        model.bought[offer.id, t] = model.linear.column(
            cost=price * model.hours_share(t), lower=offer.committed, upper=upper, integer=integer, block=t
        )


def _is_free(model: Model, pool: Pool, offer: ProgramOffer, timed: bool) -> bool:
    """Whether no row but its pool's supply holds the offer's units."""
    split = any(quota.covers(offer) and not _covers_pool(quota, pool) for quota in model.problem.limits.quotas)
    kept_through = timed and not offer.by_period
    return not (split or kept_through or offer.minimum_order > 1 or _has_starts(model, pool, offer))


def define_replicas(model: Model) -> None:
    """r_cpt integer, for candidates of workloads that may use the pool and replicas that fit on one of its units."""
    by_hardware: dict[str, list[ProgramCandidate]] = defaultdict(list)
    for candidate in model.problem.candidates:
        by_hardware[candidate.hardware].append(candidate)
    for index, pool in enumerate(model.pools):
        for candidate in by_hardware.get(pool.hardware, ()):
            fits = candidate.accelerators_per_replica <= pool.accelerators_per_unit
            if not fits or candidate.workload not in pool.eligible:
                continue
            for t in model.periods:
                model.replicas[candidate.id, index, t] = model.linear.column(integer=True, block=t)
                model.running.setdefault((t, candidate.workload), []).append((candidate, index))


def define_packing(model: Model) -> None:
    """sum_c g_c r_cpt <= G_p N_pt; for one size g:  sum_c r_cpt <= floor(G_p / g) N_pt.

    Where counting accelerators does not mean that replicas fit (sizes that do not divide each other and the unit), the
    units are filled by patterns: y_pt,pattern integer, sum y = N_pt, sum of a size's replicas <= slots in the patterns.
    """
    first_row = len(model.linear.rows)
    on_pool: dict[tuple[int, int], list[tuple[ProgramCandidate, int]]] = defaultdict(list)
    for (t, _), running in model.running.items():
        for candidate, pool in running:
            on_pool[pool, t].append((candidate, model.replicas[candidate.id, pool, t]))
    for (pool, t), running in on_pool.items():
        unit = model.pools[pool].accelerators_per_unit
        units = model.units[pool, t]
        sizes = tuple(sorted({candidate.accelerators_per_replica for candidate, _ in running}))
        if len(sizes) == 1:
            model.linear.at_most([*((column, 1.0) for _, column in running), (units, -float(unit // sizes[0]))], 0.0)
        elif counting_is_exact(sizes, unit):
            taken = [(column, float(candidate.accelerators_per_replica)) for candidate, column in running]
            model.linear.at_most([*taken, (units, -float(unit))], 0.0)
        else:
            _define_patterns(model, pool, t, sizes, running)
    model.packing_rows = range(first_row, len(model.linear.rows))


def _define_patterns(
    model: Model, pool: int, t: int, sizes: tuple[int, ...], running: Sequence[tuple[ProgramCandidate, int]]
) -> None:
    columns = {
        pattern: model.linear.column(integer=True, block=t)
        for pattern in patterns(sizes, model.pools[pool].accelerators_per_unit)
    }
    model.patterns.update({(pool, t, pattern): column for pattern, column in columns.items()})
    model.linear.at_most([*((column, 1.0) for column in columns.values()), (model.units[pool, t], -1.0)], 0.0)
    for position, size in enumerate(sizes):
        replicas = [(column, 1.0) for candidate, column in running if candidate.accelerators_per_replica == size]
        slots = [(column, -float(pattern[position])) for pattern, column in columns.items()]
        model.linear.at_most([*replicas, *slots], 0.0)


def define_minimum_replicas(model: Model) -> None:
    """sum_{c,p} r_cpt >= minimum_w,   and per region over the pools there."""
    for workload in model.problem.workloads:
        for t in model.periods:
            terms = model.replica_terms(workload.id, t)
            if workload.minimum_replicas:
                model.linear.at_least([(column, 1.0) for _, _, column in terms], workload.minimum_replicas)
            for region, minimum in sorted(workload.minimum_replicas_by_region.items()):
                there = [(column, 1.0) for _, pool, column in terms if model.pools[pool].place[1] == region]
                model.linear.at_least(there, minimum)


def define_scenarios(model: Model) -> None:
    """What must be left of the replicas to serve which part of the demand; the cuts of `add_cut` are made for each.

    nothing lost      all E_ct                                            serve the whole demand
    all spot lost     E_ct without spot pools                             serve 1 - max_spot_share
    provider q lost   E_ct without q's pools                              serve 1 - max_provider_share
    units lost        E_ct, but on one class: E_ct - L_c, at least 0      serve the whole demand

    with L_c = spare_replicas x floor(G / g_c), the replicas of c that so many units can hold.
    """
    limits = model.problem.limits
    providers = _providers(model)
    for w in range(len(model.services)):
        for t in model.periods:
            _add_scenario(model, w, t, 1.0, range(len(model.pools)))
            if _below_one(limits.max_spot_share):
                firm = [index for index, pool in enumerate(model.pools) if not pool.spot]
                _add_scenario(model, w, t, 1 - limits.max_spot_share, firm)
            if _below_one(limits.max_provider_share):
                for provider in providers:
                    others = [index for index, pool in enumerate(model.pools) if pool.provider != provider]
                    _add_scenario(model, w, t, 1 - limits.max_provider_share, others)
            if limits.spare_replicas:
                _add_unit_losses(model, w, t)


def _below_one(share: float | None) -> TypeGuard[float]:
    return share is not None and share < 1


def _add_scenario(model: Model, w: int, t: int, fraction: float, left: Sequence[int]) -> None:
    remaining = _effective_terms(model, w, t, left)
    losing = len(left) < len(model.pools) or fraction < 1
    _append(model, Scenario(workload=w, period=t, fraction=fraction, losing=losing, remaining=remaining))


def _append(model: Model, scenario: Scenario) -> None:
    model.scenarios_of[scenario.workload].append(len(model.scenarios))
    model.scenarios.append(scenario)


def _effective_terms(model: Model, w: int, t: int, pools: Container[int]) -> tuple[tuple[Term, ...], ...]:
    """E_ct over some pools, for each candidate of the workload's service."""
    terms: dict[str, list[Term]] = {name: [] for name in model.services[w].candidates}
    for candidate, pool, column in model.replica_terms(model.problem.workloads[w].id, t):
        if pool in pools:
            weight = 1.0 - model.problem.spot_margin if model.pools[pool].spot else 1.0
            terms[candidate.id].append((column, weight))
    return tuple(tuple(found) for found in terms.values())


def _add_unit_losses(model: Model, w: int, t: int) -> None:
    """For each candidate z_ct, what is left of it after the loss: z <= E_ct - L_c v and z <= M v with v binary.

    v = 0 is the case E_ct < L_c, in which nothing is left.
    """
    everything = _effective_terms(model, w, t, range(len(model.pools)))
    left: list[tuple[Term, ...]] = list(everything)
    for index, lost in enumerate(replicas_lost(model.problem, model.services[w])):
        if not everything[index]:
            continue
        column = model.linear.column(block=t)
        some_left = model.linear.column(upper=1.0, integer=True, block=t)
        most = most_replicas(model, w, index)
        model.linear.at_most([(column, 1.0), (some_left, float(lost)), *_negated(everything[index])], 0.0)
        model.linear.at_most([(column, 1.0), (some_left, -most)], 0.0)
        left[index] = ((column, 1.0),)
    by_id = {candidate.id: candidate for candidate in model.problem.candidates}
    hardware = [by_id[name].hardware for name in model.services[w].candidates]
    for lost_class in sorted(set(hardware)):
        remaining = tuple(
            left[index] if mine == lost_class else everything[index] for index, mine in enumerate(hardware)
        )
        _append(model, Scenario(workload=w, period=t, fraction=1.0, losing=True, remaining=remaining))


def replicas_lost(problem: Problem, service: Service) -> list[int]:
    """L_c for each candidate of a service."""
    size = {offer.hardware: offer.accelerators_per_unit for offer in problem.offers}
    by_id = {candidate.id: candidate for candidate in problem.candidates}
    wanted = [by_id[name] for name in service.candidates]
    return [
        problem.limits.spare_replicas * (size.get(one.hardware, 0) // one.accelerators_per_replica) for one in wanted
    ]


def most_replicas(model: Model, w: int, index: int) -> float:
    """A number of replicas of one candidate that some optimal plan never exceeds in a period.

    For min_cost: all demand on this candidate, plus what may be lost, plus every minimum. For max_throughput: what the
    budget would buy of each offer.
    """
    problem, workload = model.problem, model.problem.workloads[w]
    candidate = next(one for one in problem.candidates if one.id == model.services[w].candidates[index])
    lost = replicas_lost(problem, model.services[w])[index]
    if problem.objective == "min_cost":
        minimum = workload.minimum_replicas + sum(workload.minimum_replicas_by_region.values())
        return float(replicas_for_all(candidate, workload.shapes, workload.demand, problem) + lost + minimum)
    offers = [offer for offer in problem.offers if offer.hardware == candidate.hardware]
    return sum(_units_for_budget(problem, offer) for offer in offers) * (
        offers[0].accelerators_per_unit // candidate.accelerators_per_replica
    )


def _units_for_budget(problem: Problem, offer: ProgramOffer) -> float:
    """Units of one offer that the whole budget buys for the shortest period."""
    hours = min(period.hours for period in problem.periods) if offer.by_period else problem.cycle_hours
    price = problem.effective_usd_per_hour(offer) * hours / problem.cycle_hours
    limits = [float(offer.maximum)] if offer.maximum is not None else []
    if price > 0 and problem.limits.budget_usd_per_month is not None:
        limits.append(floor(problem.limits.budget_usd_per_month / HOURS_PER_MONTH / price + 1e-9))
    return min(limits, default=UNLIMITED_UNITS)


def define_minimum_orders(model: Model) -> None:
    """minimum_o u <= n_o <= M u with u binary (m_ot, u_t for each period): nothing, or at least the minimum order."""
    for index, pool in enumerate(model.pools):
        for offer in pool.offers:
            if offer.minimum_order <= 1:
                continue
            most = float(max(_most_units(model, index, offer), offer.minimum_order, offer.committed))
            for column in dict.fromkeys(model.amount(offer, t) for t in model.periods):
                used = model.linear.column(upper=1.0, integer=True, block=model.linear.block[column])
                model.linear.at_least([(column, 1.0), (used, -float(offer.minimum_order))], 0.0)
                model.linear.at_most([(column, 1.0), (used, -most)], 0.0)


def _most_units(model: Model, index: int, offer: ProgramOffer) -> float:
    if offer.maximum is not None:
        return offer.maximum
    if model.problem.objective == "max_throughput":
        return _units_for_budget(model.problem, offer)
    needed = 0.0
    for w, service in enumerate(model.services):
        for c, name in enumerate(service.candidates):
            candidate = next(one for one in model.problem.candidates if one.id == name)
            per_unit = offer.accelerators_per_unit // candidate.accelerators_per_replica
            if candidate.hardware == model.pools[index].hardware and per_unit:
                needed += ceil(most_replicas(model, w, c) / per_unit)
    return needed


def _has_starts(model: Model, pool: Pool, offer: ProgramOffer) -> bool:
    """Whether it costs money or time to change the offer's units from one period to the next."""
    problem = model.problem
    if len(problem.periods) == 1 or not offer.by_period:
        return False
    return _boot_hours(problem, pool) > 0 or problem.limits.minimum_hours_up > min(p.hours for p in problem.periods)


def _boot_hours(problem: Problem, pool: Pool) -> float:
    """The longest boot of the candidates on the pool: any of them may be what a started unit runs."""
    return max((one.boot_hours for one in problem.candidates if one.hardware == pool.hardware), default=0.0)


def define_starts(model: Model) -> None:
    """a_ot >= m_ot - m_o,t-1, paid at boot_hours x price; the cycle closes: before the first period comes the last.

    Minimum up-time: the starts of all periods that began less than minimum_hours_up before t's begin, t's included, are
    still up: their sum <= m_ot.
    """
    problem = model.problem
    for pool in model.pools:
        boot = _boot_hours(problem, pool)
        for offer in pool.offers:
            if not _has_starts(model, pool, offer):
                continue
            price = problem.effective_usd_per_hour(offer)
            started = []
            for t in model.periods:
                start = model.linear.column(cost=price * boot / problem.cycle_hours, block=t)
                before = model.bought[offer.id, t - 1 if t else model.periods[-1]]
                model.linear.at_least([(start, 1.0), (model.bought[offer.id, t], -1.0), (before, 1.0)], 0.0)
                started.append(start)
                model.starts[offer.id, t] = start
            for t in model.periods:
                still_up = [(started[earlier], 1.0) for earlier in _still_up(problem, t)]
                if len(still_up) > 1:
                    model.linear.at_most([*still_up, (model.bought[offer.id, t], -1.0)], 0.0)


def _still_up(problem: Problem, t: int) -> list[int]:
    """Periods, t and back from it around the cycle, in which a unit may have started that must still be up in t."""
    found, elapsed = [t], 0.0
    for back in range(1, len(problem.periods)):
        earlier = (t - back) % len(problem.periods)
        elapsed += problem.periods[earlier].hours
        if elapsed >= problem.limits.minimum_hours_up:
            break
        found.append(earlier)
    return found


def all_quotas(problem: Problem) -> tuple[Quota, ...]:
    """The quotas, with the limit on all accelerators as one of them."""
    most = problem.limits.max_accelerators
    overall = () if most is None else (Quota(id="max_accelerators", maximum=most),)
    return (*problem.limits.quotas, *overall)


def define_quotas(model: Model) -> None:
    """sum of weight_o (n_o + m_ot) over the covered offers <= maximum, every quota and period."""
    for quota in all_quotas(model.problem):
        for t in model.periods:
            if usage := quota_usage(model, quota, t):
                model.linear.at_most(usage, quota.maximum)


def quota_usage(model: Model, quota: Quota, t: int) -> list[Term]:
    """What a period takes from a quota; by the pool where the quota covers all of it."""
    usage: list[Term] = []
    for index, pool in enumerate(model.pools):
        if _covers_pool(quota, pool):
            usage.append((model.units[index, t], float(quota.weight(pool.offers[0]))))
        else:
            covered = [offer for offer in pool.offers if quota.covers(offer)]
            usage += [(model.amount(offer, t), float(quota.weight(offer))) for offer in covered]
    return usage


def _covers_pool(quota: Quota, pool: Pool) -> bool:
    weights = {quota.weight(offer) if quota.covers(offer) else 0 for offer in pool.offers}
    return len(weights) == 1 and 0 not in weights


def define_accelerator_shares(model: Model) -> None:
    """sum over spot pools of G_p N_pt <= max_spot_share x sum over all pools; the same for each provider."""
    limits = model.problem.limits
    for t in model.periods:
        sizes = [(model.units[index, t], float(pool.accelerators_per_unit)) for index, pool in enumerate(model.pools)]
        if _below_one(limits.max_spot_share):
            _limit_share(model, sizes, limits.max_spot_share, [pool.spot for pool in model.pools])
        if _below_one(limits.max_provider_share):
            for provider in _providers(model):
                mine = [pool.provider == provider for pool in model.pools]
                _limit_share(model, sizes, limits.max_provider_share, mine)


def _limit_share(model: Model, sizes: Sequence[Term], share: float, counted: Sequence[bool]) -> None:
    terms = [
        (column, size * ((1.0 if mine else 0.0) - share)) for (column, size), mine in zip(sizes, counted, strict=True)
    ]
    model.linear.at_most(terms, 0.0)


def define_minimum_providers(model: Model) -> None:
    """sum_q y_q >= min_providers,   y_q binary, y_q <= sum of r_cpt on q's pools, every period."""
    minimum = model.problem.limits.min_providers
    if minimum <= 1:
        return
    present = {provider: model.linear.column(upper=1.0, integer=True) for provider in _providers(model)}
    model.linear.at_least([(column, 1.0) for column in present.values()], minimum)
    for provider, column in present.items():
        for t in model.periods:
            running = [
                (replicas, 1.0)
                for (_, pool, period), replicas in model.replicas.items()
                if period == t and model.pools[pool].provider == provider
            ]
            model.linear.at_least([*running, (column, -1.0)], 0.0)


def _providers(model: Model) -> list[str]:
    return sorted({pool.provider for pool in model.pools})


def define_regions(model: Model) -> None:
    """same_region: r_cpt <= M y_place,   sum y_place = 1, y binary: one place per workload for all periods."""
    for w, workload in enumerate(model.problem.workloads):
        if not workload.same_region:
            continue
        most = {name: most_replicas(model, w, index) for index, name in enumerate(model.services[w].candidates)}
        chosen: dict[Place, int] = {}
        for t in model.periods:
            for candidate, pool, column in model.replica_terms(workload.id, t):
                place = model.pools[pool].place
                if place not in chosen:
                    chosen[place] = model.linear.column(upper=1.0, integer=True)
                model.linear.at_most([(column, 1.0), (chosen[place], -most[candidate.id])], 0.0)
        model.linear.equal([(column, 1.0) for column in chosen.values()], 1.0)


def define_objective(model: Model, peak_of: Quota | None) -> None:
    """min_cost: the money that the columns carry. max_throughput: maximise s with money <= budget / 730.

    With `peak_of`: minimise Q, Q >= usage of the quota in every period.
    """
    linear = model.linear
    if peak_of is not None:
        linear.cost = [0.0] * len(linear.cost)
        peak = linear.column(cost=1.0)
        for t in model.periods:
            linear.at_least([(peak, 1.0), *_negated(quota_usage(model, peak_of, t))], 0.0)
    elif model.problem.objective == "max_throughput":
        budget = model.problem.limits.budget_usd_per_month or 0.0
        linear.at_most([(column, cost) for column, cost in enumerate(linear.cost) if cost], budget / HOURS_PER_MONTH)
        linear.cost = [0.0] * len(linear.cost)
        model.scale = linear.column(cost=-1.0)


def _negated(terms: Iterable[Term]) -> list[Term]:
    return [(column, -coefficient) for column, coefficient in terms]


def define_first_cuts(model: Model) -> None:
    """For each workload the cut weighted by what a replica costs, which is the bound on money that all flows obey, and
    for several shapes the cut of each candidate on its own.
    """
    cheapest: dict[str, float] = {}
    for offer in model.problem.offers:
        price = model.problem.effective_usd_per_hour(offer) / offer.accelerators_per_unit
        cheapest[offer.hardware] = min(price, cheapest.get(offer.hardware, inf))
    by_id = {candidate.id: candidate for candidate in model.problem.candidates}
    for w, service in enumerate(model.services):
        used = [by_id[name] for name in service.candidates]
        if not used:  # a workload without demand
            continue
        if (pace := service.pace()) is not None:
            add_cut(model, w, pace)
            continue
        prices = [max(cheapest.get(one.hardware, 0.0), 1e-9) * one.accelerators_per_replica for one in used]
        weights = np.array(prices)
        add_cut(model, w, weights / weights.max())
        if len(used) <= FEW_CANDIDATES:
            for index in range(len(used)):
                add_cut(model, w, service.alone(index))


def add_cut(model: Model, workload: int, weights: Vector) -> None:
    """rho sum_c mu_c E_ct >= s sum_b lambda_bt min_c mu_c / kappa_cb   in every period, for every scenario of losses.

    Holds for every mu >= 0 (see `route`); in a scenario E_ct is what is left and lambda the part still to be served.
    """
    needed = cut_value(model.services[workload], weights, model.demand[workload])
    rho = model.problem.utilisation
    for index in model.scenarios_of[workload]:
        scenario = model.scenarios[index]
        bound = scenario.fraction * float(needed[scenario.period])
        if bound <= 0:
            continue
        model.cuts[index].append(len(model.linear.rows))
        terms = [
            (column, rho * float(weight) * factor)
            for weight, remaining in zip(weights, scenario.remaining, strict=True)
            for column, factor in remaining
            if weight
        ]
        if model.scale is None:
            model.linear.at_least(terms, bound)
        else:
            model.linear.at_least([*terms, (model.scale, -bound)], 0.0)
