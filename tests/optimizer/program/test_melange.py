"""Melange's kind of input: read, refused with the field, and solved no dearer than in Melange's own form."""

from typing import Any

import pytest

from optimizer.program.linear import LinearProgram
from optimizer.program.melange import melange_problem
from optimizer.program.problem import SolverOptions
from optimizer.program.solve import solve
from optimizer.program.solver import Session
from providers.errors import InvalidValue

EXAMPLE: dict[str, Any] = {
    "gpu_info": {
        "A10G": {"cost": 1.01, "tputs": [[2, 1], [5, 2]]},
        "A100-80GB": {"cost": 3.67, "tputs": [[20, 20], [40, 20]]},
    },
    "workload_distribution": [[0.2, 0.1], [0.5, 0.2]],
    "total_request_rate": 30.0,
    "slice_factor": 1,
}


def cost_of_sliced_form(document: dict[str, Any], slices: int) -> float:
    """Melange's own form: every bucket in equal slices, each slice on one GPU kind as a whole."""
    linear = LinearProgram()
    rate = document["total_request_rate"]
    kinds = document["gpu_info"]
    units = {name: linear.column(cost=info["cost"], integer=True) for name, info in kinds.items()}
    load: dict[str, list[tuple[int, float]]] = {name: [(column, -1.0)] for name, column in units.items()}
    for i, row in enumerate(document["workload_distribution"]):
        for j, share in enumerate(row):
            counts = {name: linear.column(upper=slices, integer=True) for name in kinds}
            linear.equal([(column, 1.0) for column in counts.values()], slices)
            for name, column in counts.items():
                load[name].append((column, share * rate / slices / kinds[name]["tputs"][i][j]))
    for terms in load.values():
        linear.at_most(terms, 0.0)
    return Session(linear, SolverOptions()).solve().objective


def test_the_routing_split_costs_4_68_where_slices_cost_6_70_and_5_69() -> None:
    solution = solve(melange_problem(EXAMPLE))
    assert solution.status == "optimal"
    assert solution.usd_per_hour == pytest.approx(4.68)
    assert solution.kept == {"A10G": 1, "A100-80GB": 1}
    assert cost_of_sliced_form(EXAMPLE, 1) == pytest.approx(6.70)
    assert cost_of_sliced_form(EXAMPLE, 8) == pytest.approx(5.69)


def test_the_rate_can_be_overridden() -> None:
    assert solve(melange_problem(EXAMPLE, requests_per_s=3.0)).kept == {"A10G": 2}


def test_a_cell_without_throughput_is_a_shape_not_served() -> None:
    document = {**EXAMPLE, "gpu_info": {"A10G": {"cost": 1.01, "tputs": [[2, 1], [5, 0]]}}}
    solution = solve(melange_problem(document))
    assert solution.status == "infeasible"
    assert solution.shortfalls[0].limit == "no candidate serves melange/1,1"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"gpu_info": None}, "gpu_info"),
        ({"gpu_info": {"A10G": {"cost": -1, "tputs": [[2, 1], [5, 2]]}}}, "cost"),
        ({"gpu_info": {"A10G": {"cost": 1, "tputs": [[2, 1]]}}}, "tputs"),
        ({"gpu_info": {"A10G": {"cost": 1, "tputs": [[2, "x"], [5, 2]]}}}, "tputs"),
        ({"workload_distribution": []}, "workload_distribution"),
        ({"total_request_rate": "fast"}, "total_request_rate"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValue, match=field):
        melange_problem({**EXAMPLE, **change})
