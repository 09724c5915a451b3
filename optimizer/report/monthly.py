"""Turns a budget, the plan of its month and the bill so far into the monthly budget report."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

from optimizer.report.actions import Action, next_actions
from optimizer.report.budget import DIMENSIONS, Budget, Dimension
from optimizer.report.commitments import CommitmentMonth
from optimizer.report.focus import Actuals, SpendGroup
from optimizer.report.forecast import FEWEST_DAYS_FOR_A_TREND, METHODS, Forecast, Method, driver, run_rate, trend
from optimizer.report.money import ZERO, cents, exact, micros
from optimizer.report.months import Month, hours_between, midnight
from optimizer.report.planning import COMMITTED, PlannedLine, PlannedLoad, PlannedMonth, Planner, monthly
from optimizer.report.variance import Alert, Bought, Change, Variance, alerts, split_change, variance
from providers.errors import UsageError

UNASSIGNED: Final = "(not assigned)"
UNUSED: Final = "(unused commitments)"
OUTLOOK_MONTHS: Final = 12
_LATE_HOURS: Final = 48
_SETTLED_HOURS: Final = 72
"""Sellers add the last charges of a month within some days of its end."""
_ITEM: Final = "item: "


@dataclass(frozen=True, slots=True, kw_only=True)
class LineKey:
    """What a line of the report is about; None where that does not apply or is not known."""

    workload: str
    owner: str | None
    provider: str | None
    accelerator: str | None
    purchase_option: str | None
    category: str

    def by(self, dimension: Dimension) -> str:
        """The line's name under a dimension."""
        value: str | None = getattr(self, dimension)
        return value or (UNASSIGNED if dimension == "owner" else f"({self.category})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLine:
    """The finest line of the report, in USD; sums of these are all that the report adds up.

    `actual_usd` None = not known: no bill was read, or it does not say what belongs to the line.
    """

    key: LineKey
    plan_usd: Decimal
    actual_usd: Decimal | None
    actual_cash_usd: Decimal | None
    forecast: Forecast
    forecast_usd: Decimal
    cash_usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """Lines added up under one name of a dimension, against its budget."""

    name: str
    budget_usd: Decimal | None
    actual_usd: Decimal | None
    plan_usd: Decimal
    forecast: Forecast
    forecast_usd: Decimal
    variance: Variance | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One day of the burn-down: what was spent until its end; after the data's end, what is expected."""

    day: date
    actual_usd: Decimal | None
    forecast_usd: Decimal | None
    budget_left_usd: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCost:
    """What a workload's forecast buys in the month; None where there is nothing to divide by."""

    workload: str
    usd: Decimal
    requests: Decimal
    tokens: Decimal
    accelerator_hours: Decimal
    utilization: float
    usd_per_thousand_requests: Decimal | None
    usd_per_million_tokens: Decimal | None
    usd_per_accelerator_hour: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlookMonth:
    """A month to come: the plan at its demand, by owner, with what commitments and other items cost."""

    month: Month
    usd: Decimal
    compute_usd: Decimal
    unused_usd: Decimal
    items_usd: Decimal
    by_owner: Mapping[str, Decimal]
    budget_usd: Decimal | None

    @property
    def left_usd(self) -> Decimal | None:
        return None if self.budget_usd is None else self.budget_usd - self.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyReport:
    """Everything that the report of one month says; totals are sums of its lines."""

    budget: Budget
    month: Month
    now: datetime
    through: datetime | None
    elapsed_hours: Decimal
    method: Method
    lines: tuple[ReportLine, ...]
    total: GroupRow
    groups: Mapping[Dimension, tuple[GroupRow, ...]]
    alerts: tuple[Alert, ...]
    days: tuple[Day, ...]
    change: Change
    change_basis: str
    plan: PlannedMonth
    commitments: tuple[CommitmentMonth, ...]
    unit_costs: tuple[UnitCost, ...]
    outlook: tuple[OutlookMonth, ...]
    actions: tuple[Action, ...]
    actuals: Actuals | None
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def cash_usd(self) -> Decimal:
        """What is forecast to be paid in the month."""
        return sum((line.cash_usd for line in self.lines), ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A report to make: of which budget and month, seen when, with which plans, bill and earlier prices.

    `earlier_prices` are USD per accelerator-hour a month earlier, by `PlannedLine.thing`.
    """

    budget: Budget
    month: Month
    now: datetime
    planner: Planner
    actuals: Actuals | None = None
    earlier_prices: Mapping[str, Decimal] | None = None
    stale_days: int = 30
    warnings: tuple[str, ...] = ()


def monthly_report(asked: Asked) -> MonthlyReport:
    """The report. Raises UsageError for a budget whose names do not fit together."""
    budget, month = asked.budget, asked.month
    _check_names(budget)
    plan = asked.planner.month(month, month)
    actuals = asked.actuals if asked.actuals is not None and asked.now > month.start else None
    through = _through(asked, actuals)
    elapsed = month.elapsed_hours(through) if through else ZERO
    method: Method = budget.forecast or ("run_rate" if elapsed > 0 else "driver")
    lines = _lines(asked, plan, actuals, through, elapsed, method)
    total = _row("total", budget.total_usd, lines)
    groups = {dimension: _grouped(budget, dimension, lines) for dimension in DIMENSIONS}
    outlook = tuple(_outlook(asked, offset) for offset in range(OUTLOOK_MONTHS))
    change, change_basis = _change(asked, plan, actuals, elapsed)
    unit_costs = tuple(_unit_cost(load, lines, month) for load in plan.loads)
    return MonthlyReport(
        budget=budget,
        month=month,
        now=asked.now,
        through=through,
        elapsed_hours=elapsed,
        method=method,
        lines=lines,
        total=total,
        groups=groups,
        alerts=tuple(_alerts(budget, total, groups)),
        days=_days(asked, actuals, through, total),
        change=change,
        change_basis=change_basis,
        plan=plan,
        commitments=plan.commitments,
        unit_costs=unit_costs,
        outlook=outlook,
        actions=next_actions(
            asked.planner, plan, month, total.variance, outlook_over(outlook), asked.now.date(), asked.stale_days
        ),
        actuals=actuals,
        assumptions=tuple(_assumptions(asked, method)),
        warnings=tuple(_warnings(asked, plan, actuals, through, lines)),
    )


def outlook_over(outlook: Sequence[OutlookMonth]) -> Month | None:
    """The first month to come that is over budget."""
    return next((m.month for m in outlook if m.left_usd is not None and m.left_usd < 0), None)


def _check_names(budget: Budget) -> None:
    """Raises UsageError for two workloads of one name, and for a limit of a name that nothing has."""
    names = [entry.name for entry in budget.workloads]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"budget {budget.name!r}: two workloads are named {name!r}: give each its own name")
    for item in budget.items:
        if item.workload is not None and item.workload not in names:
            raise UsageError(
                f"budget {budget.name!r}: item {item.name!r} is of workload {item.workload!r}: unknown name"
            )
    owners = {entry.owner for entry in budget.workloads} | {item.owner for item in budget.items}
    owners |= {commitment.owner for commitment in budget.commitments}
    for owner in budget.limits.get("owner", {}):
        if owner not in owners:
            known = ", ".join(sorted(o for o in owners if o))
            raise UsageError(f"budget {budget.name!r}: owner {owner!r} has a limit but nothing else; owners: {known}")


def _through(asked: Asked, actuals: Actuals | None) -> datetime | None:
    """Until when the bill says what was spent: not after now, nor after the last charge.

    Three days after its end a month is taken as billed in full: hours without a charge then cost nothing.
    """
    if actuals is None:
        return None
    if hours_between(asked.month.end, asked.now) >= _SETTLED_HOURS:
        return asked.month.end
    last = actuals.through or asked.month.start
    return max(asked.month.start, min(asked.now, last, asked.month.end))


def _lines(
    asked: Asked,
    plan: PlannedMonth,
    actuals: Actuals | None,
    through: datetime | None,
    elapsed: Decimal,
    method: Method,
) -> tuple[ReportLine, ...]:
    """One line for each workload x provider x accelerator x purchase option, planned or billed; then the rest."""
    planned: dict[LineKey, list[PlannedLine]] = defaultdict(list)
    for line in plan.lines:
        planned[_planned_key(line)].append(line)
    billed: dict[LineKey, list[SpendGroup]] = defaultdict(list)
    for group in actuals.groups if actuals else ():
        if group.month == str(asked.month):
            billed[_billed_key(asked.budget, group)].append(group)
    told = {entry.name for entry in asked.budget.workloads if entry.matches} | {UNASSIGNED, UNUSED}
    clock = _Clock(asked.month, through, elapsed) if actuals and through else None
    found = []
    for key in sorted({*planned, *billed}, key=_order):
        usd = sum((line.usd for line in planned[key]), ZERO)
        cash = sum((_cash(line) for line in planned[key]), ZERO)
        # A bill without a word of a commitment was written elsewhere: the commitment is paid all the same.
        tells = key.workload in told and key.purchase_option != COMMITTED
        known = billed[key] if clock and (tells or billed[key]) else None
        found.append(_line(key, usd, cash, known, clock, method, asked.budget.basis))
    if not any(_is_committed(group) for groups in billed.values() for group in groups):
        found += _commitment_lines(plan, clock)
    compute = sum((line.forecast_usd for line in found), ZERO)
    return (*found, *_item_lines(asked, compute, clock))


def _is_committed(group: SpendGroup) -> bool:
    """Whether a bill's row belongs to a commitment: then the bill says itself what is not used."""
    return group.unused or group.purchase_option == COMMITTED


@dataclass(frozen=True, slots=True)
class _Clock:
    """How far the month's bill goes."""

    month: Month
    through: datetime
    elapsed: Decimal

    @property
    def hours_to_come(self) -> Decimal:
        return self.month.hours - self.elapsed

    @property
    def complete_days(self) -> int:
        """Days of which the bill has all hours."""
        return sum(1 for day in range(1, self.month.days + 1) if self._end_of(day) <= self.through)

    @property
    def partial_day_left(self) -> Decimal:
        """The part of the running day that the bill does not have; 0 at a day's boundary."""
        day = self.complete_days + 1
        if day > self.month.days:
            return ZERO
        passed = hours_between(self._end_of(day - 1), self.through)
        return ZERO if passed <= 0 else 1 - passed / self.month.day_hours(day)

    @property
    def days_to_come(self) -> int:
        return self.month.days - self.complete_days - (1 if self.partial_day_left > 0 else 0)

    def _end_of(self, day: int) -> datetime:
        return midnight(self.month.first_day + timedelta(days=day), self.month.zone)


def _line(
    key: LineKey,
    plan_usd: Decimal,
    plan_cash: Decimal,
    billed: Sequence[SpendGroup] | None,
    clock: _Clock | None,
    method: Method,
    basis: str,
) -> ReportLine:
    """A line's actual and forecasts; without a bill of it, the plan is the forecast."""
    if billed is None or clock is None:
        return _as_planned(key, plan_usd, plan_cash, clock)
    spent = [(group.billed_usd if basis == "cash" else group.effective_usd, group) for group in billed]
    actual = cents(sum((usd for usd, _ in spent), ZERO))
    cash = cents(sum((group.billed_usd for group in billed), ZERO))
    once = sum((usd for usd, group in spent if group.once), ZERO)
    daily = [ZERO] * clock.complete_days
    for usd, group in spent:
        if not group.once and group.day <= len(daily):
            daily[group.day - 1] += usd
    hourly = plan_usd / clock.month.hours
    forecast = Forecast(
        run_rate_usd=run_rate(sum((usd for usd, _ in spent), ZERO) - once, once, clock.elapsed, clock.month.hours),
        trend_usd=trend(daily, actual, clock.partial_day_left, clock.days_to_come),
        driver_usd=driver(actual, hourly, clock.hours_to_come),
    )
    chosen = forecast.by(method)
    if chosen is None:
        chosen = forecast.run_rate_usd if forecast.run_rate_usd is not None else forecast.driver_usd
    expected = plan_usd if chosen is None else chosen
    return ReportLine(
        key=key,
        plan_usd=plan_usd,
        actual_usd=actual,
        actual_cash_usd=cash,
        forecast=forecast,
        forecast_usd=expected,
        cash_usd=cash + expected - actual,
    )


def _as_planned(key: LineKey, usd: Decimal, cash_usd: Decimal, clock: _Clock | None) -> ReportLine:
    """A line that the bill does not tell of: by every method that others have, it costs what is planned."""
    return ReportLine(
        key=key,
        plan_usd=usd,
        actual_usd=None,
        actual_cash_usd=None,
        forecast=Forecast(
            run_rate_usd=usd if clock and clock.elapsed > 0 else None,
            trend_usd=usd if clock and clock.complete_days >= FEWEST_DAYS_FOR_A_TREND else None,
            driver_usd=usd,
        ),
        forecast_usd=usd,
        cash_usd=cash_usd,
    )


def _commitment_lines(plan: PlannedMonth, clock: _Clock | None) -> list[ReportLine]:
    """What no workload uses of a commitment, and in cash what commitments take at another time than they give."""
    found = []
    for held in plan.commitments:
        unused = plan.unused_usd[held.commitment.name]
        key = LineKey(
            workload=UNUSED,
            owner=held.commitment.owner,
            provider=held.commitment.provider,
            accelerator=None,
            purchase_option=COMMITTED,
            category="unused commitment",
        )
        found.append(_as_planned(key, unused, held.cash_usd, clock))
    return found


def _item_lines(asked: Asked, compute_usd: Decimal, clock: _Clock | None) -> list[ReportLine]:
    found = []
    owners = {entry.name: entry.owner for entry in asked.budget.workloads}
    for item in asked.budget.items:
        usd = cents(item.usd(asked.month, compute_usd))
        key = LineKey(
            workload=item.workload or f"{_ITEM}{item.name}",
            owner=item.owner or owners.get(item.workload or ""),
            provider=item.provider,
            accelerator=None,
            purchase_option=None,
            category=item.category,
        )
        found.append(_as_planned(key, usd, usd, clock))
    return found


def _planned_key(line: PlannedLine) -> LineKey:
    return LineKey(
        workload=line.workload,
        owner=line.owner,
        provider=line.machine.provider,
        accelerator=line.machine.accelerator,
        purchase_option=line.option,
        category="compute",
    )


def _billed_key(budget: Budget, group: SpendGroup) -> LineKey:
    """Lines of the bill that are not of a known machine have the service's name as their category."""
    owners = {entry.name: entry.owner for entry in budget.workloads}
    unused = group.unused and group.workload is None
    return LineKey(
        workload=UNUSED if unused else group.workload or UNASSIGNED,
        owner=owners.get(group.workload or ""),
        provider=group.provider,
        accelerator=group.accelerator,
        purchase_option=group.purchase_option,
        category="compute" if group.accelerator else group.service or "other charges",
    )


def _cash(line: PlannedLine) -> Decimal:
    """What a planned line costs in cash in its month: commitments are paid in a line of their own."""
    return ZERO if line.commitment is not None else line.usd


def _order(key: LineKey) -> tuple[str, ...]:
    special = "1" if key.workload in (UNASSIGNED, UNUSED) else "0"
    return (special, *(value or "" for value in (key.workload, key.provider, key.accelerator, key.purchase_option)))


def _row(name: str, budget_usd: Decimal | None, lines: Sequence[ReportLine]) -> GroupRow:
    forecast = Forecast(**{f"{method}_usd": _sum_of(lines, method) for method in METHODS})
    forecast_usd = sum((line.forecast_usd for line in lines), ZERO)
    actual = [line.actual_usd for line in lines if line.actual_usd is not None]
    return GroupRow(
        name=name,
        budget_usd=budget_usd,
        actual_usd=sum(actual, ZERO) if actual else None,
        plan_usd=sum((line.plan_usd for line in lines), ZERO),
        forecast=forecast,
        forecast_usd=forecast_usd,
        variance=variance(budget_usd, forecast_usd),
    )


def _sum_of(lines: Sequence[ReportLine], method: Method) -> Decimal | None:
    """The lines by one method; None where a line does not have it."""
    amounts = [usd for line in lines if (usd := line.forecast.by(method)) is not None]
    return sum(amounts, ZERO) if len(amounts) == len(lines) else None


def _grouped(budget: Budget, dimension: Dimension, lines: Sequence[ReportLine]) -> tuple[GroupRow, ...]:
    limits = dict(budget.limits.get(dimension, {}))
    if dimension == "workload":
        limits |= {entry.name: entry.budget_usd for entry in budget.workloads if entry.budget_usd is not None}
    by_name: dict[str, list[ReportLine]] = {name: [] for name in limits}
    for line in lines:
        by_name.setdefault(line.key.by(dimension), []).append(line)
    rows = [_row(name, limits.get(name), found) for name, found in by_name.items()]
    return tuple(sorted(rows, key=lambda row: (row.name.startswith("("), -row.forecast_usd, row.name)))


def _alerts(budget: Budget, total: GroupRow, groups: Mapping[Dimension, Sequence[GroupRow]]) -> Iterable[Alert]:
    rows = [("total", total)]
    rows += [(f"{dimension.replace('_', ' ')} {row.name}", row) for dimension, found in groups.items() for row in found]
    for subject, row in rows:
        yield from alerts(subject, row.budget_usd, row.actual_usd, row.forecast_usd, budget.thresholds)


def _days(asked: Asked, actuals: Actuals | None, through: datetime | None, total: GroupRow) -> tuple[Day, ...]:
    """Spend at the end of each day, straight on to the forecast after the data's end; and what is left of the budget.

    What is not in the bill (items, commitments, workloads without matching rows) runs evenly through the month.
    """
    month, budget = asked.month, asked.budget.total_usd
    billed = [ZERO] * (month.days + 1)
    for group in actuals.groups if actuals else ():
        if group.month == str(month):
            billed[group.day] += group.billed_usd if asked.budget.basis == "cash" else group.effective_usd
    found = []
    spent, passed = ZERO, ZERO
    known_hours = month.elapsed_hours(through) if through else ZERO
    to_come, actual = month.hours - known_hours, total.actual_usd or ZERO
    for number in range(1, month.days + 1):
        spent += billed[number]
        passed += month.day_hours(number)
        is_known = through is not None and passed <= known_hours
        ahead = (passed - known_hours) / to_come if to_come else ZERO
        expected = cents(actual + (total.forecast_usd - actual) * max(ZERO, ahead))
        usd = cents(spent) if is_known else expected
        found.append(
            Day(
                day=month.first_day + timedelta(days=number - 1),
                actual_usd=usd if is_known else None,
                forecast_usd=None if is_known and passed < known_hours else expected,
                budget_left_usd=None if budget is None else budget - usd,
            )
        )
    return tuple(found)


def _change(asked: Asked, plan: PlannedMonth, actuals: Actuals | None, elapsed: Decimal) -> tuple[Change, str]:
    """The compute cost against last month's, in accelerator-hours: of the bill where it has both months.

    A month that is not over is taken at its run rate, so that whole months are compared.
    """
    month, before_month = asked.month, asked.month.plus(-1)
    prices = asked.earlier_prices or {}
    before = _bought(actuals, before_month) if actuals else {}
    after = _bought(actuals, month, month.hours / elapsed) if actuals and elapsed > 0 else {}
    if before and after:
        rate = "" if elapsed == month.hours else " at its run rate"
        basis = f"bill of {month}{rate} against bill of {before_month}"
        return split_change(before, after, prices), f"{basis}; volume in accelerator-hours"
    earlier = asked.planner.month(before_month, month)
    before, after = _planned(earlier.lines), _planned(plan.lines)
    before = {thing: replace(item, usd_per_unit=prices.get(thing, item.usd_per_unit)) for thing, item in before.items()}
    change = split_change(before, after, prices)
    if asked.earlier_prices is None:
        return change, f"plan of {month} against plan of {before_month}, both at today's prices"
    fixed = {line.thing for line in (*earlier.lines, *plan.lines) if line.commitment is not None}
    unknown = tuple(sorted({*before, *after} - {*prices} - fixed))
    basis = f"plan of {month} against plan of {before_month} at the prices known at its end"
    return replace(change, unpriced=unknown), f"{basis}; volume in accelerator-hours"


def _planned(lines: Sequence[PlannedLine]) -> dict[str, Bought]:
    hours: dict[str, Decimal] = defaultdict(lambda: Decimal(0))
    usd: dict[str, Decimal] = defaultdict(lambda: Decimal(0))
    for line in lines:
        hours[line.thing] += line.accelerator_hours
        usd[line.thing] += line.usd
    return {thing: Bought(quantity=hours[thing], usd_per_unit=usd[thing] / hours[thing]) for thing in hours}


def _bought(actuals: Actuals, month: Month, factor: Decimal = Decimal(1)) -> dict[str, Bought]:
    hours: dict[str, Decimal] = defaultdict(lambda: Decimal(0))
    usd: dict[str, Decimal] = defaultdict(lambda: Decimal(0))
    for group in actuals.groups:
        if group.month == str(month) and group.accelerators and group.hours:
            thing = f"{group.provider}/{group.instance_type}/{group.region or '-'}/{group.purchase_option or '-'}"
            hours[thing] += group.hours * exact(group.accelerators)
            usd[thing] += group.effective_usd
    return {thing: Bought(quantity=hours[thing] * factor, usd_per_unit=usd[thing] / hours[thing]) for thing in hours}


def _unit_cost(load: PlannedLoad, lines: Sequence[ReportLine], month: Month) -> UnitCost:
    """The workload's forecast over what its demand makes in the month."""
    usd = sum((line.forecast_usd for line in lines if line.key.workload == load.workload.name), ZERO)
    requests = monthly(load.requests_per_s, month)
    tokens = monthly(load.input_tokens_per_s + load.output_tokens_per_s, month)
    hours = sum((line.accelerator_hours for line in load.lines), Decimal(0))
    return UnitCost(
        workload=load.workload.name,
        usd=usd,
        requests=requests,
        tokens=tokens,
        accelerator_hours=hours,
        utilization=load.utilization,
        usd_per_thousand_requests=micros(usd * 1_000 / requests) if requests else None,
        usd_per_million_tokens=micros(usd * 1_000_000 / tokens) if tokens else None,
        usd_per_accelerator_hour=micros(usd / hours) if hours else None,
    )


def _outlook(asked: Asked, offset: int) -> OutlookMonth:
    month = asked.month.plus(offset)
    plan = asked.planner.month(month, asked.month)
    owners: dict[str, Decimal] = defaultdict(lambda: ZERO)
    of_workload = {entry.name: entry.owner for entry in asked.budget.workloads}
    for line in plan.lines:
        owners[line.owner or UNASSIGNED] += line.usd
    compute = sum((line.usd for line in plan.lines), ZERO)
    unused = ZERO
    for held in plan.commitments:
        usd = plan.unused_usd[held.commitment.name]
        owners[held.commitment.owner or UNASSIGNED] += usd
        unused += usd
    items = ZERO
    for item in asked.budget.items:
        usd = cents(item.usd(month, compute + unused))
        owner = item.owner or of_workload.get(item.workload or "") or UNASSIGNED
        owners[owner] += usd
        items += usd
    return OutlookMonth(
        month=month,
        usd=compute + unused + items,
        compute_usd=compute,
        unused_usd=unused,
        items_usd=items,
        by_owner=dict(sorted(owners.items())),
        budget_usd=asked.budget.total_usd,
    )


def _assumptions(asked: Asked, method: Method) -> Iterable[str]:
    budget, month = asked.budget, asked.month
    yield budget.currency_note
    yield f"{month} has {month.days} days and {month.hours:f} hours in {month.zone}; days are that zone's"
    view = "amortised (upfronts spread over their terms)" if budget.basis == "amortised" else "cash (as billed)"
    yield f"amounts are {view}; each line is rounded to the cent, totals add the lines"
    yield f"forecast by {method.replace('_', ' ')}; lines without a bill are forecast as planned"
    yield "a workload pays for the whole instances that it is planned on, whatever part of them it uses"
    if budget.commitments:
        yield "commitments are used first, by the workloads in the order of the file"
    growth = sorted({f"{entry.growth_per_month:.1%}" for entry in budget.workloads})
    yield f"demand grows by {', '.join(growth)} a month from {budget.base_month or month}"
    yield "machines and throughput are estimates of costopt's sizing; prices are those on file, at the dates shown"
    yield "outlook: the same prices throughout; commitments end with their terms and are not renewed"


def _warnings(
    asked: Asked,
    plan: PlannedMonth,
    actuals: Actuals | None,
    through: datetime | None,
    lines: Sequence[ReportLine],
) -> Iterable[str]:
    yield from asked.warnings
    yield from plan.warnings
    if actuals is None:
        if asked.actuals is not None:
            yield f"{asked.month} has not begun: the bill's rows are used for the month before only"
        return
    yield from actuals.warnings
    billed = {line.key.workload for line in lines if line.actual_usd}
    for entry in asked.budget.workloads:
        if not entry.matches:
            yield f"{entry.name}: nothing says which rows of the bill are its own (`match`), so its actual is not known"
        elif entry.name not in billed:
            yield f"{entry.name}: no row of the bill of {asked.month} matches"
    unassigned = sum((line.actual_usd or ZERO for line in lines if line.key.workload == UNASSIGNED), ZERO)
    if unassigned and asked.budget.items:
        yield (
            f"{unassigned:,.2f} USD of the bill belong to no workload; items that the budget lists beside may be "
            "among them, and would then count twice"
        )
    if actuals.through is not None:
        late = hours_between(actuals.through, min(asked.now, asked.month.end))
        if late > _LATE_HOURS:
            until = "the month's end" if through == asked.month.end else "now"
            yield f"the bill's last charge ends {late / 24:.1f} days before {until}: check that the export is whole"
