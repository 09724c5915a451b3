"""Turns training jobs and groups of replicas into Slurm batch scripts, and such scripts into what they ask for."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from optimizer.interop.asks import Ask, Wish, divided, whole, wish
from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, TrainingJob, comment, provenance
from optimizer.interop.serving import vllm
from optimizer.interop.training import stack
from optimizer.interop.training.launch import NEED_SCRIPT

_TIME_MARGIN: Final = 1.5
"""Longest time over the estimated: the 80 % interval of training reaches 1.3."""


def export(plan: LaunchPlan) -> Exported:
    """One batch script for each job and each group of replicas; a group is an array with a task for each replica."""
    files: dict[str, str] = {}
    warnings: list[str] = []
    for job in plan.jobs:
        started = stack.start(job)
        files[f"slurm-{job.name}.sbatch"] = _training(plan, job, started)
        warnings += started.warnings
    for group in plan.groups:
        files[f"slurm-{group.name}.sbatch"] = _serving(plan, group)
        warnings += vllm.warnings(group)
    warnings.append("partition and account are yours: add --partition and --account")
    return Exported(files=files, warnings=tuple(warnings))


def _training(plan: LaunchPlan, job: TrainingJob, started: stack.Start) -> str:
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


_OPTION: Final = re.compile(r"#SBATCH\s+(-{1,2}[\w-]+)(?:[=\s]\s*(\S+))?")
_SHORT: Final = {"-N": "nodes", "-J": "job-name", "-a": "array", "-G": "gpus", "-n": "ntasks"} | {"-C": "constraint"}
_GPUS: Final = re.compile(r"(?:gpu:?)?(?:(?P<name>[A-Za-z][\w.-]*):?)?(?P<count>\d+)?", re.ASCII)
_ARRAY: Final = re.compile(r"(\d+)-(\d+)(?:%\d+)?", re.ASCII)
_MOST_FEATURES: Final = 8
_MOST_TASKS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The machines of a batch script: `accelerators` on each of `nodes`, `tasks` of an array. None = it does not say.

    `accelerator` is the name that the script has, and `lines` where each is said.
    """

    name: str | None
    nodes: int | None
    accelerators: int | None
    accelerator: str | None
    tasks: int
    lines: Mapping[str, int]

    @property
    def variables(self) -> dict[str, str]:
        """What Slurm sets for the script, as far as its options say it."""
        nodes = self.nodes or 1
        found = {"SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes)}
        if self.accelerators is not None:
            each = str(self.accelerators)
            found |= {"SLURM_GPUS_PER_NODE": each, "SLURM_GPUS_ON_NODE": each}
            found["SLURM_GPUS"] = str(self.accelerators * nodes)
        return found


def read(text: str) -> Batch | None:
    """The options of a batch script; None for a script without any."""
    options: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = _OPTION.match(line)
        if found:
            name = _SHORT.get(found[1], found[1].lstrip("-"))
            options[name] = (found[2] or "", number)
    if not options:
        return None
    nodes = whole(options.get("nodes", ("", 0))[0].partition("-")[0])
    gpus = next((options[key] for key in ("gpus-per-node", "gres", "gpus", "gpus-per-task") if key in options), None)
    asked = None if gpus is None else _GPUS.fullmatch(gpus[0].split(",")[0])
    count = None if asked is None else whole(asked["count"] or "1")
    if count is not None and "gpus-per-node" not in options and "gres" not in options:
        per_task = whole(options.get("ntasks-per-node", ("1", 0))[0]) or 1
        count = count * per_task if "gpus-per-task" in options and "gpus" not in options else count // (nodes or 1)
    array = _ARRAY.fullmatch(options.get("array", ("", 0))[0])
    tasks = min(_MOST_TASKS, max(1, int(array[2]) - int(array[1]) + 1)) if array and len(array[2]) < 9 else 1
    lines = {"nodes": options.get("nodes"), "accelerators": gpus, "replicas": options.get("array")}
    return Batch(
        name=options.get("job-name", ("", 0))[0] or None,
        nodes=nodes,
        accelerators=count or None,
        accelerator=(asked["name"] if asked else None) or _constrained(options.get("constraint", ("", 0))[0]),
        tasks=tasks,
        lines={what: one[1] for what, one in lines.items() if one is not None},
    )


def _constrained(features: str) -> str | None:
    """The accelerator that features of nodes name: `h100`, `a100&80gb`; None for alternatives, and other features."""
    words = [] if "|" in features else re.findall(r"[\w.-]+", features, re.ASCII)[:_MOST_FEATURES]
    return next((one for one in ("-".join(words), *words) if isinstance(wish(one, 1, None), Wish)), None)


def in_batch(ask: Ask, batch: Batch) -> Ask:
    """The ask on what its batch script reserves: accelerators on each node, a replica for each task of an array."""
    count = batch.accelerators or ask.accelerators_per_machine
    wishes, faults = ask.wishes, ask.faults
    line = batch.lines.get("accelerators")
    if batch.accelerator is not None and not wishes:
        wishes, wrong = divided([wish(batch.accelerator, count or 1, line)])
        faults = (*faults, *wrong)
    elif count is not None:
        wishes = tuple(replace(one, count=count, line=line) for one in wishes)
    return replace(
        ask,
        source=f"Slurm script ({ask.source})",
        name=batch.name or ask.name,
        wishes=wishes,
        faults=faults,
        nodes=batch.nodes or ask.nodes,
        replicas=batch.tasks if ask.training is None else ask.replicas,
        accelerators_per_machine=count,
        packs=True,
        lines={**ask.lines, **batch.lines},
    )
