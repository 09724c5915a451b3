"""`costopt plan --melange FILE`: the cheapest mix for a problem of Melange's kind, with the routing split."""

import json
from typing import Any, Final

from optimizer.api.json_text import json_text
from optimizer.api.sources import read_text
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.plans.document import SCHEMA, SCHEMA_VERSION
from optimizer.program.melange import melange_problem
from optimizer.program.problem import Problem, Solution, SolverOptions
from optimizer.program.solve import solve
from optimizer.sizing.document import number
from providers.errors import UsageError
from providers.units import HOURS_PER_MONTH

_MAX_BYTES: Final = 50_000_000


def solved(path: str, requests_per_s: float | None, options: SolverOptions) -> tuple[Problem, Solution]:
    """The file's problem and its solution. Raises UsageError for a file that is no Melange problem."""
    content = content_of(path)
    try:
        problem = melange_problem(content, requests_per_s=requests_per_s)
    except UsageError as error:
        raise UsageError(f"Melange file {path!r}: {error}") from None
    return problem, solve(problem, options)


def content_of(path: str) -> dict[str, Any]:
    """The file's object. Raises UsageError for a file that holds none."""
    text = read_text(path, "Melange file", _MAX_BYTES)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"Melange file {path!r} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"Melange file {path!r} holds a {type(content).__name__}, not an object")
    return content


def render(problem: Problem, solution: Solution, format_: str) -> str:
    """The mix and the routing split in one of the formats."""
    found = document(problem, solution)
    if format_ == "json":
        return json_text(found)
    instances = [(row["instance_type"], row["count"], row["usd_per_hour"]) for row in found["instances"]]
    if format_ == "csv":
        return csv_text(("instance_type", "count", "usd_per_hour"), instances)
    shown = list(parts(found))
    return terminal(shown) if format_ == "table" else markdown(shown)


def document(problem: Problem, solution: Solution) -> dict[str, Any]:
    """The plan document's keys, as far as a file without prices' dates and sellers has them."""
    prices = {offer.id: offer.usd_per_hour for offer in problem.offers}
    demand = dict(zip(problem.workloads[0].shapes, problem.workloads[0].demand[0], strict=True))
    hourly = solution.usd_per_hour
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "status": solution.status,
        "objective": problem.objective,
        "instances": [
            {"instance_type": key, "accelerator": key, "count": count, "usd_per_hour": f"{prices[key]:g}"}
            for key, count in sorted(solution.kept.items())
        ],
        "routing": [
            {
                "shape": shape,
                "instance_type": candidate,
                "share": number(flow / demand[shape]) if demand[shape] else None,
                "requests_per_s": number(flow),
            }
            for (candidate, shape, _), flow in sorted(solution.flows.items(), key=lambda one: (one[0][1], one[0][0]))
            if flow > 0
        ],
        "totals": None
        if hourly is None
        else {
            "usd_per_hour": f"{hourly:.6f}".rstrip("0").rstrip("."),
            "usd_per_month": f"{hourly * HOURS_PER_MONTH:.2f}",
            "requests_per_s": number(sum(demand.values())),
        },
        "proof": {
            "bound_usd_per_month": None if solution.bound is None else f"{solution.bound * HOURS_PER_MONTH:.2f}",
            "gap": number(solution.gap),
            "solver": solution.solver,
            "variables": solution.variables,
            "constraints": solution.constraints,
        },
        "shortfalls": [
            {"limit": s.limit, "needed": number(s.needed), "available": number(s.available), "unit": s.unit}
            for s in solution.shortfalls
        ],
    }


def parts(document: dict[str, Any]) -> list[Table | str]:
    """The document as tables and lines of text."""
    totals = document["totals"]
    if totals is None:
        lines = [f"{s['limit']}: {s['needed']} {s['unit']} are asked for" for s in document["shortfalls"]]
        return ["No mix serves all shapes.", *lines]
    rows = [(row["instance_type"], str(row["count"]), row["usd_per_hour"]) for row in document["instances"]]
    routing = [
        (row["shape"], row["instance_type"], f"{row['share']:.1%}", f"{row['requests_per_s']:.3g}")
        for row in document["routing"]
    ]
    return [
        f"{totals['usd_per_hour']} USD/h for {totals['requests_per_s']} requests/s "
        f"({document['status'].replace('_', ' ')}, {document['proof']['solver']})",
        Table(title="Mix", columns=("GPU", "count", "USD/h each"), rows=rows, right=frozenset({"count", "USD/h each"})),
        Table(
            title="Routing (shapes are row,column of the distribution)",
            columns=("shape", "to", "share", "requests/s"),
            rows=routing,
            right=frozenset({"share", "requests/s"}),
        ),
    ]
