"""`costopt offers`: what is on file, filtered and sorted."""

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
    from optimizer.cli import choices, offers_output, values
    from optimizer.cli.exits import ExitCode
    from optimizer.cli.settings import today
    from optimizer.cli.streams import say, write_result
    from pricing_cache.query import check_names, current_offers, select

    format_ = choices.one_of("format", format_, choices.FORMATS)
    sort = choices.one_of("sort key", sort, tuple(offers_output.SORT_KEYS))
    names, remarks = choices.accelerators(gpu)
    listing = offers_output.Listing(
        accelerators=names,
        instance_types=frozenset(instance_type or ()),
        count=count,
        arm64=None if arch is None else choices.one_of("architecture", arch, offers_output.ARCHITECTURES) == "arm64",
        links=frozenset(choices.one_of("link", name, offers_output.LINKS) for name in link or ()),
        min_memory_gib=values.positive("--min-memory", min_memory),
        max_usd_per_hour=values.money("--max-price", max_price),
    )
    filters = offers_output.all_filters(
        providers=choices.providers(provider),
        regions=frozenset(region or ()),
        accelerators=names,
        purchase_options=choices.purchase_options(purchase) if purchase else None,
    )
    book = current_offers(as_of=values.past_day("--as-of", as_of, today()), offline=offline)
    check_names(book, filters)
    offers_output.check_instance_types(book, listing.instance_types)
    selection = select(book.offers, filters)
    found = offers_output.arranged(selection.offers, listing, sort)
    whole = show_all or format_ in ("json", "csv")
    shown = found if whole else offers_output.without_repeats(found)[:limit]
    max_age_days = values.duration_hours("--max-age", max_age) / 24
    write_result(offers_output.render(shown, format_, book.origin, today(), max_age_days), output)
    remarks += choices.not_on_demand(filters.providers, names, filters.purchase_options)
    if not found:
        remarks += (offers_output.nothing_found(selection),)
    say(
        [
            *remarks,
            *book.header.get("warnings", ()),
            f"{len(shown)} of {len(found)} offers shown, {len(book.offers)} on file",
        ],
        quiet=quiet,
    )
    return ExitCode.DONE if found else ExitCode.NO_PRICES
