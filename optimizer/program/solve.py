"""Turns a problem into a solution with its proof: reduce, build, solve, add missing cuts, read out, re-check.

The program is solved without routing flows. When its answer cannot be routed within the utilisation, `route` gives an
inequality that all routable fleets satisfy and that this one breaks; it is added and the program solved again. Every
program of the sequence relaxes the true one, so its bound is a bound, and the first routable answer is a plan.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from optimizer.program.check import check
from optimizer.program.cuts import add_violated_cuts, rounded
from optimizer.program.decompose import CHOICES, decomposable, refit_kept, solve_by_period, with_starts
from optimizer.program.model import Model, build
from optimizer.program.problem import Problem, Quota, Shortfall, Solution, SolverOptions
from optimizer.program.readout import PROVEN_GAP, read_out
from optimizer.program.reduce import reduce, unreduced
from optimizer.program.rounding import add_period_cuts, add_rounding_cuts
from optimizer.program.route import TOLERANCE as UTILISATION_TOLERANCE
from optimizer.program.solver import Answer, Session
from providers.errors import InvalidValue, SolverError
from providers.units import HOURS_PER_MONTH

UNLIMITED = 10**9
"""A quota that limits nothing."""

SMALL = 150
"""Columns up to which the integer program is solved before its relaxation would be."""

LARGE = 4000
"""Replica columns from which on what the periods' programs give is taken, unless a limit on nodes or time is given:
the whole integer program would run for hours to close the rest of the gap, which is stated.
"""

NODES = 100
"""Nodes of the whole integer program over several periods, where no limit is given and the periods leave a gap."""

IMPROVEMENT = 1e-4
"""Relative gain for which one more round of cuts, or of fitting periods to what is kept, is worth its time."""

CLOSER = 10.0
"""By what the gap is divided where a plan is above the budget and the bound below it."""

SMALLEST_GAP = 1e-4
"""Gap from which the last look is to the end."""

CLOSER_NODES = 2000
"""Nodes of such a look where the caller gave no limit."""

MAX_ROUNDS = 200
"""Rounds of cuts after which something is wrong; a handful is usual."""


def solve(problem: Problem, options: SolverOptions | None = None) -> Solution:
    """The best plan, checked in exact arithmetic against every constraint of `problem`.

    Raises SolverError if the solver fails or its answer breaks a constraint. An impossible problem is no error: the
    status is then `infeasible`. Shapes that nobody serves, and a budget below the cheapest plan (which is then given),
    are named as shortfalls at once; `diagnose` finds the others.
    """
    options = options or SolverOptions()
    if unserved := unservable(problem):
        return Solution(status="infeasible", shortfalls=unserved)
    if problem.objective == "max_throughput":
        return _most_throughput(problem, options)
    solution = _solve_checked(problem, options)
    gap = options.gap
    while gap > 0 and _may_fit(problem, solution):
        gap = gap / CLOSER if gap > SMALLEST_GAP else 0.0
        try:
            closer = _solve_checked(problem, replace(options, gap=gap, max_nodes=options.max_nodes or CLOSER_NODES))
        except SolverError:
            break  # no plan within the nodes: the one at hand stands
        solution = min(solution, closer, key=lambda one: one.usd_per_hour if one.usd_per_hour is not None else inf)
    return _within_budget(problem, solution)


def _may_fit(problem: Problem, solution: Solution) -> bool:
    """Whether the plan is above the budget while the proven bound is not: a closer look may find one that fits."""
    budget, price, bound = problem.limits.budget_usd_per_month, solution.usd_per_hour, solution.bound
    if budget is None or price is None or bound is None:
        return False
    return bound * HOURS_PER_MONTH <= budget < price * HOURS_PER_MONTH * (1 - 1e-12)


def _within_budget(problem: Problem, solution: Solution) -> Solution:
    """The solution, or the same plan marked infeasible because the cheapest found costs more than the budget."""
    budget, price = problem.limits.budget_usd_per_month, solution.usd_per_hour
    if budget is None or price is None or price * HOURS_PER_MONTH <= budget * (1 + 1e-12):
        return solution
    needed = price * HOURS_PER_MONTH
    shortfall = Shortfall(limit="budget", needed=needed, available=budget, unit="USD/month")
    return replace(solution, status="infeasible", shortfalls=(shortfall,))


def unservable(problem: Problem) -> tuple[Shortfall, ...]:
    """Shapes with demand that no candidate on offered hardware serves."""
    offered = {offer.hardware for offer in problem.offers if offer.maximum != 0}
    served: dict[str, set[str]] = defaultdict(set)
    for candidate in problem.candidates:
        if candidate.hardware in offered:
            served[candidate.workload].update(candidate.requests_per_s)
    return tuple(
        Shortfall(limit=f"no candidate serves {workload.id}/{shape}", needed=peak, available=0.0, unit="requests/s")
        for workload in problem.workloads
        for index, shape in enumerate(workload.shapes)
        if (peak := max(row[index] for row in workload.demand)) > 0 and shape not in served[workload.id]
    )


def least_peak(problem: Problem, quota: Quota, options: SolverOptions | None = None) -> float | None:
    """The least that any plan uses of a quota at its peak, in the quota's unit; None if there is no plan at all."""
    options = options or SolverOptions()
    if unservable(problem):
        return None
    # Without prices, and with the quota among the limits, an exchange of units is judged by its use of quotas alone.
    counted = (*problem.limits.quotas, replace(quota, maximum=UNLIMITED))
    at_no_price = replace(
        problem,
        objective="min_cost",
        offers=[replace(offer, usd_per_hour=0.0, upfront_usd=0.0) for offer in problem.offers],
        limits=replace(problem.limits, quotas=counted),
    )
    model = build(reduce(at_no_price).problem if options.reduce else at_no_price, peak_of=quota)
    answer = _solve_with_cuts(model, options)
    return None if answer.values is None else answer.objective


def _most_throughput(problem: Problem, options: SolverOptions) -> Solution:
    """Largest scale for the budget, then the cheapest plan that serves it: the budget is a ceiling, not a target."""
    if not any(rate > 0 for workload in problem.workloads for row in workload.demand for rate in row):
        raise InvalidValue("demand", 0, "the most throughput needs a mix of shapes with some demand")
    best = _solve_checked(problem, options)
    if best.status == "infeasible" or not best.scale:
        return best
    scale = best.scale * (1 - UTILISATION_TOLERANCE)
    cheapest = _solve_checked(_scaled_demand(problem, scale), options)
    if cheapest.usd_per_hour is None or cheapest.usd_per_hour >= (best.usd_per_hour or inf):
        return best
    return replace(
        cheapest,
        scale=best.scale,
        status=best.status,
        bound=best.bound,
        gap=best.gap,
        variables=best.variables,
        constraints=best.constraints,
        nodes=best.nodes + cheapest.nodes,
    )


def _scaled_demand(problem: Problem, scale: float) -> Problem:
    workloads = tuple(
        replace(one, demand=tuple(tuple(rate * scale for rate in row) for row in one.demand))
        for one in problem.workloads
    )
    return replace(problem, workloads=workloads, objective="min_cost")


def _solve_checked(problem: Problem, options: SolverOptions) -> Solution:
    reduced = reduce(problem) if options.reduce else unreduced(problem)
    model = build(reduced.problem)
    answer = _solve_with_cuts(model, options)
    if answer.values is None:
        if answer.status == "infeasible":
            return Solution(status="infeasible", solver=answer.solver)
        raise SolverError(f"{answer.solver} found no plan within its limits; raise --max-nodes or the time limit")
    solution = read_out(problem, reduced, model, answer, options)
    check(problem, solution)
    return solution


def _solve_with_cuts(model: Model, options: SolverOptions) -> Answer:
    """Small programs at once as integers; others first relaxed, with all cuts, and by period: that may be enough."""
    small = len(model.linear.cost) <= SMALL
    if small and not _needs_routing(model):
        return _solve_integers(model, options)
    relaxed = _relax(model, options, rounding=not small)
    if relaxed.status == "infeasible":
        return relaxed
    if relaxed.status != "optimal":  # stopped by the clock: its objective is no bound
        return _solve_integers(model, options)
    if small or not decomposable(model):
        return _solve_integers(model, options, relaxed.objective)
    bound = _tighten(model, relaxed, options)
    found = _by_period(model, relaxed, options, bound)
    if found is None:
        return _solve_integers(model, options, bound)
    if _gap_of(found) <= max(options.gap, PROVEN_GAP):
        return found
    if options.max_nodes is None and options.time_limit_s is None:
        if len(model.replicas) > LARGE:
            return found
        options = replace(options, max_nodes=NODES)
    return _better(found, _solve_integers(model, options, bound, found.values))


def _better(found: Answer, answer: Answer) -> Answer:
    """The cheaper of a plan and the integer program's answer, with the better bound."""
    if answer.values is None or answer.objective > found.objective:
        return replace(found, bound=max(found.bound, answer.bound), nodes=answer.nodes)
    return answer


def _gap_of(answer: Answer) -> float:
    return (answer.objective - answer.bound) / answer.objective if answer.objective > 0 else 0.0


def _needs_routing(model: Model) -> bool:
    """Whether some workload's one cut does not say all."""
    return any(service.pace() is None for service in model.services if service.candidates)


def _relax(model: Model, options: SolverOptions, *, rounding: bool) -> Answer:
    """Solve the relaxation, adding the cuts of routing until it can be routed, and those of whole replicas.

    Ends when a round of cuts moves the bound no further: what is still broken then is left to the integer program.
    """
    session = Session(model.linear, options, relaxed=True)
    before = -inf
    for _ in range(MAX_ROUNDS):
        answer = session.solve()
        if answer.status != "optimal" or answer.values is None:
            break
        if add_violated_cuts(model, answer.values, options):
            continue
        if not rounding or not _gains(answer.objective, before) or not add_rounding_cuts(model, answer):
            break
        before = answer.objective
    return answer


def _tighten(model: Model, relaxed: Answer, options: SolverOptions) -> float:
    """The relaxation's bound with the cuts of whole units by period as well."""
    bound = -inf
    while relaxed.status == "optimal" and _gains(relaxed.objective, bound):
        bound = relaxed.objective
        if not add_period_cuts(model, relaxed, options):
            break
        relaxed = _relax(model, options, rounding=True)
    return bound


def _gains(objective: float, before: float) -> bool:
    return objective > before + IMPROVEMENT * abs(objective)


def _by_period(model: Model, priced: Answer, options: SolverOptions, bound: float) -> Answer | None:
    """A plan put together from the periods' own programs; None if that finds none.

    `priced` is a relaxation without period cuts, whose prices say which candidates are worth having. What is kept
    starts at its rounded value and is then fitted to the periods as long as that saves.
    """
    best: Answer | None = None
    for choices in CHOICES:
        values: Sequence[float] | None = priced.values if best is None else best.values
        while values is not None:
            found = _routable_periods(model, priced, options, values, choices)
            fitted = None if found is None else refit_kept(model, options, found)
            price = inf if fitted is None else _price(model, fitted)
            if fitted is None or (best is not None and price >= best.objective * (1 - IMPROVEMENT)):
                break
            best = replace(priced, status="stopped", values=fitted, objective=price, bound=bound, nodes=0)
            if _gap_of(best) <= options.gap:
                return best
            # Without starts a period only sees what is kept: where that stays, another pass would find the same.
            same = not model.starts and all(round(values[one]) == round(fitted[one]) for one in model.kept.values())
            values = None if same else fitted
    return best


def _routable_periods(
    model: Model, relaxed: Answer, options: SolverOptions, values: Sequence[float], choices: int
) -> Sequence[float] | None:
    """Solve every period, and again those whose answer needed another cut of routing."""
    open_periods: Sequence[int] = model.periods
    for _ in range(MAX_ROUNDS):
        found = solve_by_period(model, relaxed, options, open_periods, values, choices)
        if found is None:
            return None
        values = found
        open_periods = sorted(add_violated_cuts(model, rounded(model, values), options, open_periods))
        if not open_periods:
            complete = with_starts(model, values)
            return complete if model.linear.holds(complete) else None
    return None


def _price(model: Model, values: Sequence[float]) -> float:
    return sum(cost * value for cost, value in zip(model.linear.cost, values, strict=True))


def _solve_integers(
    model: Model, options: SolverOptions, bound: float = -inf, start: Sequence[float] | None = None
) -> Answer:
    """Alternate between solving the integer program and adding the cuts of routing that its answer breaks."""
    session = Session(model.linear, options)
    nodes = 0
    for _ in range(MAX_ROUNDS):
        answer = session.solve(gap=options.gap, start=start)
        nodes += answer.nodes
        bound = max(bound, answer.bound)
        answer = replace(answer, nodes=nodes, bound=bound)
        if answer.values is None or not add_violated_cuts(model, rounded(model, answer.values), options):
            return answer
    raise SolverError(f"{answer.solver}: routing not settled after {MAX_ROUNDS} rounds of cuts")
