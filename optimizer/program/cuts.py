"""Turns a fleet that cannot serve its demand into the inequalities that it breaks, and adds them to the model."""

from collections.abc import Container, Sequence

import numpy as np

from optimizer.program.model import Model, Scenario, add_cut
from optimizer.program.problem import SolverOptions
from optimizer.program.route import TOLERANCE, Routing, Vector, route


def add_violated_cuts(
    model: Model, values: Sequence[float], options: SolverOptions, periods: Container[int] | None = None
) -> set[int]:
    """Add a cut for every scenario (of some periods) whose demand does not fit; return the periods of those."""
    limit = model.problem.utilisation * (1 + TOLERANCE)
    found: dict[tuple[int, bytes], Vector] = {}
    broken: set[int] = set()
    for scenario in model.scenarios:
        if model.services[scenario.workload].pace() is not None:
            continue  # its one cut says all
        if periods is not None and scenario.period not in periods:
            continue
        routing = _route_scenario(model, scenario, values, options)
        if routing.theta > limit:
            found[scenario.workload, np.round(routing.weights, 9).tobytes()] = routing.weights
            broken.add(scenario.period)
    for (workload, _), weights in found.items():
        add_cut(model, workload, weights)
    return broken


def _route_scenario(model: Model, scenario: Scenario, values: Sequence[float], options: SolverOptions) -> Routing:
    left = np.array([max(0.0, sum(values[i] * f for i, f in terms)) for terms in scenario.remaining])
    scale = 1.0 if model.scale is None else values[model.scale]
    demand = model.demand[scenario.workload][scenario.period] * (scenario.fraction * scale)
    return route(model.services[scenario.workload], demand, left, options)


def rounded(model: Model, values: Sequence[float]) -> list[float]:
    """The values with what must be whole made whole."""
    return [float(round(value)) if whole else value for value, whole in zip(values, model.linear.integer, strict=True)]
