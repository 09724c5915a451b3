"""Turns a training job into the words that start it on each machine, and what every target has to say of it."""

import shlex
from collections.abc import Iterator, Sequence

from optimizer.interop.launch_plan import LaunchPlan, TrainingJob, comment, device, provenance

RENDEZVOUS_PORT = 29500
SCRIPT = '"$TRAIN_SCRIPT"'
NEED_SCRIPT = ': "${TRAIN_SCRIPT:?path of the training script}"'
NEED_FIRST_MACHINE = ': "${MASTER_ADDR:?address of the first machine}"'


def torchrun(job: TrainingJob, words: Sequence[str], *tail: str) -> str:
    """`torchrun` of a script that TRAIN_SCRIPT names, with its flags; several machines meet at MASTER_ADDR.

    `tail` goes behind the flags as it is, for the shell to expand.
    """
    head = f"torchrun --nnodes {job.nodes} --nproc-per-node {job.accelerators_per_node}"
    if job.nodes > 1:
        head += f' --rdzv-backend c10d --rdzv-id {job.name} --rdzv-endpoint "$MASTER_ADDR:{RENDEZVOUS_PORT}"'
    parts: list[str] = []
    for word in words:
        if word.startswith("--") or not parts:
            parts.append(shlex.quote(word))
        else:
            parts[-1] += f" {shlex.quote(word)}"
    return " \\\n  ".join([f"{head} {SCRIPT}", *parts, *tail])


def script(plan: LaunchPlan, job: TrainingJob, made_for: str, lines: Sequence[str]) -> str:
    """A bash script that is started on every machine of the job; `lines` end in the command."""
    head = [
        *provenance(plan, [job.purchase]),
        made_for,
        f"Start it on every machine ({job.nodes}); further flags of TRAIN_SCRIPT go behind its name.",
    ]
    checks = [NEED_SCRIPT]
    if job.nodes > 1:
        checks.append(NEED_FIRST_MACHINE)
    return "\n".join(["#!/usr/bin/env bash", comment(head) + "set -euo pipefail", "", *checks, *lines]) + "\n"


def shared_warnings(job: TrainingJob, stacks: Sequence[str]) -> Iterator[str]:
    """What no target can express of a plan."""
    if job.stack not in stacks:
        yield f"{job.name}: the plan was sized for {job.stack}: speed and memory are other ones here"
    found = device(job.purchase)
    if found is not None and found.vendor not in ("NVIDIA", "AMD"):
        yield (
            f"{job.name}: {job.purchase.accelerator} does not run this: it takes its vendor's software (MaxText or "
            "another XLA trainer on TPUs); the machines and the batch sizes are the plan's, the command is not"
        )
    elif found is not None and found.vendor == "AMD":
        yield f"{job.name}: {job.purchase.accelerator} takes PyTorch for ROCm in place of the one from PyPI"
    yield (
        f"{job.name}: data set, place of the checkpoints and learning rate are yours; the plan counts full sequences "
        f"of {job.seq_len} tokens: pack shorter ones"
    )
    if job.offload is None:
        yield f"{job.name}: the plan's file does not say whether states are offloaded: plan again if they are"
    if job.checkpoint_steps is not None:
        yield (
            f"{job.name}: spot machines are taken away: the hours of the plan count on a checkpoint every "
            f"{job.checkpoint_steps} steps, on storage that outlives the machine, and on a start that goes on from it"
        )


def layout_warnings(job: TrainingJob) -> Iterator[str]:
    """Degrees that a target which only shards cannot express."""
    if job.splits:
        yield (
            f"{job.name}: TP {job.tensor_parallel}, PP {job.pipeline_parallel}, CP {job.context_parallel} and EP "
            f"{job.expert_parallel} of the plan cannot be expressed: states are sharded over all accelerators instead"
        )


def accumulation(job: TrainingJob, ranks: int) -> int:
    """Micro-batches of a step where each of `ranks` accelerators takes sequences of its own."""
    return max(1, round(job.global_batch_tokens / (job.micro_batch * job.seq_len * ranks)))
