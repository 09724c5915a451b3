"""Turns a month's plan into what to do next: each with its saving in the month and the command that shows it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from shlex import quote
from typing import Final

from optimizer.report.budget import Budget, BudgetedWorkload
from optimizer.report.money import cents
from optimizer.report.months import Month
from optimizer.report.planning import PlannedLoad, PlannedMonth, Planner, grown
from optimizer.report.variance import Variance

_WORKLOADS_LOOKED_AT: Final = 10
"""Other ways are sought for the dearest workloads: each way sizes a workload anew."""
_WAYS_EACH: Final = 3
_MOST_ACTIONS: Final = 20
_LEAST_SAVING: Final = Decimal("0.01")
"""Of a workload's cost: smaller savings are not worth a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do. `saving_usd` is of the month; None = not a saving, or not known."""

    what: str
    saving_usd: Decimal | None
    command: str
    note: str = ""


def next_actions(
    planner: Planner,
    plan: PlannedMonth,
    month: Month,
    total: Variance | None,
    first_over: Month | None,
    today: date,
    stale_days: int = 30,
) -> tuple[Action, ...]:
    """Savings first, largest first; savings of one workload exclude each other."""
    base = planner.budget.base_month or month
    dearest = sorted(plan.loads, key=lambda load: (-load.usd, load.workload.name))[:_WORKLOADS_LOOKED_AT]
    found = [action for load in dearest for action in _other_ways(planner, load, month, month.minus(base))]
    found += _unused(plan)
    found.sort(key=lambda action: (-(action.saving_usd or 0), action.what))
    found = found[:_MOST_ACTIONS]
    found += _stale(plan, today, stale_days)
    file = quote(planner.file_name)
    if total is not None and total.usd > 0:
        what = f"the month is forecast {total.usd:,.2f} USD over budget: agree on a budget, or take ways listed here"
        found.append(Action(what=what, saving_usd=None, command=f"costopt report {file} --month {month} --format html"))
    if first_over is not None and first_over != month:
        what = f"{first_over} is the first month to come that is over budget at the growth given"
        found.append(Action(what=what, saving_usd=None, command=f"costopt report {file} --month {first_over}"))
    return tuple(found)


def _command(entry: BudgetedWorkload, budget: Budget, file_name: str, month: Month, months: int, flag: str) -> str:
    """Plans the workload at its demand `months` after the base, with one more flag; by the report itself where its
    shapes or profile are more than flags can say.
    """
    workload = grown(entry, months)
    if len(workload.demands) > 1 or workload.profile:
        return f"costopt report {quote(file_name)} --month {month} --only {quote(entry.name)} {flag}"
    demand = workload.demands[0]
    words = [
        "costopt plan",
        f"--model {quote(workload.model)}",
        f"--rate {demand.requests_per_s:.6g}",
        f"--input-tokens {demand.shape.input_tokens}",
        f"--output-tokens {demand.shape.output_tokens}",
        f"--ttft-ms {workload.slo.ttft_ms:g}",
        f"--tpot-ms {workload.slo.tpot_ms:g}",
    ]
    lossy = flag.startswith("--precision")
    words += [f"--precision {precision}" for precision in workload.precisions if not lossy]
    return " ".join(words) + budget.market.flags() + (f" {flag}" if flag else "")


def _other_ways(planner: Planner, load: PlannedLoad, month: Month, months: int) -> Iterable[Action]:
    ways = []
    for flag, note, fleet in planner.other_ways(load.workload, months):
        saving = load.avoidable_usd - cents(fleet.usd_per_hour * month.hours)
        if saving > load.usd * _LEAST_SAVING:
            machines = ", ".join(f"{item.count} x {item.offer.instance_type.name}" for item in fleet.instances)
            command = _command(load.workload, planner.budget, planner.file_name, month, months, flag)
            what = f"{load.workload.name}: {_in_words(flag)} ({machines})"
            ways.append(Action(what=what, saving_usd=saving, command=command, note=note))
    ways.sort(key=lambda action: (-(action.saving_usd or 0), action.what))
    return ways[:_WAYS_EACH]


def _in_words(flag: str) -> str:
    name, _, value = flag.partition(" ")
    return {"--purchase": f"buy as {value}", "--precision": f"run in {value}"}.get(name, flag)


def _unused(plan: PlannedMonth) -> list[Action]:
    return [
        Action(
            what=f"commitment {held.commitment.name}: {held.available_hours - held.used_hours:,.0f} of "
            f"{held.available_hours:,.0f} hours are not used",
            saving_usd=held.waste_usd,
            command=f"costopt offers --provider {quote(held.commitment.provider)}"
            + (f" --region {quote(held.commitment.region)}" if held.commitment.region else ""),
            note="move workloads there, sell or exchange it; paid whether used or not",
        )
        for held in plan.commitments
        if held.waste_usd > 0
    ]


def _stale(plan: PlannedMonth, today: date, stale_days: int) -> Sequence[Action]:
    limit = today - timedelta(days=stale_days)
    old = {
        line.machine.provider
        for line in plan.lines
        if line.commitment is None and (line.observed_on is None or line.observed_on < limit)
    }
    if not old:
        return ()
    what = f"prices of {', '.join(sorted(old))} in this plan are over {stale_days} days old or have no date"
    return (Action(what=what, saving_usd=None, command=f"costopt refresh {' '.join(sorted(old))}"),)
