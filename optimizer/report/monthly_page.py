"""Turns a monthly report into the document that people read: figures, tables and charts."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from optimizer.report.forecast import METHODS
from optimizer.report.money import ZERO
from optimizer.report.monthly import GroupRow, MonthlyReport
from optimizer.report.page import Chart, Column, Figure, Level, Page, Section, Series, Table, Value, shown, total_row

_TITLES = {
    "workload": "Workload",
    "owner": "Owner",
    "provider": "Provider",
    "accelerator": "Accelerator",
    "purchase_option": "Purchase option",
}


def monthly_page(report: MonthlyReport) -> Page:
    """The report's document; every number is one of the report's."""
    month = report.month
    through = "no bill read" if report.through is None else f"bill until {report.through:%Y-%m-%d %H:%M} UTC"
    return Page(
        title=f"{report.budget.name}: budget report of {month}",
        subtitle=f"{month.days} days, {month.hours:f} hours ({month.zone}); {through}; "
        f"made {report.now:%Y-%m-%d %H:%M} UTC; USD, {report.budget.basis} view",
        figures=tuple(_figures(report)),
        sections=tuple(_sections(report)),
        notes=report.assumptions,
        warnings=report.warnings,
    )


def _figures(report: MonthlyReport) -> Iterable[Figure]:
    total = report.total
    level: Level = total.variance.level if total.variance else ""
    if total.budget_usd is not None:
        yield Figure(label="Budget", value=_usd(total.budget_usd))
    if total.actual_usd is not None:
        passed = float(report.elapsed_hours / report.month.hours)
        yield Figure(label="Actual to date", value=_usd(total.actual_usd), note=f"{passed:.0%} of the month's hours")
    methods = [usd for method in METHODS if (usd := total.forecast.by(method)) is not None]
    spread = f"{_usd(min(methods))} to {_usd(max(methods))} by method" if len(methods) > 1 else "as planned"
    yield Figure(label="Forecast for the month", value=_usd(total.forecast_usd), note=spread, level=level)
    if total.variance is not None:
        side = "over budget" if total.variance.usd > 0 else "under budget"
        percent = "" if total.variance.share is None else f"{abs(total.variance.share):.1%} "
        yield Figure(label="Variance", value=f"{total.variance.usd:+,.2f}", note=percent + side, level=level)
    yield Figure(label="Cash view", value=_usd(report.cash_usd), note="paid in the month, upfronts included")
    fired = [alert for alert in report.alerts if alert.fired]
    if report.alerts:
        yield Figure(
            label="Alerts", value=f"{len(fired)} of {len(report.alerts)}", note="fired", level="over" if fired else "ok"
        )


def _sections(report: MonthlyReport) -> Iterable[Section]:
    yield Section(
        id="variance",
        title="Budget, actual, forecast and variance",
        text=(
            "Forecasts by three methods: run rate (the hours so far, continued), trend (a line through the days so "
            f"far), driver (the plan for the demand over the hours to come). Used here: {_words(report.method)}.",
        ),
        tables=[_groups(f"by-{d.replace('_', '-')}", _TITLES[d], rows) for d, rows in report.groups.items()],
    )
    yield Section(
        id="burn-down",
        title="Burn-down",
        text=("What is left of the budget at the end of each day; dashed: expected.",),
        charts=(_burn_chart(report),),
        tables=(_days(report),),
    )
    yield Section(id="alerts", title="Alerts", tables=(_alerts(report),))
    yield _change_section(report)
    yield Section(id="commitments", title="Commitments", tables=(_commitments(report),))
    yield Section(
        id="cash",
        title="Cash against amortised",
        text=("Amortised spreads an upfront over its term; cash shows it in the month that it is paid.",),
        tables=(_cash(report),),
    )
    yield Section(id="unit-costs", title="Unit costs", tables=(_unit_costs(report),))
    yield Section(id="plan", title="Plan and price dates", tables=(_plan(report),))
    yield Section(id="outlook", title="12-month outlook", charts=(_outlook_chart(report),), tables=(_outlook(report),))
    yield Section(
        id="next",
        title="What to do next",
        text=("Savings are of the month; those of one workload exclude each other.",),
        tables=(_actions(report),),
    )
    if report.actuals is not None:
        yield Section(id="actuals", title="The bill that was read", tables=(_bill(report),))


def _groups(id_: str, title: str, rows: Sequence[GroupRow]) -> Table:
    columns = (
        Column(key="name", title=title),
        Column(key="budget", title="Budget USD", kind="usd", summed=True),
        Column(key="actual", title="Actual USD", kind="usd", summed=True),
        Column(key="forecast", title="Forecast USD", kind="usd", summed=True),
        Column(key="variance", title="Variance USD", kind="usd", formula="{forecast}-{budget}"),
        Column(key="share", title="Variance %", kind="percent", formula="{variance}/{budget}"),
        Column(key="level", title="Level"),
        Column(key="plan", title="Plan USD", kind="usd", summed=True),
        Column(key="run_rate", title="Run rate USD", kind="usd", summed=True),
        Column(key="trend", title="Trend USD", kind="usd", summed=True),
        Column(key="driver", title="Driver USD", kind="usd", summed=True),
    )
    cells: list[list[Value]] = [
        [
            row.name,
            row.budget_usd,
            row.actual_usd,
            row.forecast_usd,
            row.variance.usd if row.variance else None,
            row.variance.share if row.variance else None,
            row.variance.level if row.variance else None,
            row.plan_usd,
            *(row.forecast.by(method) for method in METHODS),
        ]
        for row in rows
    ]
    levels: list[Level] = [row.variance.level if row.variance else "" for row in rows]
    return Table(
        id=id_,
        title=f"By {title.lower()}",
        columns=columns,
        rows=cells,
        total=total_row(columns, cells),
        levels=levels,
        note="" if any(row.budget_usd is not None for row in rows) else "No budget is given by this dimension.",
    )


def _burn_chart(report: MonthlyReport) -> Chart:
    budget = report.total.budget_usd
    labels = [str(day.day.day) for day in report.days]
    if budget is None:
        series = (
            Series(name="spent", values=[_f(day.actual_usd) for day in report.days]),
            Series(name="expected", values=[_f(day.forecast_usd) for day in report.days], dashed=True),
        )
        columns = ("actual", "forecast")
        title = "Spend from the first day on"
    else:
        known = [day.budget_left_usd if day.actual_usd is not None else None for day in report.days]
        ahead = [day.budget_left_usd if day.forecast_usd is not None else None for day in report.days]
        series = (
            Series(name="left of the budget", values=[_f(usd) for usd in known]),
            Series(name="expected to be left", values=[_f(usd) for usd in ahead], dashed=True),
        )
        columns = ("left", "expected_left")
        title = f"Left of {_usd(budget)} USD at the end of each day"
    return Chart(
        id="burn-down-chart",
        title=title,
        kind="line",
        labels=labels,
        series=series,
        unit="USD",
        table="burn-down-days",
        label_column="day",
        columns=columns,
    )


def _days(report: MonthlyReport) -> Table:
    columns = (
        Column(key="day", title="Day", kind="date"),
        Column(key="actual", title="Spent until its end USD", kind="usd"),
        Column(key="forecast", title="Expected until its end USD", kind="usd"),
        Column(key="left", title="Left of the budget USD", kind="usd"),
        Column(key="expected_left", title="Expected to be left USD", kind="usd"),
    )
    rows = [
        [
            day.day,
            day.actual_usd,
            day.forecast_usd,
            day.budget_left_usd if day.actual_usd is not None else None,
            day.budget_left_usd if day.forecast_usd is not None else None,
        ]
        for day in report.days
    ]
    return Table(id="burn-down-days", title="Burn-down by day", columns=columns, rows=rows, collapsed=True)


def _alerts(report: MonthlyReport) -> Table:
    columns = (
        Column(key="subject", title="Budget of"),
        Column(key="alert", title="Alert"),
        Column(key="budget", title="Budget USD", kind="usd"),
        Column(key="amount", title="Amount USD", kind="usd"),
        Column(key="share", title="Reached", kind="percent", formula="{amount}/{budget}"),
        Column(key="fired", title="Fired"),
    )
    rows = [
        [
            alert.subject,
            str(alert),
            alert.budget_usd,
            alert.amount_usd,
            float(alert.amount_usd / alert.budget_usd) if alert.budget_usd else None,
            "yes" if alert.fired else "no",
        ]
        for alert in report.alerts
    ]
    return Table(
        id="alert-list",
        title="Alerts",
        columns=columns,
        rows=rows,
        levels=["over" if alert.fired else "" for alert in report.alerts],
    )


def _change_section(report: MonthlyReport) -> Section:
    change = report.change
    steps = (
        ("last month", change.before_usd),
        ("price", change.price_usd),
        ("volume", change.volume_usd),
        ("mix", change.mix_usd),
        ("this month", change.after_usd),
    )
    columns = (Column(key="part", title="Part"), Column(key="usd", title="USD", kind="usd"))
    unknown = ", ".join(change.unpriced)
    note = f"Earlier price not known, taken as unchanged: {unknown}." if unknown else ""
    return Section(
        id="change",
        title="Change against last month: price, volume, mix",
        text=(
            f"Compute cost, {report.change_basis}. Price: the same things at other prices; volume: more or fewer "
            "accelerator-hours at last month's average price; mix: dearer or cheaper things.",
        ),
        charts=(
            Chart(
                id="change-chart",
                title="Compute cost against last month",
                kind="bar",
                labels=[name for name, _ in steps],
                series=(Series(name="USD", values=[float(usd) for _, usd in steps]),),
                unit="USD",
                table="change-parts",
                label_column="part",
                columns=("usd",),
            ),
        ),
        tables=(
            Table(
                id="change-parts", title="Price, volume, mix", columns=columns, rows=[list(s) for s in steps], note=note
            ),
        ),
    )


def _commitments(report: MonthlyReport) -> Table:
    columns = (
        Column(key="name", title="Commitment"),
        Column(key="machine", title="Machine"),
        Column(key="count", title="Count", kind="number"),
        Column(key="end", title="Ends", kind="date"),
        Column(key="price", title="Effective USD/h each", kind="price"),
        Column(key="available", title="Hours bought", kind="number"),
        Column(key="used", title="Hours used", kind="number"),
        Column(key="utilization", title="Utilisation", kind="percent", formula="{used}/{available}"),
        Column(key="coverage", title="Coverage", kind="percent"),
        Column(key="amortised", title="Amortised USD", kind="usd", summed=True),
        Column(key="cash", title="Cash USD", kind="usd", summed=True),
        Column(key="waste", title="Waste USD", kind="usd", summed=True),
    )
    rows: list[list[Value]] = [
        [
            held.commitment.name,
            f"{held.commitment.provider} {held.commitment.instance_type} {held.commitment.region or ''}".strip(),
            held.commitment.count,
            held.commitment.end,
            held.commitment.effective_usd_per_hour,
            held.available_hours,
            held.used_hours,
            held.utilization,
            held.coverage,
            held.amortised_usd,
            held.cash_usd,
            held.waste_usd,
        ]
        for held in report.commitments
    ]
    return Table(
        id="commitment-use",
        title="Utilisation, coverage and waste",
        columns=columns,
        rows=rows,
        total=total_row(columns, rows) if rows else None,
        note="Waste: unused hours at the effective price, less what selling them brings back. "
        "Coverage: the part of the machine's hours that the commitment pays for."
        if rows
        else "",
    )


def _cash(report: MonthlyReport) -> Table:
    columns = (
        Column(key="workload", title="Workload"),
        Column(key="owner", title="Owner"),
        Column(key="provider", title="Provider"),
        Column(key="accelerator", title="Accelerator"),
        Column(key="option", title="Purchase option"),
        Column(key="category", title="Category"),
        Column(key="actual", title="Actual USD", kind="usd", summed=True),
        Column(key="billed", title="Actual as billed USD", kind="usd", summed=True),
        Column(key="forecast", title="Forecast USD", kind="usd", summed=True),
        Column(key="cash", title="Forecast in cash USD", kind="usd", summed=True),
        Column(key="difference", title="Cash less forecast USD", kind="usd", formula="{cash}-{forecast}", summed=True),
    )
    rows: list[list[Value]] = [
        [
            line.key.workload,
            line.key.owner,
            line.key.provider,
            line.key.accelerator,
            line.key.purchase_option,
            line.key.category,
            line.actual_usd,
            line.actual_cash_usd,
            line.forecast_usd,
            line.cash_usd,
            line.cash_usd - line.forecast_usd,
        ]
        for line in report.lines
    ]
    return Table(id="lines", title="Lines", columns=columns, rows=rows, total=total_row(columns, rows))


def _unit_costs(report: MonthlyReport) -> Table:
    columns = (
        Column(key="workload", title="Workload"),
        Column(key="usd", title="Forecast USD", kind="usd", summed=True),
        Column(key="requests", title="Requests", kind="number"),
        Column(key="tokens", title="Tokens", kind="number"),
        Column(key="hours", title="GPU-hours", kind="number"),
        Column(key="utilization", title="Utilisation", kind="percent"),
        Column(key="per_request", title="USD per 1,000 requests", kind="price", formula="{usd}*1000/{requests}"),
        Column(key="per_token", title="USD per million tokens", kind="price", formula="{usd}*1000000/{tokens}"),
        Column(key="per_hour", title="USD per GPU-hour", kind="price", formula="{usd}/{hours}"),
    )
    rows: list[list[Value]] = [
        [
            unit.workload,
            unit.usd,
            unit.requests,
            unit.tokens,
            unit.accelerator_hours,
            unit.utilization,
            unit.usd_per_thousand_requests,
            unit.usd_per_million_tokens,
            unit.usd_per_accelerator_hour,
        ]
        for unit in report.unit_costs
    ]
    return Table(
        id="units",
        title="Unit costs at the planned load",
        columns=columns,
        rows=rows,
        total=total_row(columns, rows) if rows else None,
        note="Requests and tokens (input and output) are those of the planned demand; utilisation is the highest part "
        "of the replicas' capacity that it takes.",
    )


def _plan(report: MonthlyReport) -> Table:
    columns = (
        Column(key="workload", title="Workload"),
        Column(key="provider", title="Provider"),
        Column(key="machine", title="Instance type"),
        Column(key="region", title="Region"),
        Column(key="option", title="Bought as"),
        Column(key="accelerator", title="Accelerator"),
        Column(key="gpus", title="GPUs each", kind="number"),
        Column(key="instances", title="Instances", kind="number"),
        Column(key="hours", title="Hours", kind="number"),
        Column(key="price", title="USD/h each", kind="price"),
        Column(key="usd", title="USD", kind="usd", formula="ROUND({instances}*{hours}*{price},2)", summed=True),
        Column(key="as_of", title="Price of", kind="date"),
        Column(key="source", title="Source", detail=True),
    )
    rows: list[list[Value]] = [
        [
            line.workload,
            line.machine.provider,
            line.machine.name,
            line.region,
            line.commitment or line.purchase_option.replace("_", " "),
            line.machine.accelerator,
            Decimal(repr(line.machine.accelerator_count)),
            line.instances,
            line.hours,
            line.usd_per_hour,
            line.usd,
            line.observed_on,
            line.source,
        ]
        for line in report.plan.lines
    ]
    return Table(
        id="planned",
        title="Planned instances",
        columns=columns,
        rows=rows,
        total=total_row(columns, rows) if rows else None,
        note="A price without a date is one whose age is not known, or that a commitment fixes.",
    )


def _outlook_chart(report: MonthlyReport) -> Chart:
    series = [Series(name="expected", values=[float(ahead.usd) for ahead in report.outlook])]
    if report.budget.total_usd is not None:
        series.append(Series(name="budget", values=[_f(ahead.budget_usd) for ahead in report.outlook], dashed=True))
    return Chart(
        id="outlook-chart",
        title="Expected cost of the coming months",
        kind="line",
        labels=[str(ahead.month) for ahead in report.outlook],
        series=series,
        unit="USD per month",
        table="outlook-months",
        label_column="month",
        columns=("usd", "budget")[: len(series)],
    )


def _outlook(report: MonthlyReport) -> Table:
    owners = sorted({owner for ahead in report.outlook for owner in ahead.by_owner})
    columns = (
        Column(key="month", title="Month"),
        Column(key="compute", title="Compute USD", kind="usd", summed=True),
        Column(key="unused", title="Unused commitments USD", kind="usd", summed=True),
        Column(key="items", title="Other items USD", kind="usd", summed=True),
        Column(key="usd", title="Total USD", kind="usd", formula="{compute}+{unused}+{items}", summed=True),
        Column(key="budget", title="Budget USD", kind="usd", summed=True),
        Column(key="left", title="Left USD", kind="usd", formula="{budget}-{usd}", summed=True),
        *(Column(key=f"owner_{i}", title=f"{owner} USD", kind="usd", summed=True) for i, owner in enumerate(owners)),
    )
    rows: list[list[Value]] = [
        [
            str(ahead.month),
            ahead.compute_usd,
            ahead.unused_usd,
            ahead.items_usd,
            ahead.usd,
            ahead.budget_usd,
            ahead.left_usd,
            *(ahead.by_owner.get(owner, ZERO) for owner in owners),
        ]
        for ahead in report.outlook
    ]
    levels: list[Level] = [
        "over" if ahead.left_usd is not None and ahead.left_usd < 0 else "" for ahead in report.outlook
    ]
    return Table(
        id="outlook-months",
        title="Outlook",
        columns=columns,
        rows=rows,
        total=total_row(columns, rows),
        levels=levels,
    )


def _actions(report: MonthlyReport) -> Table:
    columns = (
        Column(key="what", title="What"),
        Column(key="saving", title="Saving USD/month", kind="usd"),
        Column(key="command", title="Command that shows it", kind="code"),
        Column(key="note", title="To know"),
    )
    rows: list[list[Value]] = [
        [action.what, action.saving_usd, action.command, action.note] for action in report.actions
    ]
    return Table(id="actions", title="Next steps", columns=columns, rows=rows)


def _bill(report: MonthlyReport) -> Table:
    actuals = report.actuals
    columns = (Column(key="what", title="Rows"), Column(key="rows", title="Number", kind="number"))
    if actuals is None:
        return Table(id="bill", title="Rows of the cost export", columns=columns, rows=())
    rows: list[list[Value]] = [["read", actuals.rows], ["used", actuals.used], ["of other months", actuals.outside]]
    rows += [[f"not used: {reason}", count] for reason, count in actuals.rejected.items()]
    price = " or ".join(actuals.check.prices) or "unit price"
    rows += [
        [f"on-demand usage checked: billed = quantity x {price}", actuals.check.rows],
        ["of those, differing", actuals.check.differing],
        ["EffectiveCost replaced by BilledCost", actuals.spoiled_effective_rows],
    ]
    return Table(id="bill", title="Rows of the cost export", columns=columns, rows=rows)


def _usd(amount: Decimal) -> str:
    return shown(amount, "usd")


def _words(method: str) -> str:
    return method.replace("_", " ")


def _f(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)
