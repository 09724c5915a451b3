"""Turns the answers of `costopt import` into tables, JSON, CSV or Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from optimizer.api.choices import json_text
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.interop.answer import UTILIZATION, Answer, Option
from optimizer.interop.asks import Fault
from optimizer.plans.document import offer_document
from optimizer.plans.plan import Fleet
from optimizer.sizing.document import number
from providers.offers import Offer

if TYPE_CHECKING:
    from optimizer.cli.import_files import Asked
    from optimizer.workload.traces import TraceSummary

SCHEMA: Final = "costopt.import"
SCHEMA_VERSION: Final = "1.0"
_CENT: Final = Decimal("0.01")
_COLUMNS: Final = ("service", "accelerators", "verdict", "USD/month", "requests/s", "bought as", "price of")


def render(file: str, answers: Sequence[Answer], asked: "Asked", format_: str) -> str:
    """The answers in one of the formats."""
    document = import_document(file, answers, asked)
    if format_ == "json":
        return json_text(document)
    if format_ == "csv":
        return csv_text(_COLUMNS, [row for answer in answers for row in _rows(answer)])
    parts = list(_parts(file, answers, document["assumptions"]))
    return terminal(parts) if format_ == "table" else markdown(parts)


def import_document(file: str, answers: Sequence[Answer], asked: "Asked") -> dict[str, Any]:
    """The document's keys are those of schema version 1.0; money is decimal strings."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "file": file,
        "works": any(answer.works for answer in answers),
        "services": [_answer(answer) for answer in answers],
        "assumptions": [
            f"requests of {asked.shape.input_tokens}+{asked.shape.output_tokens} tokens (input + output)",
            f"time to first token at most {asked.slo.ttft_ms:g} ms, per output token {asked.slo.tpot_ms:g} ms",
            "weights as the flags or the checkpoint have them; engine vllm where the file names none",
            f"what would be cheaper serves {UTILIZATION:.0%} of what the cheapest option can, on demand",
            "every figure of speed and memory is an estimate; prices are list prices without tax, storage and egress",
        ],
    }


def render_log(summary: "TraceSummary", format_: str) -> str:
    """Statistics of a request log in one of the formats."""
    values = {key: value for key, value in asdict(summary).items() if key != "rejected"}
    figures = {key: number(value) if isinstance(value, float) else value for key, value in values.items()}
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "trace": {**figures, "prefill_bound": summary.prefill_bound, "rejected": dict(summary.rejected)},
    }
    if format_ == "json":
        return json_text(document)
    rows = [(key.replace("_", " "), f"{value:,}") for key, value in figures.items()]
    rows += [(f"left out: {reason}", f"{count:,}") for reason, count in summary.rejected.items()]
    if format_ == "csv":
        return csv_text(("what", "value"), rows)
    table = Table(title="Request log", columns=("what", "value"), rows=rows, right=frozenset({"value"}))
    hint = "`costopt plan --model NAME --trace FILE.csv` plans for it."
    return terminal([table, hint]) if format_ == "table" else markdown([table, hint])


def _answer(answer: Answer) -> dict[str, Any]:
    ask = answer.ask
    best = answer.cheapest
    return {
        "source": ask.source,
        "name": ask.name,
        "works": answer.works,
        "model": answer.model.hf_id if answer.model else ask.model,
        "nodes": ask.nodes,
        "replicas": ask.replicas,
        "tensor_parallel": ask.tensor_parallel,
        "pipeline_parallel": ask.pipeline_parallel,
        "data_parallel": ask.data_parallel,
        "context_tokens": ask.context_tokens,
        "precision": ask.precision,
        "provider": ask.provider,
        "region": ask.region,
        "instance_type": ask.instance_type,
        "spot": ask.spot,
        "options": [_option(option) for option in answer.options],
        "faults": [_fault(fault) for fault in answer.faults],
        "cheapest_option": None if best is None else answer.options.index(best),
        "cheaper": None if answer.cheaper is None else _fleet(answer.cheaper, best),
    }


def _option(option: Option) -> dict[str, Any]:
    sized = option.sized
    return {
        "named": option.wish.named,
        "line": option.wish.line,
        "accelerator": option.wish.accelerator.name,
        "accelerator_count": option.wish.count,
        "verdict": option.verdict,
        "works": option.works,
        "precision": None if sized is None else sized.precision,
        "tensor_parallel": None if sized is None else sized.layout.tp,
        "pipeline_parallel": None if sized is None else sized.layout.pp,
        "min_gpus": None if sized is None else sized.min_gpus,
        "max_concurrency": None if sized is None else sized.max_concurrency,
        "requests_per_s": number(option.requests_per_s),
        "instance": None if option.offer is None else offer_document(option.offer),
        "count": option.machines,
        "usd_per_hour": None if option.usd_per_hour is None else str(option.usd_per_hour),
        "usd_per_month": _cents(option.usd_per_month),
        "faults": [_fault(fault) for fault in option.faults],
    }


def _fault(fault: Fault) -> dict[str, Any]:
    return {"line": fault.line, "fault": fault.what, "fix": fault.fix, "fatal": fault.fatal}


def _fleet(fleet: Fleet, best: Option | None) -> dict[str, Any]:
    saving = None if best is None or best.usd_per_month is None else best.usd_per_month - fleet.usd_per_month
    return {
        "usd_per_month": _cents(fleet.usd_per_month),
        "saving_usd_per_month": _cents(saving),
        "requests_per_s": number(fleet.requests_per_s),
        "instances": [{**offer_document(item.offer), "count": item.count} for item in fleet.instances],
    }


def _parts(file: str, answers: Sequence[Answer], assumptions: Sequence[str]) -> Iterator[Table | str]:
    working = sum(answer.works for answer in answers)
    yield f"{file}: {working} of {len(answers)} can work (estimate)"
    rows = [row for answer in answers for row in _rows(answer)]
    if rows:
        yield Table(title="What it asks for", columns=_COLUMNS, rows=rows, right=frozenset({"USD/month", "requests/s"}))
    for answer in answers:
        faults = dict.fromkeys([*answer.faults, *(fault for option in answer.options for fault in option.faults)])
        if faults:
            yield f"{answer.ask.name}:\n" + "\n".join(
                f"  - {'' if fault.fatal else 'note: '}{fault}" for fault in faults
            )
        yield from _cheaper(answer)
    yield "Assumed:\n" + "\n".join(f"  - {line}" for line in assumptions)


def _rows(answer: Answer) -> Iterator[tuple[str, ...]]:
    for option in answer.options:
        offer = option.offer
        machines = answer.ask.nodes * answer.ask.replicas
        verdict = "not sized" if option.verdict is None else option.verdict.replace("_", " ")
        yield (
            answer.ask.name,
            f"{machines} x {option.wish.count} x {option.wish.accelerator.name}",
            verdict if option.works or option.verdict != "fits" else "fits, but see below",
            "not known" if option.usd_per_month is None else f"{option.usd_per_month:,.2f}",
            "" if option.requests_per_s is None else f"{option.requests_per_s:,.2f}",
            "" if offer is None else f"{option.machines} x {_place(offer)}",
            "" if offer is None else str(offer.observed_on or "no date"),
        )


def _cheaper(answer: Answer) -> Iterator[str]:
    fleet, best = answer.cheaper, answer.cheapest
    if fleet is None:
        return
    bought = ", ".join(f"{item.count} x {_place(item.offer)}" for item in fleet.instances)
    if best is None or best.usd_per_month is None:
        yield f"{answer.ask.name}: cheapest that runs it: {bought}, {fleet.usd_per_month:,.2f} USD a month"
        return
    saving = best.usd_per_month - fleet.usd_per_month
    if saving < _CENT:
        yield f"{answer.ask.name}: nothing on file serves the same for less than {best.usd_per_month:,.2f} USD a month"
        return
    share = saving / best.usd_per_month
    yield (
        f"{answer.ask.name}: {fleet.requests_per_s:,.2f} requests/s for {fleet.usd_per_month:,.2f} instead of "
        f"{best.usd_per_month:,.2f} USD a month ({share:.0%} less): {bought}"
    )


def _place(offer: Offer) -> str:
    """Seller, instance type and, where there is one, region."""
    return " ".join(part for part in (offer.provider, offer.instance_type.name, offer.region) if part)


def _cents(value: Decimal | None) -> str | None:
    return None if value is None else str(value.quantize(_CENT))
