"""`costopt compare`: ways to buy the same capacity side by side, and the requirement sheet for those who sell it."""

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import typer

from optimizer.cli import options

if TYPE_CHECKING:
    from decimal import Decimal

    from optimizer.api.comparison import Needed
    from optimizer.report.comparison import Comparison

app = typer.Typer(rich_markup_mode=None, add_completion=False)

FORMATS = ("table", "json", "csv", "md", "html", "xlsx")
_NOT_ON_A_TERMINAL = frozenset(
    {"cumulative", "month-by-share", "unit-by-share", "sensitivity-list", "term-list", "quote-list"}
)
"""Too wide or too long there; the other formats have them."""


@app.command()
def compare(
    context_: typer.Context,
    model: Annotated[
        str,
        typer.Option("--model", metavar="NAME|PATH", help="Model to serve, as in `plan`; or --gpu and --count."),
    ] = "",
    rate: options.Rate = None,
    input_tokens: options.InputTokens = 1000,
    output_tokens: options.OutputTokens = 300,
    context: options.Context = None,
    ttft_ms: options.TtftMs = 2000.0,
    tpot_ms: options.TpotMs = 100.0,
    precision: options.Precision = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, max=1_000_000, help="Accelerators to get, with --gpu.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--hours", metavar="H", help="One job of so many hours. Default: all hours.")
    ] = None,
    provider: options.Provider = None,
    region: options.Region = None,
    gpu: options.Gpu = None,
    purchase: Annotated[
        list[str] | None,
        typer.Option("--purchase", metavar="OPTION", help="Only that way to buy, as in `plan`; repeatable."),
    ] = None,
    include: options.Include = None,
    quotes: Annotated[
        str | None,
        typer.Option("--quotes", metavar="FILE.csv", help="Private quotes; --rfq -f csv writes columns."),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option("--costs", metavar="FILE.yaml", help="Storage, egress, support, own hardware; --init writes one."),
    ] = None,
    rfq: Annotated[bool, typer.Option("--rfq", help="Write the vendor-neutral requirement sheet instead.")] = False,
    init: Annotated[bool, typer.Option("--init", help="Write a commented example for --costs, and stop.")] = False,
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
    """Clouds, quotes, own hardware and hosted tokens for the same capacity, with total cost, break-even and terms.

    The capacity is a model at a rate (--model --rate), or a number of accelerators (--gpu --count).
    """
    arguments = dict(locals())
    from optimizer.api import choices
    from optimizer.api.comparison import CompareArguments, comparison_of, needed
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.given import given_parameters
    from optimizer.cli.streams import say, write_result

    format_ = choices.one_of("format", format_, FORMATS)
    if init:
        write_result(_example(), output)
        return ExitCode.DONE
    if rfq and format_ == "csv":
        write_result(_answer_sheet(), output)  # the columns are the same whatever is needed
        return ExitCode.DONE
    wanted = CompareArguments(**{field.name: arguments[field.name] for field in fields(CompareArguments)})
    what = needed(wanted, given_parameters(context_))
    if rfq:
        write_result(_rfq(what, wanted.job_hours, format_), output)
        return ExitCode.DONE
    found, eligible = comparison_of(wanted, what)
    write_result(_rendered(found, format_), output)
    if format_ in ("json", "csv", "xlsx"):
        say((f"warning: {line}" for line in found.warnings), quiet=quiet)
    if found.ways:
        return ExitCode.DONE
    say([f"costopt: nothing meets the need, of {eligible:,} offers that pass the filters"], quiet=quiet)
    return ExitCode.INFEASIBLE


def _rfq(what: "Needed", hours: "Decimal | None", format_: str) -> str | bytes:
    from optimizer.api.clock import now
    from optimizer.api.json_text import json_text
    from optimizer.cli.page_output import rendered_page
    from optimizer.report.rfq import rfq_document, rfq_page

    if format_ == "json":
        return json_text(rfq_document(what.title, what.need, what.extras, hours, now()))
    return rendered_page(rfq_page(what.title, what.need, what.extras, hours, now()), format_, now(), frozenset())


def _answer_sheet() -> str:
    from optimizer.report.rfq import rfq_csv

    return rfq_csv()


def _rendered(found: "Comparison", format_: str) -> str | bytes:
    from optimizer.api.json_text import json_text
    from optimizer.cli.page_output import rendered_page
    from optimizer.report.comparison_document import comparison_csv, comparison_document
    from optimizer.report.comparison_page import comparison_page

    if format_ == "json":
        return json_text(comparison_document(found))
    if format_ == "csv":
        return comparison_csv(found)
    return rendered_page(comparison_page(found), format_, found.now, _NOT_ON_A_TERMINAL)


def _example() -> str:
    from importlib.resources import files

    return files("optimizer.report").joinpath("data", "costs_example.yaml").read_text(encoding="utf-8")
