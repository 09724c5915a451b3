"""Turns a linear program into an answer with a proven bound: the one place that names solvers and reads their statuses.

Everything goes through PuLP, 3 or 4, whose differences end here. HiGHS in process is preferred. Its own model status
and dual bound are read, because PuLP 3 reports "Optimal" after a gap or time stop and raises KeyError on a node limit.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Literal

import pulp

from optimizer.program.linear import LinearProgram, Row
from optimizer.program.problem import SolverOptions
from providers.errors import SolverError, UnknownName, UsageError, nearest

PULP_MAJOR = int(pulp.__version__.split(".")[0])

AnswerStatus = Literal["optimal", "stopped", "infeasible", "unbounded"]

ALIASES: dict[str, tuple[str, ...]] = {
    "auto": ("HiGHS", "PULP_CBC_CMD", "COIN_CMD"),
    "highs": ("HiGHS", "HiGHS_CMD"),
    "cbc": ("PULP_CBC_CMD", "COIN_CMD"),
    "gurobi": ("GUROBI", "GUROBI_CMD"),
    "cplex": ("CPLEX_PY", "CPLEX_CMD"),
    "scip": ("SCIP_PY", "SCIP_CMD"),
    "cuopt": ("CUOPT",),
}
"""Users' names and PuLP's, best first. CBC is last in `auto`: PuLP 4's has been seen to return a wrong "Optimal"."""

HIGHS_SETTINGS: dict[str, object] = {
    "mip_heuristic_run_feasibility_jump": False,  # 1 ms of the 2 ms that a small problem takes, and no better starts
    "mip_detect_symmetry": False,  # the model has none left worth the search
    "random_seed": 0,
    "mip_feasibility_tolerance": 1e-7,
}

_ONE_AT_A_TIME = threading.Lock()
"""HiGHS has one scheduler in a process, and `silenced` changes what belongs to the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """optimal: solved to the gap asked for; stopped: a limit came first (`values` is None if nothing was found)."""

    status: AnswerStatus
    values: Sequence[float] | None = None
    objective: float = inf
    bound: float = -inf
    nodes: int = 0
    duals: Sequence[float] = ()
    solver: str = ""


class Session:
    """One linear program that is solved again and again while rows are added to it."""

    def __init__(self, linear: LinearProgram, options: SolverOptions, *, relaxed: bool = False) -> None:
        self._linear = linear
        self._options = options
        self._relaxed = relaxed
        self._name = choose_solver(options.solver)
        self._highs: Any = None
        self._columns: list[int] = []
        self._loaded_rows = 0

    def solve(self, *, gap: float = 0.0, start: Sequence[float] | None = None) -> Answer:
        """Solve to the relative `gap`; `start` is a feasible point to begin with, where the solver takes one."""
        if self._linear.contradictory:
            return Answer(status="infeasible", solver=self._name)
        if self._name == "HiGHS":
            return self._solve_highs(gap, start)
        return _solve_through_pulp(self._linear, self._options, self._name, gap=gap, relaxed=self._relaxed)

    def _solve_highs(self, gap: float, start: Sequence[float] | None) -> Answer:
        with _ONE_AT_A_TIME:
            if self._highs is None:
                with silenced():
                    self._load_highs()
            self._add_new_rows()
            self._highs.setOptionValue("mip_rel_gap", gap)
            if start is not None:
                self._set_start(start)
            self._run()
        return self._read_highs()

    def _load_highs(self) -> None:
        problem, variables = _pulp_problem(self._linear)
        solver = pulp.HiGHS(
            msg=False, mip=not self._relaxed, timeLimit=self._options.time_limit_s, threads=self._options.threads
        )
        solver.createAndConfigureSolver(problem)
        highs = problem.solverModel
        for name, value in HIGHS_SETTINGS.items():
            highs.setOptionValue(name, value)
        highs.setOptionValue("mip_abs_gap", 0.0)
        if self._options.max_nodes is not None:
            highs.setOptionValue("mip_max_nodes", self._options.max_nodes)
        solver.buildSolverModel(problem)
        self._highs = highs
        self._columns = _column_order(problem, variables)
        self._loaded_rows = len(self._linear.rows)

    def _add_new_rows(self) -> None:
        position = self._columns
        for row in self._linear.rows[self._loaded_rows :]:
            indices = [position[column] for column, _ in row.terms]
            self._highs.addRow(row.lower, row.upper, len(indices), indices, [value for _, value in row.terms])
        self._loaded_rows = len(self._linear.rows)

    def _set_start(self, start: Sequence[float]) -> None:
        import highspy

        solution = highspy.HighsSolution()
        values = [0.0] * len(start)
        for column, value in enumerate(start):
            values[self._columns[column]] = value
        solution.col_value = values
        self._highs.setSolution(solution)

    def _run(self) -> None:
        import highspy

        self._highs.run()
        if self._highs.getModelStatus() == highspy.HighsModelStatus.kNotset:
            # HiGHS refuses to run when somebody else in this process started its threads with another count.
            highspy.Highs.resetGlobalScheduler(True)
            self._highs.run()

    def _read_highs(self) -> Answer:
        import highspy

        status = self._highs.getModelStatus()
        kinds = highspy.HighsModelStatus
        name = f"HiGHS {self._highs.version()}"
        if status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible):
            return Answer(status="infeasible", solver=name)
        if status == kinds.kUnbounded:
            return Answer(status="unbounded", solver=name)
        stopped = (
            kinds.kTimeLimit,
            kinds.kIterationLimit,
            kinds.kSolutionLimit,
            kinds.kInterrupt,
            kinds.kObjectiveBound,
            kinds.kObjectiveTarget,
        )
        if status not in (kinds.kOptimal, kinds.kModelEmpty, *stopped):
            raise SolverError(f"{name} stopped with {self._highs.modelStatusToString(status)!r}; try --solver CBC")
        info = self._highs.getInfo()
        is_mip = not self._relaxed and any(self._linear.integer)
        found = isfinite(info.objective_function_value) and info.primal_solution_status == 2
        solution = self._highs.getSolution()
        values = list(solution.col_value)
        objective = info.objective_function_value
        return Answer(
            status="stopped" if status in stopped else "optimal",
            values=[values[position] for position in self._columns] if found else None,
            objective=objective if found else inf,
            bound=info.mip_dual_bound if is_mip else objective,
            nodes=max(0, info.mip_node_count) if is_mip else 0,
            duals=() if is_mip else list(solution.row_dual),
            solver=name,
        )


def choose_solver(wanted: str) -> str:
    """PuLP's name of the solver to use: `auto` takes the first installed of its ALIASES.

    Raises UnknownName, or UsageError for a solver that is not installed.
    """
    if wanted.lower() in ("auto", "highs") and pulp.HiGHS(msg=False).available():
        return "HiGHS"
    available = pulp.listSolvers(onlyAvailable=True)  # starts programs, slower than a solve: only when it must
    for name in ALIASES.get(wanted.lower(), (wanted,)):
        if name in available:
            return name
    installed = f"installed: {', '.join(available) or 'none'}"
    if wanted.lower() in ALIASES:
        raise UsageError(f"solver {wanted!r} is not installed; install it, or give another ({installed})")
    raise UnknownName("solver", wanted, nearest(wanted, sorted(ALIASES)), installed)


def _solve_through_pulp(
    linear: LinearProgram, options: SolverOptions, name: str, *, gap: float, relaxed: bool
) -> Answer:
    """Any solver that PuLP drives. PuLP passes on no bound: what is claimed is only what the way it stopped allows.

    Ended by itself: the objective less the gap asked for. Stopped by a limit: the bound of the relaxation.
    """
    problem, variables = _pulp_problem(linear)
    limits: dict[str, object] = {"msg": False, "gapRel": gap, "mip": not relaxed}
    if options.time_limit_s is not None:
        limits["timeLimit"] = options.time_limit_s
    if options.max_nodes is not None and name in ("PULP_CBC_CMD", "COIN_CMD"):
        limits["maxNodes"] = options.max_nodes
    try:
        with _ONE_AT_A_TIME, silenced():
            outcome = problem.solve(pulp.getSolver(name, **limits))
    except pulp.PulpSolverError as error:
        raise SolverError(f"{name} failed: {error}; try --solver highs") from error
    status = _pulp_status(problem, outcome)
    label = f"{name} (PuLP {pulp.__version__})"
    if status in ("infeasible", "unbounded"):
        return Answer(status=status, solver=label)
    values = [variable.varValue for variable in variables]
    if any(value is None for value in values):
        return Answer(status="stopped", solver=label)
    objective = sum(cost * value for cost, value in zip(linear.cost, values, strict=True))
    if status == "optimal":
        bound = objective - gap * abs(objective)
    else:
        bound = _solve_through_pulp(linear, options, name, gap=0.0, relaxed=True).bound if not relaxed else -inf
    duals = [constraint.pi or 0.0 for constraint in _constraints(problem)] if relaxed else ()
    return Answer(status=status, values=values, objective=objective, bound=bound, duals=duals, solver=label)


def _pulp_status(problem: Any, outcome: Any) -> AnswerStatus:
    if PULP_MAJOR >= 4:
        name = outcome.status_str.lower()
        if "infeasible" in name:
            return "infeasible"
        return "unbounded" if "unbounded" in name else "optimal" if name == "optimal" else "stopped"
    if outcome in (pulp.LpStatusInfeasible, pulp.LpStatusUndefined):
        return "infeasible"
    if outcome == pulp.LpStatusUnbounded:
        return "unbounded"
    return "optimal" if problem.sol_status == pulp.LpSolutionOptimal else "stopped"


def _pulp_problem(linear: LinearProgram) -> tuple[Any, list[Any]]:
    """The program as PuLP's problem, and its variables in column order. Names are numbers, padded to sort by column."""
    problem = pulp.LpProblem("costopt", pulp.LpMinimize)
    variables = []
    for index, (lower, upper, integer) in enumerate(zip(linear.lower, linear.upper, linear.integer, strict=True)):
        bounds = (None if lower == -inf else lower, None if upper == inf else upper)
        category = pulp.LpInteger if integer else pulp.LpContinuous
        make = problem.add_variable if PULP_MAJOR >= 4 else pulp.LpVariable
        variables.append(make(f"x{index:07d}", *bounds, category))
    expression = pulp.lpSum_vars_coefs if PULP_MAJOR >= 4 else pulp.LpAffineExpression
    # Every column is in the objective, if only with 0: PuLP forgets variables that it meets nowhere.
    problem += expression(list(zip(variables, linear.cost, strict=True)))
    for row in linear.rows:
        left = expression([(variables[column], coefficient) for column, coefficient in row.terms])
        problem += _comparison(left, row)
    return problem, variables


def _comparison(left: Any, row: Row) -> Any:
    if row.lower == row.upper:
        return left == row.lower
    return left <= row.upper if row.lower == -inf else left >= row.lower


def _constraints(problem: Any) -> list[Any]:
    return list(problem.constraints() if PULP_MAJOR >= 4 else problem.constraints.values())


def _column_order(problem: Any, variables: Sequence[Any]) -> list[int]:
    """Where PuLP put each of our columns in the solver's model."""
    exported = problem.exported_variables() if PULP_MAJOR >= 4 else problem.variables()
    place = {variable.name: index for index, variable in enumerate(exported)}
    return [place[variable.name] for variable in variables]


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keep a solver's writing to the process's standard output away: HiGHS prints a banner before it takes options.

    As short as can be: what other threads write to that descriptor meanwhile is lost.
    The C library's buffer is flushed into the void as well, or the banner would come out at exit.
    """
    try:
        saved = os.dup(1)
    except OSError:  # no standard output at all: nothing to protect
        yield
        return
    try:
        void = os.open(os.devnull, os.O_WRONLY)
        os.dup2(void, 1)
        os.close(void)
        yield
    finally:
        _flush_c_streams()
        os.dup2(saved, 1)
        os.close(saved)


def _flush_c_streams() -> None:
    library = ctypes.CDLL("msvcrt" if os.name == "nt" else None)
    library.fflush(None)
