"""Turns a training job into a torchrun script with PyTorch FSDP, in the flags of transformers' TrainingArguments."""

from typing import Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, TrainingJob
from optimizer.interop.training_launch import accumulation, layout_warnings, ranks, script, shared_warnings, torchrun

VERSION: Final = "transformers 5.24"
"""Release whose TrainingArguments were read (PyPI, 2026-11-30); `--max_length` is that of TRL's SFT scripts."""

_KEPT_GATHERED: Final = '{"reshard_after_forward": false}'
"""FSDP's ZeRO 2: gradients and states are sharded, weights stay gathered between forward and backward."""


def export(plan: LaunchPlan) -> Exported:
    """One script for each job."""
    files, warnings = {}, []
    for job in plan.jobs:
        made_for = f"For {VERSION}: TRAIN_SCRIPT takes the flags of TrainingArguments and TRL."
        files[f"fsdp-{job.name}.sh"] = script(plan, job, made_for, torchrun(job, arguments(job)))
        warnings += [*shared_warnings(job, ("fsdp", "hf", "eager")), *layout_warnings(job)]
        if job.zero_stage == 1:
            warnings.append(f"{job.name}: FSDP has no ZeRO 1; gradients are sharded too")
        if job.lora_rank is not None:
            warnings.append(f"{job.name}: adapters (rank {job.lora_rank}) are set in the script, not by these flags")
    return Exported(files=files, warnings=tuple(warnings))


def arguments(job: TrainingJob) -> list[str]:
    """The script's flags."""
    words = ["--model_name_or_path", job.model]
    words += ["--per_device_train_batch_size", str(job.micro_batch)]
    words += ["--gradient_accumulation_steps", str(accumulation(job, ranks(job)))]
    words += ["--max_steps", str(job.steps), "--max_length", str(job.seq_len)]
    words += ["--bf16" if job.precision == "bf16" else "--fp16", "True"]
    words += ["--gradient_checkpointing", str(job.recompute == "full")]
    if job.zero_stage > 0 and ranks(job) > 1:
        words.append("--fsdp")
        if job.zero_stage < 3:
            words += ["--fsdp_config", _KEPT_GATHERED]
    return words
