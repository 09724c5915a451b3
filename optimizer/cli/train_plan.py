"""Turns the flags of `costopt plan` for a training task into the plan of the runs and its printed form."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from optimizer.cli import choices, market_view, train_options, train_plan_output, values
from optimizer.cli.plan_flags import PlanFlags
from optimizer.cli.settings import now
from optimizer.cli.streams import say, write_result
from optimizer.cli.workloads import read_text
from optimizer.plans.training import plan_training
from optimizer.plans.training_cost import CHECKPOINTS_KEPT, START_HOURS, STORAGE_USD_PER_GB_MONTH
from optimizer.plans.training_plan import TrainingPlan, TrainingRequest
from optimizer.program.problem import Quota, SolverOptions
from optimizer.sizing.training.calibration import TIME, is_calibrated, stack_named, time_margin
from optimizer.sizing.training.layouts import check_run, stack_of
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun
from providers.errors import UsageError
from providers.offers import PurchaseOption


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingQuestion:
    """What is asked beside the jobs: money, limits, market, solver, and now."""

    flags: train_options.TrainingFlags
    jobs_file: str | None
    budget_usd: Decimal | None
    max_gpus: int | None
    view: market_view.MarketView
    max_age_days: int
    confidence: float | None
    quotas: Sequence[Quota]
    solver_options: SolverOptions
    now: datetime


def run(flags: PlanFlags, task: str) -> int:
    """Plans the run or the jobs of the flags, prints, and gives the exit code."""
    format_ = flags.checked_format
    question = TrainingQuestion(
        flags=_training_flags(flags, task),
        jobs_file=flags.workload_file,
        budget_usd=flags.budget_usd,
        max_gpus=flags.max_gpus,
        view=flags.market,
        max_age_days=flags.max_age_days,
        confidence=choices.confidence(flags.confidence),
        quotas=market_view.quotas(flags.quota),
        solver_options=flags.solver_options,
        now=now(),
    )
    flags.refresh_first()
    runs = plan_jobs(question)
    runs = runs if flags.timing else replace(runs, timing_s={})
    text = train_plan_output.render(runs, format_, explained=flags.explain, everything=flags.show_all)
    write_result(text, flags.output)
    say(train_plan_output.remarks(runs, format_), quiet=flags.quiet)
    if flags.export:
        from optimizer.cli.export_files import write_exports
        from optimizer.plans.training_document import training_plan_document

        say(write_exports(training_plan_document(runs), flags.output, flags.export), quiet=flags.quiet)
    return flags.exit_code(runs.solution.status)


def plan_jobs(question: TrainingQuestion) -> TrainingPlan:
    """The plan for the flags' run, or for all jobs of a file. Raises UsageError, NoUsablePrices."""
    runs, earliest = _runs(question)
    for run, model in runs:
        check_run(run, model, run.tp or 1)
    offers = market_view.load(question.view, calibrated=is_calibrated)
    request = TrainingRequest(
        jobs=runs,
        offers=offers.eligible,
        offers_on_file=len(offers.all_on_file),
        rejections=offers.rejections,
        today=question.now.date(),
        budget_usd=question.budget_usd,
        max_accelerators=question.max_gpus,
        earliest_hours=earliest,
        max_age_days=question.max_age_days,
        margin=1.0 if question.confidence is None else time_margin(question.confidence),
        quotas=question.quotas,
        solver_options=question.solver_options,
        pools=offers.pools,
        assumptions=(*_assumptions(runs, question), *offers.remarks),
        warnings=offers.warnings,
    )
    return plan_training(request)


def _runs(
    question: TrainingQuestion,
) -> tuple[tuple[tuple[TrainingRun, Architecture], ...], Mapping[str, float]]:
    """The runs with their models, and from which hour on each can start."""
    if question.jobs_file is None:
        if not question.flags.model:
            raise UsageError("no model: give --model, like --model 7B, or --workload FILE with jobs")
        run = train_options.training_run(question.flags, now=question.now, needs_tokens=True)
        return ((run, choices.architecture(question.flags.model)),), {}
    from optimizer.workload.jobs_file import parse_jobs
    from optimizer.workload.workload_file import MAX_BYTES

    if question.flags.model or question.flags.tokens:
        raise UsageError("--workload replaces --model and --tokens: give them in the file")
    found, earliest = [], {}
    path = question.jobs_file
    for job in parse_jobs(read_text(path, "jobs file", MAX_BYTES), path):
        given = job.model_dump(exclude={"name", "earliest"})
        given["deadline"] = job.deadline or question.flags.deadline
        try:
            flags = train_options.TrainingFlags(**given)
            run = train_options.training_run(flags, now=question.now, needs_tokens=True)
            found.append((replace(run, name=job.name), choices.architecture(job.model)))
            earliest[job.name] = 0.0 if job.earliest is None else values.duration_hours("earliest", job.earliest)
        except UsageError as error:
            raise UsageError(f"{path}: job {job.name!r}: {error}") from None
    return tuple(found), earliest


def _training_flags(flags: PlanFlags, task: str) -> train_options.TrainingFlags:
    return train_options.TrainingFlags(
        model=flags.model or "",
        task=task,
        tokens=flags.tokens,
        seq_len=flags.seq_len,
        deadline=flags.deadline,
        global_batch_tokens=flags.global_batch_tokens,
        optimizer=flags.optimizer,
        master_weights=flags.master_weights,
        zero_stage=flags.zero_stage,
        lora_rank=flags.lora_rank,
        micro_batch=flags.micro_batch,
        recompute=flags.recompute,
        offload=flags.offload,
        stack=flags.stack,
        precision=train_options.precision_of(flags.precision),
    )


def _assumptions(runs: Sequence[tuple[TrainingRun, Architecture]], question: TrainingQuestion) -> Iterator[str]:
    for run, model in runs:
        yield f"{run.name}: {run.model} is {model.hf_id} ({model.params_total / 1e9:.2f} B parameters)"
        yield from (f"{run.name}: {line}" for line in run.assumptions)
        on_tpus = "; XLA on TPUs" if run.stack is None else ""
        yield f"{run.name}: software {stack_named(stack_of(run)).label} (--stack){on_tpus}"
    yield f"restarts, checkpoints and evaluation take {1 - TIME.goodput:.0%} of a run; {START_HOURS:g} h to start it"
    yield "several machines only where the seller documents a network between them; one kind in one region"
    prices = ", ".join(f"{provider} {usd}" for provider, usd in STORAGE_USD_PER_GB_MONTH.items())
    yield f"data (4 bytes a token) and {CHECKPOINTS_KEPT} checkpoints are stored meanwhile, USD per GB-month: {prices}"
    if question.quotas and len(runs) > 1:
        yield "quotas bound each job by itself, not jobs that run at the same time (--max-gpus does)"
    if question.confidence is not None:
        yield f"deadline and budget hold at the careful end of the {question.confidence:.0%} interval of the hours"
    if PurchaseOption.SPOT in question.view.purchase_options:
        yield "spot: published interruption rates (AWS), else 20 % of instances a month; checkpoints after Young (1974)"
    if PurchaseOption.CAPACITY_BLOCK in question.view.purchase_options:
        yield "a capacity block is paid by whole days"
    if any(option.is_reserved for option in question.view.purchase_options):
        yield "a reservation is paid to the end of its term"
    yield "prices are list prices without tax, egress and support; every figure is an estimate with an 80 % interval"
