"""`costopt prices`: what the cache holds, how old it is, what changed, and where a price stands at its seller."""

from datetime import timedelta
from typing import Annotated

import typer

from optimizer.cli import options

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, help="What the price cache holds, how old it is, what changed."
)

_Wanted = Annotated[
    list[str] | None, typer.Option("--provider", metavar="NAME", help="Only that provider; repeatable.")
]


@app.command()
def status(
    max_age: options.MaxAge = "30d",
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """Age and coverage of each provider's prices, the last refresh, and what is kept apart."""
    from optimizer.api import choices, values
    from optimizer.api.clock import today
    from optimizer.cli import prices_output
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.prices_view import CacheView
    from optimizer.cli.streams import say, write_result

    format_ = choices.one_of("format", format_, choices.FORMATS)
    max_age_days = values.duration_hours("--max-age", max_age) / 24
    view = CacheView()
    entries = view.freshness(today(), max_age_days)
    write_result(prices_output.status(view, entries, format_, today(), max_age_days), output)
    say(view.warnings, quiet=quiet)
    return ExitCode.DONE


@app.command()
def history(
    what: Annotated[str, typer.Argument(metavar="GPU|OFFER", help="An accelerator, or an offer as `offers` names it.")],
    provider: _Wanted = None,
    region: options.Region = None,
    purchase: options.Purchase = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="Only from that day on: 2026-08-31.")
    ] = None,
    format_: Annotated[
        str, typer.Option("-f", "--format", metavar="FORMAT", help="table, json, csv, md or html.")
    ] = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """Prices of one accelerator by provider and day, or of one offer by refresh, with a chart.

    Of an accelerator: the lowest and the median price per accelerator-hour, on demand unless --purchase says else.
    """
    from optimizer.api import choices, values
    from optimizer.cli import prices_output
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.prices_view import CacheView, Wanted
    from optimizer.cli.streams import say, write_result

    format_ = choices.one_of("format", format_, (*choices.FORMATS, "html"))
    first_day = values.day("--from", since)
    view = CacheView()
    if "/" in what:
        sightings = [s for s in view.offer_history(what) if first_day is None or s.day >= first_day]
        text, found = prices_output.offer_history(what, sightings, format_), bool(sightings)
    else:
        names, _ = choices.accelerators([what])
        wanted = Wanted(
            providers=choices.providers(provider),
            regions=frozenset(region or ()),
            purchase_options=choices.purchase_options(purchase),
        )
        days = view.accelerator_history(names, wanted, first_day)
        text, found = prices_output.accelerator_history(sorted(names), days, format_), bool(days)
    write_result(text, output)
    say(view.warnings, quiet=quiet)
    return ExitCode.DONE if found else ExitCode.NO_PRICES


@app.command()
def diff(
    since: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="The earlier day. Default: 30 days before the later.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="DATE", help="The later day. Default: now.")] = None,
    provider: _Wanted = None,
    gpu: options.Gpu = None,
    purchase: Annotated[
        list[str] | None, typer.Option("--purchase", metavar="OPTION", help="As in `plan`; default: all.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every offer in the table, not only the first ones.")] = False,
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """What became dearer, cheaper, new or gone between two days: by provider, by accelerator and by offer."""
    from optimizer.api import choices, values
    from optimizer.api.clock import today
    from optimizer.cli import prices_output
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.prices_view import CacheView, Wanted
    from optimizer.cli.streams import say, write_result
    from providers.errors import InvalidValue

    format_ = choices.one_of("format", format_, choices.FORMATS)
    names, _ = choices.accelerators(gpu)
    wanted = Wanted(
        providers=choices.providers(provider),
        accelerators=names,
        purchase_options=choices.purchase_options(purchase) if purchase else None,
    )
    last_day = values.past_day("--to", until, today()) or today()
    first_day = values.day("--from", since) or last_day - timedelta(days=30)
    if first_day >= last_day:
        raise InvalidValue("--from", str(first_day), f"give a day before {last_day}, the later day")
    view = CacheView()
    found = view.changes(first_day, last_day, wanted)
    write_result(prices_output.diff(found, first_day, last_day, format_, everything=show_all), output)
    say(view.warnings, quiet=quiet)
    return ExitCode.DONE


@app.command()
def show(
    offer: Annotated[
        str, typer.Argument(metavar="OFFER", help="As `offers` names it, or its start: aws/p5.48xlarge/us-east-1.")
    ],
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """The record behind a price: the seller's row ids, day, source and filters, and what is kept apart."""
    from optimizer.api import choices
    from optimizer.cli import prices_output
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.prices_view import CacheView
    from optimizer.cli.streams import say, write_result

    format_ = choices.one_of("format", format_, choices.FORMATS)
    view = CacheView()
    records = view.records(offer)
    write_result(prices_output.show(records, format_), output)
    say(view.warnings, quiet=quiet)
    return ExitCode.DONE
