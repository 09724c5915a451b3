"""Turns what `size` is asked with into the sizing of a training job."""

from collections.abc import Iterator

from optimizer.api import choices, values
from optimizer.api.clock import now
from optimizer.api.size_arguments import SizeArguments
from optimizer.api.training_arguments import training_run
from optimizer.sizing.layout import valid_tensor_parallel
from optimizer.sizing.training.calibration import TIME, stack_named
from optimizer.sizing.training.document import TrainingSize
from optimizer.sizing.training.layouts import (
    TrainingEstimate,
    best_layout,
    check_run,
    closest_layout,
    for_hardware,
    remedies,
    smallest_counts,
    stack_of,
)
from optimizer.sizing.training.setup import Cluster
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun
from providers.accelerators import Accelerator, matches
from providers.errors import UsageError
from providers.instance_types import usual_link
from providers.networks import usual_domain, usual_network_gbit
from providers.units import GB, GIB


def size_of(wanted: SizeArguments) -> tuple[Architecture, TrainingSize]:
    """Sizes the job on accelerators of a kind, in machines as their vendor builds them. Raises UsageError."""
    model, gpu, count = choices.architecture(wanted.model), wanted.gpu, wanted.count
    variants = matches(gpu)
    accelerator = variants[0]
    run, notes = for_hardware(training_run(wanted.run, now=now(), needs_tokens=False), accelerator)
    cluster = usual_cluster(accelerator, count, values.positive("--host-memory", wanted.host_memory))
    check_run(run, model, count)
    sized = best_layout(run, model, cluster) or closest_layout(run, model, cluster)
    if sized is None:
        raise UsageError(f"no layout of {model.name} uses all {count} accelerators; try another --count, --tp or --pp")
    smallest = smallest_counts(run, model, cluster)
    assumptions = [*run.assumptions, *notes, *_hardware_assumptions(cluster, gpu, variants), *model.notes]
    assumptions.append(f"software: {stack_named(stack_of(run)).label} (--stack)")
    assumptions.append(f"a whole run takes 1 / {TIME.goodput:g} of its steady time: restarts, checkpoints, evaluation")
    return model, TrainingSize(
        run=run,
        estimate=sized,
        min_gpus=smallest[0],
        min_gpus_comfortable=smallest[1],
        valid_tensor_parallel=valid_tensor_parallel(model, 8),
        tokens_stated=wanted.tokens is not None,
        assumptions=(*assumptions, "every figure is an estimate, with an 80 % interval beside each"),
        warnings=tuple(_warnings(run, model, sized, tokens_stated=wanted.tokens is not None)),
    )


def usual_cluster(accelerator: Accelerator, count: int, host_memory_gb: float | None = None) -> Cluster:
    """`count` accelerators in machines of 8 (4 of a rack-scale system), with the network that these usually have."""
    domain = usual_domain(accelerator)
    node = min(count, 4 if domain > 8 else 8)
    if count % node:
        node = next(size for size in range(node, 0, -1) if count % size == 0)
    return Cluster(
        accelerator=accelerator,
        nodes=count // node,
        node_accelerators=node,
        link=usual_link(accelerator, node),
        network_gbit_per_s=usual_network_gbit(accelerator),
        domain=domain if domain > 8 else None,
        host_memory_gib=None if host_memory_gb is None else host_memory_gb * GB / GIB,
    )


def _hardware_assumptions(cluster: Cluster, asked: str, variants: tuple[Accelerator, ...]) -> Iterator[str]:
    if len(variants) > 1:
        others = ", ".join(variant.name for variant in variants[1:])
        yield f"{asked} is taken as {variants[0].name}, not {others}"
    if cluster.nodes > 1:
        yield (
            f"{cluster.nodes} machines of {cluster.node_accelerators}, "
            f"{cluster.network_gbit_per_s:,.0f} Gbit/s between them as in the vendor's reference machines"
        )


def _warnings(run: TrainingRun, model: Architecture, sized: TrainingEstimate, *, tokens_stated: bool) -> Iterator[str]:
    memory, setup = sized.memory, sized.setup
    if not tokens_stated:
        yield "no --tokens: memory and speed only, no hours"
    elif run.deadline_hours is not None and sized.hours_high > run.deadline_hours:
        much = "takes" if sized.hours > run.deadline_hours else "may take"
        yield (
            f"the run {much} longer than the deadline of {run.deadline_hours:,.0f} h: {sized.hours:,.0f} h "
            f"({sized.hours_low:,.0f} to {sized.hours_high:,.0f})"
        )
    if model.max_position and run.seq_len > model.max_position:
        yield f"sequences of {run.seq_len:,} tokens exceed the model's {model.max_position:,} positions"
    if memory.limiting == "host_ram":
        yield f"host memory: {memory.host_gib:,.0f} GiB a machine are needed, {memory.host_usable_gib:,.0f} are there"
    if memory.needed_gib > memory.usable_gib:
        yield (
            f"does not fit: {memory.needed_gib:.1f} GiB are needed on each accelerator, {memory.usable_gib:.1f} are "
            f"usable; mostly {memory.dominant}"
        )
    if memory.verdict == "tight":
        yield f"tight: {memory.needed_gib:.1f} of {memory.usable_gib:.1f} GiB; fragmentation can decide"
    if memory.verdict != "fits":
        yield "what would help: " + "; ".join(remedies(sized))
    if setup.layout.shards > 1 and setup.zero_stage < 3 and memory.needed_gib > memory.usable_gib:
        yield "memory does not pool under data parallelism: each rank holds the whole model; --zero-stage 3 shards it"
    if setup.cluster.accelerators == 1 and setup.task == "qlora" and memory.needed_gib < 48 < memory.needed_gib * 1.3:
        yield "48 GB are enough only with a paged optimizer and short sequences"
