"""Turns a plan into what is printed: tables, JSON, CSV or Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from optimizer.api.json_text import json_text
from optimizer.api.serving_plan import document_of
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.plans.document import exact_usd, offer_document, routing
from optimizer.plans.explain import describe_fleet, explain
from optimizer.plans.plan import Alternative, BindingLimit, Fleet, Plan
from optimizer.plans.planner import rank_key
from optimizer.program.problem import Shortfall
from providers.units import HOURS_PER_MONTH

_ACCELERATORS_SHOWN = 5
_VISIBLE_SHARE = 0.0005
_KIND_TITLES = {
    "provider": "one provider only",
    "accelerator": "one accelerator only",
    "purchase_option": "bought otherwise",
    "precision": "other precision",
    "include": "more kinds of machine",
    "without": "without one accelerator",
}


def render(
    plan: Plan, format_: str, *, explained: bool, everything: bool, trace: Mapping[str, Any] | None = None
) -> str:
    """The plan in one of the formats; JSON also has the statistics of a request log, where it was planned from one."""
    if format_ == "json":
        return json_text(document_of(plan, trace=trace, explained=explained))
    if format_ == "csv":
        return _csv(plan)
    parts = list(_parts(plan, explained=explained, everything=everything))
    return terminal(parts) if format_ == "table" else markdown(parts)


def remarks(plan: Plan, format_: str) -> Iterator[str]:
    """Lines for standard error: warnings where the result on stdout does not carry them for a person."""
    if format_ in ("json", "csv"):
        yield from (f"warning: {warning}" for warning in plan.warnings)
    if plan.status == "infeasible":
        yield f"costopt: no feasible plan: {_shortfall_line(plan)}"


def _csv(plan: Plan) -> str:
    columns = list(_CSV_COLUMNS)
    rows = []
    for item in plan.fleet.instances if plan.fleet else ():
        document = offer_document(item.offer)
        commitment = document.pop("commitment") or {}
        document |= {f"commitment_{key}": value for key, value in commitment.items()}
        totals = {
            "total_usd_per_hour": exact_usd(item.usd_per_hour),
            "total_usd_per_month": f"{item.usd_per_hour * HOURS_PER_MONTH:.2f}",
        }
        document |= {"count": item.count, **totals}
        rows.append([document.get(column) for column in columns])
    return csv_text(columns, rows)


_CSV_COLUMNS = (
    "provider",
    "instance_type",
    "region",
    "zone",
    "purchase_option",
    "commitment_kind",
    "commitment_term_months",
    "commitment_upfront_usd",
    "accelerator",
    "accelerator_count",
    "count",
    "usd_per_hour",
    "usd_per_month",
    "total_usd_per_hour",
    "total_usd_per_month",
    "as_of",
    "source",
)


def _parts(plan: Plan, *, explained: bool, everything: bool) -> Iterator[Table | str]:
    yield _headline(plan)
    if plan.fleet is not None:
        yield _instances(plan.fleet)
        yield _replicas(plan.fleet)
        if len(plan.fleet.replicas) > 1:
            yield _routing(plan.fleet)
        if plan.changes:
            yield _changes(plan)
        yield _totals(plan.fleet)
        yield from (_binding(limit) for limit in plan.binding_limits)
        if plan.unserved:
            yield f"Not served within the budget: {', '.join(plan.unserved)}"
    yield from _cheapest(plan)
    if plan.status == "infeasible":
        yield from _remedies(plan)
    if plan.alternatives:
        yield _alternatives(plan, everything=everything)
    if explained:
        yield "\n".join(explain(plan))
    elif everything and plan.runner_ups:
        rows = [_alternative_row(plan, other) for other in plan.runner_ups]
        yield _alternatives_table("Best fleets without what was chosen", rows)
    yield "Assumed:\n" + "\n".join(f"  - {line}" for line in plan.assumptions)
    if plan.warnings:
        yield "Warnings:\n" + "\n".join(f"  - {line}" for line in plan.warnings)
    if plan.timing_s:
        yield "Time: " + ", ".join(f"{key} {value:.3f}" for key, value in plan.timing_s.items())
    yield _footer(plan)


def _cheapest(plan: Plan) -> Iterator[str]:
    """The cheapest that runs everything, where the plan is another: it buys throughput, or leaves workloads out."""
    cheapest = plan.cheapest
    if cheapest is None or plan.fleet is None or not (plan.objective == "max_throughput" or plan.unserved):
        return
    what = "the model" if len(plan.workloads) == 1 else f"all {len(plan.workloads)} workloads"
    does = f"serves {what}" if plan.unserved else f"runs {what} at all"
    yield (
        f"Cheapest that {does}: {cheapest.usd_per_month:,.2f} USD/month, "
        f"{cheapest.requests_per_s:.2f} requests/s: {describe_fleet(cheapest)}"
    )


def _headline(plan: Plan) -> str:
    proof = plan.proof
    if plan.fleet is None:
        return f"No feasible plan for {plan.title}: {_shortfall_line(plan)}"
    gap = "" if proof.gap is None else f", proven gap {proof.gap:.2%}"
    if plan.objective == "max_throughput":
        what = f"{plan.fleet.requests_per_s:,.2f} requests/s for {plan.fleet.usd_per_month:,.2f} USD/month"
        what += f" of {plan.budget_usd_per_month:,.2f}"
    else:
        what = f"{plan.fleet.usd_per_month:,.2f} USD/month for {plan.fleet.requests_per_s:,.2f} requests/s"
    return f"{plan.title}: {what} ({plan.status.replace('_', ' ')}{gap}, {proof.solver})"


def _shortfall_line(plan: Plan) -> str:
    if not plan.shortfalls:
        return "no offer can run it within the limits; the reasons are counted below"
    return "; ".join(_shortfall(shortfall) for shortfall in plan.shortfalls)


def _shortfall(short: Shortfall) -> str:
    """A limit that is too low, or a demand on the fleet that is too high or cannot be met at all."""
    if short.needed < short.available:
        possible = f"{short.needed:g} possible" if short.needed else "none of it possible"
        return f"{short.limit}: {short.available:g} {short.unit} asked for, {possible}"
    return (
        f"{short.limit} is short by {short.needed - short.available:,.2f} {short.unit} "
        f"(needed {short.needed:,.2f}, available {short.available:,.2f})"
    )


def _instances(fleet: Fleet) -> Table:
    rows = [
        (
            str(item.count),
            item.offer.provider,
            item.offer.instance_type.name,
            item.offer.zone or item.offer.region or "any",
            f"{item.offer.instance_type.accelerator_count:g} x {item.offer.instance_type.accelerator}",
            item.offer.purchase_option.replace("_", " "),
            f"{item.offer.usd_per_hour:,.4f}",
            f"{item.usd_per_hour * HOURS_PER_MONTH:,.2f}",
            str(item.offer.observed_on or "no date"),
        )
        for item in fleet.instances
    ]
    columns = (
        "count",
        "provider",
        "instance type",
        "region",
        "accelerators",
        "bought",
        "USD/h each",
        "USD/month",
        "as of",
    )
    return Table(title="Instances", columns=columns, rows=rows, right=frozenset({"count", "USD/h each", "USD/month"}))


def _replicas(fleet: Fleet) -> Table:
    rows = [
        (
            str(group.count),
            group.workload.name,
            group.offer.instance_type.name,
            group.kind.precision,
            str(group.kind.layout) + (f" on {group.kind.machines} instances" if group.kind.machines > 1 else ""),
            f"{group.requests_per_s:.2f}",
            f"{group.output_tokens_per_s:,.0f}",
            f"{group.ttft_ms.value:,.0f}",
            f"{group.tpot_ms.value:,.1f}",
            f"{group.utilization:.0%}",
        )
        for group in fleet.replicas
    ]
    columns = (
        "replicas",
        "workload",
        "on",
        "precision",
        "layout",
        "requests/s",
        "output tok/s",
        "TTFT ms",
        "TPOT ms",
        "load",
    )
    words = frozenset({"workload", "on", "precision", "layout"})
    return Table(title="Replicas (estimates)", columns=columns, rows=rows, right=frozenset(columns) - words)


def _routing(fleet: Fleet) -> Table:
    """Which part of which shape an operator's router sends to which group of replicas."""
    rows = [
        (
            row["workload"],
            f"{row['input_tokens']}+{row['output_tokens']}",
            fleet.replicas[row["replica_group"]].offer.instance_type.name,
            f"{fleet.replicas[row['replica_group']].kind.precision} {fleet.replicas[row['replica_group']].kind.layout}",
            f"{row['share']:.1%}",
            f"{row['requests_per_s']:.3g}",
        )
        for row in routing(fleet)
    ]
    columns = ("workload", "tokens", "to replicas on", "which are", "share", "requests/s")
    return Table(title="Routing", columns=columns, rows=rows, right=frozenset({"share", "requests/s"}))


def _binding(limit: BindingLimit) -> str:
    """One limit in a buyer's words."""
    step = f"{limit.limit} {limit.change:+g} {limit.unit}"
    if limit.more_requests_per_s > 0:
        return f"Limit: {step} would serve {limit.more_requests_per_s:.3g} requests/s more"
    return f"Limit: {step} would save {limit.saving_usd_per_month:,.2f} USD/month"


def _changes(plan: Plan) -> Table:
    rows = [
        (
            change.kind,
            str(change.count),
            change.offer.provider,
            change.offer.instance_type.name,
            change.offer.zone or change.offer.region or "any",
            change.offer.purchase_option.replace("_", " "),
            f"{change.usd_per_month:+,.2f}",
        )
        for change in plan.changes
    ]
    columns = ("change", "count", "provider", "instance type", "region", "bought", "USD/month")
    return Table(title="Against what runs today", columns=columns, rows=rows, right=frozenset({"count", "USD/month"}))


def _totals(fleet: Fleet) -> str:
    price = fleet.usd_per_million_output_tokens
    tokens = "" if price is None else f", {price:,.2f} USD per million output tokens at that load"
    return (
        f"Total: {fleet.usd_per_hour:,.4f} USD/h, {fleet.usd_per_month:,.2f} USD/month, "
        f"{_accelerators(fleet)}, {fleet.requests_per_s:,.2f} requests/s{tokens}{_upfront(fleet)}"
    )


def _upfront(fleet: Fleet) -> str:
    paid = sum((item.upfront_usd for item in fleet.instances), Decimal(0))
    return f"; {paid:,.2f} USD of it upfront, spread over the term" if paid else ""


def _remedies(plan: Plan) -> Iterator[Table | str]:
    if plan.cheapest is not None:
        yield f"Cheapest feasible: {plan.cheapest.usd_per_month:,.2f} USD/month: {describe_fleet(plan.cheapest)}"
    if plan.suggestions:
        rows = [(s.flag, f"{s.usd_per_month:,.2f}", s.note) for s in plan.suggestions]
        columns = ("flag", "USD/month", "note")
        yield Table(title="Would make it fit", columns=columns, rows=rows, right=frozenset({"USD/month"}))
    if plan.rejections:
        left_out = [(reason, str(count)) for reason, count in plan.rejections.items()]
        yield Table(title="Left out", columns=("reason", "number"), rows=left_out, right=frozenset({"number"}))


def _alternatives(plan: Plan, *, everything: bool) -> Table:
    shown = list(plan.alternatives if everything else _worth_showing(plan))
    rows = [_alternative_row(plan, a) for a in shown]
    hidden = len(plan.alternatives) - len(shown)
    return _alternatives_table(f"Alternatives ({hidden} more with --all)" if hidden else "Alternatives", rows)


def _alternatives_table(title: str, rows: Sequence[tuple[str, ...]]) -> Table:
    columns = ("alternative", "choice", "requests/s", "USD/month", "difference", "instances", "note")
    return Table(title=title, columns=columns, rows=rows, right=frozenset({"requests/s", "USD/month", "difference"}))


def _worth_showing(plan: Plan) -> Iterator[Alternative]:
    """What fits, of the single accelerators only the best few; every provider, since a buyer asks for each."""
    fitting = [a for a in plan.alternatives if a.fleet is not None and a.within_budget]
    single = [a for a in fitting if a.kind == "accelerator"]
    single.sort(key=lambda a: (rank_key(a.fleet, plan.objective), a.name) if a.fleet else ((0.0, Decimal(0)), a.name))
    best = {a.name for a in single[:_ACCELERATORS_SHOWN]}
    for alternative in plan.alternatives:
        if alternative.kind == "provider" or (
            alternative in fitting and (alternative.kind != "accelerator" or alternative.name in best)
        ):
            yield alternative


def _alternative_row(plan: Plan, alternative: Alternative) -> tuple[str, ...]:
    fleet = alternative.fleet
    kind = _KIND_TITLES[alternative.kind]
    if fleet is None:
        return (kind, alternative.name, "-", "-", "-", "does not fit", alternative.note)
    note = alternative.note if alternative.within_budget else "; ".join(filter(None, ["over budget", alternative.note]))
    difference = "" if plan.fleet is None else _difference(plan, plan.fleet, fleet)
    return (
        kind,
        alternative.name,
        f"{fleet.requests_per_s:.2f}",
        f"{fleet.usd_per_month:,.2f}",
        difference,
        describe_fleet(fleet),
        note,
    )


def _difference(plan: Plan, chosen: Fleet, other: Fleet) -> str:
    if chosen.served != other.served:
        return "other workloads"
    if plan.objective == "max_throughput":
        more = other.requests_per_s / chosen.requests_per_s - 1 if chosen.requests_per_s else 0.0
        return f"{more:+.1%} requests/s" if abs(more) >= _VISIBLE_SHARE else "as many requests/s"
    return f"{other.usd_per_month - chosen.usd_per_month:+,.2f} USD"


def _footer(plan: Plan) -> str:
    prices = plan.prices
    parts = [f"Prices of {prices.as_of_oldest or '?'} to {prices.as_of_newest or '?'}"]
    parts.append(f"{prices.offers_considered:,} offers considered, {prices.offers_eligible:,} pass the filters")
    if prices.stale:
        parts.append(
            f"{prices.stale:,} of those are older than {prices.max_age_days} days or undated: check before buying"
        )
    return "; ".join(parts)


def _accelerators(fleet: Fleet) -> str:
    return "1 accelerator" if fleet.accelerators == 1 else f"{fleet.accelerators:,} accelerators"
