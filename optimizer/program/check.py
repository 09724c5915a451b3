"""Re-evaluates every constraint of the original problem on a finished solution, in exact arithmetic.

Counts are compared as integers and money as fractions. Flows are real numbers that a solver found, so sums of them may
be off by a relative TOLERANCE; they too are summed exactly, in fixed point.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np

from optimizer.program.packing import fits
from optimizer.program.problem import (
    Problem,
    ProgramCandidate,
    ProgramOffer,
    ProgramWorkload,
    Quota,
    Solution,
    SolverOptions,
)
from optimizer.program.route import TOLERANCE, Service, route
from providers.errors import SolverError
from providers.units import HOURS_PER_MONTH

FIXED_POINT_BITS = 96
ONE = 2**FIXED_POINT_BITS
INVERSE_TOLERANCE = round(1 / TOLERANCE)


def check(problem: Problem, solution: Solution) -> None:
    """Raise SolverError naming the first constraint that `solution` breaks."""
    for broken in broken_constraints(problem, solution):
        raise SolverError(f"the solver's plan breaks a constraint: {broken}; try another --solver and report this")


def broken_constraints(problem: Problem, solution: Solution) -> Iterable[str]:
    """What the solution breaks, in words; nothing if it is a plan."""
    facts = _Facts(problem, solution)
    yield from _units_are_for_sale(facts)
    yield from _replicas_fit(facts)
    yield from _demand_is_served(facts)
    yield from _minima_are_kept(facts)
    yield from _quotas_are_kept(facts)
    yield from _shares_are_kept(facts)
    yield from _losses_are_survived(facts)
    yield from _units_stay_up(facts)
    yield from _money_adds_up(facts)


class _Facts:
    """The problem and the solution, indexed by period."""

    def __init__(self, problem: Problem, solution: Solution) -> None:
        self.problem = problem
        self.solution = solution
        self.offers = {offer.id: offer for offer in problem.offers}
        self.candidates = {candidate.id: candidate for candidate in problem.candidates}
        self.periods = [period.id for period in problem.periods]
        self.workloads = {workload.id: workload for workload in problem.workloads}
        self.services = {
            workload.id: Service.of(workload, [one for one in problem.candidates if one.workload == workload.id])
            for workload in problem.workloads
        }
        self.bought = set(solution.kept) | {offer for offer, _ in solution.bought}
        self.used = [self.offers[name] for name in sorted(self.bought)]
        self.placed: dict[str, dict[tuple[str, str], int]] = {period: defaultdict(int) for period in self.periods}
        self.of_workload: dict[tuple[str, str], dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
        for placement in solution.placements:
            key = (placement.candidate, placement.offer)
            self.placed[placement.period][key] += placement.replicas
            self.of_workload[self.candidates[placement.candidate].workload, placement.period][key] += placement.replicas

    def effective(self, workload: str, period: str, without: Iterable[str] = ()) -> dict[str, Fraction]:
        """E_ct by candidate: replicas, those on spot less the margin, without those on some offers."""
        lost = set(without)
        margin = Fraction(self.problem.spot_margin)
        total: dict[str, Fraction] = defaultdict(Fraction)
        for (candidate, offer), count in self.of_workload[workload, period].items():
            if offer not in lost:
                total[candidate] += count * (1 - margin if self.offers[offer].is_spot else Fraction(1))
        return total


def _units_are_for_sale(facts: _Facts) -> Iterable[str]:
    for (name, _), count in facts.solution.bought.items():
        if count and not facts.offers[name].by_period:
            yield f"{name} cannot be bought by the period"
    for offer in facts.problem.offers:
        if offer.id not in facts.bought and not offer.committed:
            continue
        for period in facts.periods:
            units = facts.solution.units(offer.id, period)
            if units < offer.committed:
                yield f"{offer.id}: {units} units in {period} of {offer.committed} committed"
            if offer.maximum is not None and units > offer.maximum:
                yield f"{offer.id}: {units} units in {period}, at most {offer.maximum}"
            if 0 < units < offer.minimum_order:
                yield f"{offer.id}: {units} units in {period}, minimum order {offer.minimum_order}"


def _replicas_fit(facts: _Facts) -> Iterable[str]:
    for period in facts.periods:
        on_offer: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        total: dict[str, int] = defaultdict(int)
        for (name, offer_name), count in facts.placed[period].items():
            candidate, offer = facts.candidates[name], facts.offers[offer_name]
            on_offer[offer_name][candidate.accelerators_per_replica] += count
            total[name] += count
            if not _may_run(facts.workloads[candidate.workload], candidate, offer):
                yield f"{name} may not run on {offer_name}"
        for offer_name, sizes in on_offer.items():
            unit = facts.offers[offer_name].accelerators_per_unit
            if not fits(sizes, unit, facts.solution.units(offer_name, period)):
                yield f"replicas {dict(sizes)} do not fit on {offer_name} in {period}"
        chosen = {name: count for (name, at), count in facts.solution.replicas.items() if at == period}
        if chosen != {name: count for name, count in total.items() if count}:
            yield f"replicas in {period} are not those placed"


def _may_run(workload: ProgramWorkload, candidate: ProgramCandidate, offer: ProgramOffer) -> bool:
    return (
        candidate.hardware == offer.hardware
        and (workload.regions is None or offer.region in workload.regions)
        and (workload.spot_allowed or not offer.is_spot)
    )


def _demand_is_served(facts: _Facts) -> Iterable[str]:
    """sum_c x = s lambda;   sum_b x / kappa <= rho E."""
    served: dict[tuple[str, str, str], int] = defaultdict(int)
    flows: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (name, shape, period), rate in facts.solution.flows.items():
        flows[name, period][shape] = rate
        served[facts.candidates[name].workload, shape, period] += _fixed(rate)
    scale = facts.solution.scale or 0.0
    for t, period in enumerate(facts.periods):
        for workload in facts.problem.workloads:
            for shape, rate in zip(workload.shapes, workload.demand[t], strict=True):
                got, wanted = served[workload.id, shape, period], _fixed(rate * scale)
                if abs(got - wanted) * INVERSE_TOLERANCE > wanted:
                    yield f"{workload.id}/{shape} in {period}: {got / ONE} of {rate * scale} requests/s"
    effective = {
        (name, period): count
        for period in facts.periods
        for workload in facts.problem.workloads
        for name, count in facts.effective(workload.id, period).items()
    }
    for (name, period), mine in flows.items():
        load = _load(facts.candidates[name], mine)
        room = (
            Fraction(facts.problem.utilisation) * effective.get((name, period), Fraction(0)) * (1 + Fraction(TOLERANCE))
        )
        if load > room:
            yield f"{name} in {period}: load {float(load):.6f} of {float(room):.6f} replicas"


def _load(candidate: ProgramCandidate, flows: dict[str, float]) -> Fraction:
    """sum_b x_b / kappa_b, rounded up in fixed point: exact fractions of many capacities would grow without end."""
    total = 0
    for shape, rate in flows.items():
        upper, lower = rate.as_integer_ratio()
        numerator, denominator = candidate.requests_per_s[shape].as_integer_ratio()
        total += -(-((upper * denominator) << FIXED_POINT_BITS) // (lower * numerator))
    return Fraction(total, ONE)


def _fixed(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return (numerator << FIXED_POINT_BITS) // denominator


def _minima_are_kept(facts: _Facts) -> Iterable[str]:
    for period in facts.periods:
        by_place: dict[str, dict[tuple[str, str | None], int]] = defaultdict(lambda: defaultdict(int))
        running: dict[str, int] = defaultdict(int)
        for (name, offer_name), count in facts.placed[period].items():
            offer = facts.offers[offer_name]
            by_place[facts.candidates[name].workload][offer.provider, offer.region] += count
            running[offer.provider] += count
        if 1 < facts.problem.limits.min_providers > sum(count > 0 for count in running.values()):
            yield f"{len(running)} providers in {period}, at least {facts.problem.limits.min_providers}"
        for workload in facts.problem.workloads:
            places = by_place[workload.id]
            if sum(places.values()) < workload.minimum_replicas:
                yield f"{workload.id} in {period}: fewer than {workload.minimum_replicas} replicas"
            for region, minimum in workload.minimum_replicas_by_region.items():
                if sum(count for (_, there), count in places.items() if there == region) < minimum:
                    yield f"{workload.id} in {period}: fewer than {minimum} replicas in {region}"
    yield from _places_are_one(facts)


def _places_are_one(facts: _Facts) -> Iterable[str]:
    for workload in facts.problem.workloads:
        if workload.same_region:
            places = {
                (facts.offers[offer].provider, facts.offers[offer].region)
                for period in facts.periods
                for (name, offer), count in facts.placed[period].items()
                if count and facts.candidates[name].workload == workload.id
            }
            if len(places) > 1:
                yield f"{workload.id} runs in {len(places)} places, not in one"


def _quotas_are_kept(facts: _Facts) -> Iterable[str]:
    limits = facts.problem.limits
    overall = () if limits.max_accelerators is None else (Quota(id="all", maximum=limits.max_accelerators),)
    for quota in (*limits.quotas, *overall):
        for period in facts.periods:
            used = sum(
                quota.weight(offer) * facts.solution.units(offer.id, period)
                for offer in facts.used
                if quota.covers(offer)
            )
            if used > quota.maximum:
                yield f"quota {quota.id} in {period}: {used} {quota.unit}, at most {quota.maximum}"


def _shares_are_kept(facts: _Facts) -> Iterable[str]:
    limits = facts.problem.limits
    for period in facts.periods:
        size = {offer.id: offer.accelerators_per_unit * facts.solution.units(offer.id, period) for offer in facts.used}
        total = sum(size.values())
        if limits.max_spot_share is not None:
            spot = sum(size[offer.id] for offer in facts.used if offer.is_spot)
            if spot > Fraction(limits.max_spot_share) * total + Fraction(TOLERANCE):
                yield f"{spot} of {total} accelerators on spot in {period}"
        if limits.max_provider_share is not None:
            for provider in {offer.provider for offer in facts.used}:
                mine = sum(size[offer.id] for offer in facts.used if offer.provider == provider)
                if mine > Fraction(limits.max_provider_share) * total + Fraction(TOLERANCE):
                    yield f"{mine} of {total} accelerators with {provider} in {period}"


def _losses_are_survived(facts: _Facts) -> Iterable[str]:
    """What is left after each loss that the limits name still serves its part of the demand."""
    for t, period in enumerate(facts.periods):
        for workload in facts.problem.workloads:
            service = facts.services[workload.id]
            demand = np.array(workload.demand[t], dtype=np.float64) * (facts.solution.scale or 0.0)
            for lost, fraction, left in _losses(facts, workload, period):
                replicas = np.array([float(left.get(name, 0)) for name in service.candidates])
                theta = route(service, demand * fraction, replicas, SolverOptions()).theta
                if theta > facts.problem.utilisation * (1 + 2 * TOLERANCE):
                    yield f"{workload.id} in {period} does not survive the loss of {lost}"


def _losses(
    facts: _Facts, workload: ProgramWorkload, period: str
) -> Iterable[tuple[str, float, Mapping[str, Fraction]]]:
    """(what is lost, the part of demand to serve then, effective replicas left)."""
    limits, used = facts.problem.limits, facts.used
    if limits.max_spot_share is not None:
        spot = [offer.id for offer in used if offer.is_spot]
        yield "all spot", 1 - limits.max_spot_share, facts.effective(workload.id, period, spot)
    if limits.max_provider_share is not None:
        for provider in sorted({offer.provider for offer in used}):
            mine = [offer.id for offer in used if offer.provider == provider]
            yield provider, 1 - limits.max_provider_share, facts.effective(workload.id, period, mine)
    if limits.spare_replicas:
        everything = facts.effective(workload.id, period)
        size = {offer.hardware: offer.accelerators_per_unit for offer in facts.problem.offers}
        for hardware in sorted({facts.candidates[name].hardware for name in everything}):
            left = dict(everything)
            for name in everything:
                if facts.candidates[name].hardware == hardware:
                    per_unit = size[hardware] // facts.candidates[name].accelerators_per_replica
                    left[name] = max(Fraction(0), left[name] - limits.spare_replicas * per_unit)
            yield f"{limits.spare_replicas} units of {hardware}", 1.0, left


def _units_stay_up(facts: _Facts) -> Iterable[str]:
    """Units started less than minimum_hours_up before a period begins are still there in it."""
    minimum, count = facts.problem.limits.minimum_hours_up, len(facts.periods)
    hours = [period.hours for period in facts.problem.periods]
    if minimum <= min(hours) or count == 1:
        return
    for offer in facts.used:
        units = [facts.solution.units(offer.id, period) for period in facts.periods]
        for t in range(count):
            young, age, back = 0, 0.0, 0
            while age < minimum and back < count:
                young += max(0, units[t - back] - units[t - back - 1])
                age += hours[t - back - 1]
                back += 1
            if offer.by_period and young > units[t]:
                yield f"{offer.id} in {facts.periods[t]}: {young} units must still be up, {units[t]} are"


def _money_adds_up(facts: _Facts) -> Iterable[str]:
    """The price per hour added again in fractions, and the budget where it is a limit of the program."""
    problem, solution = facts.problem, facts.solution
    boot: dict[str, float] = defaultdict(float)
    for candidate in problem.candidates:
        boot[candidate.hardware] = max(boot[candidate.hardware], candidate.boot_hours)
    total = Fraction(0)
    for offer in facts.used:
        units = [solution.units(offer.id, period) for period in facts.periods]
        paid = sum(
            (Fraction(period.hours) * count for period, count in zip(problem.periods, units, strict=True)), Fraction(0)
        )
        if offer.by_period:
            starts: list[int] = [max(0, units[t] - units[t - 1]) for t in range(len(units))]
            paid += Fraction(boot[offer.hardware]) * sum(starts)
        total += Fraction(problem.effective_usd_per_hour(offer)) * paid
    total /= Fraction(problem.cycle_hours)
    stated = Fraction(solution.usd_per_hour or 0.0)
    if abs(total - stated) > Fraction(1, 10**9) * max(total, Fraction(1)):
        yield f"{float(total)} USD per hour, not {float(stated)}"
    budget = problem.limits.budget_usd_per_month
    if problem.objective == "max_throughput" and budget is not None:
        per_month = total * HOURS_PER_MONTH
        if per_month > Fraction(budget) * Fraction(1 + TOLERANCE):  # the solver's own tolerance on a row
            yield f"{float(per_month)} USD per month, at most {budget}"
