"""Turns the relaxation's duals into prices of units and of replicas, and into what each further replica would cost.

Where a pool is not used at all, its dual only needs to be high enough to keep it unused; the highest price that the
relaxation allows, the pool's own, separates better and ranks better.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from optimizer.program.model import Model
from optimizer.program.packing import counting_is_exact
from optimizer.program.solver import Answer


def unit_prices(model: Model, values: Sequence[float], duals: Sequence[float]) -> Mapping[tuple[int, int], float]:
    """What the relaxation charges for a unit of a pool in a period; for pools not in use, the most that it may."""
    unused = _unused_pools(model, values)
    prices = {key: max(0.0, duals[row]) for key, row in model.supply_rows.items()}
    for (pool, t), price in prices.items():
        if pool in unused:
            prices[pool, t] = max(price, unused[pool] * model.hours_share(t))
    return prices


def _unused_pools(model: Model, values: Sequence[float]) -> Mapping[int, float]:
    """The lowest price of each pool that the relaxation uses in no period."""
    return {
        index: min(model.problem.effective_usd_per_hour(offer) for offer in pool.offers)
        for index, pool in enumerate(model.pools)
        if all(values[model.units[index, t]] <= 1e-9 for t in model.periods)
    }


def replica_prices(model: Model, values: Sequence[float], duals: Sequence[float]) -> Mapping[int, float]:
    """What the relaxation charges for a replica's place on a unit; in pools not in use, the most that it may."""
    prices = _dual_prices(model, duals)
    unused = {pool: price for pool, price in _unused_pools(model, values).items() if _counts(model, pool)}
    sizes = {candidate.id: candidate.accelerators_per_replica for candidate in model.problem.candidates}
    for (candidate, pool, t), column in model.replicas.items():
        if pool in unused:
            part = sizes[candidate] / model.pools[pool].accelerators_per_unit
            prices[column] = max(prices[column], unused[pool] * part * model.hours_share(t))
    return prices


def extra_costs(model: Model, relaxed: Answer) -> Mapping[int, float]:
    """What each replica costs beyond what the relaxation pays for the capacity that it brings: its reduced cost, for
    pools not in use at their own price.
    """
    values, duals = relaxed.values or (), relaxed.duals
    worth: dict[int, float] = defaultdict(float)
    packing = set(model.packing_rows)
    for index, (row, dual) in enumerate(zip(model.linear.rows, duals, strict=False)):
        if dual and index not in packing:
            for column, coefficient in row.terms:
                worth[column] += dual * coefficient
    prices = replica_prices(model, values, duals)
    return {column: prices[column] - worth[column] for column in model.replicas.values()}


def _dual_prices(model: Model, duals: Sequence[float]) -> dict[int, float]:
    prices: dict[int, float] = defaultdict(float)
    for row in model.packing_rows:
        if duals[row]:
            for column, coefficient in model.linear.rows[row].terms:
                prices[column] -= duals[row] * coefficient
    return prices


def _counts(model: Model, pool: int) -> bool:
    """Whether a replica's part of a unit is its part of the accelerators."""
    hardware, unit = model.pools[pool].hardware, model.pools[pool].accelerators_per_unit
    sizes = {one.accelerators_per_replica for one in model.problem.candidates if one.hardware == hardware}
    return counting_is_exact(sizes, unit)
