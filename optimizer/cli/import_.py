"""`costopt import`: does what a file asks for work, what does it cost, what would be cheaper."""

from typing import TYPE_CHECKING, Annotated

import typer

from optimizer.cli import options
from optimizer.cli.exits import ExitCode

if TYPE_CHECKING:
    from optimizer.api.market_view import MarketView
    from optimizer.cli.import_files import Asked
    from optimizer.cli.import_source import Opened

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Launch file, command, training configuration, model's folder, Melange JSON, log, quotes, FOCUS "
            "export; - reads standard input.",
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", metavar="NAME|PATH", help="Model, where the file names none that is known.")
    ] = "",
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="Accelerator, where the file names none.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, max=4096, help="Accelerators of a machine, with --gpu.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="train, finetune, lora or qlora, where a training file is silent."),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="N", help="Tokens in all, where a training file is silent: 1B.")
    ] = None,
    input_tokens: options.InputTokens = 1000,
    output_tokens: options.OutputTokens = 300,
    context: options.Context = None,
    ttft_ms: options.TtftMs = 2000.0,
    tpot_ms: options.TpotMs = 100.0,
    precision: Annotated[
        str | None,
        typer.Option("--precision", metavar="DTYPE", help="Weights, where the file does not say. Default: native."),
    ] = None,
    provider: options.Provider = None,
    region: options.Region = None,
    include: options.Include = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace-out", metavar="FILE", help="Write a request log as the CSV that `plan --trace` reads."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="TIME,INPUT,OUTPUT", help="Columns of a request log with other names."),
    ] = None,
    as_of: options.AsOf = None,
    offline: options.Offline = False,
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """Read a file of another tool: does it work, what does it cost, what would be cheaper.

    Of a request log it gives statistics, of quotes and cost exports the price per GPU-hour against what is on file.
    Faults are told with their line and what would be right. Exit code 3 when nothing of it can work.
    """
    from optimizer.api import choices, market_view, values
    from optimizer.api.clock import today
    from optimizer.cli import import_files, import_output
    from optimizer.cli.import_source import opened
    from optimizer.cli.streams import write_result
    from optimizer.workload.training import TASKS, token_count
    from optimizer.workload.workload import SLO, RequestShape
    from providers.errors import UsageError

    format_ = choices.one_of("format", format_, choices.FORMATS)
    view = market_view.MarketView(
        providers=choices.providers(provider),
        regions=frozenset(region or ()),
        gpus=(),
        purchase_options=choices.purchase_options(("on-demand", "spot")),
        include=tuple(include or ()),
        as_of=values.past_day("--as-of", as_of, today()),
        offline=offline,
    )
    asked = import_files.Asked(
        file=file,
        model=model,
        gpu=gpu,
        count=count,
        shape=RequestShape(input_tokens=input_tokens, output_tokens=output_tokens),
        slo=SLO(ttft_ms=ttft_ms, tpot_ms=tpot_ms),
        context_tokens=context,
        precision=precision,
        task=None if task is None else choices.one_of("task", task, TASKS),
        tokens=None if tokens is None else token_count("--tokens", tokens),
    )
    with opened(file) as source:
        if source.kind == "log" or (columns is not None and source.kind != "folder"):
            found = import_files.request_log(source, columns, trace)
            write_result(import_output.render_log(found, context, source.name, trace, format_), output)
            return ExitCode.DONE
        if trace is not None:
            raise UsageError(
                f"--trace-out is for a request log, and {source.name!r} is none that is known; see --columns"
            )
        if source.kind in ("quotes", "cost_export"):
            return _table(source, view, format_, output, quiet=quiet)
        return _launch(source, asked, view, format_, output)


def _table(source: "Opened", view: "MarketView", format_: str, output: str, *, quiet: bool) -> int:
    """A table of money against what is on file, whatever the term."""
    from dataclasses import replace

    from optimizer.api import market_view
    from optimizer.cli import import_tables
    from optimizer.cli.streams import write_result
    from providers.offers import PurchaseOption

    every_term = replace(view, purchase_options=frozenset(PurchaseOption))
    offers = market_view.load(every_term, calibrated=lambda _: True)
    if source.kind == "quotes":
        quotes = import_tables.quotes(source.text(), source.name, offers)
        write_result(import_tables.render_quotes(source.name, quotes, format_), output)
        return ExitCode.DONE if any(row.is_comparable for row in quotes.rows) else ExitCode.INFEASIBLE
    export = import_tables.cost_export(str(source.path), offers, quiet=quiet)
    write_result(import_tables.render_cost_export(source.name, export, format_), output)
    return ExitCode.DONE


def _launch(source: "Opened", asked: "Asked", view: "MarketView", format_: str, output: str) -> int:
    """A file that starts something, a model, or a Melange problem."""
    from dataclasses import replace

    from optimizer.api import choices, market_view
    from optimizer.cli import import_files, import_output
    from optimizer.cli.streams import write_result

    found = import_files.recognised(source)
    # Prices are told of all hardware, whether or not its speed was ever measured.
    offers = market_view.load(view, calibrated=lambda _: True)
    if found.kind == "melange":
        from optimizer.cli import import_melange

        problem = import_melange.answered(str(source.path), offers)
        write_result(import_melange.render(problem, format_), output)
        return ExitCode.DONE if problem.works else ExitCode.INFEASIBLE
    if found.kind == "model":
        asked = replace(asked, file=str(source.path))
    answers = import_files.answers(asked, found, offers, uncalibrated=choices.includes(view.include)[1])
    write_result(import_output.render(source.name, answers, asked, format_), output)
    return ExitCode.DONE if any(one.works for one in answers) else ExitCode.INFEASIBLE
