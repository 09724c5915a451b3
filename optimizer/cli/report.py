"""`costopt report`: the monthly budget report of a portfolio of workloads."""

from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from optimizer.cli import options

if TYPE_CHECKING:
    from decimal import Decimal

    from optimizer.report.budget import Budget
    from optimizer.report.focus import Actuals
    from optimizer.report.monthly import MonthlyReport
    from optimizer.report.months import Month
    from providers.offers import InstanceType

app = typer.Typer(rich_markup_mode=None, add_completion=False)

FORMATS = ("table", "json", "csv", "md", "html", "xlsx")
_NOT_ON_A_TERMINAL = frozenset({"burn-down-days", "lines"})


@app.command()
def report(
    file: Annotated[str | None, typer.Argument(metavar="BUDGET.yaml", help="The budget; --init writes one.")] = None,
    month: Annotated[str | None, typer.Option("--month", metavar="MONTH", help="2026-12. Default: this month.")] = None,
    actuals: Annotated[
        str | None, typer.Option("--actuals", metavar="FILE", help="FOCUS 1.0 to 1.3 cost export, CSV or Parquet.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="That workload alone; repeatable.")
    ] = None,
    purchase: Annotated[
        list[str] | None, typer.Option("--purchase", metavar="OPTION", help="Instead of the budget's; as in `plan`.")
    ] = None,
    precision: Annotated[
        list[str] | None, typer.Option("--precision", metavar="DTYPE", help="Instead of the budget's; as in `plan`.")
    ] = None,
    init: Annotated[bool, typer.Option("--init", help="Write a commented example of a budget, and stop.")] = False,
    as_of: options.AsOf = None,
    max_age: options.MaxAge = "30d",
    offline: options.Offline = False,
    format_: Annotated[
        str, typer.Option("-f", "--format", metavar="FORMAT", help="table, json, csv, md, html or xlsx.")
    ] = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """Budget, actual, forecast and variance of a month, with the reasons and what to do next.

    Workloads are planned on the prices on file; without --actuals the plan is the forecast.
    """
    from optimizer.api import choices
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.streams import say, write_result
    from optimizer.report.budget import narrowed
    from optimizer.report.budget_file import parse_budget
    from providers.errors import UsageError

    format_ = choices.one_of("format", format_, FORMATS)
    if init:
        write_result(_example(), output)
        return ExitCode.DONE
    if file is None:
        raise UsageError("no budget: give BUDGET.yaml; `costopt report --init -o BUDGET.yaml` writes an example")
    from optimizer.api.sources import read_text
    from optimizer.workload.workload_file import MAX_BYTES

    budget = parse_budget(read_text(file, "budget", MAX_BYTES), file, choices.architecture)
    budget = narrowed(budget, only or (), purchase or (), choices.precisions(precision))
    found = _made(budget, file, month, actuals, as_of, max_age, offline=offline, quiet=quiet)
    write_result(_rendered(found, format_), output)
    if format_ in ("json", "csv", "xlsx"):
        say((f"warning: {line}" for line in found.warnings), quiet=quiet)
    return ExitCode.DONE


def _made(
    budget: "Budget",
    file: str,
    month: str | None,
    actuals: str | None,
    as_of: str | None,
    max_age: str,
    *,
    offline: bool,
    quiet: bool,
) -> "MonthlyReport":
    """Opens what the report needs and makes it."""
    from dataclasses import replace

    from optimizer.api import choices, market_view, values
    from optimizer.api.clock import now, today
    from optimizer.report.budget import privately_priced
    from optimizer.report.monthly import Asked, monthly_report
    from optimizer.report.months import Month
    from optimizer.report.planning import Planner

    wishes = budget.market
    view = market_view.MarketView(
        providers=frozenset(name.lower() for name in wishes.providers),
        regions=frozenset(wishes.regions),
        gpus=wishes.gpus,
        purchase_options=choices.purchase_options(wishes.purchase),
        include=wishes.include,
        as_of=values.past_day("--as-of", as_of, today()),
        offline=offline,
    )
    reported = Month.parse("--month", month, budget.time_zone) if month else Month.of(now(), budget.time_zone)
    max_age_days = int(values.duration_hours("--max-age", max_age) / 24)
    market = market_view.load(view)
    machines = {(o.provider, o.instance_type.name): o.instance_type for o in market.all_on_file}
    bill = None if actuals is None else _bill(actuals, budget, reported, tuple(machines.values()), quiet=quiet)
    eligible, remarks = privately_priced(budget, market.eligible)
    pools = [replace(pool, offers=privately_priced(budget, pool.offers)[0]) for pool in market.pools]
    earlier, lacking = _earlier_prices(budget, view, reported)
    return monthly_report(
        Asked(
            budget=budget,
            month=reported,
            now=now(),
            planner=Planner(budget, eligible, machines, pools, file_name=file),
            actuals=bill,
            earlier_prices=earlier,
            stale_days=max_age_days,
            warnings=(*market.warnings, *remarks, *lacking),
        )
    )


def _bill(
    path: str, budget: "Budget", month: "Month", machines: "tuple[InstanceType, ...]", *, quiet: bool
) -> "Actuals":
    from optimizer.api.clock import now
    from optimizer.cli.focus_file import malformed_lines, opened, with_progress
    from optimizer.report.focus import read_actuals

    matches = {entry.name: entry.matches for entry in budget.workloads if entry.matches}
    with opened(path) as connection:
        return with_progress(
            connection,
            lambda: read_actuals(
                connection,
                (month.plus(-1), month),
                matches,
                machines,
                until=now(),
                malformed=lambda: malformed_lines(connection),
            ),
            quiet=quiet,
        )


def _earlier_prices(
    budget: "Budget", view: object, month: "Month"
) -> "tuple[dict[str, Decimal] | None, tuple[str, ...]]":
    """Lowest prices per accelerator-hour at the end of the month before, by thing; none that lie ahead of now."""
    from optimizer.api.clock import today
    from optimizer.report.budget import privately_priced
    from optimizer.report.planning import lowest_by_thing
    from pricing_cache.query import current_offers
    from providers.errors import NoUsablePrices

    day: date = month.plus(-1).last_day
    if day >= today():
        return None, ()
    try:
        book = current_offers(as_of=day)
    except NoUsablePrices:
        return None, (f"no prices of {day} are on file: the price part of the change is not known",)
    return lowest_by_thing(privately_priced(budget, book.offers)[0]), ()


def _rendered(found: "MonthlyReport", format_: str) -> "str | bytes":
    from optimizer.api.json_text import json_text
    from optimizer.report.monthly_document import monthly_csv, monthly_document
    from optimizer.report.monthly_page import monthly_page

    if format_ == "json":
        return json_text(monthly_document(found))
    if format_ == "csv":
        return monthly_csv(found)
    from optimizer.cli.page_output import rendered_page

    return rendered_page(monthly_page(found), format_, found.now, _NOT_ON_A_TERMINAL)


def _example() -> str:
    from importlib.resources import files

    return files("optimizer.report").joinpath("data", "budget_example.yaml").read_text(encoding="utf-8")
