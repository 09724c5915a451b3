"""Turns an infeasible problem into the limits that are too tight: by how much, in which unit, and what relaxing costs.

Each family of limits is relaxed alone. If no single one helps, the smallest set found by restoring them one by one is
reported: then every limit of the set must give way at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from optimizer.program.problem import Problem, ProgramOffer, ProgramWorkload, Quota, Shortfall, SolverOptions
from optimizer.program.solve import least_peak, solve, unservable

SHARE_STEP = 0.01
"""Shares are reported to the percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One limit: the problem without it, and how much of it the problem needs (given a problem feasible without it)."""

    limit: str
    unit: str
    available: float
    without: Callable[[Problem], Problem]
    needed: Callable[[Problem, SolverOptions], float]


def diagnose(problem: Problem, options: SolverOptions | None = None) -> tuple[Shortfall, ...]:
    """Which limits make the problem infeasible; empty if it is feasible, or impossible whatever the limits.

    One shortfall per limit that would do alone, cheapest first; or all limits of a set that would do together.
    """
    options = options or SolverOptions()
    if impossible := unservable(problem):
        return impossible
    problem = replace(problem, objective="min_cost")
    solution = solve(problem, options)
    if solution.status != "infeasible" or solution.shortfalls:
        return tuple(solution.shortfalls)
    unlimited = replace(problem, limits=replace(problem.limits, budget_usd_per_month=None))
    families = list(_families(unlimited))
    alone = [family for family in families if _feasible(family.without(unlimited), options)]
    if alone:
        found = [_shortfall(family, unlimited, options) for family in alone]
        return tuple(sorted(found, key=lambda one: (one.usd_per_hour is None, one.usd_per_hour or 0.0, one.limit)))
    return _together(unlimited, families, options)


def _together(problem: Problem, families: Sequence[Family], options: SolverOptions) -> tuple[Shortfall, ...]:
    """Relax all, then restore each that can be: what cannot is a smallest set."""
    loose = problem
    for family in families:
        loose = family.without(loose)
    if not _feasible(loose, options):
        return ()
    needed = list(families)
    for family in families:
        rest = [other for other in needed if other is not family]
        trial = problem
        for other in rest:
            trial = other.without(trial)
        if _feasible(trial, options):
            needed = rest
    found = []
    for family in needed:
        others = problem
        for other in needed:
            if other is not family:
                others = other.without(others)
        found.append(_shortfall(family, others, options))
    return tuple(found)


def _shortfall(family: Family, problem: Problem, options: SolverOptions) -> Shortfall:
    needed = family.needed(problem, options)
    return Shortfall(
        limit=family.limit,
        needed=needed,
        available=family.available,
        unit=family.unit,
        usd_per_hour=solve(family.without(problem), options).usd_per_hour,
    )


def _feasible(problem: Problem, options: SolverOptions) -> bool:
    return solve(problem, replace(options, gap=max(options.gap, 0.05))).status != "infeasible"


def _families(problem: Problem) -> Iterator[Family]:
    yield from _capacity_families(problem)
    yield from _share_families(problem)
    yield from _count_families(problem)
    for workload in problem.workloads:
        yield from _workload_families(workload)


def _capacity_families(problem: Problem) -> Iterator[Family]:
    """Quotas, the limit on all accelerators, and the known stock of each kind of accelerator."""
    limits = problem.limits
    for quota in limits.quotas:
        yield Family(
            limit=quota.id,
            unit=quota.unit,
            available=quota.maximum,
            without=partial(_without_quota, quota=quota),
            needed=partial(_least_of_quota, quota=quota),
        )
    if limits.max_accelerators is not None:
        everything = Quota(id="max_accelerators", maximum=0)
        yield Family(
            limit="max_accelerators",
            unit="accelerators",
            available=limits.max_accelerators,
            without=lambda one: replace(one, limits=replace(one.limits, max_accelerators=None)),
            needed=lambda one, options: _least(
                replace(one, limits=replace(one.limits, max_accelerators=None)), everything, options
            ),
        )
    for accelerator in sorted({offer.accelerator for offer in problem.offers if offer.maximum is not None}):
        mine = [offer for offer in problem.offers if offer.accelerator == accelerator]
        if all(offer.maximum is not None for offer in mine):
            yield Family(
                limit=f"stock of {accelerator}",
                unit="accelerators",
                available=sum((offer.maximum or 0) * offer.accelerators_per_unit for offer in mine),
                without=partial(_without_stock, accelerator=accelerator),
                needed=partial(_least_stock, accelerator=accelerator),
            )


def _without_quota(problem: Problem, *, quota: Quota) -> Problem:
    left = tuple(one for one in problem.limits.quotas if one != quota)
    return replace(problem, limits=replace(problem.limits, quotas=left))


def _least_of_quota(problem: Problem, options: SolverOptions, *, quota: Quota) -> float:
    return _least(_without_quota(problem, quota=quota), quota, options)


def _without_stock(problem: Problem, *, accelerator: str) -> Problem:
    def unlimited(offer: ProgramOffer) -> ProgramOffer:
        return replace(offer, maximum=None) if offer.accelerator == accelerator else offer

    return replace(problem, offers=[unlimited(offer) for offer in problem.offers])


def _least_stock(problem: Problem, options: SolverOptions, *, accelerator: str) -> float:
    quota = Quota(id=accelerator, maximum=0, accelerator=accelerator)
    return _least(_without_stock(problem, accelerator=accelerator), quota, options)


def _least(problem: Problem, quota: Quota, options: SolverOptions) -> float:
    least = least_peak(problem, quota, options)
    return float("inf") if least is None else float(ceil(least - 1e-6))


def _share_families(problem: Problem) -> Iterator[Family]:
    """Shares: the least that is feasible, to the percent, by bisection: more share never makes a plan impossible."""
    for field, limit in (("max_spot_share", "max_spot_share"), ("max_provider_share", "max_provider_share")):
        share = getattr(problem.limits, field)
        if share is not None and share < 1:
            yield Family(
                limit=limit,
                unit="share",
                available=share,
                without=partial(_with_limit, field=field, value=None),
                needed=partial(_least_share, field=field, share=share),
            )


def _with_limit(problem: Problem, *, field: str, value: object) -> Problem:
    changes: dict[str, object] = {field: value}
    return replace(problem, limits=replace(problem.limits, **changes))  # type: ignore[arg-type]  # names come from above


def _least_share(problem: Problem, options: SolverOptions, *, field: str, share: float) -> float:
    low, high = int(share / SHARE_STEP), round(1 / SHARE_STEP)
    while high - low > 1:
        middle = (low + high) // 2
        if _feasible(_with_limit(problem, field=field, value=middle * SHARE_STEP), options):
            high = middle
        else:
            low = middle
    return round(high * SHARE_STEP, 2)


def _count_families(problem: Problem) -> Iterator[Family]:
    """Numbers asked for: the most that is feasible below what was asked."""
    limits = problem.limits
    for field, value, unit, least in (
        ("min_providers", limits.min_providers, "providers", 1),
        ("spare_replicas", limits.spare_replicas, "units", 0),
    ):
        if value > least:
            yield Family(
                limit=field,
                unit=unit,
                available=value,
                without=partial(_with_limit, field=field, value=least),
                needed=partial(_most_below, field=field, counts=range(value - 1, least - 1, -1)),
            )


def _most_below(problem: Problem, options: SolverOptions, *, field: str, counts: Iterable[int]) -> float:
    return next(
        (float(count) for count in counts if _feasible(_with_limit(problem, field=field, value=count), options)), 0.0
    )


def _workload_families(workload: ProgramWorkload) -> Iterator[Family]:
    """What a workload asks of its place and its replicas; `needed` is 0: the rule must go."""
    rules: list[tuple[str, str, float, dict[str, object]]] = []
    if workload.regions is not None:
        rules.append(("allowed regions", "regions", len(workload.regions), {"regions": None}))
    if workload.same_region:
        rules.append(("one region for all replicas", "rule", 1, {"same_region": False}))
    if not workload.spot_allowed:
        rules.append(("no spot", "rule", 1, {"spot_allowed": True}))
    if workload.minimum_replicas_by_region:
        total = sum(workload.minimum_replicas_by_region.values())
        rules.append(("minimum replicas by region", "replicas", total, {"minimum_replicas_by_region": {}}))
    for what, unit, available, changes in rules:
        yield Family(
            limit=f"{what} of {workload.id}",
            unit=unit,
            available=available,
            without=partial(_with_workload, name=workload.id, changes=changes),
            needed=lambda _problem, _options: 0.0,
        )


def _with_workload(problem: Problem, *, name: str, changes: dict[str, object]) -> Problem:
    workloads = [
        replace(one, **changes) if one.id == name else one  # type: ignore[arg-type]  # field names come from above
        for one in problem.workloads
    ]
    return replace(problem, workloads=workloads)
