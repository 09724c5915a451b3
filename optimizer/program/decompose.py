"""Turns a large program into one per period: what all periods share is fixed at the relaxation's value, rounded.

This finds plans, not bounds: the bound stays that of the relaxation with its cuts.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from optimizer.program.linear import LinearProgram, Row
from optimizer.program.model import Model
from optimizer.program.prices import extra_costs
from optimizer.program.problem import SolverOptions
from optimizer.program.solver import Answer, Session

CHOICES = (10, 25)
"""Candidates to choose from: few first, more if that leaves the gap open."""

NODES = 1
"""Nodes for the program of one period: the root nearly always comes within the gap asked for."""

SHARE_OF_GAP = 0.3
"""Part of the gap that the programs of the periods may leave open."""


@dataclass(slots=True)
class Blocks:
    """The columns and rows of each period; a row over several periods is in each of them."""

    columns: dict[int, list[int]]
    rows: dict[int, list[int]]
    shared: list[int]

    @staticmethod
    def of(linear: LinearProgram) -> "Blocks":
        columns: dict[int, list[int]] = defaultdict(list)
        shared = []
        for column, block in enumerate(linear.block):
            if block is None:
                shared.append(column)
            else:
                columns[block].append(column)
        rows: dict[int, list[int]] = defaultdict(list)
        for index, row in enumerate(linear.rows):
            for touched in {linear.block[column] for column, _ in row.terms}:
                if touched is not None:
                    rows[touched].append(index)
        return Blocks(columns=columns, rows=rows, shared=shared)


def decomposable(model: Model) -> bool:
    """Whether kept units, and starts from one period to the next, are all that couples periods."""
    shared = {column for column, block in enumerate(model.linear.block) if block is None}
    return (
        len(model.periods) > 1 and model.scale is None and shared == set(model.kept.values()) and not _stays_up(model)
    )


def _stays_up(model: Model) -> bool:
    return model.problem.limits.minimum_hours_up > min(period.hours for period in model.problem.periods)


def solve_by_period(
    model: Model,
    relaxed: Answer,
    options: SolverOptions,
    periods: Sequence[int],
    values: Sequence[float],
    choices: int,
) -> list[float] | None:
    """`values` with the columns of some periods solved anew, each beside its neighbours as they are by then; None if a
    period has no plan with what is kept.

    `choices`: how many candidates a workload may choose from in a period, besides those that the relaxation uses.
    """
    linear = model.linear
    blocks = Blocks.of(linear)
    chosen = _columns_worth_having(model, relaxed, choices)
    result = list(values)
    for column in blocks.shared:
        result[column] = float(round(values[column])) if linear.integer[column] else values[column]
    settings = replace(options, max_nodes=NODES)
    for t in periods:
        for column in blocks.columns[t]:
            result[column] = 0.0
        columns = [column for column in blocks.columns[t] if column in chosen]
        columns += _starts_after(model, t)
        part = program_of(linear, columns, [linear.rows[index] for index in blocks.rows[t]], result)
        answer = Session(part, settings).solve(gap=SHARE_OF_GAP * options.gap)
        if answer.values is None:
            return None
        for column, value in zip(columns, answer.values, strict=True):
            result[column] = value
    return result


def _starts_after(model: Model, t: int) -> list[int]:
    """The start columns of the period after t: units that t does without must start again there."""
    following = (t + 1) % len(model.periods)
    return [column for (_, period), column in model.starts.items() if period == following]


def refit_kept(model: Model, options: SolverOptions, values: Sequence[float]) -> list[float] | None:
    """`values` with what is kept and what is bought by the period chosen anew for the same units in every period."""
    linear = model.linear
    columns = [*model.kept.values(), *model.bought.values(), *model.starts.values()]
    mine = set(columns)
    rows = [row for row in linear.rows if any(column in mine for column, _ in row.terms)]
    fixed = [float(round(value)) if whole else value for value, whole in zip(values, linear.integer, strict=True)]
    answer = Session(program_of(linear, columns, rows, fixed), replace(options, max_nodes=NODES)).solve(
        gap=SHARE_OF_GAP * options.gap
    )
    if answer.values is None:
        return None
    for column, value in zip(columns, answer.values, strict=True):
        fixed[column] = value
    return fixed


def with_starts(model: Model, values: Sequence[float]) -> list[float]:
    """Whole values, and the starts that they mean from each period to the next."""
    complete = [
        float(round(value)) if whole else value for value, whole in zip(values, model.linear.integer, strict=True)
    ]
    last = model.periods[-1]
    for (offer, t), column in model.starts.items():
        before = complete[model.bought[offer, t - 1 if t else last]]
        complete[column] = max(0.0, complete[model.bought[offer, t]] - before)
    return complete


def _columns_worth_having(model: Model, relaxed: Answer, choices: int) -> set[int]:
    """All columns but replicas, and of a workload's replicas those in use and the `choices` of least extra cost."""
    values, extra = relaxed.values or (), extra_costs(model, relaxed)
    chosen = {column for column in range(len(model.linear.cost)) if column not in extra}
    for (t, _), running in model.running.items():
        columns = [model.replicas[candidate.id, pool, t] for candidate, pool in running]
        columns.sort(key=lambda column: (extra[column], column))
        chosen.update(columns[:choices])
        chosen.update(column for column in columns if values[column] > 1e-6)
    return chosen


def program_of(
    linear: LinearProgram, columns: Sequence[int], rows: Sequence[Row], fixed: Mapping[int, float] | Sequence[float]
) -> LinearProgram:
    """The program in some columns alone, the others fixed."""
    place = {column: index for index, column in enumerate(columns)}
    part = LinearProgram(
        cost=[linear.cost[column] for column in columns],
        lower=[linear.lower[column] for column in columns],
        upper=[linear.upper[column] for column in columns],
        integer=[linear.integer[column] for column in columns],
        block=[None] * len(columns),
    )
    for row in rows:
        constant = sum(value * fixed[column] for column, value in row.terms if column not in place)
        terms = [(place[column], value) for column, value in row.terms if column in place]
        if row.lower == row.upper:
            part.equal(terms, row.lower - constant)
        elif row.lower > float("-inf"):
            part.at_least(terms, row.lower - constant)
        else:
            part.at_most(terms, row.upper - constant)
    return part
