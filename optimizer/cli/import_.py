"""`costopt import`: does what a file asks for work, what does it cost, what would be cheaper."""

from typing import Annotated

import typer

from optimizer.cli import options
from optimizer.cli.exits import ExitCode

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="SkyPilot, dstack or Kubernetes YAML, a vLLM command line, a model's folder, Melange JSON, a log.",
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", metavar="NAME|PATH", help="Model, where the file names none that is known.")
    ] = "",
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="Accelerator, where the file names none.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, max=4096, help="Accelerators of a machine, with --gpu.")
    ] = 1,
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
    as_of: options.AsOf = None,
    offline: options.Offline = False,
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """Read a file of another tool: does it work, what does it cost, what would be cheaper.

    Faults are told with their line and what would be right. Exit code 3 when nothing of it can work.
    """
    from optimizer.api import choices, market_view, values
    from optimizer.cli import import_files, import_output
    from optimizer.cli.streams import write_result
    from optimizer.workload.workload import SLO, RequestShape

    format_ = choices.one_of("format", format_, choices.FORMATS)
    view = market_view.MarketView(
        providers=frozenset(name.lower() for name in provider or ()),
        regions=frozenset(region or ()),
        gpus=(),
        purchase_options=choices.purchase_options(("on-demand", "spot")),
        include=tuple(include or ()),
        as_of=values.day("--as-of", as_of),
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
    )
    found = import_files.recognised(asked)
    if found.kind == "melange":
        from optimizer.cli import melange
        from optimizer.program.problem import SolverOptions

        problem, solution = melange.solved(file, None, SolverOptions())
        write_result(melange.render(problem, solution, format_), output)
        return ExitCode.INFEASIBLE if solution.status == "infeasible" else ExitCode.DONE
    if found.kind == "log":
        write_result(import_output.render_log(import_files.log_summary(file, trace), format_), output)
        return ExitCode.DONE
    answers = import_files.answers(asked, found, market_view.load(view))
    write_result(import_output.render(file, answers, asked, format_), output)
    return ExitCode.DONE if any(one.works for one in answers) else ExitCode.INFEASIBLE
