"""`costopt compare`: ways to buy the same capacity side by side, and the requirement sheet for those who sell it."""

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

from optimizer.cli import options

if TYPE_CHECKING:
    from optimizer.report.capacity import Need
    from optimizer.report.comparison import Comparison
    from optimizer.report.extras import Extras
    from optimizer.report.quotes import Quote

app = typer.Typer(rich_markup_mode=None, add_completion=False)

FORMATS = ("table", "json", "csv", "md", "html", "xlsx")
_NOT_ON_A_TERMINAL = frozenset(
    {"cumulative", "month-by-share", "unit-by-share", "sensitivity-list", "term-list", "quote-list"}
)
"""Too wide or too long there; the other formats have them."""


@app.command()
def compare(
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
    from optimizer.cli import choices, market_view, values
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.settings import now, today
    from optimizer.cli.streams import say, write_result
    from optimizer.report.comparison import Wanted, comparison
    from providers.offers import PurchaseOption

    format_ = choices.one_of("format", format_, FORMATS)
    if init:
        write_result(_example(), output)
        return ExitCode.DONE
    if rfq and format_ == "csv":
        write_result(_answer_sheet(), output)  # the columns are the same whatever is needed
        return ExitCode.DONE
    title, need, hosted = _need(
        model, rate, input_tokens, output_tokens, context, ttft_ms, tpot_ms, precision, gpu or [], count
    )
    job = None if hours is None else Decimal(repr(values.hours("--hours", hours)))
    extras = _extras(costs)
    if rfq:
        write_result(_rfq(title, need, extras, job, format_), output)
        return ExitCode.DONE
    view = market_view.MarketView(
        providers=choices.providers(provider),
        regions=frozenset(region or ()),
        gpus=tuple(gpu or ()),
        purchase_options=frozenset(PurchaseOption) if not purchase else choices.purchase_options(purchase),
        include=tuple(include or ()),
        as_of=values.past_day("--as-of", as_of, today()),
        offline=offline,
    )
    market = market_view.load(view)
    found = comparison(
        Wanted(
            title=title,
            need=need,
            offers=market.eligible,
            quotes=() if quotes is None else _quotes(quotes, extras),
            extras=extras,
            now=now(),
            model=hosted,
            hours=job,
            accelerators=choices.accelerators(gpu)[0],
            stale_days=int(values.duration_hours("--max-age", max_age) / 24),
            assumptions=market.remarks,
            warnings=market.warnings,
        )
    )
    write_result(_rendered(found, format_), output)
    if format_ in ("json", "csv", "xlsx"):
        say((f"warning: {line}" for line in found.warnings), quiet=quiet)
    if found.ways:
        return ExitCode.DONE
    say([f"costopt: nothing meets the need, of {len(market.eligible):,} offers that pass the filters"], quiet=quiet)
    return ExitCode.INFEASIBLE


def _need(
    model: str,
    rate: float | None,
    input_tokens: int,
    output_tokens: int,
    context: int | None,
    ttft_ms: float,
    tpot_ms: float,
    precision: list[str] | None,
    gpu: list[str],
    count: int | None,
) -> "tuple[str, Need, str | None]":
    """The need, its title, and the model whose hosted prices count. Raises UsageError where flags do not say one."""
    from optimizer.cli import choices, values
    from optimizer.report.capacity import HeldAccelerators, ServedWorkload
    from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand
    from providers.accelerators import matches
    from providers.errors import UsageError

    if count is not None:
        if model or rate is not None:
            raise UsageError("--count compares accelerators, --model and --rate a served model: give one of them")
        if len(gpu) != 1:
            raise UsageError("--count needs one --gpu, like --gpu H100-SXM5-80GB --count 16")
        variants = matches(gpu[0])
        if len(variants) > 1:
            names = ", ".join(variant.name for variant in variants)
            raise UsageError(f"--gpu {gpu[0]} means {names}: name one, they are not the same")
        return f"{count} x {variants[0].name}", HeldAccelerators(variants[0], count), None
    if not model or rate is None:
        raise UsageError(
            "nothing to compare: give --model with --rate, like --model 70B --rate 5, or --gpu with --count"
        )
    architecture = choices.architecture(model)
    shape = RequestShape(input_tokens=input_tokens, output_tokens=output_tokens)
    workload = InferenceWorkload(
        name="workload",
        model=model,
        demands=(ShapeDemand(shape=shape, requests_per_s=values.rate("--rate", rate)),),
        slo=SLO(ttft_ms=ttft_ms, tpot_ms=tpot_ms),
        precisions=choices.precisions(precision),
        context_tokens=context,
    )
    title = f"{architecture.hf_id} at {rate:g} requests/s of {shape.input_tokens:,} + {shape.output_tokens:,} tokens"
    return title, ServedWorkload(workload, architecture), architecture.hf_id


def _extras(path: str | None) -> "Extras":
    from optimizer.cli.workloads import read_text
    from optimizer.report.extras import Extras, parse_extras
    from optimizer.workload.workload_file import MAX_BYTES

    return Extras() if path is None else parse_extras(read_text(path, "costs file", MAX_BYTES), path)


def _quotes(path: str, extras: "Extras") -> "tuple[Quote, ...]":
    from optimizer.cli.market_view import MAX_FILE_BYTES
    from optimizer.cli.workloads import read_text
    from optimizer.report.quotes import parse_quotes

    return parse_quotes(read_text(path, "quotes file", MAX_FILE_BYTES), path, extras.rates)


def _rfq(title: str, need: "Need", extras: "Extras", hours: Decimal | None, format_: str) -> str | bytes:
    from optimizer.cli.choices import json_text
    from optimizer.cli.page_output import rendered_page
    from optimizer.cli.settings import now
    from optimizer.report.rfq import rfq_document, rfq_page

    if format_ == "json":
        return json_text(rfq_document(title, need, extras, hours, now()))
    return rendered_page(rfq_page(title, need, extras, hours, now()), format_, now(), frozenset())


def _answer_sheet() -> str:
    from optimizer.report.rfq import rfq_csv

    return rfq_csv()


def _rendered(found: "Comparison", format_: str) -> str | bytes:
    from optimizer.cli.choices import json_text
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
