"""Turns a training job into a DeepSpeed configuration and the script that starts with it."""

import json
from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, TrainingJob, provenance
from optimizer.interop.training_launch import accumulation, layout_warnings, ranks, script, shared_warnings, torchrun

VERSION: Final = "DeepSpeed 0.19"
"""Newest on PyPI on 2026-11-30; keys of deepspeed.ai/docs/config-json, not checked by its own parser."""

NOTE: Final = "_costopt"
"""Key of the provenance: JSON has no comments, and DeepSpeed reads no key of that name."""


def export(plan: LaunchPlan) -> Exported:
    """A configuration and a script for each job."""
    files, warnings = {}, []
    for job in plan.jobs:
        name = f"deepspeed-{job.name}.json"
        content = {NOTE: [*provenance(plan, [job.purchase]), f"For {VERSION}."], **configuration(job)}
        files[name] = json.dumps(content, indent=2) + "\n"
        made_for = f"For {VERSION}: TRAIN_SCRIPT takes --deepspeed, as transformers' TrainingArguments do."
        words = ["--model_name_or_path", job.model, "--deepspeed", name, "--max_steps", str(job.steps)]
        words += ["--per_device_train_batch_size", str(job.micro_batch)]
        words += ["--gradient_accumulation_steps", str(accumulation(job, ranks(job)))]
        words += ["--gradient_checkpointing", str(job.recompute == "full")]
        files[f"deepspeed-{job.name}.sh"] = script(plan, job, made_for, torchrun(job, words))
        warnings += [*shared_warnings(job, ("deepspeed", "megatron-deepspeed")), *layout_warnings(job)]
    return Exported(files=files, warnings=tuple(warnings))


def configuration(job: TrainingJob) -> dict[str, Any]:
    """The configuration: batch sizes, dtype, ZeRO stage."""
    steps = accumulation(job, ranks(job))
    return {
        "train_micro_batch_size_per_gpu": job.micro_batch,
        "gradient_accumulation_steps": steps,
        "train_batch_size": job.micro_batch * steps * ranks(job),
        "bf16": {"enabled": job.precision == "bf16"},
        "fp16": {"enabled": job.precision == "fp16"},
        "zero_optimization": {
            "stage": job.zero_stage,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "stage3_gather_16bit_weights_on_model_save": job.zero_stage == 3,
        },
        "gradient_clipping": 1.0,
    }
