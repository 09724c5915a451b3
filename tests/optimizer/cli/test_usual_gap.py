"""The gap at which the solver may stop where none is asked for grows with the program."""

from dataclasses import replace

import pytest

from optimizer.api.market_view import usual_gap
from optimizer.workload.architecture import resolve_model
from optimizer.workload.workload import RequestShape, ShapeDemand
from tests.builders import make_workload


@pytest.mark.parametrize(
    ("workloads", "shapes", "hours", "gap"),
    [
        (1, 1, 0, 0),
        (5, 1, 0, 0),
        (6, 1, 0, 0.001),
        (1, 4, 0, 0),
        (1, 1, 24, 0.001),
        (2, 1, 24, 0.01),
        (1, 4, 168, 0.01),
    ],
)
def test_the_usual_gap(workloads: int, shapes: int, hours: int, gap: float) -> None:
    demands = tuple(ShapeDemand(shape=RequestShape(input_tokens=i, output_tokens=1)) for i in range(1, shapes + 1))
    one = replace(make_workload(), demands=demands, profile=(1.0,) * hours)
    assert usual_gap([(one, resolve_model(one.model))] * workloads) == gap
