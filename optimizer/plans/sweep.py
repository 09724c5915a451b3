"""Turns a request and a range of one of its numbers into a plan for each value."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from optimizer.plans.plan import Plan
from optimizer.plans.planner import Request, plan
from providers.errors import InvalidValue, UnknownName, nearest

MAX_POINTS: Final = 200
_RANGE: Final = re.compile(r"([^:]+):([^:]+):(lin|log)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The number that is varied, and its values in the order given."""

    parameter: str
    values: tuple[float, ...]


def parse_sweep(text: str) -> Sweep:
    """`rate=1:100:log10` (10 values, evenly on a log scale), `budget=1000:9000:lin5` or `context=4096,8192,32768`.

    Raises UnknownName for another parameter, InvalidValue for values that are no positive numbers.
    """
    parameter, _, values = text.partition("=")
    parameter = parameter.strip()
    if parameter not in PARAMETERS:
        known = f"known: {', '.join(PARAMETERS)}"
        raise UnknownName("sweep parameter", parameter, nearest(parameter, PARAMETERS), known)
    found = _values(text, values.strip())
    allowed = PARAMETERS[parameter][0]
    for value in found:
        if not allowed(value):
            raise InvalidValue("--sweep", text, f"{value:g} is no value for {parameter}")
    return Sweep(parameter=parameter, values=found)


def sweep_plans(request: Request, sweep: Sweep) -> Iterator[tuple[float, Plan]]:
    """The plan at each value, without alternatives."""
    change = PARAMETERS[sweep.parameter][1]
    for value in sweep.values:
        yield value, plan(change(replace(request, alternatives=False, reasons=False, pools=()), value))


def _values(text: str, values: str) -> tuple[float, ...]:
    spread = _RANGE.fullmatch(values)
    try:
        if spread is None:
            found = [float(part) for part in values.split(",")]
        else:
            low, high, count = float(spread[1]), float(spread[2]), int(spread[4])
            if not 2 <= count <= MAX_POINTS:
                raise InvalidValue("--sweep", text, f"give 2 to {MAX_POINTS} values")
            found = [_between(low, high, step / (count - 1), spread[3]) for step in range(count)]
    except ValueError:
        hint = "write it like rate=1:100:log10, budget=1000:9000:lin5 or context=4096,8192"
        raise InvalidValue("--sweep", text, hint) from None
    if len(found) > MAX_POINTS or not all(math.isfinite(value) for value in found):
        raise InvalidValue("--sweep", text, f"give at most {MAX_POINTS} finite values")
    return tuple(found)


def _between(low: float, high: float, part: float, scale: str) -> float:
    """The value at `part` of the way, to six significant digits."""
    value = low * (high / low) ** part if scale == "log" and low > 0 < high else low + (high - low) * part
    if scale == "log" and not (low > 0 < high):
        raise ValueError
    return float(f"{value:.6g}")


def _with_rate(request: Request, value: float) -> Request:
    """All workloads together at that many requests/s, in the proportions that they have."""
    total = sum(d.requests_per_s or d.share for workload, _ in request.workloads for d in workload.demands)
    return replace(
        request,
        workloads=[
            (
                replace(
                    workload,
                    demands=tuple(
                        replace(d, requests_per_s=(d.requests_per_s or d.share) / total * value)
                        for d in workload.demands
                    ),
                ),
                architecture,
            )
            for workload, architecture in request.workloads
        ],
    )


def _with_budget(request: Request, value: float) -> Request:
    return replace(request, budget_usd_per_month=Decimal(repr(value)))


def _with_context(request: Request, value: float) -> Request:
    pairs = [(replace(workload, context_tokens=int(value)), model) for workload, model in request.workloads]
    return replace(request, workloads=pairs)


def _with_spot_share(request: Request, value: float) -> Request:
    return replace(request, limits=replace(request.limits, max_spot_share=value))


PARAMETERS: Final[Mapping[str, tuple[Callable[[float], bool], Callable[[Request, float], Request]]]] = MappingProxyType(
    {
        "rate": (lambda value: value > 0, _with_rate),
        "budget": (lambda value: value > 0, _with_budget),
        "context": (lambda value: value >= 1 and value == int(value), _with_context),
        "spot-share": (lambda value: 0 <= value <= 1, _with_spot_share),
    }
)
"""What can be varied: which values it takes, and the request with one."""
