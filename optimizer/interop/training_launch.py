"""Turns a training job into the words that start it on each machine, and what every target has to say of it."""

import shlex
from collections.abc import Iterator, Sequence

from optimizer.interop.launch_plan import LaunchPlan, TrainingJob, comment, provenance

RENDEZVOUS_PORT = 29500


def torchrun(job: TrainingJob, words: Sequence[str]) -> str:
    """`torchrun` of a script that TRAIN_SCRIPT names, with its flags; several machines meet at MASTER_ADDR."""
    head = f"torchrun --nnodes {job.nodes} --nproc-per-node {job.accelerators_per_node}"
    if job.nodes > 1:
        head += f' --rdzv-backend c10d --rdzv-id {job.name} --rdzv-endpoint "$MASTER_ADDR:{RENDEZVOUS_PORT}"'
    parts: list[str] = []
    for word in words:
        if word.startswith("--") or not parts:
            parts.append(shlex.quote(word))
        else:
            parts[-1] += f" {shlex.quote(word)}"
    return " \\\n  ".join([f'{head} "$TRAIN_SCRIPT"', *parts])


def script(plan: LaunchPlan, job: TrainingJob, made_for: str, command: str) -> str:
    """A bash script that is started on every machine of the job."""
    head = [*provenance(plan, [job.purchase]), made_for, f"Start it on every machine ({job.nodes})."]
    checks = [': "${TRAIN_SCRIPT:?path of the training script}"']
    if job.nodes > 1:
        checks.append(': "${MASTER_ADDR:?address of the first machine}"')
    return (
        "\n".join(["#!/usr/bin/env bash", comment(head) + "set -euo pipefail", "", *checks, f"exec {command}"]) + "\n"
    )


def shared_warnings(job: TrainingJob, stacks: Sequence[str]) -> Iterator[str]:
    """What no target can express of a plan."""
    if job.stack not in stacks:
        yield f"{job.name}: the plan was sized for {job.stack}: speed and memory are other ones here"
    yield f"{job.name}: data set, checkpoints' place and learning rate are yours; offloading is not in the plan's file"


def layout_warnings(job: TrainingJob) -> Iterator[str]:
    """Degrees that a target which only shards cannot express."""
    split = job.tensor_parallel * job.pipeline_parallel * job.context_parallel
    if split > 1 or job.expert_parallel > 1:
        yield (
            f"{job.name}: TP {job.tensor_parallel}, PP {job.pipeline_parallel}, CP {job.context_parallel} and EP "
            f"{job.expert_parallel} of the plan cannot be expressed: states are sharded over all accelerators instead"
        )


def accumulation(job: TrainingJob, ranks: int) -> int:
    """Micro-batches of a step where each of `ranks` accelerators takes sequences of its own."""
    return max(1, round(job.global_batch_tokens / (job.micro_batch * job.seq_len * ranks)))


def ranks(job: TrainingJob) -> int:
    """Accelerators of the job."""
    return job.nodes * job.accelerators_per_node
