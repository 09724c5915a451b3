"""Turns what a plan for training is asked with into the plan of the runs, and that into its document."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from optimizer.api import choices, market_view, values
from optimizer.api.clock import now
from optimizer.api.plan_arguments import PlanArguments
from optimizer.api.sources import read_text
from optimizer.api.training_arguments import TrainingArguments, training_run
from optimizer.plans.training import plan_training
from optimizer.plans.training_cost import CHECKPOINTS_KEPT, START_HOURS, STORAGE_USD_PER_GB_MONTH
from optimizer.plans.training_document import explain_training, training_plan_document
from optimizer.plans.training_plan import TrainingPlan, TrainingRequest
from optimizer.program.problem import Quota
from optimizer.sizing.training.calibration import TIME, is_calibrated, stack_named, time_margin
from optimizer.sizing.training.layouts import check_run, stack_of
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun
from providers.errors import UsageError
from providers.offers import PurchaseOption

Jobs = tuple[tuple[TrainingRun, Architecture], ...]


def plan_runs(wanted: PlanArguments, task: str, *, refresh: Callable[[], None] | None = None) -> TrainingPlan:
    """The plan for one run, or for all jobs of a file; `refresh` is called before prices are read.

    Raises UsageError, NoUsablePrices.
    """
    moment = now()
    view, max_age_days, budget_usd = wanted.market, wanted.max_age_days, wanted.budget_usd
    confidence = choices.confidence(wanted.confidence)
    quotas = market_view.quotas(wanted.quota)
    solver_options = wanted.solver_options
    jobs, earliest = _jobs(wanted, task, moment)
    for run, model in jobs:
        check_run(run, model, run.tp or 1)
    if refresh is not None:
        refresh()
    offers = market_view.load(view, calibrated=is_calibrated)
    request = TrainingRequest(
        jobs=jobs,
        offers=offers.eligible,
        offers_on_file=len(offers.all_on_file),
        rejections=offers.rejections,
        today=moment.date(),
        budget_usd=budget_usd,
        max_accelerators=wanted.max_gpus,
        earliest_hours=earliest,
        max_age_days=max_age_days,
        margin=1.0 if confidence is None else time_margin(confidence),
        quotas=quotas,
        solver_options=solver_options,
        pools=offers.pools,
        assumptions=(*_assumptions(jobs, view, confidence, quotas), *offers.remarks),
        warnings=offers.warnings,
    )
    return plan_training(request)


def document_of(plan: TrainingPlan, *, explained: bool) -> dict[str, Any]:
    """The plan's document, with the explanation where it is asked for."""
    document = training_plan_document(plan)
    if explained:
        document["explanation"] = explain_training(plan)
    return document


def _jobs(wanted: PlanArguments, task: str, moment: datetime) -> tuple[Jobs, Mapping[str, float]]:
    """The runs with their models, and from which hour on each can start."""
    if isinstance(wanted.workload, tuple):
        raise UsageError("workloads as objects are for serving: give training jobs as a file, or its content")
    if wanted.workload is None:
        if not wanted.model:
            raise UsageError("no model: give --model, like --model 7B, or --workload FILE with jobs")
        said = TrainingArguments.of(wanted, model=wanted.model, task=task, precision=wanted.precision)
        run = training_run(said, now=moment, needs_tokens=True)
        return ((run, choices.architecture(wanted.model)),), {}
    from optimizer.workload.jobs_file import parse_jobs
    from optimizer.workload.workload_file import MAX_BYTES

    if wanted.model or wanted.tokens:
        raise UsageError("--workload replaces --model and --tokens: give them in the file")
    found, earliest = [], {}
    name = str(wanted.workload)
    for job in parse_jobs(read_text(wanted.workload, "jobs file", MAX_BYTES), name):
        given = job.model_dump(exclude={"name", "earliest"})
        given["deadline"] = job.deadline or wanted.deadline
        try:
            run = training_run(TrainingArguments(**given), now=moment, needs_tokens=True)
            found.append((replace(run, name=job.name), choices.architecture(job.model)))
            earliest[job.name] = 0.0 if job.earliest is None else values.duration_hours("earliest", job.earliest)
        except UsageError as error:
            raise UsageError(f"{name}: job {job.name!r}: {error}") from None
    return tuple(found), earliest


def _assumptions(
    jobs: Jobs, view: market_view.MarketView, confidence: float | None, quotas: Sequence[Quota]
) -> Iterator[str]:
    for run, model in jobs:
        yield f"{run.name}: {run.model} is {model.hf_id} ({model.params_total / 1e9:.2f} B parameters)"
        yield from (f"{run.name}: {line}" for line in run.assumptions)
        on_tpus = "; XLA on TPUs" if run.stack is None else ""
        yield f"{run.name}: software {stack_named(stack_of(run)).label} (--stack){on_tpus}"
    yield f"restarts, checkpoints and evaluation take {1 - TIME.goodput:.0%} of a run; {START_HOURS:g} h to start it"
    yield "several machines only where the seller documents a network between them; one kind in one region"
    prices = ", ".join(f"{provider} {usd}" for provider, usd in STORAGE_USD_PER_GB_MONTH.items())
    yield f"data (4 bytes a token) and {CHECKPOINTS_KEPT} checkpoints are stored meanwhile, USD per GB-month: {prices}"
    if quotas and len(jobs) > 1:
        yield "quotas bound each job by itself, not jobs that run at the same time (--max-gpus does)"
    if confidence is not None:
        yield f"deadline and budget hold at the careful end of the {confidence:.0%} interval of the hours"
    if PurchaseOption.SPOT in view.purchase_options:
        yield "spot: published interruption rates (AWS), else 20 % of instances a month; checkpoints after Young (1974)"
    if PurchaseOption.CAPACITY_BLOCK in view.purchase_options:
        yield "a capacity block is paid by whole days"
    if any(option.is_reserved for option in view.purchase_options):
        yield "a reservation is paid to the end of its term"
    yield "prices are list prices without tax, egress and support; every figure is an estimate with an 80 % interval"
