"""Turns a training job into the command of the software that its plan was sized for: Megatron-LM, DeepSpeed or FSDP."""

import json
import shlex
from dataclasses import dataclass
from typing import Final

from optimizer.interop.launch_plan import TrainingJob
from optimizer.interop.training import deepspeed, fsdp, hugging_face, megatron
from optimizer.interop.training.launch import torchrun

IMAGES: Final = {
    "megatron": "nvcr.io/nvidia/nemo:25.11",
    "fsdp": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime",
}
"""Images with torch (and Transformer Engine) that NeMo's and Kubeflow Trainer's pages name, read 2026-11-30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a job runs on each machine. `lines` are a shell script that ends in the command.

    `setup` installs what the image lacks; empty = nothing.
    """

    made_for: str
    lines: tuple[str, ...]
    setup: tuple[str, ...]
    image: str
    warnings: tuple[str, ...]


def start(job: TrainingJob) -> Start:
    """The command by the plan's stack, of adapters by FSDP's where Megatron-LM trains none.

    It wants TRAIN_SCRIPT and, on several machines, MASTER_ADDR.
    """
    if job.stack in megatron.STACKS and not job.is_adapter:
        return Start(
            made_for=megatron.MADE_FOR,
            lines=(*megatron.start_lines(job), torchrun(job, megatron.arguments(job), *megatron.tail(job))),
            setup=(),
            image=IMAGES["megatron"],
            warnings=(*megatron.warnings(job), f"{job.name}: {IMAGES['megatron']} may hold an older Megatron Core"),
        )
    if job.stack == "hf" and fsdp.shards(job):
        return _deepspeed(job)
    lines = (*hugging_face.resume_lines(job), torchrun(job, fsdp.arguments(job), *hugging_face.resume_tail(job)))
    return Start(
        made_for=fsdp.MADE_FOR,
        lines=lines,
        setup=_setup(job),
        image=IMAGES["fsdp"],
        warnings=tuple(fsdp.warnings(job)),
    )


def _deepspeed(job: TrainingJob) -> Start:
    """The trainer with DeepSpeed, whose configuration the script writes first."""
    name = f"deepspeed-zero{job.zero_stage}.json"
    content = shlex.quote(json.dumps(deepspeed.configuration(job)))
    tail = (f"--deepspeed {name}", *hugging_face.resume_tail(job))
    return Start(
        made_for=f"{fsdp.MADE_FOR} With {deepspeed.VERSION}.",
        lines=(
            f"printf '%s' {content} > {name}",
            *hugging_face.resume_lines(job),
            torchrun(job, deepspeed.arguments(job), *tail),
        ),
        setup=_setup(job, "deepspeed"),
        image=IMAGES["fsdp"],
        warnings=tuple(deepspeed.warnings(job)),
    )


def _setup(job: TrainingJob, *more: str) -> tuple[str, ...]:
    packages: tuple[str, ...] = ("torch", "'transformers==5.24.*'", "'trl==1.16.*'", "peft", "kernels", *more)
    if job.task == "qlora" or "8bit" in job.optimizer or job.optimizer in ("lion", "paged-adamw"):
        packages += ("bitsandbytes", "torchao")
    return (f"pip install {' '.join(packages)}",)
