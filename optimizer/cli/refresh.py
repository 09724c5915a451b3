"""`costopt refresh`: live prices of the providers into the cache, one outcome line each."""

from typing import Annotated

import typer

from optimizer.cli import options

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def refresh(
    providers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROVIDER...]", help="aws, gcp, azure, lambda, runpod. Default: all.", show_default=False
        ),
    ] = None,
    record: Annotated[
        str | None,
        typer.Option("--record", metavar="DIR", help="Also write the raw replies there, without secrets or accounts."),
    ] = None,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Also use what quarantine keeps apart. Read first what it says without."),
    ] = False,
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """Fetch live prices into the cache, from all providers side by side.

    A provider without credentials is skipped. The prices of one that fails, or whose answer is not plausible, stay as
    they were. Exits with 1 when a provider failed or its answer was refused, else with 0.
    """
    import os
    from pathlib import Path

    from optimizer.api import choices
    from optimizer.cli import refresh_output
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.refreshing import refresh_prices
    from optimizer.cli.streams import say, write_result
    from providers.recorder import Recorder

    format_ = choices.one_of("format", format_, choices.FORMATS)
    recorder = Recorder(Path(record), os.environ) if record else None
    results = refresh_prices(providers or (), recorder=recorder, accept=accept, quiet=quiet)
    write_result(refresh_output.render(results, format_), output)
    say(refresh_output.remarks(results, verbose=verbose), quiet=quiet)
    return ExitCode.FAILURE if any(result.outcome.is_failure for result in results) else ExitCode.DONE
