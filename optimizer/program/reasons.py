"""Turns a solved problem into reasons: what one more of a limit would save, and the best fleets without what is in use.

Everything here is a re-solve of a slightly changed problem, so each figure is the difference of two optima (to the gap
asked for), not a shadow price of the relaxation, which says little where units are whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from optimizer.program.problem import Limits, Problem, ProgramOffer, Quota, Solution, SolverOptions
from optimizer.program.solve import solve
from providers.units import HOURS_PER_MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """Relaxing `limit` by `change` `unit` saves `usd_per_month`, or for max_throughput raises the scale by `scale`."""

    limit: str
    change: float
    unit: str
    usd_per_month: float
    scale: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The best plan without one thing that the chosen plan uses; `usd_per_hour` more than the chosen one costs."""

    without: str
    solution: Solution
    usd_per_hour: float


def marginal_values(problem: Problem, solution: Solution, options: SolverOptions | None = None) -> tuple[Marginal, ...]:
    """What each binding limit costs at its margin, largest saving first; limits that cost nothing are left out."""
    found = []
    for limit, change, unit, relaxed in _relaxations(problem, solution):
        better = solve(relaxed, options)
        if better.usd_per_hour is None or solution.usd_per_hour is None:
            continue
        if problem.objective == "max_throughput":
            gain = (better.scale or 0.0) - (solution.scale or 0.0)
            saving = 0.0
        else:
            gain, saving = 0.0, (solution.usd_per_hour - better.usd_per_hour) * HOURS_PER_MONTH
        if saving > 0.005 or gain > 1e-6 * (solution.scale or 1.0):
            found.append(Marginal(limit=limit, change=change, unit=unit, usd_per_month=saving, scale=gain))
    return tuple(sorted(found, key=lambda one: (-one.usd_per_month, -one.scale, one.limit)))


def runner_ups(
    problem: Problem, solution: Solution, options: SolverOptions | None = None, *, attribute: str = "accelerator"
) -> tuple[RunnerUp, ...]:
    """The best plans without each accelerator (or provider, region, purchase_option) in use, cheapest first.

    Where there is no plan without it, there is no entry.
    """
    used = sorted({str(getattr(offer, attribute)) for offer in problem.offers if _most_used(problem, solution, offer)})
    found = []
    for name in used:
        others = [one for one in problem.offers if str(getattr(one, attribute)) != name or one.committed]
        other = solve(replace(problem, offers=others), options)
        if other.status == "infeasible" or other.usd_per_hour is None:
            continue
        more = other.usd_per_hour - (solution.usd_per_hour or 0.0)
        found.append(RunnerUp(without=name, solution=other, usd_per_hour=more))
    return tuple(sorted(found, key=lambda one: (one.usd_per_hour, one.without)))


def break_even_share(problem: Problem, kept: ProgramOffer, by_period: ProgramOffer) -> float:
    """The share of hours from which a kept unit costs no more than one bought for just those hours.

    kept price / price by the period; above 1 the commitment never pays.
    """
    price = problem.effective_usd_per_hour(by_period)
    return problem.effective_usd_per_hour(kept) / price if price > 0 else float("inf")


def _most_used(problem: Problem, solution: Solution, offer: ProgramOffer) -> int:
    return max(solution.units(offer.id, period.id) for period in problem.periods)


def _relaxations(problem: Problem, solution: Solution) -> Iterator[tuple[str, float, str, Problem]]:
    """(limit, change, unit, problem with the limit relaxed) for each limit that the solution may be bound by."""
    limits = problem.limits
    for index, quota in enumerate(limits.quotas):
        if step := _binding_step(problem, solution, quota, quota.maximum):
            wider = replace(quota, maximum=quota.maximum + step)
            quotas = (*limits.quotas[:index], wider, *limits.quotas[index + 1 :])
            yield quota.id, step, quota.unit, _with(problem, replace(limits, quotas=quotas))
    if limits.max_accelerators is not None:
        overall = Quota(id="max_accelerators", maximum=limits.max_accelerators)
        if step := _binding_step(problem, solution, overall, overall.maximum):
            more = replace(limits, max_accelerators=limits.max_accelerators + step)
            yield overall.id, step, "accelerators", _with(problem, more)
    for offer in problem.offers:
        if offer.maximum is not None and _most_used(problem, solution, offer) >= offer.maximum > 0:
            wider_stock = replace(offer, maximum=offer.maximum + 1)
            offers = [wider_stock if one is offer else one for one in problem.offers]
            yield f"stock of {offer.id}", 1, "units", replace(problem, offers=offers)
    yield from _softer_rules(problem)


def _binding_step(problem: Problem, solution: Solution, quota: Quota, maximum: int) -> int:
    """The step that lets one more of the largest covered unit in; 0 if there is room already or nothing is covered."""
    weights = [quota.weight(offer) for offer in problem.offers if quota.covers(offer)]
    if not weights:
        return 0
    peak = max(
        sum(quota.weight(o) * solution.units(o.id, period.id) for o in problem.offers if quota.covers(o))
        for period in problem.periods
    )
    largest = max(weights)
    return largest if maximum - peak < largest else 0


def _softer_rules(problem: Problem) -> Iterator[tuple[str, float, str, Problem]]:
    limits = problem.limits
    if limits.max_spot_share is not None and limits.max_spot_share < 1:
        more = min(1.0, limits.max_spot_share + 0.1)
        change = more - limits.max_spot_share
        yield "max_spot_share", change, "share", _with(problem, replace(limits, max_spot_share=more))
    if limits.max_provider_share is not None and limits.max_provider_share < 1:
        more = min(1.0, limits.max_provider_share + 0.1)
        change = more - limits.max_provider_share
        yield "max_provider_share", change, "share", _with(problem, replace(limits, max_provider_share=more))
    if limits.min_providers > 1:
        yield "min_providers", -1, "providers", _with(problem, replace(limits, min_providers=limits.min_providers - 1))
    if limits.spare_replicas:
        fewer = replace(limits, spare_replicas=limits.spare_replicas - 1)
        yield "spare_replicas", -1, "units", _with(problem, fewer)
    if problem.objective == "max_throughput" and limits.budget_usd_per_month:
        more_money = limits.budget_usd_per_month * 0.1
        richer = replace(limits, budget_usd_per_month=limits.budget_usd_per_month + more_money)
        yield "budget", more_money, "USD/month", _with(problem, richer)


def _with(problem: Problem, limits: Limits) -> Problem:
    return replace(problem, limits=limits)
