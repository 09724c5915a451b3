"""Turns a training plan into what is printed: tables, JSON, CSV or Markdown."""

from collections.abc import Iterator

from optimizer.api.json_text import json_text
from optimizer.api.training_plan import document_of
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.plans.training_document import brief, describe, explain_training
from optimizer.plans.training_plan import ClusterChoice, TrainingAlternative, TrainingPlan
from optimizer.sizing.training.calibration import TIME_SPREAD
from optimizer.sizing.training.setup import TrainingSetup

_KIND_TITLES = {
    "provider": "one provider only",
    "accelerator": "one accelerator only",
    "purchase_option": "bought otherwise",
    "precision": "other precision",
    "include": "more kinds of machine",
}
_CURVE_POINTS = 12


def render(plan: TrainingPlan, format_: str, *, explained: bool, everything: bool) -> str:
    """The plan in one of the formats; CSV has one line per job."""
    if format_ == "json":
        return json_text(document_of(plan, explained=explained))
    if format_ == "csv":
        rows = [
            {"workload": job.choice.run.name, "start_hours": job.start_hours, **brief(job.choice)} for job in plan.jobs
        ]
        return csv_text(list(_CSV_COLUMNS), [[row[column] for column in _CSV_COLUMNS] for row in rows])
    parts = list(_parts(plan, explained=explained, everything=everything))
    return terminal(parts) if format_ == "table" else markdown(parts)


_CSV_COLUMNS = (
    "workload",
    "start_hours",
    "provider",
    "instance_type",
    "region",
    "purchase_option",
    "accelerator",
    "gpus",
    "count",
    "precision",
    "layout",
    "hours",
    "hours_low",
    "hours_high",
    "usd_total",
    "usd_total_low",
    "usd_total_high",
)


def remarks(plan: TrainingPlan, format_: str) -> Iterator[str]:
    """Lines for standard error: warnings where the result on stdout does not carry them for a person."""
    if format_ in ("json", "csv"):
        yield from (f"warning: {warning}" for warning in plan.warnings)
    if not plan.jobs:
        yield f"costopt: no feasible plan: {_shortfall_line(plan)}"


def _parts(plan: TrainingPlan, *, explained: bool, everything: bool) -> Iterator[Table | str]:
    yield _headline(plan)
    if plan.jobs:
        yield _jobs(plan)
        yield _totals(plan)
    else:
        yield from _remedies(plan)
    if len(plan.trade_off) > 1:
        yield _trade_off(plan, everything=everything)
    yield _alternatives(plan, everything=everything)
    if explained:
        yield "\n".join(explain_training(plan))
    yield "Assumed:\n" + "\n".join(f"  - {line}" for line in plan.assumptions)
    if plan.warnings:
        yield "Warnings:\n" + "\n".join(f"  - {line}" for line in plan.warnings)
    if plan.rejections and (everything or not plan.jobs):
        left_out = [(reason, str(count)) for reason, count in plan.rejections.items()]
        yield Table(title="Left out", columns=("reason", "number"), rows=left_out, right=frozenset({"number"}))
    if plan.timing_s:
        yield "Time: " + ", ".join(f"{key} {value:.3f}" for key, value in plan.timing_s.items())
    prices = plan.prices
    old = f"; {prices.stale:,} of those are older than {prices.max_age_days} days or undated" if prices.stale else ""
    yield (
        f"Prices of {prices.as_of_oldest or '?'} to {prices.as_of_newest or '?'}; {prices.offers_considered:,} offers "
        f"considered, {prices.offers_eligible:,} pass the filters{old}"
    )


def _headline(plan: TrainingPlan) -> str:
    names = ", ".join(f"{run.task} {model.hf_id}" for run, model in plan.request.jobs)
    if not plan.jobs:
        return f"No feasible plan for {names}: {_shortfall_line(plan)}"
    how = plan.solution.status.replace("_", " ")
    gap = "" if plan.solution.gap is None else f", proven gap {plan.solution.gap:.2%}"
    goal = "fastest within the budget" if plan.request.objective == "min_time" else "cheapest"
    return f"{names}: {plan.usd_total:,.2f} USD in {plan.hours:,.1f} h ({goal}; {how}{gap}, {plan.solution.solver})"


def _shortfall_line(plan: TrainingPlan) -> str:
    if not plan.shortfalls:
        return "no cluster on file holds the job within the limits; the reasons are counted below"
    return "; ".join(
        f"{s.limit} is short by {s.needed - s.available:,.1f} {s.unit} "
        f"(needed {s.needed:,.1f}, available {s.available:,.1f})"
        for s in plan.shortfalls
    )


def _jobs(plan: TrainingPlan) -> Table:
    rows = []
    for job in plan.jobs:
        choice, setup = job.choice, job.choice.estimate.setup
        rows.append(
            (
                choice.run.name,
                str(choice.nodes),
                f"{choice.offer.provider} {choice.offer.instance_type.name}",
                choice.offer.zone or choice.offer.region or "any",
                f"{choice.accelerators} x {choice.offer.instance_type.accelerator}",
                choice.offer.purchase_option.value.replace("_", " "),
                f"{setup.layout}, ZeRO {setup.zero_stage}, micro-batch {setup.micro_batch}{_recomputed(setup)}",
                f"{choice.estimate.step.mfu:.0%}",
                f"{job.start_hours:,.0f}",
                _hours(choice),
                f"{choice.usd_total:,.2f}",
            )
        )
    columns = (
        "job",
        "count",
        "instances",
        "region",
        "accelerators",
        "bought",
        "layout",
        "MFU",
        "from h",
        "hours",
        "USD",
    )
    return Table(
        title="Jobs (estimates)", columns=columns, rows=rows, right=frozenset({"count", "MFU", "from h", "USD"})
    )


def _recomputed(setup: TrainingSetup) -> str:
    return "" if setup.recompute == "none" else f", {setup.recompute} recomputation"


def _hours(choice: ClusterChoice) -> str:
    """The hours and their interval, with a decimal where whole hours say too little."""
    digits = 0 if choice.hours_low >= 10 else 1
    return f"{choice.hours:,.1f} ({choice.hours_low:,.{digits}f} to {choice.hours_high:,.{digits}f})"


def _totals(plan: TrainingPlan) -> str:
    choices = [job.choice for job in plan.jobs]
    low, high = (sum(choice.usd_at(factor) for choice in choices) for factor in (1 / TIME_SPREAD, TIME_SPREAD))
    hours = sum(choice.accelerators * choice.hours for choice in choices)
    tokens = sum(choice.run.tokens for choice in choices)
    return (
        f"Total: {plan.usd_total:,.2f} USD ({low:,.0f} to {high:,.0f}), {hours:,.0f} accelerator-hours, "
        f"{float(plan.usd_total) / tokens * 1e9:,.2f} USD per billion tokens"
    )


def _remedies(plan: TrainingPlan) -> Iterator[Table | str]:
    if plan.fastest is not None:
        fastest = plan.fastest
        yield (
            f"Shortest possible, in hours: {_hours(fastest)}, for {fastest.usd_total:,.2f} USD on {describe(fastest)}"
        )
    if plan.suggestions:
        rows = [(s.flag, f"{s.hours:,.1f}", f"{s.usd_total:,.2f}", s.note) for s in plan.suggestions]
        columns = ("flag", "hours", "USD", "note")
        yield Table(title="Would make it fit", columns=columns, rows=rows, right=frozenset({"hours", "USD"}))


def _trade_off(plan: TrainingPlan, *, everything: bool) -> Table:
    points = plan.trade_off
    chosen = {job.choice.id for job in plan.jobs}
    if not everything and len(points) > _CURVE_POINTS:
        step = (len(points) - 1) / (_CURVE_POINTS - 1)
        shown = {round(index * step) for index in range(_CURVE_POINTS)}
        points = tuple(p for index, p in enumerate(points) if index in shown or p.id in chosen)
    rows = [
        (
            f"{choice.hours:,.1f}",
            f"{choice.hours / 24:,.1f}",
            f"{choice.usd_total:,.2f}",
            describe(choice),
            "chosen" if choice.id in chosen else "",
        )
        for choice in points
    ]
    columns = ("hours", "days", "USD", "cluster", "")
    return Table(title="Time against cost", columns=columns, rows=rows, right=frozenset({"hours", "days", "USD"}))


def _alternatives(plan: TrainingPlan, *, everything: bool) -> Table:
    chosen = plan.jobs[0].choice if plan.jobs else None
    shown = [
        a
        for a in plan.alternatives
        if everything or (a.choice is not None and (chosen is None or a.choice.id != chosen.id))
    ]
    columns = ("alternative", "choice", "hours", "USD", "difference", "cluster", "note")
    rows = [_alternative_row(alternative, chosen) for alternative in shown]
    return Table(title="Alternatives", columns=columns, rows=rows, right=frozenset({"hours", "USD", "difference"}))


def _alternative_row(alternative: TrainingAlternative, chosen: ClusterChoice | None) -> tuple[str, ...]:
    kind, choice = _KIND_TITLES[alternative.kind], alternative.choice
    if choice is None:
        return (kind, alternative.name, "-", "-", "-", "does not fit", alternative.note)
    difference = "" if chosen is None else f"{choice.usd_total - chosen.usd_total:+,.2f} USD"
    return (
        kind,
        alternative.name,
        f"{choice.hours:,.1f}",
        f"{choice.usd_total:,.2f}",
        difference,
        describe(choice),
        alternative.note,
    )
