"""Turns the solver's column values into a solution in whole units, replicas on units, and the routing split."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from optimizer.program.cuts import rounded
from optimizer.program.model import Model
from optimizer.program.packing import pack, pack_by_patterns
from optimizer.program.problem import Placement, Problem, ProgramOffer, Solution, SolverOptions, Status
from optimizer.program.reduce import Reduced
from optimizer.program.route import route
from optimizer.program.solver import Answer
from providers.errors import SolverError

PROVEN_GAP = 1e-6
"""Relative gap below which an answer is called optimal: the precision of the solver's own arithmetic."""

_CROSSED = 1e-4
"""Relative distance on the wrong side of the bound that the solver's tolerances on rows cannot explain."""

Amounts = dict[tuple[str, int], int]
"""Units by offer id and period index."""

Content = Mapping[object, int]
"""Replicas by candidate id on one unit."""


def read_out(problem: Problem, reduced: Reduced, model: Model, answer: Answer, options: SolverOptions) -> Solution:
    """The solution in the original problem's periods, priced anew from its whole numbers."""
    values = rounded(model, answer.values or ())
    contents = _pack_replicas(model, values)
    amounts = _fill_pools(model, values, contents)
    placed = _place(model, amounts, contents)
    scale = _scale_served(model, values, options)
    flows, utilisation = _split(model, values, scale, options)
    usd_per_hour = price_of(reduced.problem, amounts)
    objective, bound = (usd_per_hour, answer.bound) if model.scale is None else (scale, -answer.bound)
    gap = _gap(objective, bound) if model.scale is None else _gap(bound, objective)
    kept = _kept(model, amounts)
    bought = {(offer, t): count - kept.get(offer, 0) for (offer, t), count in amounts.items()}
    replicas: dict[tuple[str, int], int] = defaultdict(int)
    for (candidate, _, t), column in model.replicas.items():
        replicas[candidate, t] += round(values[column])
    spread = _Spread([period.id for period in problem.periods], reduced.period_of)
    return Solution(
        status=_status(gap, options),
        usd_per_hour=usd_per_hour,
        scale=scale,
        kept=kept,
        bought={(offer, name): more for name, (offer,), more in spread(bought) if more},
        replicas={(candidate, name): count for name, (candidate,), count in spread(replicas) if count},
        flows={(candidate, shape, name): rate for name, (candidate, shape), rate in spread(flows)},
        utilisation={(candidate, name): part for name, (candidate,), part in spread(utilisation)},
        placements=tuple(
            Placement(candidate=candidate, offer=offer, period=name, replicas=count)
            for name, (candidate, offer), count in spread(placed)
        ),
        bound=bound,
        gap=gap,
        solver=answer.solver,
        variables=len(model.linear.cost),
        constraints=len(model.linear.rows),
        nodes=answer.nodes,
        offers_after_reduction=len(reduced.problem.offers),
    )


class _Spread:
    """Repeats what was found for a merged period in every period that it stands for."""

    def __init__(self, names: Sequence[str], period_of: Sequence[int]) -> None:
        self._stands_for = list(zip(names, period_of, strict=True))

    def __call__(self, found: Mapping[tuple[Any, ...], Any]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
        """(period id, the key without its period index, value) of a mapping whose keys end in a period index."""
        by_period: dict[int, list[tuple[tuple[str, ...], Any]]] = defaultdict(list)
        for key, value in found.items():
            by_period[key[-1]].append((key[:-1], value))
        for name, merged in self._stands_for:
            for rest, value in by_period[merged]:
                yield name, rest, value


def _gap(above: float, below: float) -> float:
    """The relative distance of what is reached and what is proven. Raises SolverError where they have crossed."""
    largest = max(abs(above), abs(below))
    gap = (above - below) / largest if largest > 0 else 0.0
    if gap < -_CROSSED:
        raise SolverError(f"the answer {above} is better than the bound {below} that the solver proved: a fault of one")
    return max(0.0, gap)


def _status(gap: float, options: SolverOptions) -> Status:
    if gap <= PROVEN_GAP:
        return "optimal"
    return "within_gap" if gap <= options.gap + PROVEN_GAP else "feasible"


def _pack_replicas(model: Model, values: Sequence[float]) -> dict[tuple[int, int], list[Content]]:
    """What runs on each unit of each pool and period, fullest unit first."""
    sizes = {candidate.id: candidate.accelerators_per_replica for candidate in model.problem.candidates}
    items: dict[tuple[int, int], list[tuple[object, int, int]]] = defaultdict(list)
    for (candidate, pool, t), column in model.replicas.items():
        if count := round(values[column]):
            items[pool, t].append((candidate, sizes[candidate], count))
    chosen: dict[tuple[int, int], dict[tuple[int, ...], int]] = defaultdict(dict)
    for (pool, t, pattern), column in model.patterns.items():
        chosen[pool, t][pattern] = round(values[column])
    contents: dict[tuple[int, int], list[Content]] = {}
    for (pool, t), waiting in items.items():
        unit = model.pools[pool].accelerators_per_unit
        units = pack(waiting, unit)
        if (pool, t) in chosen:
            present = sorted({sizes[one] for one, at, period in model.replicas if (at, period) == (pool, t)})
            by_pattern = pack_by_patterns(waiting, chosen[pool, t], present)
            units = min(units, by_pattern, key=len)
        contents[pool, t] = list(units)
    return contents


def _fill_pools(
    model: Model, values: Sequence[float], contents: Mapping[tuple[int, int], Sequence[Content]]
) -> Amounts:
    """Whole units by offer: what the program fixed, and each pool's free offers cheapest first up to what it needs.

    Units that carry nothing are only kept where a share or a minimum may count on them.
    """
    limits = model.problem.limits
    counted = limits.max_spot_share is not None or limits.max_provider_share is not None
    amounts: Amounts = {}
    for index, pool in enumerate(model.pools):
        for t in model.periods:
            wanted = len(contents.get((index, t), ()))
            if counted:
                wanted = max(wanted, round(values[model.units[index, t]]))
            for offer in pool.offers:
                fixed = offer.committed if offer.id in model.free else round(values[model.amount(offer, t)])
                amounts[offer.id, t] = fixed
                wanted -= fixed
            for offer in pool.offers:
                if wanted > 0 and offer.id in model.free:
                    more = min(wanted, inf if offer.maximum is None else offer.maximum - offer.committed)
                    amounts[offer.id, t] += int(more)
                    wanted -= int(more)
            if wanted > 0:
                raise SolverError(f"the solver's answer needs {wanted} more units of {pool.hardware} than it buys")
    return amounts


def _place(
    model: Model, amounts: Amounts, contents: Mapping[tuple[int, int], Sequence[Content]]
) -> dict[tuple[str, str, int], int]:
    """Replicas by candidate, offer and period: kept units are filled before those bought by the period."""
    placed: dict[tuple[str, str, int], int] = defaultdict(int)
    for (pool, t), units in contents.items():
        room = _units_in_order(model.pools[pool].offers, amounts, t)
        for content in sorted(units, key=lambda one: sorted((str(key), n) for key, n in one.items())):
            offer = next(room)
            for candidate, count in content.items():
                placed[str(candidate), offer, t] += count
    return placed


def _units_in_order(offers: Sequence[ProgramOffer], amounts: Amounts, t: int) -> Iterator[str]:
    for offer in sorted(offers, key=lambda one: one.by_period):
        for _ in range(amounts[offer.id, t]):
            yield offer.id


def _scale_served(model: Model, values: Sequence[float], options: SolverOptions) -> float:
    """1, or for max_throughput the largest factor on demand that these whole replicas serve in every scenario."""
    if model.scale is None:
        return 1.0
    largest = inf
    for scenario in model.scenarios:
        demand = model.demand[scenario.workload][scenario.period] * scenario.fraction
        left = np.array([max(0.0, sum(values[i] * f for i, f in terms)) for terms in scenario.remaining])
        theta = route(model.services[scenario.workload], demand, left, options).theta
        if theta > 0:
            largest = min(largest, model.problem.utilisation / theta)
    return largest


def _split(
    model: Model, values: Sequence[float], scale: float, options: SolverOptions
) -> tuple[dict[tuple[str, str, int], float], dict[tuple[str, int], float]]:
    """Flows by candidate, shape and period, and each candidate's utilisation, at the least peak of it."""
    flows: dict[tuple[str, str, int], float] = {}
    utilisation: dict[tuple[str, int], float] = {}
    for scenario in model.scenarios:
        if scenario.losing:
            continue
        service, t = model.services[scenario.workload], scenario.period
        effective = np.array([sum(values[i] * f for i, f in terms) for terms in scenario.remaining])
        demand = model.demand[scenario.workload][t] * scale
        routing = route(service, demand, effective, options)
        for c, candidate in enumerate(service.candidates):
            if effective[c] <= 0:
                continue
            served = routing.flows[c] > 0
            load = float((service.share[c][served] * routing.flows[c][served]).sum())
            utilisation[candidate, t] = load / float(effective[c])
            for b in np.flatnonzero(served).tolist():
                flows[candidate, service.shapes[b], t] = float(routing.flows[c, b])
    return flows, utilisation


def price_of(problem: Problem, amounts: Mapping[tuple[str, int], int]) -> float:
    """Average USD per hour: sum_o price_o sum_t h_t units_ot / H, plus starts at boot_hours x price / H."""
    boot: dict[str, float] = defaultdict(float)
    for candidate in problem.candidates:
        boot[candidate.hardware] = max(boot[candidate.hardware], candidate.boot_hours)
    hours = [period.hours for period in problem.periods]
    total = 0.0
    for offer in problem.offers:
        units = [amounts.get((offer.id, t), 0) for t in range(len(hours))]
        unit_hours = sum(count * h for count, h in zip(units, hours, strict=True))
        if offer.by_period:
            starts = sum(max(0, units[t] - units[t - 1]) for t in range(len(units)))
            unit_hours += starts * boot[offer.hardware]
        total += problem.effective_usd_per_hour(offer) * unit_hours
    return total / problem.cycle_hours


def _kept(model: Model, amounts: Amounts) -> dict[str, int]:
    """Units of an offer that are there in every period."""
    lowest = {
        offer.id: min(amounts[offer.id, t] for t in model.periods) for pool in model.pools for offer in pool.offers
    }
    return {offer: count for offer, count in lowest.items() if count}
