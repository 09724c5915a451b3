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

    from optimizer.cli import choices, refresh_output
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.settings import now
    from optimizer.cli.streams import say, write_result
    from pricing_cache.location import locate
    from pricing_cache.observations import Outcome
    from pricing_cache.refresh import refresh as refresh_cache
    from providers.base import FetchContext
    from providers.offers import PROVIDERS
    from providers.recorder import Recorder

    format_ = choices.one_of("format", format_, choices.FORMATS)
    names = [choices.one_of("provider", name, PROVIDERS) for name in dict.fromkeys(providers or PROVIDERS)]
    recorder = Recorder(Path(record), os.environ) if record else None
    moment = now()
    with refresh_output.progress(names, quiet=quiet) as show:
        results = refresh_cache(
            locate(os.environ),
            names,
            lambda name: FetchContext(environment=os.environ, now=moment, progress=show(name), recorder=recorder),
            accept=accept,
            on_result=lambda result: show(result.provider)(result.outcome),
        )
    write_result(refresh_output.render(results, format_), output)
    say(refresh_output.remarks(results, verbose=verbose), quiet=quiet)
    failed = any(result.outcome in (Outcome.FAILED, Outcome.REFUSED) for result in results)
    return ExitCode.FAILURE if failed else ExitCode.DONE
