"""Turns training jobs and the offers on the market into the cluster for each job, its runner-ups and the trade-off."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from optimizer.plans.clusters import Desk
from optimizer.plans.plan import age_warnings, price_dates
from optimizer.plans.training_plan import (
    ClusterChoice,
    PlannedJob,
    TrainingAlternative,
    TrainingPlan,
    TrainingRequest,
    TrainingSuggestion,
)
from optimizer.program.training import (
    Job,
    JobOption,
    TrainingObjective,
    TrainingProblem,
    TrainingSolution,
    solve_training,
)
from optimizer.sizing.training.calibration import USUAL_STACK
from providers.accelerators import catalogue
from providers.errors import NoUsablePrices
from providers.networks import network_of
from providers.offers import Offer

_CURVE_HARDWARE: Final = 3
"""Kinds of hardware, cheapest first, whose larger clusters are sized for the trade-off of time against cost."""


_MACHINE: Final = 8
"""Accelerators of the usual machine for training."""


def plan_training(request: TrainingRequest) -> TrainingPlan:
    """The cheapest cluster for each job within deadlines and budget, or the fastest within a budget alone.

    One kind of instance in one region a job; several only where the seller documents a network between them. Raises
    NoUsablePrices when no offer passes the filters.
    """
    if not request.offers:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in request.rejections.items())
        raise NoUsablePrices(f"no offer passes the filters ({reasons or 'none on file'}); loosen one of them")
    desk = Desk(most_accelerators=request.max_accelerators, margin=request.margin, quotas=request.quotas)
    started = time.perf_counter()
    # Jobs that share accelerators may have to be faster than their own deadlines ask: all sizes are options then.
    searched: TrainingObjective = "min_time" if len(request.jobs) > 1 else request.objective
    choices = [
        choice
        for run, model in request.jobs
        for choice in desk.choices(run, model, request.offers, objective=searched, counted=True)
    ]
    sized = time.perf_counter()
    solution = _solve(request, choices)
    if solution.status == "infeasible":
        choices = _with_late_ones(desk, request, choices)
        solution = _solve(request, choices)
    by_id = {choice.id: choice for choice in choices}
    jobs = tuple(PlannedJob(choice=by_id[option.id], start_hours=start) for option, start in solution.chosen.values())
    solved = time.perf_counter()
    allowed = [c for c in choices if request.max_accelerators is None or c.accelerators <= request.max_accelerators]
    first = _with_curve(desk, request, [choice for choice in allowed if _is_first(request, choice)])
    fastest = min(first, key=lambda c: (c.hours, c.usd_total, c.id), default=None)
    alternatives = tuple(_alternatives(desk, request, allowed))
    chosen = jobs[0].choice if jobs else None
    return TrainingPlan(
        request=request,
        solution=solution,
        jobs=jobs,
        fastest=fastest,
        cheapest=min(first, key=_by_cost, default=None),
        runner_up=_runner_up(alternatives, chosen, request.objective),
        alternatives=alternatives,
        trade_off=trade_off(first),
        prices=price_dates(request.offers, request.offers_on_file, request.today, request.max_age_days),
        rejections={**request.rejections, **desk.rejections},
        suggestions=() if jobs else tuple(_suggestions(request, first, alternatives, fastest)),
        warnings=(*request.warnings, *_warnings(request, jobs)),
        timing_s={
            "sizing_s": sized - started,
            "solve_s": solved - sized,
            "alternatives_s": time.perf_counter() - solved,
        },
    )


def _solve(request: TrainingRequest, choices: Sequence[ClusterChoice]) -> TrainingSolution:
    jobs = [
        Job(
            id=run.name,
            deadline_hours=run.deadline_hours if run.deadline_hours is not None else math.inf,
            earliest_hours=request.earliest_hours.get(run.name, 0.0),
        )
        for run, _ in request.jobs
    ]
    options = [
        JobOption(
            id=choice.id,
            job=choice.run.name,
            hours=choice.planned_hours,
            usd=float(choice.planned_usd),
            accelerators=choice.accelerators,
        )
        for choice in choices
    ]
    problem = TrainingProblem(
        jobs=jobs,
        options=options,
        budget_usd=None if request.budget_usd is None else float(request.budget_usd),
        max_accelerators=request.max_accelerators,
        objective=request.objective,
    )
    return solve_training(problem, request.solver_options)


def _is_first(request: TrainingRequest, choice: ClusterChoice) -> bool:
    return choice.run.name == request.jobs[0][0].name


def _with_late_ones(desk: Desk, request: TrainingRequest, choices: list[ClusterChoice]) -> list[ClusterChoice]:
    """Also clusters of the quickest hardware that are late or too large: what the shortfall is measured by."""
    known = {choice.id for choice in choices}
    quick = _quickest_offers(request.offers)
    desk = replace(desk, most_accelerators=None)
    late = [c for run, model in request.jobs for c in desk.choices(run, model, quick, even_if_late=True)]
    return [*choices, *(choice for choice in late if choice.id not in known)]


def _with_curve(desk: Desk, request: TrainingRequest, choices: list[ClusterChoice]) -> list[ClusterChoice]:
    """Also the larger clusters of the cheapest hardware: where more money buys time."""
    run, model = request.jobs[0]
    kinds: dict[str, Offer] = {}
    for choice in sorted(choices, key=_by_cost):
        kinds.setdefault(choice.offer.instance_type.accelerator, choice.offer)
    offers = list(kinds.values())[:_CURVE_HARDWARE]
    known = {choice.id for choice in choices}
    more = desk.choices(run, model, offers, even_if_late=True)
    return [*choices, *(choice for choice in more if choice.id not in known)]


def _quickest_offers(offers: Sequence[Offer]) -> list[Offer]:
    """Offers of the hardware that can be fastest: machines with a network, by their 16-bit peak."""
    networked = [o for o in offers if network_of(o.provider, o.instance_type.name)] or list(offers)

    def peak(offer: Offer) -> float:
        rates = catalogue()[offer.instance_type.accelerator].dense_tflops
        return (rates.get("bf16") or rates["fp16"]) * offer.instance_type.accelerator_count

    best = max(map(peak, networked), default=0.0)
    return [offer for offer in networked if peak(offer) >= best / 4]


def _by_cost(choice: ClusterChoice) -> tuple[Decimal, float, str]:
    return choice.usd_total, choice.hours, choice.id


def best_choice(
    choices: Iterable[ClusterChoice], objective: TrainingObjective, budget_usd: Decimal | None
) -> ClusterChoice | None:
    """The cheapest choice within its run's deadline, or the fastest within the budget."""
    allowed = [
        choice
        for choice in choices
        if choice.planned_hours <= (choice.run.deadline_hours or math.inf)
        and (budget_usd is None or choice.planned_usd <= budget_usd)
    ]
    if objective == "min_time":
        return min(allowed, key=lambda c: (c.hours, c.usd_total, c.id), default=None)
    return min(allowed, key=_by_cost, default=None)


def _alternatives(
    desk: Desk, request: TrainingRequest, choices: Sequence[ClusterChoice]
) -> Iterator[TrainingAlternative]:
    """For the first job: the best of each provider and accelerator, under each other flag, and in FP8."""
    own = [choice for choice in choices if _is_first(request, choice)]
    run, model = request.jobs[0]
    objective = request.objective

    def best(found: Iterable[ClusterChoice]) -> ClusterChoice | None:
        return best_choice(found, objective, request.budget_usd)

    for provider in dict.fromkeys(offer.provider for offer in request.offers):
        found = best(choice for choice in own if choice.offer.provider == provider)
        yield TrainingAlternative(kind="provider", name=provider, flag=f"--provider {provider}", choice=found)
    for accelerator in sorted({offer.instance_type.accelerator for offer in request.offers}):
        found = best(choice for choice in own if choice.offer.instance_type.accelerator == accelerator)
        yield TrainingAlternative(kind="accelerator", name=accelerator, flag=f"--gpu '{accelerator}'", choice=found)
    for pool in request.pools:
        if pool.offers:
            found = best(desk.choices(run, model, pool.offers, objective=objective))
            yield TrainingAlternative(kind=pool.kind, name=pool.name, flag=pool.flag, choice=found, note=pool.note)
    if run.precision == "bf16" and not run.is_adapter:
        eighths = [o for o in request.offers if "fp8" in catalogue()[o.instance_type.accelerator].dense_tflops]
        found = best(desk.choices(replace(run, precision="fp8"), model, eighths, objective=objective))
        note = "FP8 products: needs software that supports it, and an eye on convergence"
        yield TrainingAlternative(kind="precision", name="fp8", flag="--precision fp8", choice=found, note=note)


def _runner_up(
    alternatives: Iterable[TrainingAlternative], chosen: ClusterChoice | None, objective: TrainingObjective
) -> TrainingAlternative | None:
    """The best choice on another accelerator."""
    if chosen is None:
        return None
    others = [
        a
        for a in alternatives
        if a.kind == "accelerator" and a.choice and a.name != chosen.offer.instance_type.accelerator
    ]
    if objective == "min_time":
        return min(others, key=lambda a: (a.choice.hours if a.choice else 0.0, a.name), default=None)
    return min(others, key=lambda a: (a.choice.usd_total if a.choice else 0, a.name), default=None)


def trade_off(choices: Iterable[ClusterChoice]) -> tuple[ClusterChoice, ...]:
    """The choices that no other beats in both time and cost, cheapest first."""
    front: list[ClusterChoice] = []
    for choice in sorted(choices, key=_by_cost):
        if not front or choice.hours < front[-1].hours * 0.98:
            front.append(choice)
    return tuple(front)


def _suggestions(
    request: TrainingRequest,
    choices: Sequence[ClusterChoice],
    alternatives: Iterable[TrainingAlternative],
    fastest: ClusterChoice | None,
) -> Iterator[TrainingSuggestion]:
    """Up to three flags that would make the first job feasible: another way to buy, a later deadline, more money."""
    ways = [
        TrainingSuggestion(flag=a.flag, usd_total=a.choice.usd_total, hours=a.choice.hours, note=a.note)
        for a in alternatives
        if a.choice and a.kind in ("purchase_option", "precision", "include")
    ]
    ways.sort(key=lambda way: (way.usd_total, way.flag))
    run = request.jobs[0][0]
    deadline, budget = run.deadline_hours, request.budget_usd
    affordable = [c for c in choices if budget is None or c.planned_usd <= budget]
    later = min(affordable, key=lambda c: (c.hours, c.usd_total, c.id), default=None)
    limits = []
    if deadline is not None and later is not None and later.planned_hours > deadline:
        flag = f"--deadline {math.ceil(later.planned_hours)}h"
        limits.append(TrainingSuggestion(flag=flag, usd_total=later.usd_total, hours=later.hours))
    in_time = [c for c in choices if c.planned_hours <= (deadline or math.inf)]
    cheapest = min(in_time, key=_by_cost, default=None)
    if budget is not None and cheapest is not None and cheapest.planned_usd > budget:
        flag = f"--budget {math.ceil(cheapest.planned_usd)}"
        limits.append(TrainingSuggestion(flag=flag, usd_total=cheapest.usd_total, hours=cheapest.hours))
    if not limits and fastest is not None and deadline is not None and fastest.planned_hours > deadline:
        flag = f"--deadline {math.ceil(fastest.planned_hours)}h"
        limits.append(TrainingSuggestion(flag=flag, usd_total=fastest.usd_total, hours=fastest.hours))
    yield from ways[: 3 - len(limits)]
    yield from limits


def _warnings(request: TrainingRequest, jobs: Iterable[PlannedJob]) -> Iterator[str]:
    """What a buyer must know: age of prices, capacity, an interval that passes the deadline, long sequences."""
    for run, model in request.jobs:
        if run.sequences_per_step < _MACHINE:
            yield (
                f"{run.name}: an optimizer step of {run.sequences_per_step} sequences cannot keep the "
                f"{_MACHINE} accelerators of a machine busy by data parallelism"
            )
        if model.is_moe and run.stack is None and USUAL_STACK[run.task] == "fsdp":
            yield f"{run.name}: FSDP gathers every expert for each layer; --stack megatron keeps experts where they are"
        if model.max_position and run.seq_len > model.max_position:
            yield (
                f"{run.name}: sequences of {run.seq_len:,} tokens exceed the model's {model.max_position:,} positions"
            )
    for job in jobs:
        choice, offer = job.choice, job.choice.offer
        yield from age_warnings(offer, request.today, request.max_age_days)
        deadline = choice.run.deadline_hours
        if deadline is not None and job.start_hours + choice.hours_high > deadline:
            yield (
                f"{choice.run.name}: the upper end of the estimate, {choice.hours_high:,.0f} h, passes the deadline "
                f"of {deadline:,.0f} h; --confidence 0.8 plans for that"
            )
        if choice.estimate.memory.verdict == "tight":
            memory = choice.estimate.memory
            yield f"{choice.run.name}: memory is tight, {memory.needed_gib:.0f} of {memory.usable_gib:.0f} GiB"
        if choice.estimate.setup.stack == "xla" and choice.run.stack is None:
            yield (
                f"{choice.run.name}: a TPU needs software for XLA, like MaxText; "
                f"--stack {USUAL_STACK[choice.run.task]} keeps to GPUs"
            )
        if choice.nodes > 8:
            yield f"{choice.nodes} x {offer.instance_type.name} at once need an agreement on capacity with the seller"
    if any(job.choice.offer.in_stock is None for job in jobs):
        yield "availability of the chosen instances is not known: a price is not a promise of capacity"
