"""`costopt plan --sweep`: plans over a range of one number, as a table, JSON, CSV, Markdown or a page with charts."""

from datetime import datetime

from optimizer.cli.choices import json_text
from optimizer.cli.page_output import rendered_page
from optimizer.cli.tables import csv_text
from optimizer.plans.planner import Request
from optimizer.plans.sweep import parse_sweep, sweep_plans
from optimizer.report.sweep import sweep_document, sweep_page


def rendered(request: Request, text: str, format_: str, now: datetime) -> tuple[str | bytes, bool]:
    """The sweep in one of the formats, and whether any of its plans is feasible."""
    sweep = parse_sweep(text)
    plans = list(sweep_plans(request, sweep))
    feasible = any(plan.fleet is not None for _, plan in plans)
    if format_ in ("json", "csv"):
        document = sweep_document(sweep.parameter, plans)
        if format_ == "json":
            return json_text(document), feasible
        columns = [key for key in document["points"][0] if key != "shortfalls"]
        return csv_text(columns, [[point[key] for key in columns] for point in document["points"]]), feasible
    return rendered_page(sweep_page(sweep.parameter, plans), format_, now, frozenset()), feasible
