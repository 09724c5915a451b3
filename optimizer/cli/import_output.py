"""Turns the answers of `costopt import` into tables, JSON, CSV or Markdown."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from optimizer.api.json_text import json_text
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.interop.answers.answer import UTILIZATION, Answer, Option
from optimizer.interop.answers.training import SizedJob
from optimizer.interop.asks import Fault, TrainingAsk
from optimizer.plans.document import offer_document
from optimizer.plans.plan import Fleet
from optimizer.plans.training_cost import START_HOURS
from optimizer.plans.training_plan import ClusterChoice
from optimizer.sizing.document import number
from optimizer.sizing.training.calibration import MEMORY
from providers.offers import Offer

if TYPE_CHECKING:
    from optimizer.cli.import_files import Asked
    from optimizer.workload.traces import Trace, TraceSummary

SCHEMA: Final = "costopt.import"
SCHEMA_VERSION: Final = "1.0"
_CENT: Final = Decimal("0.01")
_LIMITS: Final = (4096, 8192, 16384, 32768, 131072)
"""Context limits that the share of longer requests is told for."""

_MICRO: Final = Decimal("0.000001")
_COLUMNS: Final = ("service", "accelerators", "verdict", "USD/month", "requests/s", "bought as", "price of")
_JOB_COLUMNS: Final = (
    *("job", "accelerators", "verdict", "GiB/GPU", "tokens/s", "hours", "USD in all", "USD/M tokens", "bought as"),
    "price of",
)


def render(file: str, answers: Sequence[Answer], asked: "Asked", format_: str) -> str:
    """The answers in one of the formats."""
    document = import_document(file, answers, asked)
    if format_ == "json":
        return json_text(document)
    if format_ == "csv":
        return _csv(answers)
    parts = list(_parts(file, answers, document["assumptions"]))
    return terminal(parts) if format_ == "table" else markdown(parts)


def _csv(answers: Sequence[Answer]) -> str:
    """A row for each option: of services, or of training jobs where the file has nothing else."""
    if all(answer.ask.training is not None for answer in answers):
        return csv_text(_JOB_COLUMNS, [row for answer in answers for row in _job_rows(answer)])
    return csv_text(_COLUMNS, [row for answer in answers for row in _rows(answer)])


def import_document(file: str, answers: Sequence[Answer], asked: "Asked") -> dict[str, Any]:
    """The document's keys are those of schema version 1.0; money is decimal strings."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "kind": "launch",
        "file": file,
        "works": any(answer.works for answer in answers),
        "services": [_answer(answer) for answer in answers],
        "assumptions": list(_assumptions(answers, asked)),
    }


def _assumptions(answers: Sequence[Answer], asked: "Asked") -> Iterator[str]:
    if any(answer.ask.training is None for answer in answers):
        yield f"requests of {asked.shape.input_tokens}+{asked.shape.output_tokens} tokens (input + output)"
        yield f"time to first token at most {asked.slo.ttft_ms:g} ms, per output token {asked.slo.tpot_ms:g} ms"
        yield "weights as the flags or the checkpoint have them; engine vllm where the file names none"
        yield (
            f"what would be cheaper serves {UTILIZATION:.0%} of what the cheapest option can, on demand, or spot where "
            "the file takes it; in the format that the file says, else the checkpoint's or FP8"
        )
    if any(answer.ask.training is not None for answer in answers):
        yield "what would be cheaper trains the same in no more time, its layout left open"
        yield "hours include what restarts and evaluation take of a long run; they need tokens or steps, or --tokens"
    yield "every figure of speed and memory is an estimate; prices are list prices without tax, storage and egress"


def render_log(trace: "Trace", context_tokens: int | None, file: str, written: str | None, format_: str) -> str:
    """Statistics of a request log in one of the formats; `written` is the CSV that was made of it."""
    from optimizer.workload.traces import summarize

    summary = summarize(trace)
    figures = _log_figures(trace, summary, context_tokens)
    next_command = f"costopt plan --model NAME --trace {shlex.quote(written or 'FILE.csv')}"
    if format_ == "json":
        document = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "kind": "log", "file": file}
        return json_text({**document, "trace": figures, "next_command": next_command if written else None})
    rows = [(key.replace("_", " "), _plain(value)) for key, value in figures.items() if not isinstance(value, dict)]
    rows += [(f"share over {limit} tokens", f"{share:.2%}") for limit, share in figures["share_over_tokens"].items()]
    rows += [(f"left out: {reason}", f"{count:,}") for reason, count in summary.rejected.items()]
    if format_ == "csv":
        return csv_text(("what", "value"), rows)
    table = Table(title="Request log", columns=("what", "value"), rows=rows, right=frozenset({"value"}))
    parts: list[Table | str] = [f"{file}: {summary.requests:,} requests", table]
    if summary.prefill_bound:
        parts.append(
            f"Prefill-bound: {summary.input_over_output:.0f} input tokens for each output token. Reading prompts rules "
            "the cost: size by input tokens and TTFT, not by output tokens."
        )
    peak = summary.peak_minute_requests_per_s / summary.mean_requests_per_s
    parts.append(f"The busiest minute has {peak:.1f} times the mean rate.")
    write = "" if written else f"`costopt import {shlex.quote(file)} --trace-out FILE.csv` writes the trace; then "
    parts.append(f"Next: {write}`{next_command}`")
    return terminal(parts) if format_ == "table" else markdown(parts)


def _log_figures(trace: "Trace", summary: "TraceSummary", context_tokens: int | None) -> dict[str, Any]:
    from optimizer.workload.traces import share_over

    limits = _LIMITS if context_tokens is None else sorted({*_LIMITS, context_tokens})
    values = {key: value for key, value in asdict(summary).items() if key != "rejected"}
    return {
        **{key: number(value) if isinstance(value, float) else value for key, value in values.items()},
        "prefill_bound": summary.prefill_bound,
        "requests_in_30_days": number(summary.requests_in_30_days),
        "input_tokens_in_30_days": number(summary.input_tokens_in_30_days),
        "output_tokens_in_30_days": number(summary.output_tokens_in_30_days),
        "context_tokens": context_tokens,
        "share_over_context": None if context_tokens is None else number(share_over(trace, context_tokens)),
        "share_over_tokens": {str(limit): number(share_over(trace, limit)) for limit in limits},
        "rejected": dict(summary.rejected),
    }


def _plain(value: object) -> str:
    if value is None:
        return "not asked"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


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
        "training": None if ask.training is None else _training(ask.training),
        "options": [_option(option) for option in answer.options],
        "faults": [fault_document(fault) for fault in answer.faults],
        "cheapest_option": None if best is None else answer.options.index(best),
        "cheaper": None if answer.cheaper is None else _fleet(answer.cheaper, best),
        "cheaper_cluster": None if answer.cheaper_cluster is None else _cluster(answer, answer.cheaper_cluster),
    }


def _training(training: TrainingAsk) -> dict[str, Any]:
    """What the file says of the training, null where it does not."""
    said = asdict(training)
    return {**said, "offload": sorted(training.offload)}


def _job(job: SizedJob, usd_per_hour: Decimal | None) -> dict[str, Any]:
    setup, memory = job.estimate.setup, job.estimate.memory
    layout = setup.layout
    price = None if usd_per_hour is None else job.usd_per_million_tokens(usd_per_hour)
    return {
        "task": setup.task,
        "precision": setup.precision,
        "optimizer": setup.optimizer,
        "stack": setup.stack,
        "seq_len": setup.seq_len,
        "micro_batch": setup.micro_batch,
        "global_batch_tokens": round(setup.global_batch_tokens),
        "zero_stage": setup.zero_stage,
        "recompute": setup.recompute,
        "tensor_parallel": layout.tp,
        "pipeline_parallel": layout.pp,
        "context_parallel": layout.cp,
        "expert_parallel": layout.ep,
        "data_parallel": layout.dp,
        "memory_gib_per_gpu": number(memory.needed_gib),
        "memory_gib_per_gpu_low": number(memory.needed_gib / MEMORY.spread),
        "memory_gib_per_gpu_high": number(memory.needed_gib * MEMORY.spread),
        "usable_gib_per_gpu": number(memory.usable_gib),
        "dominant": memory.dominant,
        "tokens": number(job.tokens),
        "interrupted_share": number(job.interrupted),
        "tokens_per_s": number(job.tokens_per_s),
        "hours": number(job.hours),
        "usd_total": None if usd_per_hour is None else _cents(job.usd_total(usd_per_hour)),
        "usd_per_million_tokens": None if price is None else str(price.quantize(_MICRO)),
    }


def _cluster(answer: Answer, choice: ClusterChoice) -> dict[str, Any]:
    """The cluster that trains the same for the least; totals only where the run's tokens are known."""
    known = _tokens(answer) is not None
    return {
        "instance": offer_document(choice.offer),
        "count": choice.nodes,
        "hours": number(choice.hours) if known else None,
        "usd_per_hour": str(choice.usd_per_hour),
        "usd_total": _cents(choice.usd_compute) if known else None,
        "usd_per_million_tokens": str(_per_million(choice).quantize(_MICRO)),
        "tokens_per_s": number(choice.estimate.tokens_per_s),
    }


def _per_million(choice: ClusterChoice) -> Decimal:
    """Compute alone, interruptions and checkpoints of spot included, the start left out as for the file's own."""
    stretched = choice.hours / (choice.estimate.hours + START_HOURS)
    return choice.usd_per_hour * Decimal(repr(choice.estimate.hours * stretched / choice.estimate.tokens * 1e6))


def _tokens(answer: Answer) -> float | None:
    return next((option.job.tokens for option in answer.options if option.job is not None), None)


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
        "training": None if option.job is None else _job(option.job, option.usd_per_hour),
        "faults": [fault_document(fault) for fault in option.faults],
    }


def fault_document(fault: Fault) -> dict[str, Any]:
    """A fault with its line, where it has one, and what would be right."""
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
    unknown = sum(
        not answer.works and answer.model is None and not any(fault.fatal for fault in answer.every_fault)
        for answer in answers
    )
    not_known = f"; of {unknown} it is not known" if unknown else ""
    yield f"{file}: {working} of {len(answers)} can work (estimate){not_known}"
    services = [answer for answer in answers if answer.ask.training is None]
    jobs = [answer for answer in answers if answer.ask.training is not None]
    rows = [row for answer in services for row in _rows(answer)]
    if rows:
        yield Table(title="What it asks for", columns=_COLUMNS, rows=rows, right=frozenset({"USD/month", "requests/s"}))
    rows = [row for answer in jobs for row in _job_rows(answer)]
    if rows:
        right = frozenset({"GiB/GPU", "tokens/s", "hours", "USD in all", "USD/M tokens"})
        yield Table(title="What it trains on", columns=_JOB_COLUMNS, rows=rows, right=right)
    for answer in answers:
        if answer.every_fault:
            yield f"{answer.ask.name}:\n" + "\n".join(
                f"  - {'' if fault.fatal else 'note: '}{fault}" for fault in answer.every_fault
            )
        yield from _cheaper(answer)
        yield from _cheaper_training(answer)
    yield "Assumed:\n" + "\n".join(f"  - {line}" for line in assumptions)


def _rows(answer: Answer) -> Iterator[tuple[str, ...]]:
    for option in answer.options:
        yield (
            answer.ask.name,
            _asked(answer, option),
            _verdict(answer, option),
            "not known" if option.usd_per_month is None else f"{option.usd_per_month:,.2f}",
            "" if option.requests_per_s is None else f"{option.requests_per_s:,.2f}",
            *_bought(option),
        )


def _job_rows(answer: Answer) -> Iterator[tuple[str, ...]]:
    for option in answer.options:
        job, hourly = option.job, option.usd_per_hour
        total = None if job is None or hourly is None else job.usd_total(hourly)
        price = None if job is None or hourly is None else job.usd_per_million_tokens(hourly)
        yield (
            answer.ask.name,
            _asked(answer, option),
            _verdict(answer, option),
            "" if job is None else f"{job.estimate.memory.needed_gib:,.1f}",
            "" if job is None or job.tokens_per_s is None else f"{job.tokens_per_s:,.0f}",
            "" if job is None or job.hours is None else f"{job.hours:,.1f}",
            "" if total is None else f"{total:,.2f}",
            "" if price is None else f"{price:,.3f}",
            *_bought(option),
        )


def _asked(answer: Answer, option: Option) -> str:
    machines = answer.ask.nodes * answer.ask.replicas
    return f"{machines} x {option.wish.count} x {option.wish.accelerator.name}"


def _verdict(answer: Answer, option: Option) -> str:
    if option.verdict is None:
        return "not sized"
    if option.verdict != "does_not_fit" and (answer.is_stopped or not option.works):
        return f"{option.verdict}, but see below"
    return option.verdict.replace("_", " ")


def _bought(option: Option) -> tuple[str, str]:
    """The instances that run, and the day of their price."""
    offer = option.offer
    if offer is None:
        return "", ""
    return f"{option.machines} x {_place(offer)}", str(offer.observed_on or "no date")


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


def _cheaper_training(answer: Answer) -> Iterator[str]:
    choice, best = answer.cheaper_cluster, answer.cheapest
    if choice is None:
        return
    bought = f"{choice.nodes} x {_place(choice.offer)} ({choice.offer.purchase_option.replace('_', ' ')})"
    price = _per_million(choice)
    setup = choice.estimate.setup
    bought += f", micro-batch {setup.micro_batch}, ZeRO {setup.zero_stage}, recomputation {setup.recompute}"
    whole = f", {choice.usd_compute:,.2f} USD in {choice.hours:,.1f} h" if _tokens(answer) is not None else ""
    if best is None or best.effort is None:
        yield f"{answer.ask.name}: cheapest that trains it: {bought}, {price:,.3f} USD per million tokens{whole}"
    elif price >= best.effort:
        yield f"{answer.ask.name}: nothing on file trains the same as fast for less"
    else:
        yield (
            f"{answer.ask.name}: {price:,.3f} instead of {best.effort:,.3f} USD per million tokens "
            f"({1 - price / best.effort:.0%} less), as fast: {bought}{whole}"
        )


def _place(offer: Offer) -> str:
    """Seller, instance type and, where there is one, region."""
    return " ".join(part for part in (offer.provider, offer.instance_type.name, offer.region) if part)


def _cents(value: Decimal | None) -> str | None:
    return None if value is None else str(value.quantize(_CENT))
