"""Turns a training job into a torchrun script with PyTorch FSDP, in the flags of transformers and TRL."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, TrainingJob
from optimizer.interop.training import hugging_face
from optimizer.interop.training.launch import layout_warnings, script, shared_warnings, torchrun

MADE_FOR: Final = f"For {hugging_face.VERSION}: TRAIN_SCRIPT takes their flags, as TRL's scripts/sft.py does."
STACKS: Final = ("fsdp", "hf", "eager")


def export(plan: LaunchPlan) -> Exported:
    """One script for each job."""
    files: dict[str, str] = {}
    found: list[str] = []
    for job in plan.jobs:
        tail = [*hugging_face.resume_tail(job), '"$@"']
        lines = [*hugging_face.resume_lines(job), f"exec {torchrun(job, arguments(job), *tail)}"]
        files[f"fsdp-{job.name}.sh"] = script(plan, job, MADE_FOR, lines)
        found += warnings(job)
    return Exported(files=files, warnings=tuple(found))


def arguments(job: TrainingJob) -> list[str]:
    """The script's flags."""
    words = hugging_face.arguments(job, names(job))
    if not shards(job):
        return [*words, "--activation_checkpointing", str(job.recompute != "none")]
    # The trainer's own switch would gather the weights once more in the backward pass.
    return [*words, "--activation_checkpointing", "False", "--fsdp", "--fsdp_config", json.dumps(configuration(job))]


def shards(job: TrainingJob) -> bool:
    """Whether FSDP is used at all."""
    return job.zero_stage > 0 and job.ranks > 1


def names(job: TrainingJob) -> Mapping[str, str]:
    """The optimizers that work."""
    return hugging_face.SHARDED if shards(job) else hugging_face.OPTIMIZERS


def configuration(job: TrainingJob) -> dict[str, Any]:
    """FSDP 2 of transformers: ZeRO 3 where weights are sharded again after the forward pass, else ZeRO 2."""
    return {
        "version": 2,
        "reshard_after_forward": job.zero_stage == 3,
        "activation_checkpointing": job.recompute != "none",
        "cpu_offload": bool({"optimizer", "params"} & (job.offload or frozenset())),
    }


def warnings(job: TrainingJob) -> Iterator[str]:
    """What FSDP cannot express of the plan."""
    yield from (*shared_warnings(job, STACKS), *layout_warnings(job), *hugging_face.warnings(job, names(job)))
    if shards(job) and job.zero_stage == 1:
        yield f"{job.name}: FSDP has no ZeRO 1; gradients are sharded too"
    yield from offload_warnings(job)


def offload_warnings(job: TrainingJob) -> Iterator[str]:
    """States that FSDP keeps on the host in another way than the plan."""
    offload = (job.offload or frozenset()) & {"optimizer", "params"}
    if offload and not shards(job):
        yield f"{job.name}: without sharding nothing offloads {' and '.join(sorted(offload))}: take DeepSpeed"
    elif len(offload) == 1:
        other = {"optimizer": "weights are", "params": "optimizer is"}[next(iter(offload))]
        yield f"{job.name}: FSDP offloads weights and optimizer together: the {other} offloaded too, which is slower"
