"""Turns a training run and a cluster into the layouts that it can have there, best predicted first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from optimizer.sizing.layout import tensor_parallel_problem
from optimizer.sizing.training.calibration import (
    MEMORY,
    TIME,
    TIME_SPREAD,
    USUAL_STACK,
    optimizer_name,
    optimizer_states,
    stack_named,
)
from optimizer.sizing.training.memory import TrainingMemory, local_adapters, training_memory
from optimizer.sizing.training.setup import Cluster, TrainingLayout, TrainingSetup
from optimizer.sizing.training.time import StepTime, step_time
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun
from providers.accelerators import Accelerator
from providers.errors import InvalidValue
from providers.instance_types import usual_link
from providers.units import SECONDS_PER_HOUR

_STAGES: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
_MICRO_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
_BATCH_USED: Final = 0.97
"""Sequences of a global batch that whole micro-batches on all ranks must use, for a larger micro-batch to be taken."""

_UNEVEN_STAGES: Final = 1.1
"""Stages may be filled unevenly up to this factor: 61 layers in 16 stages of 4 waste 5 %."""

_SIMPLER_WITHIN: Final = 1.03
"""The error of a prediction is larger than such a difference: simplicity decides."""

_LONG_SEQUENCE: Final = 16_384
"""From this length on, sequences are also split over context-parallel ranks."""

_MUCH_OF_ADAPTERS: Final = 0.1
"""From this part of the memory on, smaller adapters are worth proposing."""

_MICRO_TOKENS_ENOUGH: Final = 32_768
"""Larger micro-batches bring nothing: launches and gathers are long hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEstimate:
    """One way to run a job on a cluster: memory, time of a step, and hours of the whole run with their 80 % interval.

    `hours` include what restarts and evaluation take of a long run (`goodput`).
    """

    setup: TrainingSetup
    memory: TrainingMemory
    step: StepTime
    tokens: float
    hours: float

    @property
    def hours_low(self) -> float:
        return self.hours / TIME_SPREAD

    @property
    def hours_high(self) -> float:
        return self.hours * TIME_SPREAD

    @property
    def tokens_per_s(self) -> float:
        """Of the whole job, over the run."""
        return self.tokens / self.hours / SECONDS_PER_HOUR

    @property
    def accelerators(self) -> int:
        return self.setup.layout.accelerators


def estimate(run: TrainingRun, setup: TrainingSetup) -> TrainingEstimate:
    """Memory and time of one setup: hours = tokens / (tokens per s x goodput x 3600)."""
    step = step_time(setup)
    return TrainingEstimate(
        setup=setup,
        memory=training_memory(setup),
        step=step,
        tokens=run.tokens,
        hours=run.tokens / (step.tokens_per_s * TIME.goodput) / SECONDS_PER_HOUR,
    )


def best_layout(run: TrainingRun, model: Architecture, cluster: Cluster) -> TrainingEstimate | None:
    """The fastest layout that fits comfortably on all accelerators of the cluster, else the fastest that fits at all.

    Of those within 3 % of it, the one with the fewest cuts through the model. None where none fits. Raises UnknownName
    for software that nobody knows.
    """
    found = [estimate(run, setup) for setup in fitting_setups(run, model, cluster)]
    comfortable = [one for one in found if one.memory.verdict == "fits"] or found
    if not comfortable:
        return None
    limit = min(one.hours for one in comfortable) * _SIMPLER_WITHIN
    return min((one for one in comfortable if one.hours <= limit), key=_simplicity)


def _simplicity(one: TrainingEstimate) -> tuple[int, int, float, str]:
    layout = one.setup.layout
    return layout.tp * layout.pp * layout.cp, layout.ep, one.hours, str(layout)


def closest_layout(run: TrainingRun, model: Architecture, cluster: Cluster) -> TrainingEstimate | None:
    """The layout that comes closest to fitting, whether it does or not; None where no degrees are allowed.

    How far off a layout is = the larger of its needs over what there is, of accelerator and of host memory.
    """
    setups = [with_micro_batch(run, base, run.micro_batch or 1) for base in _bases(run, model, cluster)]
    if not setups:
        return None

    def excess(setup: TrainingSetup) -> tuple[float, float]:
        memory = training_memory(setup)
        host = memory.host_gib / memory.host_usable_gib if memory.host_usable_gib else 0.0
        return max(memory.needed_gib / memory.usable_gib, host), memory.needed_gib

    return estimate(run, min(setups, key=excess))


def fitting_setups(run: TrainingRun, model: Architecture, cluster: Cluster) -> Iterator[TrainingSetup]:
    """For each layout, the largest micro-batch that fits without recomputation, else the largest that fits with it.

    Both where ZeRO-3 gathers over PCIe or the network: a larger micro-batch gathers less often, which can be worth
    more than what is computed again.
    """
    done: tuple[TrainingLayout, int] | None = None
    for base in _bases(run, model, cluster):
        if (base.layout, base.zero_stage) == done:
            continue
        fitting = _largest_fitting(run, base)
        if fitting is None:
            continue
        yield fitting
        slow_link = cluster.link in ("pcie", "none") or base.layout.accelerators > cluster.fast_domain
        gathers_slowly = base.zero_stage >= 3 and base.layout.shards > 1 and slow_link
        if training_memory(fitting).verdict == "fits" and not gathers_slowly:
            done = (base.layout, base.zero_stage)


def with_micro_batch(run: TrainingRun, setup: TrainingSetup, micro_batch: int) -> TrainingSetup:
    """The setup at a micro-batch; its step is as many whole micro-batches on every rank as the global batch holds."""
    group = setup.layout.dp * micro_batch
    used = max(1, run.sequences_per_step // group) * group
    return replace(setup, micro_batch=micro_batch, global_batch_tokens=float(used * run.seq_len))


def check_run(run: TrainingRun, model: Architecture, accelerators: int) -> None:
    """Raises InvalidValue for pinned degrees that cannot be: TP that does not divide heads, a batch below DP."""
    if run.tp is not None:
        problem = tensor_parallel_problem(model, run.tp)
        if problem:
            raise InvalidValue("tensor-parallel degree", run.tp, problem)
    replica = (run.tp or 1) * (run.pp or 1)
    if accelerators % replica:
        raise InvalidValue("layout", f"TP {run.tp or 1} x PP {run.pp or 1}", f"must divide {accelerators} accelerators")
    if run.pp is not None and run.pp > model.layers:
        raise InvalidValue("pipeline stages", run.pp, f"the model has {model.layers} layers")
    needed = (run.micro_batch or 1) * _least_data_parallel(run, accelerators)
    if needed > run.sequences_per_step:
        raise InvalidValue(
            "global batch in tokens",
            run.global_batch_tokens,
            f"holds {run.sequences_per_step} sequences of {run.seq_len} tokens, the {accelerators} accelerators "
            f"need at least {needed}: enlarge it, or use fewer accelerators",
        )


def _least_data_parallel(run: TrainingRun, accelerators: int) -> int:
    """The smallest data-parallel degree that the stack can have on so many accelerators."""
    shards_only = stack_of(run) in ("fsdp", "eager", "hf", "xla") and run.tp is None and run.pp is None
    if shards_only:
        return accelerators
    most = (run.tp or 8) * (run.pp or _STAGES[-1])
    return max(1, accelerators // most)


def stack_of(run: TrainingRun) -> str:
    """The run's software by canonical name: the one asked for, or the task's usual one. Raises UnknownName."""
    return stack_named(run.stack or USUAL_STACK[run.task]).name


def _bases(run: TrainingRun, model: Architecture, cluster: Cluster) -> Iterator[TrainingSetup]:
    """Setups for every allowed combination of degrees, ZeRO stage and recomputation, at micro-batch 1."""
    stack = stack_of(run)
    recomputes = _recomputes(run, stack)
    for layout in _layouts(run, model, cluster, stack):
        for zero_stage in _zero_stages(run, stack, layout):
            for recompute in recomputes:
                setup = TrainingSetup(
                    model=model,
                    cluster=cluster,
                    layout=layout,
                    task=run.task,
                    stack=stack,
                    seq_len=run.seq_len,
                    micro_batch=1,
                    global_batch_tokens=float(run.global_batch_tokens),
                    precision=run.precision,
                    optimizer=optimizer_name(run.optimizer),
                    mixed=run.master_weights and not run.is_adapter,
                    zero_stage=zero_stage,
                    recompute=recompute,
                    offload=run.offload,
                    lora_rank=run.lora_rank,
                    expert_adapters=run.lora_experts,
                    chunked_loss=stack == "eager",
                )
                yield with_micro_batch(run, setup, 1)


def _recomputes(run: TrainingRun, stack: str) -> Sequence[str]:
    """What may be computed again, where the run does not say.

    XLA always computes again: the rates that its constants come from were with it. So does a run of adapters at a
    given micro-batch: that is somebody's script, and TRL, axolotl, LLaMA-Factory, torchtune and Unsloth all have
    checkpointing on by default (in their documentation or recipes, 2026-06).
    """
    if run.recompute:
        return (run.recompute,)
    scripted = run.is_adapter and run.micro_batch is not None and stack in ("fsdp", "eager", "hf")
    return ("full",) if stack == "xla" or scripted else ("none", "full")


def _layouts(run: TrainingRun, model: Architecture, cluster: Cluster, stack: str) -> Iterator[TrainingLayout]:
    """Degrees that divide the cluster: TP inside the fast domain, PP by whole layers, DP within the global batch.

    Megatron's stacks split the model; the others shard its states over all ranks, unless degrees are pinned.
    """
    count = cluster.accelerators
    splits = stack in ("megatron", "megatron-deepspeed", "nemo")
    widths = [run.tp] if run.tp else ([1, 2, 4, 8] if splits else [1])
    depths = [run.pp] if run.pp else (_STAGES if splits else [1])
    rings = [1, 2, 4, 8] if splits and run.seq_len >= _LONG_SEQUENCE else [1]
    for tp in widths:
        if tp > min(cluster.fast_domain, count) or tensor_parallel_problem(model, tp):
            continue
        for pp in depths:
            if run.pp is None and -(-model.layers // pp) * pp > model.layers * _UNEVEN_STAGES:
                continue
            for cp in rings:
                replica = tp * pp * cp
                if replica > count or count % replica:
                    continue
                dp = count // replica
                if dp > run.sequences_per_step:
                    continue
                for ep in _expert_degrees(model, splits, tp * cp * dp):
                    yield TrainingLayout(tp=tp, pp=pp, cp=cp, ep=ep, dp=dp)


def _expert_degrees(model: Architecture, splits: bool, ranks: int) -> Sequence[int]:
    if not model.is_moe or not splits:
        return (1,)
    powers = (1, 2, 4, 8, 16, 32, 64)
    return [ep for ep in powers if model.experts % ep == 0 and ranks % ep == 0]


def _zero_stages(run: TrainingRun, stack: str, layout: TrainingLayout) -> Sequence[int]:
    if run.zero_stage is not None:
        return (run.zero_stage,)
    if layout.shards == 1:
        return (0,)
    if stack in ("megatron", "megatron-deepspeed", "nemo"):
        return (1,)
    if stack in ("fsdp", "eager", "xla") and not run.is_adapter:
        return (3,)
    return (1, 3) if run.is_adapter else (2, 3)


def _largest_fitting(run: TrainingRun, base: TrainingSetup) -> TrainingSetup | None:
    """The base at the largest micro-batch that fits and leaves each rank, if it can, a micro-batch for every stage."""
    if run.micro_batch:
        pinned = with_micro_batch(run, base, run.micro_batch)
        return pinned if training_memory(pinned).verdict != "does_not_fit" else None
    largest: TrainingSetup | None = None
    for micro_batch in _MICRO_BATCHES:
        if largest is not None and not _is_worth_it(run, base, micro_batch):
            break
        candidate = with_micro_batch(run, base, micro_batch)
        memory = training_memory(candidate)
        if memory.verdict == "does_not_fit":
            break
        if largest is not None and memory.needed_gib > memory.usable_gib * MEMORY.tight_share:
            break
        largest = candidate
    return largest


def _is_worth_it(run: TrainingRun, base: TrainingSetup, micro_batch: int) -> bool:
    """Whether a larger micro-batch uses nearly the whole global batch and keeps the pipeline full."""
    group = base.layout.dp * micro_batch
    if run.sequences_per_step // group * group < run.sequences_per_step * _BATCH_USED:
        return False
    full = base.layout.pp == 1 or run.sequences_per_step // group >= 4 * base.layout.pp
    return full and micro_batch * run.seq_len <= _MICRO_TOKENS_ENOUGH


def smallest_counts(
    run: TrainingRun, model: Architecture, cluster: Cluster, most: int = 1024
) -> tuple[int | None, int | None]:
    """The smallest accelerator counts (powers of two, from 8 on whole nodes) that hold the job, and comfortably."""
    fits: int | None = None
    count = 1
    while count <= most:
        sized = best_layout(run, model, resized(cluster, count))
        if sized is not None:
            fits = fits or count
            if sized.memory.verdict == "fits":
                return fits, count
        count *= 2
    return fits, None


def resized(cluster: Cluster, count: int) -> Cluster:
    """The same machines with `count` accelerators in all: a part of one, or whole ones."""
    node = min(count, 8 if cluster.fast_domain <= 8 else 4)
    host = cluster.host_memory_gib
    return replace(
        cluster,
        nodes=max(1, -(-count // node)),
        node_accelerators=node,
        link=usual_link(cluster.accelerator, node),
        host_memory_gib=None if host is None else host * node / max(1, cluster.node_accelerators),
    )


def for_hardware(run: TrainingRun, accelerator: Accelerator) -> tuple[TrainingRun, tuple[str, ...]]:
    """The run in a precision that the accelerator computes, and what was changed.

    Without bf16 arithmetic mixed precision is in fp16 (loss scaling); FP8 and FP4 without hardware run in 16 bit. TPUs
    are trained with XLA, whatever the task is usually run with.
    """
    if accelerator.vendor == "Google" and run.stack is None:
        run = replace(run, stack="xla")
    rates = accelerator.dense_tflops
    sixteen = "bf16" if "bf16" in rates else "fp16"
    if run.precision in rates:
        return run, ()
    note = f"{accelerator.name} does not compute {run.precision}: sized in {sixteen}"
    return replace(run, precision=sixteen), (note,)


def runs_on(run: TrainingRun, accelerator: Accelerator) -> bool:
    """Whether the run's software exists for the accelerator: TPUs have XLA, without 4-bit bases and 8-bit or paged
    optimizers."""
    if accelerator.vendor != "Google":
        return True
    plain = optimizer_name(run.optimizer) in ("adamw", "adafactor", "muon", "lion", "sgd")
    return run.stack in (None, "xla") and run.task != "qlora" and plain


def choices_made(run: TrainingRun, estimate: TrainingEstimate) -> Iterator[str]:
    """What a sizing of adapters takes for granted that moves its memory much, each with the figure of the other way."""
    setup, needed = estimate.setup, estimate.memory.needed_gib

    def other(**changes: Any) -> float:
        return training_memory(replace(setup, **changes)).needed_gib

    if not setup.is_adapter:
        return
    if run.recompute is None and setup.recompute == "full" and _recomputes(run, setup.stack) == ("full",):
        yield (
            "recomputation full, as software for adapters has it by default; "
            f"--recompute none: {other(recompute='none'):.1f} GiB an accelerator instead of {needed:.1f}"
        )
    elif run.recompute is None and setup.recompute == "none":
        yield (
            "recomputation none, the faster way where it fits; "
            f"--recompute full: {other(recompute='full'):.1f} GiB an accelerator instead of {needed:.1f}"
        )
    if run.stack is None and setup.stack == "fsdp":
        yield (
            f"loss and activations as fused kernels leave them; {other(stack='hf'):.1f} GiB instead of {needed:.1f} "
            "in a Hugging Face Trainer without them (--stack hf)"
        )
    if not setup.model.is_moe:
        return
    if setup.expert_adapters:
        yield (
            f"adapters on all linear layers, experts included: {local_adapters(setup) / 1e6:,.0f} M parameters an "
            f"accelerator; --no-lora-experts: {other(expert_adapters=False):.1f} GiB instead of {needed:.1f}"
        )
    if setup.task == "qlora":
        yield (
            f"experts in 4 bit; {other(quantised_experts=False):.1f} GiB instead of {needed:.1f} where they stay in 16 "
            "bit, as fused ones do with bitsandbytes in Transformers 5 unless they are asked for"
        )


def _base_on_host(setup: TrainingSetup) -> str:
    moved = training_memory(replace(setup, offload=setup.offload | {"params"}))
    return (
        f"the frozen base in host memory (--offload params: {moved.needed_gib:.0f} GiB an accelerator, "
        f"{moved.host_gib:.0f} GiB of each machine's memory)"
    )


def remedies(estimate: TrainingEstimate) -> tuple[str, ...]:
    """What would bring the memory down, most effective first, for the item that dominates."""
    setup, memory = estimate.setup, estimate.memory
    ways: list[str] = []
    if memory.limiting == "host_ram":
        return (f"host memory: {memory.host_gib:,.0f} GiB a node are needed; offload less or take larger hosts",)
    if setup.layout.shards > 1 and setup.zero_stage < 3 and memory.dominant in ("weights", "gradients"):
        ways.append("shard the weights (--zero-stage 3): memory does not pool under plain data parallelism")
    if setup.recompute != "full" and memory.dominant == "activations":
        ways.append("recompute activations (--recompute full)")
    if memory.dominant == "logits":
        ways.append("a chunked cross-entropy, or a smaller --micro-batch")
    if not setup.is_adapter and optimizer_states(setup.optimizer).mixed_bytes > 4:
        ways.append("an 8-bit optimizer (--optimizer adamw-8bit)")
    if not setup.is_adapter and "optimizer" not in setup.offload:
        ways.append("the optimizer in host memory (--offload optimizer)")
    if setup.task == "finetune":
        ways.append("adapters (--task lora or qlora)")
    if setup.task == "lora":
        ways.append("a 4-bit base (--task qlora)")
    if setup.is_adapter and setup.layout.shards > 1 and setup.zero_stage >= 3 and "params" not in setup.offload:
        ways.append(_base_on_host(setup))
    if setup.is_adapter and setup.model.is_moe and memory.adapters_gib > memory.needed_gib * _MUCH_OF_ADAPTERS:
        ways.append("a lower --lora-rank: every expert has adapters")
    ways.append("more accelerators (--count)")
    return tuple(ways)
