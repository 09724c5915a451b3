"""Turns training jobs and groups of replicas into Slurm batch scripts."""

import math
from typing import Final

from optimizer.interop import training_stack, vllm
from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, TrainingJob, comment, provenance
from optimizer.interop.training_launch import NEED_SCRIPT

_TIME_MARGIN: Final = 1.5
"""Longest time over the estimated: the 80 % interval of training reaches 1.3."""


def export(plan: LaunchPlan) -> Exported:
    """One batch script for each job and each group of replicas; a group is an array with a task for each replica."""
    files: dict[str, str] = {}
    warnings: list[str] = []
    for job in plan.jobs:
        started = training_stack.start(job)
        files[f"slurm-{job.name}.sbatch"] = _training(plan, job, started)
        warnings += started.warnings
    for group in plan.groups:
        files[f"slurm-{group.name}.sbatch"] = _serving(plan, group)
        warnings += [*vllm.checkpoint_warnings(group), *vllm.device_warnings(group), *vllm.context_warnings(group)]
    warnings.append("partition and account are yours: add --partition and --account")
    return Exported(files=files, warnings=tuple(warnings))


def _training(plan: LaunchPlan, job: TrainingJob, started: training_stack.Start) -> str:
    hours = math.ceil(job.hours * _TIME_MARGIN)
    options: dict[str, object] = {
        "job-name": job.name,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": job.accelerators_per_node,
        "time": f"{hours // 24}-{hours % 24:02d}:00:00",
    }
    if job.is_spot:
        options["requeue"] = None
    body = [
        NEED_SCRIPT,
        'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)"',
        "export MASTER_ADDR",
        *started.lines[:-1],
        f"srun {started.lines[-1]}",
    ]
    head = [*provenance(plan, [job.purchase]), f"{started.made_for} sbatch slurm-{job.name}.sbatch"]
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
    lines = [f"#SBATCH --{name}" if value is None else f"#SBATCH --{name}={value}" for name, value in options.items()]
    return "\n".join(["#!/usr/bin/env bash", *lines, comment(head) + "set -euo pipefail", "", *body]) + "\n"
