"""`costopt offers`: what is on file, filtered and sorted."""

from dataclasses import fields
from typing import Annotated

import typer

from optimizer.cli import options

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def offers(
    provider: options.Provider = None,
    region: options.Region = None,
    gpu: options.Gpu = None,
    purchase: Annotated[
        list[str] | None,
        typer.Option("--purchase", metavar="OPTION", help="on-demand, spot, reserved-1y, …; repeatable. Default: all."),
    ] = None,
    instance_type: Annotated[
        list[str] | None,
        typer.Option("--instance-type", metavar="NAME", help="Only machines of that name; repeatable."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="Exactly so many accelerators.")
    ] = None,
    min_memory: Annotated[
        float | None,
        typer.Option("--min-memory", metavar="GIB", help="At least so much memory per accelerator, by its label."),
    ] = None,
    arch: Annotated[
        str | None, typer.Option("--arch", metavar="NAME", help="Only machines whose host is x86 or arm64.")
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option("--link", metavar="NAME", help="What joins the accelerators: nvlink, pcie, …; repeatable."),
    ] = None,
    max_price: Annotated[
        str | None, typer.Option("--max-price", metavar="USD", help="At most so much per hour of the instance.")
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="KEY", help="price, gpu-price, gib-price, pflop-price or name.")
    ] = "price",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Most rows of a table.")] = 50,
    show_all: Annotated[bool, typer.Option("--all", help="Every row, also zones priced as their region.")] = False,
    as_of: options.AsOf = None,
    max_age: options.MaxAge = "30d",
    offline: options.Offline = False,
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """List the offers on file: instance types by region and purchase option, with price, date and source.

    JSON and CSV carry every row; a table shows the first ones.
    """
    arguments = dict(locals())
    from optimizer.api import choices
    from optimizer.api.listing import OffersArguments, listing_of
    from optimizer.cli import offers_output
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.streams import say, write_result

    format_ = choices.one_of("format", format_, choices.FORMATS)
    listing = listing_of(OffersArguments(**{field.name: arguments[field.name] for field in fields(OffersArguments)}))
    found = listing.offers
    whole = show_all or format_ in ("json", "csv")
    shown = found if whole else offers_output.without_repeats(found)[:limit]
    write_result(offers_output.render(listing, shown, format_), output)
    summary = f"{len(shown)} of {len(found)} offers shown, {listing.on_file} on file"
    say([*listing.remarks, *listing.warnings, summary], quiet=quiet)
    return ExitCode.DONE if found else ExitCode.NO_PRICES
