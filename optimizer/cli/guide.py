"""`costopt guide`: which accelerators for which model size, from the prices on file, and claims that do not hold."""

from typing import Annotated

import typer

from optimizer.cli import options

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def guide(
    size: Annotated[
        list[str] | None, typer.Option("--size", metavar="SIZE", help="Only that size (1B … 1T); repeatable.")
    ] = None,
    provider: options.Provider = None,
    region: options.Region = None,
    include: options.Include = None,
    as_of: options.AsOf = None,
    offline: options.Offline = False,
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """The smallest comfortable accelerators and the cheapest offer for each model size and use.

    Beside it, recommendations in circulation with what the arithmetic says of them.
    """
    from optimizer.api import choices, market_view, values
    from optimizer.api.clock import today
    from optimizer.cli import guide_output
    from optimizer.cli.streams import write_result
    from optimizer.interop.guide import SIZES
    from optimizer.interop.guide import guide as make_guide
    from optimizer.interop.guide_claims import claims

    format_ = choices.one_of("format", format_, choices.FORMATS)
    known = {name.lower(): name for name in SIZES}
    sizes = tuple(known[choices.one_of("size", name, tuple(known))] for name in size or SIZES)
    view = market_view.MarketView(
        providers=choices.providers(provider),
        regions=frozenset(region or ()),
        gpus=(),
        purchase_options=choices.purchase_options(None),
        include=tuple(include or ()),
        as_of=values.past_day("--as-of", as_of, today()),
        offline=offline,
    )
    offers = market_view.load(view)
    rows = make_guide(offers.eligible, sizes)
    write_result(guide_output.render(rows, tuple(claims(offers.all_on_file)), format_), output)
