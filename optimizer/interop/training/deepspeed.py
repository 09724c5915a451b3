"""Turns a training job into a DeepSpeed configuration and the script that starts with it."""

import json
from collections.abc import Iterator
from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, TrainingJob, provenance
from optimizer.interop.training import hugging_face
from optimizer.interop.training.launch import accumulation, layout_warnings, script, shared_warnings, torchrun

VERSION: Final = "DeepSpeed 0.19"
"""Release whose configuration model takes these keys (PyPI, 2026-11-30)."""

NOTE: Final = "_costopt"
"""Key of the provenance: JSON has no comments, and DeepSpeed reads no key of that name."""

STACKS: Final = ("hf", "megatron-deepspeed")


def export(plan: LaunchPlan) -> Exported:
    """A configuration and a script for each job."""
    files: dict[str, str] = {}
    found: list[str] = []
    for job in plan.jobs:
        name = f"deepspeed-{job.name}-zero{job.zero_stage}.json"
        content = {NOTE: [*provenance(plan, [job.purchase]), f"For {VERSION}."], **configuration(job)}
        files[name] = json.dumps(content, indent=2) + "\n"
        made_for = (
            f"For {VERSION}, {hugging_face.VERSION}: TRAIN_SCRIPT takes their flags, as TRL's scripts/sft.py does; "
            f"{name} lies where it is started."
        )
        tail = [f"--deepspeed {name}", *hugging_face.resume_tail(job), '"$@"']
        lines = [*hugging_face.resume_lines(job), f"exec {torchrun(job, arguments(job), *tail)}"]
        files[f"deepspeed-{job.name}.sh"] = script(plan, job, made_for, lines)
        found += warnings(job)
    return Exported(files=files, warnings=tuple(found))


def arguments(job: TrainingJob) -> list[str]:
    """The script's flags, without the name of the configuration."""
    return [*hugging_face.arguments(job), "--activation_checkpointing", str(job.recompute != "none")]


def configuration(job: TrainingJob) -> dict[str, Any]:
    """The configuration: batch sizes, dtype, ZeRO stage, what is offloaded."""
    content: dict[str, Any] = {
        # The whole batch follows from these and the ranks; said as well, a parser without ranks would refuse it.
        "train_micro_batch_size_per_gpu": job.micro_batch,
        "gradient_accumulation_steps": accumulation(job, job.ranks),
        "bf16": _bf16(job),
        "fp16": {"enabled": job.precision == "fp16"},
        "zero_optimization": _zero(job),
        "gradient_clipping": 1.0,
    }
    if _offloads_optimizer(job):
        # The trainer fills in "auto" from its own flags; DeepSpeed's AdamW has a fast form for the host.
        values = dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")
        content["optimizer"] = {"type": "AdamW", "params": values}
    return content


def _bf16(job: TrainingJob) -> dict[str, bool]:
    found = {"enabled": job.precision != "fp16"}
    if job.master_weights is False and not job.is_adapter and job.precision != "fp16" and job.zero_stage > 0:
        found |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    return found


def _zero(job: TrainingJob) -> dict[str, Any]:
    zero: dict[str, Any] = {
        "stage": job.zero_stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "stage3_gather_16bit_weights_on_model_save": job.zero_stage == 3,
    }
    if _offloads_optimizer(job):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if "params" in (job.offload or ()) and job.zero_stage == 3:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return zero


def _offloads_optimizer(job: TrainingJob) -> bool:
    return "optimizer" in (job.offload or ()) and job.zero_stage > 0


def warnings(job: TrainingJob) -> Iterator[str]:
    """What DeepSpeed cannot express of the plan."""
    yield from (*shared_warnings(job, STACKS), *layout_warnings(job), *hugging_face.warnings(job))
    offload = job.offload or frozenset()
    if "optimizer" in offload and job.zero_stage == 0:
        yield f"{job.name}: the optimizer is offloaded from ZeRO 1 on: plan with --zero-stage 1"
    if "params" in offload and job.zero_stage < 3:
        yield f"{job.name}: weights are offloaded at ZeRO 3 only: plan with --zero-stage 3"
    if _offloads_optimizer(job) and job.optimizer != "adamw":
        yield f"{job.name}: on the host DeepSpeed's AdamW is written in place of {job.optimizer}"
    if job.master_weights is False and not job.is_adapter and (job.precision == "fp16" or job.zero_stage == 0):
        yield f"{job.name}: pure 16 bit takes bf16 and ZeRO 1 or more: FP32 master weights are kept"
