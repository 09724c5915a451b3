"""Turns a Melange problem file (arXiv 2404.14527) into a problem of this program.

The file is a JSON object: `gpu_info` {kind: {"cost": USD/h, "tputs": requests/s by input x output bucket}},
`workload_distribution` (shares by bucket), `total_request_rate` in requests/s. Melange also has a `slice_factor`: it
cuts each bucket into so many pieces and gives each piece to one GPU kind as a whole. Here flows are divided at will, so
the factor is not needed, and the optimum is never dearer than Melange's for any factor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.program.problem import Problem, ProgramCandidate, ProgramOffer, ProgramWorkload
from providers.errors import InvalidValue

WORKLOAD = "melange"


def melange_problem(document: Mapping[str, Any], *, requests_per_s: float | None = None) -> Problem:
    """The problem, with one unlimited offer per GPU kind; `requests_per_s` overrides the file's rate.

    A cell without throughput is a shape that the kind cannot serve. Raises InvalidValue naming the wrong field.
    """
    kinds = _field(document, "gpu_info", Mapping)
    distribution = _matrix(_field(document, "workload_distribution", Sequence), "workload_distribution")
    rate = requests_per_s if requests_per_s is not None else _number(document, "total_request_rate")
    shapes = tuple(f"{i},{j}" for i, row in enumerate(distribution) for j in range(len(row)))
    demand = tuple(share * rate for row in distribution for share in row)
    offers, candidates = [], []
    for name in sorted(kinds):
        info = _field(kinds, name, Mapping)
        rates = _matrix(_field(info, "tputs", Sequence), f"gpu_info.{name}.tputs")
        if [len(row) for row in rates] != [len(row) for row in distribution]:
            raise InvalidValue(f"gpu_info.{name}.tputs", rates, "needs the shape of workload_distribution")
        flat = [value for row in rates for value in row]
        offers.append(_offer(name, _number(info, "cost")))
        candidates.append(
            ProgramCandidate(
                id=name,
                workload=WORKLOAD,
                hardware=name,
                accelerators_per_replica=1,
                requests_per_s={shape: value for shape, value in zip(shapes, flat, strict=True) if value > 0},
            )
        )
    workload = ProgramWorkload(id=WORKLOAD, shapes=shapes, demand=(demand,))
    return Problem(offers=offers, candidates=candidates, workloads=(workload,), utilisation=1.0)


def _offer(name: str, usd_per_hour: float) -> ProgramOffer:
    return ProgramOffer(
        id=name,
        hardware=name,
        provider="file",
        accelerator=name,
        accelerators_per_unit=1,
        purchase_option="on_demand",
        usd_per_hour=usd_per_hour,
        instance_type=name,
    )


def _field(document: Mapping[str, Any], key: str, kind: type) -> Any:
    value = document.get(key)
    if not isinstance(value, kind) or isinstance(value, str):
        raise InvalidValue(f"Melange field {key}", value, "is missing or of another kind")
    return value


def _number(document: Mapping[str, Any], key: str) -> float:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InvalidValue(f"Melange field {key}", value, "needs a finite number, at least 0")
    return float(value)


def _matrix(rows: Sequence[Any], what: str) -> list[list[float]]:
    found = []
    for row in rows:
        if not isinstance(row, Sequence) or isinstance(row, str):
            raise InvalidValue(f"Melange field {what}", row, "needs a list of lists of numbers")
        found.append([_number({what: value}, what) for value in row])
    if not found or not any(found):
        raise InvalidValue(f"Melange field {what}", rows, "is empty")
    return found
