"""`costopt plan --sweep`: plans over a range of one number, as a table, JSON, CSV, Markdown or a page with charts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from optimizer.api.json_text import json_text
from optimizer.cli.page_output import rendered_page
from optimizer.cli.tables import csv_text
from optimizer.plans.planner import Request
from optimizer.plans.sweep import parse_sweep, sweep_plans
from optimizer.program.problem import Status
from optimizer.report.sweep import sweep_document, sweep_page

_LEAST_PROVEN_FIRST: Final[Sequence[Status]] = ("feasible", "within_gap", "optimal", "infeasible")


def rendered(request: Request, text: str, format_: str, now: datetime) -> tuple[str | bytes, Status]:
    """The sweep in one of the formats, and the status of its least proven plan: infeasible only where there is none."""
    sweep = parse_sweep(text)
    plans = list(sweep_plans(request, sweep))
    status = min((plan.status for _, plan in plans), key=_LEAST_PROVEN_FIRST.index)
    if format_ in ("json", "csv"):
        document = sweep_document(sweep.parameter, plans)
        if format_ == "json":
            return json_text(document), status
        columns = [key for key in document["points"][0] if key != "shortfalls"]
        return csv_text(columns, [[point[key] for key in columns] for point in document["points"]]), status
    return rendered_page(sweep_page(sweep.parameter, plans), format_, now, frozenset()), status
