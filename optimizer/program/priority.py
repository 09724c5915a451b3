"""Turns a portfolio that its budget cannot carry into the plan for the workloads that come first."""

from dataclasses import replace

from optimizer.program.problem import Problem, ProgramWorkload, Solution, SolverOptions
from optimizer.program.solve import solve


def solve_by_priority(problem: Problem, options: SolverOptions | None = None) -> Solution:
    """The cheapest plan for all workloads if the limits allow it; else for those that priority lets in.

    Workloads are taken in order of priority, then of id. Each is served if those taken before and it together have a
    plan within all limits and the budget; if not, it is left out and named in `unserved`. So no workload is left out
    for one of lower priority, and a smaller one further down may still fit.
    """
    everything = solve(problem, options)
    if everything.status != "infeasible":
        return everything
    served: list[ProgramWorkload] = []
    unserved: list[str] = []
    best = everything
    for workload in sorted(problem.workloads, key=lambda one: (one.priority, one.id)):
        trial = solve(_only(problem, [*served, workload]), options)
        if trial.status == "infeasible":
            unserved.append(workload.id)
        else:
            served.append(workload)
            best = trial
    return replace(best, unserved=tuple(unserved)) if served else everything


def _only(problem: Problem, workloads: list[ProgramWorkload]) -> Problem:
    names = {workload.id for workload in workloads}
    return replace(
        problem,
        workloads=workloads,
        candidates=[candidate for candidate in problem.candidates if candidate.workload in names],
    )
