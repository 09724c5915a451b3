"""Turns a training job that a file asks for into its memory and time on accelerators, and what is wrong with it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from optimizer.interop.answers.serving import layout_faults
from optimizer.interop.asks import Ask, Fault, TrainingAsk, Wish
from optimizer.plans.clusters import Desk
from optimizer.plans.training import best_choice
from optimizer.plans.training_cost import START_HOURS, checkpoint_bytes, spot_overhead
from optimizer.plans.training_plan import ClusterChoice
from optimizer.sizing.training.calibration import optimizer_name
from optimizer.sizing.training.layouts import (
    TrainingEstimate,
    best_layout,
    check_run,
    closest_layout,
    estimate,
    for_hardware,
    remedies,
    runs_on,
    with_micro_batch,
)
from optimizer.sizing.training.setup import Cluster, TrainingLayout
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import DEFAULT_BATCH_TOKENS, DEFAULT_SEQ_LEN, TrainingRun
from providers.errors import UnknownName, UsageError
from providers.instance_types import usual_link
from providers.interruptions import interruption_rate
from providers.networks import network_of, usual_domain, usual_network_gbit
from providers.offers import Offer, PurchaseOption

NOMINAL_TOKENS: Final = 1e9
"""Stands in where a file does not say how long it trains: nothing of it is shown but costs per token."""

_RANK: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedJob:
    """A job on its accelerators; `tokens` in all are None where the file does not tell them.

    `interrupted` is the share of its hours that interruptions of spot and checkpoints take on top.
    """

    run: TrainingRun
    estimate: TrainingEstimate
    tokens: float | None
    interrupted: float = 0.0

    @property
    def fits(self) -> bool:
        return self.estimate.memory.verdict != "does_not_fit"

    @property
    def tokens_per_s(self) -> float | None:
        """Of all accelerators over the run; None where it does not fit."""
        return self.estimate.tokens_per_s if self.fits else None

    @property
    def hours(self) -> float | None:
        """Of the run, with its start; estimated. None where it does not fit, or its tokens are not known."""
        return self.nominal_hours if self.fits and self.tokens is not None else None

    @property
    def nominal_hours(self) -> float:
        """Hours for the tokens that are known, or for NOMINAL_TOKENS."""
        return (self.estimate.hours + START_HOURS) * (1 + self.interrupted)

    def usd_total(self, usd_per_hour: Decimal) -> Decimal | None:
        """Of the run at a price of all machines."""
        return None if self.hours is None else usd_per_hour * Decimal(repr(self.hours))

    def usd_per_million_tokens(self, usd_per_hour: Decimal) -> Decimal | None:
        """At the rate of the run, restarts included; None where it does not fit."""
        if not self.fits:
            return None
        return usd_per_hour * Decimal(repr(self.estimate.hours * (1 + self.interrupted) / self.estimate.tokens * 1e6))


def job_faults(ask: Ask, model: Architecture) -> Iterator[Fault]:
    """What the model rules out, on whatever accelerators."""
    training = ask.training or TrainingAsk()
    yield from layout_faults(ask, model)
    longest = model.longest_context
    if training.seq_len is not None and longest and training.seq_len > longest:
        yield Fault(
            line=ask.lines.get("seq_len"),
            what=f"sequences of {training.seq_len:,} tokens are more than the {longest:,} positions of {model.hf_id}",
            fix=f"use at most {longest}, unless the positions are to be extended",
            fatal=False,
        )
    expert = training.expert_parallel
    if expert is not None and expert > 1 and (not model.is_moe or model.experts % expert):
        has = f"{model.experts} experts do not divide by {expert}" if model.is_moe else "it has no experts"
        yield Fault(
            line=ask.lines.get("expert_parallel"),
            what=f"expert parallelism over {expert} cannot work for {model.hf_id}: {has}",
            fix="use a degree that divides the experts" if model.is_moe else "leave it out",
        )


def sized_job(
    ask: Ask, one: Wish, model: Architecture, offer: Offer | None, *, task: str | None, tokens: float | None
) -> tuple[SizedJob | None, list[Fault]]:
    """The job on `one.count` accelerators of each machine, as the file lays it out; what it leaves open is searched.

    `task` and `tokens` stand in where the file does not say. None where the job cannot be laid out there.
    """
    training = ask.training or TrainingAsk()
    ranks = ask.accelerators_per_machine or one.count
    faults = [*_rank_faults(ask, one, ranks), *_dtype_faults(ask, training, one)]
    if any(fault.fatal for fault in (*faults, *job_faults(ask, model))):
        return None, faults
    try:
        run, known = _run(ask, training, model, ranks * ask.nodes, task=task, tokens=tokens)
        if not runs_on(run, one.accelerator):
            raise UsageError(f"{one.accelerator.name} is trained with XLA, which has no {run.task} or 8-bit optimizers")
        run, _ = for_hardware(run, one.accelerator)
        check_run(run, model, ranks * ask.nodes)
        sized = _sized(run, training, model, _cluster(ask, one, ranks, offer))
    except UsageError as error:
        return None, [*faults, Fault(line=_first_line(ask), what=str(error), fix="change the layout or the batch")]
    job = SizedJob(run=run, estimate=sized, tokens=known, interrupted=_interrupted(ask, run, model, offer))
    return job, [*faults, *_memory_faults(one, sized), *training.uncounted, *_assumed(ask, training, sized)]


def cheapest_cluster(
    job: SizedJob, model: Architecture, offers: Sequence[Offer], *, works: bool
) -> ClusterChoice | None:
    """The cheapest cluster for the same job: as fast as the file's own where that works, with the layout left open."""
    hours = job.nominal_hours if works else None
    run = replace(job.run, tp=None, pp=None, zero_stage=None, micro_batch=None, recompute=None, deadline_hours=hours)
    return best_choice(Desk().choices(run, model, offers), "min_cost", None)


def _run(
    ask: Ask, training: TrainingAsk, model: Architecture, accelerators: int, *, task: str | None, tokens: float | None
) -> tuple[TrainingRun, float | None]:
    """The run that the file means, and its tokens where they are known. Raises UsageError for values that make none."""
    kind = training.task or task or "finetune"
    seq_len = training.seq_len or DEFAULT_SEQ_LEN[kind]
    replicas = max(1, accelerators // _split(ask, training))
    batch = max(DEFAULT_BATCH_TOKENS[kind], seq_len)
    if training.sequences_per_step is not None:
        batch = training.sequences_per_step * seq_len
    elif training.micro_batch is not None:
        batch = training.micro_batch * (training.gradient_accumulation or 1) * replicas * seq_len
    known = training.tokens or (float(training.steps * batch) if training.steps else None) or tokens
    run = TrainingRun(
        name=ask.name,
        model=model.hf_id,
        task=kind,
        tokens=known or NOMINAL_TOKENS,
        seq_len=seq_len,
        global_batch_tokens=batch,
        precision=training.precision or "bf16",
        optimizer=_optimizer(training),
        lora_rank=training.lora_rank or _RANK,
        lora_experts=training.lora_experts is not False,
        master_weights=training.master_weights is not False,
        tp=ask.tensor_parallel,
        pp=ask.pipeline_parallel,
        zero_stage=training.zero_stage,
        micro_batch=training.micro_batch,
        recompute=training.recompute,
        offload=training.offload,
        stack=training.stack,
    )
    return run, known


def _interrupted(ask: Ask, run: TrainingRun, model: Architecture, offer: Offer | None) -> float:
    """The share of hours that interruptions and checkpoints take on top, as plans count it; 0 unless it is spot."""
    if offer is None or offer.purchase_option is not PurchaseOption.SPOT:
        return 0.0
    rate = interruption_rate(offer.provider, offer.instance_type.name, offer.region)
    hosts = ask.nodes * offer.instance_type.hosts
    return spot_overhead(checkpoint_bytes(run, model), hosts, rate.per_hour)[0]


def _split(ask: Ask, training: TrainingAsk) -> int:
    """Accelerators that hold one copy of the model's computation: TP x PP x CP."""
    return (ask.tensor_parallel or 1) * (ask.pipeline_parallel or 1) * (training.context_parallel or 1)


def _optimizer(training: TrainingAsk) -> str:
    try:
        return optimizer_name(training.optimizer or "adamw")
    except UnknownName:
        return "adamw"


def _cluster(ask: Ask, one: Wish, ranks: int, offer: Offer | None) -> Cluster:
    """The machines that were bought, or such as their vendor builds."""
    kind = None if offer is None else offer.instance_type
    network = None if kind is None else network_of(kind.provider, kind.name)
    domain = usual_domain(one.accelerator)
    return Cluster(
        accelerator=one.accelerator,
        nodes=ask.nodes,
        node_accelerators=ranks,
        link=kind.link if kind is not None and ranks > 1 else usual_link(one.accelerator, ranks),
        network_gbit_per_s=network.gbit_per_s if network else usual_network_gbit(one.accelerator),
        domain=domain if domain > 8 and ask.nodes > 1 else None,
        host_memory_gib=None if kind is None else kind.memory_gib,
    )


def _sized(run: TrainingRun, training: TrainingAsk, model: Architecture, cluster: Cluster) -> TrainingEstimate:
    """The best layout with what the file pins; degrees that only it knows are put in afterwards."""
    found = best_layout(run, model, cluster) or closest_layout(run, model, cluster)
    if found is None:
        raise UsageError(f"no layout of {model.hf_id} uses all {cluster.accelerators} accelerators with that batch")
    context, expert = training.context_parallel, training.expert_parallel
    if context is None and expert is None:
        return found
    layout = found.setup.layout
    context = context or layout.cp
    pinned = TrainingLayout(
        tp=layout.tp,
        pp=layout.pp,
        cp=context,
        ep=expert or layout.ep,
        dp=max(1, cluster.accelerators // (layout.tp * layout.pp * context)),
    )
    wanted = [run.recompute] if run.recompute else ["none", "full"]
    tried = [
        estimate(
            run,
            with_micro_batch(run, replace(found.setup, layout=pinned, recompute=one), found.setup.micro_batch),
        )
        for one in wanted
    ]
    return next((one for one in tried if one.memory.verdict == "fits"), tried[-1])


def _rank_faults(ask: Ask, one: Wish, ranks: int) -> Iterator[Fault]:
    """Ranks that do not come out with the accelerators, degrees that do not come out with the ranks."""
    training = ask.training or TrainingAsk()
    line = ask.lines.get("ranks_per_node") or ask.lines.get("ranks") or one.line
    if ranks > one.count:
        what = f"{ranks} processes a machine on {one.count} x {one.named}"
        yield Fault(line=line, what=what, fix=f"start {one.count}, or ask for {ranks}")
    elif ranks < one.count:
        what = f"{ranks} of {one.count} accelerators of a machine are used: the others idle and are paid"
        yield Fault(line=line, what=what, fix=f"start {one.count} processes, or ask for {ranks}", fatal=False)
    world, split = ranks * ask.nodes, _split(ask, training)
    parts = ((ask.tensor_parallel, "TP"), (ask.pipeline_parallel, "PP"), (training.context_parallel, "CP"))
    words = " x ".join(f"{name} {degree}" for degree, name in parts if degree and degree > 1)
    where = ask.lines.get("tensor_parallel") or ask.lines.get("pipeline_parallel") or line
    if world % split:
        what = f"{words} = {split} does not divide the {world} accelerators"
        yield Fault(line=where, what=what, fix=f"make the degrees divide {world}")
        return
    micro, step = training.micro_batch, training.sequences_per_step
    group = (micro or 1) * (world // split)
    accumulated = group * (training.gradient_accumulation or 1)
    if step is not None and step % group:
        what = (
            f"{step} sequences a step do not divide by micro-batch {micro or 1} x {world // split} data-parallel ranks"
        )
        yield Fault(line=ask.lines.get("sequences_per_step"), what=what, fix=f"use a multiple of {group}")
    elif step is not None and micro is not None and training.gradient_accumulation and step != accumulated:
        what = (
            f"{step} sequences a step are not micro-batch {micro} x {training.gradient_accumulation} accumulated x "
            f"{world // split} ranks = {accumulated}"
        )
        yield Fault(line=ask.lines.get("sequences_per_step"), what=what, fix=f"use {accumulated}, or leave one out")


def _dtype_faults(ask: Ask, training: TrainingAsk, one: Wish) -> Iterator[Fault]:
    asked = training.precision
    if asked is not None and asked not in one.accelerator.dense_tflops and asked in ("bf16", "fp8", "fp16"):
        better = "fp16" if asked == "bf16" else "bf16" if "bf16" in one.accelerator.dense_tflops else "fp16"
        yield Fault(
            line=ask.lines.get("precision") or one.line,
            what=f"{one.accelerator.name} does not compute {asked}",
            fix=f"train in {better}, or take a newer accelerator",
        )
    if training.optimizer is not None:
        try:
            optimizer_name(training.optimizer)
        except UnknownName as error:
            yield Fault(
                line=ask.lines.get("optimizer"), what=str(error), fix="AdamW is taken for the estimate", fatal=False
            )


def _memory_faults(one: Wish, sized: TrainingEstimate) -> Iterator[Fault]:
    memory = sized.memory
    if memory.verdict == "does_not_fit":
        count = sized.setup.cluster.accelerators
        needed, usable = memory.needed_gib, memory.usable_gib
        what = (
            f"{sized.setup.task} of {sized.setup.model.hf_id} does not fit on {count} x {one.accelerator.name}: "
            f"{needed:,.1f} GiB are needed on each, {usable:,.1f} are usable; mostly {memory.dominant}"
        )
        if memory.limiting == "host_ram":
            what = (
                f"host memory: {memory.host_gib:,.0f} GiB a machine are needed, {memory.host_usable_gib:,.0f} are there"
            )
        yield Fault(line=one.line, what=what, fix="; ".join(remedies(sized)))
    elif memory.verdict == "tight":
        yield Fault(
            line=one.line,
            what=f"tight on {one.accelerator.name}: {memory.needed_gib:.1f} of {memory.usable_gib:.1f} GiB, "
            "fragmentation can decide",
            fix="a smaller micro-batch, or recomputation of activations",
            fatal=False,
        )


def _assumed(ask: Ask, training: TrainingAsk, sized: TrainingEstimate) -> Iterator[Fault]:
    """What the file leaves open and memory depends on, as notes."""
    setup = sized.setup
    open_ = []
    if training.task is None:
        open_.append(f"the task ({setup.task})")
    if training.seq_len is None:
        open_.append(f"the length of sequences ({setup.seq_len:,} tokens)")
    if training.micro_batch is None:
        open_.append(f"the micro-batch ({setup.micro_batch})")
    if training.recompute is None:
        open_.append(f"recomputation of activations ({setup.recompute})")
    if training.zero_stage is None and setup.layout.shards > 1:
        open_.append(f"sharding of states (ZeRO {setup.zero_stage})")
    if setup.is_adapter and training.lora_rank is None:
        open_.append(f"the rank ({setup.lora_rank})")
    if open_:
        what = f"not said, and taken as: {', '.join(open_)}"
        yield Fault(line=_first_line(ask), what=what, fix="say it in the file to have it checked", fatal=False)


def _first_line(ask: Ask) -> int | None:
    return ask.lines.get("command") or ask.lines.get("task")
