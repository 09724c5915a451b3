"""Turns the relaxation's prices into cuts that only whole replicas obey, which closes most of the gap of rounding.

For prices v_c >= 0 and one workload and period, every plan in whole replicas satisfies

    sum_c v_c r_c  >=  min { sum_c v_c r_c : r satisfies the workload's capacity cuts, r whole }

At the prices that the relaxation puts on replicas, the left side is what it pays for this workload and the right side
what it would have to: together these cuts give the bound of a Lagrangian decomposition by workload and period. The
right side is found by the exact search of `covering`, over one non-negative combination of the capacity cuts.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from optimizer.program.covering import Kind, cheapest_cover
from optimizer.program.cuts import add_violated_cuts, rounded
from optimizer.program.decompose import Blocks, program_of
from optimizer.program.linear import Term
from optimizer.program.model import Model
from optimizer.program.prices import replica_prices, unit_prices
from optimizer.program.problem import SolverOptions
from optimizer.program.solver import Answer, Session

LEAST_GAIN = 1e-4
"""Relative violation below which a cut is not worth its row."""

MOST_COLUMNS = 250
"""Columns of a period up to which its own integer program is solved for a bound."""

PERIOD_NODES = 50
"""Nodes after which the bound reached so far is taken."""

SAFETY = 1e-7
"""Relative amount that a right-hand side is lowered by, so that rounding of floats never cuts a plan off."""


def add_rounding_cuts(model: Model, relaxed: Answer) -> bool:
    """Add a cut for every workload and period that the relaxation serves too cheaply; False if there is none."""
    if model.scale is not None or relaxed.values is None:
        return False
    prices = replica_prices(model, relaxed.values, relaxed.duals)
    found: list[tuple[list[Term], float]] = []
    for index, scenario in enumerate(model.scenarios):
        if scenario.losing:
            continue
        capacity, needed = _combined_cut(model, index, relaxed.duals)
        columns = [column for column, held in capacity.items() if held > 0 and prices[column] > 0]
        if not columns or any(held > 0 and prices[column] <= 0 for column, held in capacity.items()):
            continue  # something useful is free: whole replicas cost nothing either
        kinds = [Kind(prices[column], capacity[column]) for column in columns]
        counts = cheapest_cover(kinds, needed)
        if counts is None:
            continue
        least = sum(count * kind.price for count, kind in zip(counts, kinds, strict=True))
        paid = sum(relaxed.values[column] * prices[column] for column in columns)
        if least * (1 - SAFETY) > paid * (1 + LEAST_GAIN):
            found.append(([(column, prices[column]) for column in columns], least * (1 - SAFETY)))
    for terms, least in found:
        model.linear.at_least(terms, least)
    return bool(found)


def add_period_cuts(model: Model, relaxed: Answer, options: SolverOptions) -> bool:
    """Add, for each period that the relaxation serves too cheaply, the cut

        sum_p pi_pt N_pt  >=  min { sum_p pi_pt N_pt : replicas of all workloads in whole units }

    with pi the relaxation's price of a unit: the bound of a Lagrangian decomposition by period. The right side is the
    bound of a small integer program of the period alone; periods with many columns are left out. Where its answer
    cannot be routed, the cuts of routing that it breaks are added too.
    """
    if model.scale is not None or relaxed.values is None or len(model.periods) == 1:
        return False
    blocks = Blocks.of(model.linear)
    amounts = {*model.kept.values(), *model.bought.values()}
    prices = unit_prices(model, relaxed.values, relaxed.duals)
    found: list[tuple[list[Term], float]] = []
    whole = [0.0] * len(model.linear.cost)
    solved: set[int] = set()
    for t in model.periods:
        columns = [column for column in blocks.columns[t] if column not in amounts]
        if len(columns) > MOST_COLUMNS:
            continue
        rows = [model.linear.rows[index] for index in blocks.rows[t]]
        rows = [row for row in rows if not any(column in amounts for column, _ in row.terms)]  # starts hold amounts
        priced = {column: prices[pool, t] for (pool, period), column in model.units.items() if period == t}
        part = program_of(model.linear, columns, rows, whole)
        part.cost = [priced.get(column, 0.0) for column in columns]
        answer = Session(part, replace(options, max_nodes=PERIOD_NODES)).solve(gap=LEAST_GAIN)
        if answer.values is not None:
            solved.add(t)
            for column, value in zip(columns, answer.values, strict=True):
                whole[column] = value
        least = answer.bound * (1 - SAFETY)
        paid = sum(relaxed.values[column] * price for column, price in priced.items())
        if least > paid * (1 + LEAST_GAIN):
            found.append(([(column, price) for column, price in priced.items() if price > 0], least))
    for terms, least in found:
        model.linear.at_least(terms, least)
    return bool(add_violated_cuts(model, rounded(model, whole), options, solved) or found)


def _combined_cut(model: Model, scenario: int, duals: Sequence[float]) -> tuple[dict[int, float], float]:
    """The scenario's capacity cuts added up with their duals as weights; the last of them if all duals are 0."""
    rows = model.cuts[scenario]
    weights = {row: abs(duals[row]) for row in rows if row < len(duals) and abs(duals[row]) > 1e-12}
    if not weights and rows:
        weights = {rows[-1]: 1.0}
    capacity: dict[int, float] = defaultdict(float)
    needed = 0.0
    for index, weight in weights.items():
        row = model.linear.rows[index]
        needed += weight * row.lower
        for column, coefficient in row.terms:
            capacity[column] += weight * coefficient
    return capacity, needed
