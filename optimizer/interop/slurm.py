"""Turns training jobs and groups of replicas into Slurm batch scripts."""

import math
from typing import Final

from optimizer.interop import fsdp, vllm
from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, TrainingJob, comment, provenance
from optimizer.interop.training_launch import layout_warnings, shared_warnings, torchrun

_TIME_MARGIN: Final = 1.5
"""Longest time over the estimated: the 80 % interval of training reaches 1.3."""


def export(plan: LaunchPlan) -> Exported:
    """One batch script for each job and each group of replicas; a group is an array with a task for each replica."""
    files, warnings = {}, []
    for job in plan.jobs:
        files[f"slurm-{job.name}.sbatch"] = _training(plan, job)
        warnings += [*shared_warnings(job, ("fsdp", "hf", "eager")), *layout_warnings(job)]
    for group in plan.groups:
        files[f"slurm-{group.name}.sbatch"] = _serving(plan, group)
        warnings += [*vllm.checkpoint_warnings(group), *vllm.device_warnings(group), *vllm.context_warnings(group)]
    warnings.append("partition and account are yours: add --partition and --account")
    return Exported(files=files, warnings=tuple(warnings))


def _training(plan: LaunchPlan, job: TrainingJob) -> str:
    hours = math.ceil(job.hours * _TIME_MARGIN)
    options = {
        "job-name": job.name,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": job.accelerators_per_node,
        "time": f"{hours // 24}-{hours % 24:02d}:00:00",
    }
    body = [
        ': "${TRAIN_SCRIPT:?path of the training script}"',
        'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)"',
        "export MASTER_ADDR",
        f"srun {torchrun(job, fsdp.arguments(job))}",
    ]
    head = [*provenance(plan, [job.purchase]), f"For Slurm and {fsdp.VERSION}: sbatch slurm-{job.name}.sbatch"]
    return _batch(head, options, body)


def _serving(plan: LaunchPlan, group: ReplicaGroup) -> str:
    words = vllm.command(vllm.arguments(group, per_instance=False))
    options = {
        "job-name": group.name,
        "array": f"0-{group.replicas - 1}",
        "nodes": group.instances_per_replica,
        "ntasks-per-node": 1,
        "gpus-per-node": group.accelerators_per_replica // group.instances_per_replica,
    }
    body = [f"srun {words}"]
    if group.instances_per_replica > 1:
        body = [
            'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)"',
            "export MASTER_ADDR",
            "srun bash -s <<'COSTOPT'",
            'if [ "$SLURM_NODEID" != 0 ]; then set -- --headless; else set --; fi',
            f"exec {words} \\",
            f'  --nnodes {group.instances_per_replica} --node-rank "$SLURM_NODEID" --master-addr "$MASTER_ADDR" "$@"',
            "COSTOPT",
        ]
    return _batch([*provenance(plan, group.purchases), f"For Slurm and vLLM {vllm.VERSION}."], options, body)


def _batch(head: list[str], options: dict[str, object], body: list[str]) -> str:
    """Options stand at the top: sbatch stops reading them at the first command."""
    lines = [f"#SBATCH --{name}={value}" for name, value in options.items()]
    return "\n".join(["#!/usr/bin/env bash", *lines, comment(head) + "set -euo pipefail", "", *body]) + "\n"
