"""Turns training jobs and the clusters that could run them into one cluster and one start for each job.

Vocabulary (job j, option o = a cluster that runs j, start slot s of h hours):

    hours_o  duration      usd_o  cost of the whole run    g_o  accelerators that the cluster has
    d_j      deadline      B      budget                   G    accelerators that may run at a time

    y_jos = 1: job j runs on option o from slot s on
    minimise   sum usd_o y_jos                        (min_cost), or the end of the last job (min_time)
    once       sum_os y_jos                   = 1     every j
    deadline   y_jos = 0 where s h + hours_o  > d_j
    budget     sum usd_o y_jos               <= B
    calendar   sum of g_o y_jos running in t <= G     every slot t
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, inf
from typing import Final, Literal

from optimizer.program.linear import LinearProgram
from optimizer.program.problem import Shortfall, SolverOptions
from optimizer.program.solver import Session
from providers.errors import InvalidValue, SolverError

TrainingObjective = Literal["min_cost", "min_time"]
TrainingStatus = Literal["optimal", "within_gap", "feasible", "infeasible"]

SLOTS: Final = 48
"""Starts that a calendar distinguishes: a job may wait for up to a 48th of the horizon longer than it must."""

_TIE_BREAK: Final = 1e-6
"""Of the objective: among plans of equal cost the one that ends first, among equally fast ones the cheapest."""


_TOLERANCE: Final = Fraction(1_000_001, 1_000_000)
"""The solver's own on a row: a limit may be passed by a millionth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOption:
    """A cluster that can run a job: how long it takes and what the whole run costs there."""

    id: str
    job: str
    hours: float
    usd: float
    accelerators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job with its own deadline and earliest start, in hours from now; infinity = no deadline."""

    id: str
    deadline_hours: float = inf
    earliest_hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProblem:
    """Jobs, the options of all of them, and what they share: a budget and accelerators; None = no limit."""

    jobs: Sequence[Job]
    options: Sequence[JobOption]
    budget_usd: float | None = None
    max_accelerators: int | None = None
    objective: TrainingObjective = "min_cost"

    def __post_init__(self) -> None:
        known = {job.id for job in self.jobs}
        if len(known) != len(self.jobs):
            raise InvalidValue("jobs", [job.id for job in self.jobs], "each needs a name of its own")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSolution:
    """The option and start of each job, the proven bound (USD or hours) and its gap; shortfalls when infeasible."""

    status: TrainingStatus
    chosen: Mapping[str, tuple[JobOption, float]] = field(default_factory=dict)
    bound: float | None = None
    gap: float | None = None
    solver: str = ""
    variables: int = 0
    constraints: int = 0
    shortfalls: tuple[Shortfall, ...] = ()


@dataclass(frozen=True, slots=True)
class _Start:
    option: JobOption
    hours: float
    column: int


def solve_training(problem: TrainingProblem, options: SolverOptions) -> TrainingSolution:
    """The cheapest (or fastest) choice for all jobs together, with its proof; dominated options are left out first.

    Raises SolverError where the solver's answer breaks a limit when it is added up again in fractions.
    """
    solution = _solve(problem, options)
    if solution.status == "infeasible":
        return replace(solution, shortfalls=shortfalls(problem, options))
    broken = next(violations(problem, solution.chosen), None)
    if broken is not None:
        raise SolverError(f"{solution.solver}: {broken}")
    return solution


def _solve(problem: TrainingProblem, options: SolverOptions) -> TrainingSolution:
    kept = prune(problem.options)
    program, starts = build(problem, kept)
    if any(not starts[job.id] for job in problem.jobs):
        return TrainingSolution(status="infeasible")
    answer = Session(program, options).solve(gap=options.gap)
    if answer.values is None:
        return TrainingSolution(status="infeasible", solver=answer.solver)
    chosen = {
        job.id: next((start.option, start.hours) for start in starts[job.id] if answer.values[start.column] > 0.5)
        for job in problem.jobs
    }
    reached = _objective(problem, chosen)
    # The tie-break is part of what was solved: it can hide a difference of its own size, and no larger one.
    bound = min(reached, answer.bound - _TIE_BREAK * (abs(reached) + len(problem.jobs)))
    gap = 0.0 if reached <= 0 else (reached - bound) / reached
    gap = 0.0 if gap <= 4 * _TIE_BREAK * (1 + len(problem.jobs) / max(reached, 1.0)) else gap
    status: TrainingStatus = "optimal" if gap == 0 else "within_gap" if gap <= options.gap else "feasible"
    return TrainingSolution(
        status=status,
        chosen=chosen,
        bound=reached if gap == 0 else bound,
        gap=gap,
        solver=answer.solver,
        variables=len(program.cost),
        constraints=len(program.rows),
    )


def prune(options: Sequence[JobOption]) -> list[JobOption]:
    """The options of each job that no other beats in hours, cost and accelerators at once; ties by id."""
    kept: list[JobOption] = []
    for option in sorted(options, key=lambda o: (o.job, o.usd, o.hours, o.accelerators, o.id)):
        dominated = any(
            other.job == option.job and other.hours <= option.hours and other.accelerators <= option.accelerators
            for other in kept
        )
        if not dominated:
            kept.append(option)
    return kept


def build(problem: TrainingProblem, options: Sequence[JobOption]) -> tuple[LinearProgram, dict[str, list[_Start]]]:
    """The program, and the columns of each job's starts."""
    program = LinearProgram()
    slot = slot_hours(problem, options)
    starts = {job.id: define_starts(program, problem, job, options, slot) for job in problem.jobs}
    define_once(program, starts)
    define_budget(program, problem, starts)
    define_calendar(program, problem, starts, slot)
    define_end(program, problem, starts)
    return program, starts


def slot_hours(problem: TrainingProblem, options: Sequence[JobOption]) -> float:
    """A 48th of the horizon: the last deadline, or all jobs one after another; infinite where nothing is shared."""
    if problem.max_accelerators is None or len(problem.jobs) == 1:
        return inf
    longest = {job.id: max((o.hours for o in options if o.job == job.id), default=0.0) for job in problem.jobs}
    ends = [job.deadline_hours if job.deadline_hours < inf else sum(longest.values()) for job in problem.jobs]
    return max(ends) / SLOTS


def define_starts(
    program: LinearProgram, problem: TrainingProblem, job: Job, options: Sequence[JobOption], slot: float
) -> list[_Start]:
    """One binary for each option and start from which the job meets its deadline alone."""
    found = []
    scale = max((option.usd for option in options), default=1.0)
    latest = max(
        [slot * SLOTS if slot < inf else 0.0, *(job.earliest_hours + option.hours for option in options), 1e-9]
    )
    for option in options:
        too_large = problem.max_accelerators is not None and option.accelerators > problem.max_accelerators
        if option.job != job.id or too_large:
            continue
        for begin in _begins(job, slot):
            if begin + option.hours > job.deadline_hours:
                break
            if problem.objective == "min_time":
                cost = _TIE_BREAK * option.usd / scale
            else:
                cost = option.usd * (1 + _TIE_BREAK * (begin + option.hours) / latest)
            column = program.column(cost=cost, upper=1.0, integer=True)
            found.append(_Start(option, begin, column))
    return found


def _begins(job: Job, slot: float) -> list[float]:
    if slot == inf:
        return [job.earliest_hours]
    first = ceil(job.earliest_hours / slot - 1e-9)
    return [index * slot for index in range(first, SLOTS)]


def define_once(program: LinearProgram, starts: Mapping[str, Sequence[_Start]]) -> None:
    """sum_os y_jos = 1"""
    for found in starts.values():
        program.equal([(start.column, 1.0) for start in found], 1.0)


def define_budget(program: LinearProgram, problem: TrainingProblem, starts: Mapping[str, Sequence[_Start]]) -> None:
    """sum usd_o y_jos <= B"""
    if problem.budget_usd is not None:
        terms = [(start.column, start.option.usd) for found in starts.values() for start in found]
        program.at_most(terms, problem.budget_usd)


def define_calendar(
    program: LinearProgram, problem: TrainingProblem, starts: Mapping[str, Sequence[_Start]], slot: float
) -> None:
    """sum of g_o y_jos over the runs that touch slot t <= G"""
    if problem.max_accelerators is None or slot == inf:
        return
    running: dict[int, list[tuple[int, float]]] = {}
    for found in starts.values():
        for start in found:
            first = round(start.hours / slot)
            for index in range(first, ceil((start.hours + start.option.hours) / slot - 1e-9)):
                running.setdefault(index, []).append((start.column, float(start.option.accelerators)))
    for index in sorted(running):
        program.at_most(running[index], float(problem.max_accelerators))


def define_end(program: LinearProgram, problem: TrainingProblem, starts: Mapping[str, Sequence[_Start]]) -> None:
    """min_time: T >= sum_os (s h + hours_o) y_jos for every job, and T is the cost."""
    if problem.objective != "min_time":
        return
    end = program.column(cost=1.0)
    for found in starts.values():
        terms = [(start.column, -(start.hours + start.option.hours)) for start in found]
        program.at_least([(end, 1.0), *terms], 0.0)


def violations(problem: TrainingProblem, chosen: Mapping[str, tuple[JobOption, float]]) -> Iterator[str]:
    """What a choice breaks, added up in fractions: every job once, earliest, deadline, budget, accelerators at once."""
    for job in problem.jobs:
        if job.id not in chosen:
            yield f"{job.id} does not run"
            continue
        option, start = chosen[job.id]
        end = Fraction(start) + Fraction(option.hours)
        if option not in problem.options or option.job != job.id:
            yield f"{job.id} runs on {option.id}, which is none of its options"
        if start < job.earliest_hours:
            yield f"{job.id} starts at {start} h, at the earliest {job.earliest_hours} h"
        if job.deadline_hours < inf and end > Fraction(job.deadline_hours) * _TOLERANCE:
            yield f"{job.id} ends at {float(end)} h, deadline {job.deadline_hours} h"
    spent = sum((Fraction(option.usd) for option, _ in chosen.values()), Fraction(0))
    if problem.budget_usd is not None and spent > Fraction(problem.budget_usd) * _TOLERANCE:
        yield f"{float(spent)} USD, at most {problem.budget_usd}"
    peak = peak_accelerators(chosen)
    if problem.max_accelerators is not None and peak > problem.max_accelerators:
        yield f"{peak} accelerators at once, at most {problem.max_accelerators}"


def peak_accelerators(chosen: Mapping[str, tuple[JobOption, float]]) -> int:
    """The most accelerators that run at the start of some job: their number only grows there."""
    runs = [(Fraction(start), Fraction(start) + Fraction(o.hours), o.accelerators) for o, start in chosen.values()]
    return max((sum(n for begin, end, n in runs if begin <= at < end) for at, _, _ in runs), default=0)


def shortfalls(problem: TrainingProblem, options: SolverOptions) -> tuple[Shortfall, ...]:
    """Which shared limit or deadline no choice meets, and by how much, looked at one at a time."""
    found: list[Shortfall] = []
    cheapest, fitting = 0.0, True
    for job in problem.jobs:
        own = [option for option in problem.options if option.job == job.id]
        if not own:
            return (Shortfall(limit=f"clusters that hold {job.id}", needed=1, available=0, unit="on the market"),)
        limit = problem.max_accelerators
        small = [option for option in own if limit is None or option.accelerators <= limit]
        if limit is not None and not small:
            least = min(option.accelerators for option in own)
            found.append(Shortfall(limit="accelerators", needed=least, available=limit, unit="accelerators"))
            fitting = False
            continue
        quickest = min(option.hours for option in small) + job.earliest_hours
        if quickest > job.deadline_hours:
            name = "deadline" if len(problem.jobs) == 1 else f"deadline of {job.id}"
            found.append(Shortfall(limit=name, needed=quickest, available=job.deadline_hours, unit="hours"))
            fitting = False
            continue
        cheapest += min(o.usd for o in small if o.hours + job.earliest_hours <= job.deadline_hours)
    if fitting and problem.budget_usd is not None and cheapest > problem.budget_usd:
        found.append(Shortfall(limit="budget", needed=cheapest, available=problem.budget_usd, unit="USD for the run"))
    return tuple(found) or tuple(_shared_shortfalls(problem, options))


def _shared_shortfalls(problem: TrainingProblem, options: SolverOptions) -> Iterator[Shortfall]:
    """Limits that every job meets by itself and all together do not: what each would have to be, the others kept."""
    problem = replace(problem, objective="min_cost")
    if problem.budget_usd is not None:
        richer = _solve(replace(problem, budget_usd=None), options)
        if richer.chosen:
            needed = sum(option.usd for option, _ in richer.chosen.values())
            yield Shortfall(limit="budget", needed=needed, available=problem.budget_usd, unit="USD for the run")
    if problem.max_accelerators is None:
        return
    limit = problem.max_accelerators
    low, high = limit, sum(max(o.accelerators for o in problem.options if o.job == job.id) for job in problem.jobs)
    if high <= limit or not _solve(replace(problem, max_accelerators=high), options).chosen:
        return
    while high - low > 1:
        middle = (low + high) // 2
        if _solve(replace(problem, max_accelerators=middle), options).chosen:
            high = middle
        else:
            low = middle
    yield Shortfall(limit="accelerators", needed=high, available=limit, unit="accelerators at once")


def _objective(problem: TrainingProblem, chosen: Mapping[str, tuple[JobOption, float]]) -> float:
    if problem.objective == "min_time":
        return max(start + option.hours for option, start in chosen.values())
    return sum(option.usd for option, _ in chosen.values())
