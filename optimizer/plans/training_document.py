"""Turns a training plan into the JSON document `costopt.plan` and into the lines that explain it."""

from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

from optimizer.plans.claims import corrections
from optimizer.plans.document import SCHEMA, SCHEMA_VERSION, offer_document
from optimizer.plans.training_cost import (
    CHECKPOINTS_KEPT,
    START_HOURS,
    checkpoint_bytes,
    checkpoint_interval,
    stored_gb,
)
from optimizer.plans.training_plan import ClusterChoice, PlannedJob, TrainingAlternative, TrainingPlan
from optimizer.sizing.document import number
from optimizer.sizing.training.calibration import TIME, TIME_SPREAD
from optimizer.sizing.training.time import multiplied_parameters
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun
from providers.networks import network_of

_CENT: Final = Decimal("0.01")


def training_plan_document(plan: TrainingPlan) -> dict[str, Any]:
    """The document's keys are those of schema version 1.0, with `jobs`, `trade_off` and `fastest` for training.

    `totals.hours` is from now to the end of the last job; `usd_total_low` and `_high` are at the ends of the 80 %
    interval of the hours.
    """
    request, prices = plan.request, plan.prices
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "status": plan.solution.status,
        "objective": request.objective,
        "prices": {
            "as_of_oldest": prices.as_of_oldest.isoformat() if prices.as_of_oldest else None,
            "as_of_newest": prices.as_of_newest.isoformat() if prices.as_of_newest else None,
            "offers_considered": prices.offers_considered,
            "offers_eligible": prices.offers_eligible,
            "undated": prices.undated,
            "stale": prices.stale,
            "max_age_days": prices.max_age_days,
        },
        "workloads": [_workload(run, model) for run, model in request.jobs],
        "budget_usd": None if request.budget_usd is None else _cents(request.budget_usd),
        "instances": [_instances(job.choice) for job in plan.jobs],
        "replicas": [],
        "jobs": [_job(job) for job in plan.jobs],
        "totals": _totals(plan) if plan.jobs else None,
        "proof": _proof(plan),
        "cheapest": None if plan.cheapest is None else brief(plan.cheapest),
        "fastest": None if plan.fastest is None else brief(plan.fastest),
        "runner_up": None if plan.runner_up is None else _alternative(plan, plan.runner_up),
        "trade_off": [brief(choice) for choice in plan.trade_off],
        "alternatives": [_alternative(plan, alternative) for alternative in plan.alternatives],
        "rejections": dict(plan.rejections),
        "assumptions": list(plan.assumptions),
        "warnings": list(plan.warnings),
    }
    if plan.timing_s:
        document["timing"] = {key: number(value) for key, value in plan.timing_s.items()}
    if not plan.jobs:
        document["shortfalls"] = [
            {"limit": s.limit, "needed": number(s.needed), "available": number(s.available), "unit": s.unit}
            for s in plan.shortfalls
        ]
        document["suggestions"] = [
            {"flag": s.flag, "usd_total": _cents(s.usd_total), "hours": number(s.hours), "note": s.note}
            for s in plan.suggestions
        ]
    return document


def brief(choice: ClusterChoice) -> dict[str, Any]:
    """A cluster in one line of figures."""
    kind = choice.offer.instance_type
    layout = choice.estimate.setup.layout
    return {
        "provider": kind.provider,
        "instance_type": kind.name,
        "region": choice.offer.region,
        "purchase_option": choice.offer.purchase_option.value,
        "accelerator": kind.accelerator,
        "gpus": choice.accelerators,
        "count": choice.nodes,
        "precision": choice.estimate.setup.precision,
        "layout": str(layout),
        "hours": number(choice.hours),
        "hours_low": number(choice.hours_low),
        "hours_high": number(choice.hours_high),
        "usd_total": _cents(choice.usd_total),
        "usd_total_low": _cents(choice.usd_at(1 / TIME_SPREAD)),
        "usd_total_high": _cents(choice.usd_at(TIME_SPREAD)),
    }


def _workload(run: TrainingRun, model: Architecture) -> dict[str, Any]:
    return {
        "name": run.name,
        "model": model.hf_id,
        "parameters": round(model.params_total),
        "task": run.task,
        "tokens": number(run.tokens, digits=12),
        "seq_len": run.seq_len,
        "global_batch_tokens": run.global_batch_tokens,
        "optimizer": run.optimizer,
        "precision": run.precision,
        "deadline_hours": number(run.deadline_hours),
        "lora_rank": run.lora_rank if run.is_adapter else None,
        "lora_experts": run.lora_experts if run.is_adapter and model.is_moe else None,
    }


def _instances(choice: ClusterChoice) -> dict[str, Any]:
    return {
        **offer_document(choice.offer),
        "workload": choice.run.name,
        "count": choice.nodes,
        "total_usd_per_hour": str(choice.usd_per_hour),
    }


def _job(job: PlannedJob) -> dict[str, Any]:
    choice = job.choice
    setup, memory, step = choice.estimate.setup, choice.estimate.memory, choice.estimate.step
    network = network_of(choice.offer.provider, choice.offer.instance_type.name)
    layout = setup.layout
    return {
        **brief(choice),
        "workload": choice.run.name,
        "start_hours": number(job.start_hours),
        "end_hours": number(job.start_hours + choice.hours),
        "tensor_parallel": layout.tp,
        "pipeline_parallel": layout.pp,
        "context_parallel": layout.cp,
        "expert_parallel": layout.ep,
        "data_parallel": layout.dp,
        "zero_stage": setup.zero_stage,
        "micro_batch": setup.micro_batch,
        "global_batch_tokens": round(setup.global_batch_tokens),
        "gradient_accumulation": max(1, round(setup.micro_steps)),
        "optimizer": setup.optimizer,
        "master_weights": setup.mixed,
        "offload": sorted(setup.offload),
        "recompute": setup.recompute,
        "stack": setup.stack,
        "mfu": number(step.mfu, digits=4),
        "tokens_per_s": number(choice.tokens_per_s),
        "tokens_per_s_per_gpu": number(choice.tokens_per_s / choice.accelerators),
        "memory_gib_per_gpu": number(memory.needed_gib),
        "usable_gib_per_gpu": number(memory.usable_gib),
        "verdict": memory.verdict,
        "host_gib_per_node": number(memory.host_gib),
        "network_gbit_per_s": network.gbit_per_s if network and choice.nodes > 1 else None,
        "interruptions": number(choice.interruptions, digits=3),
        "checkpoint_interval_hours": number(_checkpoint_interval(choice)),
        "billed_hours": number(choice.billed_hours),
        "usd_compute": _cents(choice.usd_compute),
        "usd_storage": _cents(choice.usd_storage),
        "usd_per_billion_tokens": _cents(choice.usd_per_billion_tokens),
    }


def _checkpoint_interval(choice: ClusterChoice) -> float | None:
    """Hours between checkpoints that the hours of the plan count on; None where nothing interrupts the run."""
    rate = choice.interruption_rate
    if rate is None or not rate.per_hour:
        return None
    hosts = choice.nodes * choice.offer.instance_type.hosts
    return checkpoint_interval(checkpoint_bytes(choice.run, choice.model), hosts, rate.per_hour)


def _totals(plan: TrainingPlan) -> dict[str, Any]:
    choices = [job.choice for job in plan.jobs]
    tokens = sum(choice.run.tokens for choice in choices)
    return {
        "usd_total": _cents(plan.usd_total),
        "usd_total_low": _cents(sum((c.usd_at(1 / TIME_SPREAD) for c in choices), Decimal(0))),
        "usd_total_high": _cents(sum((c.usd_at(TIME_SPREAD) for c in choices), Decimal(0))),
        "hours": number(plan.hours),
        "hours_low": number(max(job.start_hours + job.choice.hours_low for job in plan.jobs)),
        "hours_high": number(max(job.start_hours + job.choice.hours_high for job in plan.jobs)),
        "tokens_per_s": number(sum(choice.tokens_per_s for choice in choices)),
        "gpus": sum(choice.accelerators for choice in choices),
        "gpu_hours": number(sum(choice.accelerators * choice.hours for choice in choices)),
        "usd_per_hour": str(sum((choice.usd_per_hour for choice in choices), Decimal(0))),
        "usd_per_billion_tokens": _cents(plan.usd_total / Decimal(repr(tokens)) * 10**9),
    }


def _proof(plan: TrainingPlan) -> dict[str, Any]:
    solution = plan.solution
    fastest = plan.request.objective == "min_time"
    bound = solution.bound
    return {
        "bound_hours" if fastest else "bound_usd_total": None
        if bound is None
        else number(bound)
        if fastest
        else _cents(Decimal(repr(bound))),
        "gap": number(solution.gap),
        "solver": solution.solver,
        "variables": solution.variables,
        "constraints": solution.constraints,
    }


def _alternative(plan: TrainingPlan, alternative: TrainingAlternative) -> dict[str, Any]:
    choice = alternative.choice
    chosen = plan.jobs[0].choice if plan.jobs else None
    return {
        "kind": alternative.kind,
        "name": alternative.name,
        "flag": alternative.flag,
        "feasible": choice is not None,
        "cluster": None if choice is None else brief(choice),
        "difference_usd": None if choice is None or chosen is None else _cents(choice.usd_total - chosen.usd_total),
        "difference_hours": None if choice is None or chosen is None else number(choice.hours - chosen.hours),
        "note": alternative.note,
    }


def explain_training(plan: TrainingPlan) -> list[str]:
    """The memory and the time of each job as arithmetic, why its cluster won, and claims that do not hold."""
    lines: list[str] = []
    for job in plan.jobs:
        lines += [*_memory_lines(job.choice), *_time_lines(job.choice), *_cost_lines(job.choice), ""]
    if plan.jobs and plan.runner_up is not None and plan.runner_up.choice is not None:
        lines += [*_against(plan, plan.runner_up.choice), ""]
    shown = plan.jobs[0].choice if plan.jobs else plan.fastest
    if shown is not None:
        lines.append("Claims often met, and wrong:")
        lines += [f"  - {correction}" for correction in corrections(shown.estimate)]
    return lines


def _memory_lines(choice: ClusterChoice) -> Iterator[str]:
    setup, memory = choice.estimate.setup, choice.estimate.memory
    parts = " + ".join(f"{value:.1f} {name}" for name, value in memory.parts)
    yield f"Job {choice.run.name}: {setup.model.hf_id}, {setup.model.params_total / 1e9:.2f} B parameters"
    yield (
        f"  layout    {setup.layout}, ZeRO {setup.zero_stage}, micro-batch {setup.micro_batch}, "
        f"recomputation {setup.recompute}"
    )
    yield f"  memory    {parts} = {memory.needed_gib:.1f} of {memory.usable_gib:.1f} GiB on each accelerator"


def _time_lines(choice: ClusterChoice) -> Iterator[str]:
    setup, step = choice.estimate.setup, choice.estimate.step
    passes = 4 if setup.is_adapter else 6
    flops = step.model_flops_per_token
    total = sum(seconds for _, seconds in step.parts)
    shares = ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in step.parts if seconds / total >= 0.005)
    yield (
        f"  FLOPs     {passes} x {multiplied_parameters(setup.model) / 1e9:.2f} B parameters that multiply "
        f"+ attention at {setup.seq_len:,} tokens = {flops / 1e9:,.1f} GFLOP a token"
    )
    yield (
        f"  speed     {step.tokens_per_s_per_accelerator:,.0f} tokens/s an accelerator = {step.mfu:.0%} of the dense "
        f"16-bit peak; a step of {step.tokens:,.0f} tokens takes {step.seconds:.2f} s: {shares}"
    )
    yield (
        f"  hours     {choice.run.tokens:,.0f} tokens / ({choice.accelerators} x "
        f"{step.tokens_per_s_per_accelerator:,.0f} tokens/s x {TIME.goodput:g} goodput) "
        f"= {choice.estimate.hours:,.1f} h, and {START_HOURS:g} h to start"
    )
    if choice.interruption_rate is not None:
        rate = choice.interruption_rate
        source = rate.source or "assumed: nothing is published for it"
        yield (
            f"  spot      {choice.interruptions:.1f} interruptions expected ({rate.monthly_share:.0%} of instances "
            f"a month, {source}); with checkpoints and restarts {choice.hours:,.1f} h"
        )


def _cost_lines(choice: ClusterChoice) -> Iterator[str]:
    gigabytes = stored_gb(choice.run, choice.model)
    yield (
        f"  cost      {choice.nodes} x {choice.offer.usd_per_hour:,.4f} USD/h x {choice.billed_hours:,.1f} h = "
        f"{choice.usd_compute:,.2f} USD; data and {CHECKPOINTS_KEPT} checkpoints ({gigabytes:,.0f} GB) "
        f"{choice.usd_storage:,.2f} USD; {choice.usd_per_billion_tokens:,.2f} USD per billion tokens"
    )


def _against(plan: TrainingPlan, rival: ClusterChoice) -> Iterator[str]:
    chosen = plan.jobs[0].choice
    yield f"Runner-up: {describe(rival)}"
    more, later = rival.usd_total - chosen.usd_total, rival.hours - chosen.hours
    yield (
        f"  {rival.usd_total:,.2f} USD and {rival.hours:,.1f} h: {more:+,.2f} USD, {later:+,.1f} h; "
        f"{rival.offer.usd_per_accelerator_hour:,.2f} against {chosen.offer.usd_per_accelerator_hour:,.2f} USD an "
        f"accelerator-hour, {rival.estimate.step.tokens_per_s_per_accelerator:,.0f} against "
        f"{chosen.estimate.step.tokens_per_s_per_accelerator:,.0f} tokens/s"
    )


def describe(choice: ClusterChoice) -> str:
    """The cluster in words: 4 x aws p5.48xlarge (32 x H100-SXM5-80GB), us-east-1, on demand."""
    kind = choice.offer.instance_type
    place = choice.offer.zone or choice.offer.region or "any region"
    bought = choice.offer.purchase_option.value.replace("_", " ")
    return (
        f"{choice.nodes} x {kind.provider} {kind.name} ({choice.accelerators} x {kind.accelerator}), {place}, {bought}"
    )


def _cents(value: Decimal) -> str:
    return str(value.quantize(_CENT, ROUND_HALF_UP))
