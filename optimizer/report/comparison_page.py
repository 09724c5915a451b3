"""Turns a comparison into the document that a buyer sends on: a row a way, its cost over time, terms and risks."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from optimizer.report.comparison import Comparison
from optimizer.report.page import Chart, Column, Figure, Input, Kind, Page, Section, Series, Table, Value, shown
from optimizer.report.quotes import Quote
from optimizer.report.ways import HORIZONS, UTILIZATIONS, Way
from providers.units import HOURS_PER_MONTH

_DRAWN: Final = 6
_MONTHS_DRAWN: Final = range(0, 37, 3)
_BARS: Final = 12
_SHARES_DRAWN: Final = tuple(step / 10 for step in range(1, 11))
_BY_USE, _WHOLE_TERMS, _OWNED = "by use", "whole terms", "while owned"
_EFFECTIVE: Final = "{hourly}+IF({upfront}=0,0,{upfront}/({term}*[hours_per_month]))"


def comparison_page(found: Comparison) -> Page:
    """The comparison's document; every number is one of the comparison's."""
    return Page(
        title=f"Procurement comparison: {found.title}",
        subtitle=f"{len(found.ways)} ways that can be compared, {len(found.apart)} set apart; "
        f"made {found.now:%Y-%m-%d %H:%M} UTC; USD",
        figures=tuple(_figures(found)),
        sections=tuple(_sections(found)),
        inputs=(
            Input(key="hours_per_month", label="Hours of a month", value=HOURS_PER_MONTH),
            *(
                Input(key=_share_key(u), label=f"Utilisation {n}", value=u, kind="percent")
                for n, u in enumerate(UTILIZATIONS, start=1)
            ),
        ),
        notes=found.assumptions,
        warnings=found.warnings,
    )


def _figures(found: Comparison) -> Iterable[Figure]:
    if not found.ways:
        yield Figure(label="Ways", value="none", note="nothing meets the need", level="over")
        return
    if found.hours is not None:
        first = found.ways[0]
        note = f"{found.hours:f} hours of {_with_warning(first)}"
        yield Figure(label="Cheapest for the job", value=_money(first.job_usd(found.hours)), note=note)
    for months in HORIZONS:
        priced = [(cost.usd, way) for way in found.ways if (cost := way.tco(months)) is not None]
        usd, way = min(priced, key=lambda pair: (pair[0], pair[1].name))
        yield Figure(label=f"Cheapest over {months} months", value=_money(usd), note=_with_warning(way))
    if found.reference is not None:
        note = f"{found.reference.name}, per month"
        yield Figure(label="Reference, on demand", value=_money(found.reference.usd_per_month), note=note)


def _with_warning(way: Way) -> str:
    """The way's name, and what makes a low price another thing than the others."""
    words = {"spot": "may be taken away", "per token": "shared, by tokens", "term not stated": "term not stated"}
    return f"{way.name} ({words[way.purchase_option]})" if way.purchase_option in words else way.name


def _sections(found: Comparison) -> Iterable[Section]:
    drawn = drawn_ways(found)
    yield Section(id="ways", title="Ways to get the capacity", tables=(_ways(found),))
    yield Section(
        id="tco",
        title="Total cost over 12 and 36 months",
        text=("Split in compute, storage, egress and support; what is not known is empty and in no total.",),
        charts=(_tco_chart(found),),
        tables=(_tco(found),),
    )
    yield Section(
        id="break-even",
        title="Break-even",
        text=(
            "Utilisation: the share of hours from which paying for all of them is cheaper than the reference by the "
            "hour. Month: when what was paid upfront has come back.",
        ),
        charts=tuple(_break_even_charts(drawn)),
        tables=(_break_even(found), _cumulative(drawn), _by_share(drawn)),
    )
    yield Section(
        id="sensitivity",
        title="Sensitivity to utilisation",
        text=("Utilisation is the share of hours in which the capacity is needed.",),
        charts=(_unit_chart(drawn),) if any(way.tokens_per_month for way in drawn) else (),
        tables=(_sensitivity(found), _unit_by_share(drawn)),
    )
    yield Section(id="terms", title="Terms, capacity and risks", tables=(_terms(found),))
    if found.quotes:
        yield Section(id="quotes", title="Quotes in common units", tables=(_quotes(found.quotes),))
    if found.apart:
        yield Section(
            id="apart",
            title="Set apart: not comparable as stated",
            tables=(_apart(found.apart),),
        )


def drawn_ways(found: Comparison) -> list[Way]:
    """The ways that charts show: the reference, then the cheapest of each kind and purchase option."""
    chosen: list[Way] = [] if found.reference is None else [found.reference]
    seen = {(way.kind, way.purchase_option) for way in chosen}
    for way in found.ways:
        key = (way.kind, way.purchase_option)
        if key not in seen and way.usd_per_hour is not None and (way.kind, way.purchase_option) != ("provider", "spot"):
            seen.add(key)
            chosen.append(way)
    return chosen[:_DRAWN]


def _ways(found: Comparison) -> Table:
    job = [] if found.hours is None else [Column(key="job", title="Job USD", kind="usd")]
    tokens = any(way.tokens_per_month for way in found.ways)
    token_columns = [Column(key="per_token", title="USD per million tokens", kind="price")] if tokens else []
    useful = any(way.usd_per_useful_gpu_hour for way in found.ways)
    useful_columns = [Column(key="useful", title="USD per useful GPU-hour", kind="price")] if useful else []
    columns = (
        Column(key="way", title="Way"),
        Column(key="option", title="Bought as"),
        Column(key="month", title="USD/month", kind="usd", formula="ROUND({effective}*[hours_per_month],2)"),
        *job,
        *token_columns,
        *useful_columns,
        Column(key="upfront", title="Upfront USD", kind="usd"),
        Column(key="hourly", title="USD/h", kind="price"),
        Column(key="effective", title="Effective USD/h", kind="price", formula=_EFFECTIVE, detail=True),
        Column(key="term", title="Term months", kind="number"),
        Column(key="paid", title="Paid"),
        Column(key="gpus", title="GPUs", kind="number"),
        Column(key="as_of", title="Price of", kind="date"),
        Column(key="accelerators", title="Machines"),
        Column(key="kind", title="Kind", detail=True),
        Column(key="how", title="How it runs", detail=True),
        Column(key="region", title="Region", detail=True),
    )
    rows: list[list[Value]] = [
        [
            way.name,
            way.purchase_option.replace("_", " "),
            way.usd_per_month,
            *([way.job_usd(found.hours)] if found.hours is not None else []),
            *([way.usd_per_million_tokens()] if tokens else []),
            *([way.usd_per_useful_gpu_hour] if useful else []),
            way.upfront_usd,
            way.usd_per_hour,
            way.effective_usd_per_hour,
            way.term_months,
            _paid(way),
            way.gpus,
            way.as_of,
            way.accelerators,
            way.kind,
            way.how,
            way.region,
        ]
        for way in found.ways
    ]
    order = "the job's cost" if found.hours is not None else "their total over 12 months"
    note = f"In the order of {order}; what it is paid for, how it can end and what is not known stand in the terms."
    return Table(id="way-list", title="Ways", columns=columns, rows=rows, note=note)


def _tco(found: Comparison) -> Table:
    parts = [
        column
        for months in HORIZONS
        for column in (
            Column(key=f"compute_{months}", title=f"{months} m compute USD", kind="usd", formula=_compute(months)),
            Column(key=f"storage_{months}", title=f"{months} m storage USD", kind="usd"),
            Column(key=f"egress_{months}", title=f"{months} m egress USD", kind="usd"),
            Column(key=f"support_{months}", title=f"{months} m support USD", kind="usd"),
            Column(
                key=f"total_{months}",
                title=f"{months} m total USD",
                kind="usd",
                formula="+".join(f"{{{part}_{months}}}" for part in ("compute", "storage", "egress", "support")),
            ),
        )
    ]
    columns = (
        Column(key="way", title="Way"),
        *parts,
        Column(key="term", title="Term months", kind="number", detail=True),
        Column(key="paid", title="Paid", detail=True),
        Column(key="upfront", title="Upfront USD", kind="usd", detail=True),
        Column(key="hourly", title="USD/h", kind="price", detail=True),
    )
    rows: list[list[Value]] = []
    for way in found.ways:
        cells: list[Value] = [way.name]
        for months in HORIZONS:
            cost = way.tco(months)
            if cost is None:
                cells += [None] * 5
            else:
                cells += [cost.compute_usd, cost.storage_usd, cost.egress_usd, cost.support_usd, cost.usd]
        rows.append([*cells, way.term_months, _paid(way), way.upfront_usd, way.usd_per_hour])
    return Table(id="tco-list", title="Total cost", columns=columns, rows=rows)


def _compute(months: int) -> str:
    """Upfronts of whole terms + hours paid for: whole terms where they are owed, the months needed otherwise."""
    terms = f'IF({{term}}="",1,ROUNDUP({months}/{{term}},0))'
    paid = f'IF({{paid}}="{_WHOLE_TERMS}",ROUNDUP({months}/{{term}},0)*{{term}},{months})'
    return f"ROUND({{upfront}}*{terms}+{{hourly}}*[hours_per_month]*{paid},2)"


def _break_even(found: Comparison) -> Table:
    columns = (
        Column(key="way", title="Way"),
        Column(key="effective", title="Effective USD/h", kind="price"),
        Column(key="utilization", title="Break-even utilisation", kind="percent"),
        Column(key="month", title="Break-even month", kind="number"),
        Column(key="words", title="In words"),
    )
    rows: list[list[Value]] = []
    for way in found.ways:
        if way.by_use:
            continue
        share, month = found.break_even_utilization(way), found.break_even_month(way)
        rows.append([way.name, way.effective_usd_per_hour, share, month, _break_even_words(share, month)])
    against = "" if found.reference is None else f"Against {found.reference.name}."
    return Table(id="break-even-list", title="Break-even points", columns=columns, rows=rows, note=against)


def _break_even_words(share: float | None, month: int | None) -> str:
    if share is None:
        return "dearer than the reference at any utilisation"
    words = f"cheaper where it is needed in more than {share:.0%} of the hours"
    return words if month is None else f"{words}; paid back in month {month} if needed in all hours"


def _cumulative(drawn: Sequence[Way]) -> Table:
    columns = (Column(key="month", title="Month", kind="number"), *_way_columns(drawn, "usd"))
    rows: list[list[Value]] = [
        [month, *(way.paid_until(max(month, 1)) if month else _start(way) for way in drawn)] for month in _MONTHS_DRAWN
    ]
    return Table(id="cumulative", title="Paid for compute until a month", columns=columns, rows=rows, collapsed=True)


def _start(way: Way) -> Decimal:
    """What is paid before the first hour."""
    return way.upfront_usd


def _by_share(drawn: Sequence[Way]) -> Table:
    columns = (Column(key="share", title="Utilisation", kind="percent"), *_way_columns(drawn, "usd"))
    rows: list[list[Value]] = [[share, *(way.month_usd(share) for way in drawn)] for share in _SHARES_DRAWN]
    return Table(id="month-by-share", title="Month by utilisation", columns=columns, rows=rows, collapsed=True)


def _unit_by_share(drawn: Sequence[Way]) -> Table:
    columns = (Column(key="share", title="Utilisation", kind="percent"), *_way_columns(drawn, "price"))
    rows: list[list[Value]] = [[u, *(way.usd_per_million_tokens(u) for way in drawn)] for u in UTILIZATIONS]
    has_tokens = any(way.tokens_per_month for way in drawn)
    title = "Tokens by utilisation"
    return Table(id="unit-by-share", title=title, columns=columns, rows=rows if has_tokens else (), collapsed=True)


def _way_columns(drawn: Sequence[Way], kind: Kind) -> tuple[Column, ...]:
    return tuple(Column(key=f"way_{index}", title=way.name, kind=kind) for index, way in enumerate(drawn))


def _tco_chart(found: Comparison) -> Chart:
    shown_ways = [way for way in found.ways if way.usd_per_hour is not None][:_BARS]
    return Chart(
        id="tco-chart",
        title="Total cost of the cheapest ways",
        kind="bar",
        labels=[way.name for way in shown_ways],
        series=[
            Series(
                name=f"{months} months",
                values=[None if (cost := way.tco(months)) is None else float(cost.usd) for way in shown_ways],
            )
            for months in HORIZONS
        ],
        unit="USD",
        table="tco-list",
        label_column="way",
        columns=[f"total_{months}" for months in HORIZONS],
    )


def _break_even_charts(drawn: Sequence[Way]) -> Iterable[Chart]:
    keys = [f"way_{index}" for index in range(len(drawn))]
    yield Chart(
        id="cumulative-chart",
        title="Paid for compute until a month: lines cross at the break-even month",
        kind="line",
        labels=[str(month) for month in _MONTHS_DRAWN],
        series=[
            Series(name=way.name, values=[_f(way.paid_until(m)) if m else float(_start(way)) for m in _MONTHS_DRAWN])
            for way in drawn
        ],
        unit="USD, by month",
        table="cumulative",
        label_column="month",
        columns=keys,
    )
    yield Chart(
        id="share-chart",
        title="Compute per month by utilisation: lines cross at the break-even utilisation",
        kind="line",
        labels=[f"{share:.0%}" for share in _SHARES_DRAWN],
        series=[Series(name=way.name, values=[_f(way.month_usd(s)) for s in _SHARES_DRAWN]) for way in drawn],
        unit="USD per month",
        table="month-by-share",
        label_column="share",
        columns=keys,
    )


def _unit_chart(drawn: Sequence[Way]) -> Chart:
    return Chart(
        id="unit-chart",
        title="USD per million tokens by utilisation",
        kind="line",
        labels=[f"{share:.0%}" for share in UTILIZATIONS],
        series=[
            Series(name=way.name, values=[_f(way.usd_per_million_tokens(u)) for u in UTILIZATIONS]) for way in drawn
        ],
        unit="USD per million tokens",
        table="unit-by-share",
        label_column="share",
        columns=[f"way_{index}" for index in range(len(drawn))],
    )


def _sensitivity(found: Comparison) -> Table:
    columns = (
        Column(key="way", title="Way"),
        Column(key="effective", title="Effective USD/h", kind="price", detail=True),
        Column(key="paid", title="Paid"),
        *(
            Column(
                key=_share_key(u),
                title=f"USD/month at {u:.0%}",
                kind="usd",
                formula=f'ROUND({{effective}}*[hours_per_month]*IF({{paid}}="{_BY_USE}",[{_share_key(u)}],1),2)',
            )
            for u in UTILIZATIONS
        ),
        *(Column(key=f"token_{_share_key(u)}", title=f"USD/M tokens at {u:.0%}", kind="price") for u in UTILIZATIONS),
    )
    rows: list[list[Value]] = [
        [
            way.name,
            way.effective_usd_per_hour,
            _paid(way),
            *(way.month_usd(u) for u in UTILIZATIONS),
            *(way.usd_per_million_tokens(u) for u in UTILIZATIONS),
        ]
        for way in found.ways
    ]
    return Table(id="sensitivity-list", title="Sensitivity", columns=columns, rows=rows)


def _terms(found: Comparison) -> Table:
    columns = (
        Column(key="way", title="Way"),
        Column(key="interruption", title="Interruption"),
        Column(key="capacity", title="Capacity"),
        Column(key="risks", title="Risks"),
        Column(key="ask", title="To be asked"),
        Column(key="as_of", title="Price of", kind="date"),
        Column(key="source", title="Source", detail=True),
    )
    rows: list[list[Value]] = [
        [w.name, w.interruption, w.capacity, "; ".join(w.risks), "; ".join(w.flags), w.as_of, w.source]
        for w in found.ways
    ]
    return Table(id="term-list", title="Terms and risks", columns=columns, rows=rows)


def _quotes(quotes: Sequence[Quote]) -> Table:
    columns = (
        Column(key="vendor", title="Vendor"),
        Column(key="gpu", title="As quoted"),
        Column(key="accelerator", title="Accelerator"),
        Column(key="memory", title="Memory GB", kind="number"),
        Column(key="hourly", title="USD per GPU-hour", kind="price"),
        Column(key="upfront", title="Upfront USD per GPU", kind="usd"),
        Column(key="effective", title="Effective USD per GPU-hour", kind="price"),
        Column(key="useful", title="USD per useful GPU-hour", kind="price"),
        Column(key="term", title="Term months", kind="number"),
        Column(key="minimum", title="Least GPUs", kind="number"),
        Column(key="region", title="Region"),
        Column(key="network", title="Interconnect"),
        Column(key="egress", title="Egress USD/GB", kind="price"),
        Column(key="quoted", title="Quoted", kind="date"),
        Column(key="valid", title="Valid until", kind="date"),
        Column(key="ask", title="Missing, to be asked"),
    )
    rows: list[list[Value]] = [
        [
            q.vendor,
            q.gpu,
            q.accelerator.name if q.accelerator else None,
            q.accelerator.memory_gib if q.accelerator else None,
            q.usd_per_gpu_hour,
            q.upfront_usd_per_gpu,
            q.effective_usd_per_gpu_hour,
            q.usd_per_useful_gpu_hour,
            q.term_months,
            q.min_gpus,
            q.region,
            q.interconnect,
            q.egress_usd_per_gb,
            q.quoted_on,
            q.valid_until,
            "; ".join((*q.blocked, *q.flags)),
        ]
        for q in quotes
    ]
    return Table(id="quote-list", title="Quotes", columns=columns, rows=rows)


def _apart(ways: Sequence[Way]) -> Table:
    columns = (
        Column(key="way", title="Way"),
        Column(key="accelerators", title="As stated"),
        Column(key="why", title="Why it cannot be compared"),
    )
    rows: list[list[Value]] = [[way.name, way.accelerators, "; ".join(way.gaps)] for way in ways]
    return Table(id="apart-list", title="Set apart", columns=columns, rows=rows)


def _paid(way: Way) -> str:
    if way.purchase_option == "term not stated":
        return "not stated"
    return _BY_USE if way.by_use else _WHOLE_TERMS if way.bound else _OWNED


def _share_key(share: float) -> str:
    return f"u{round(share * 100)}"


def _money(amount: Decimal | None) -> str:
    return shown(amount, "usd")


def _f(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)
