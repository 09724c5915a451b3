"""Turns a fine-tuning job into an axolotl configuration: LoRA, QLoRA or all weights."""

from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, TrainingJob, provenance
from optimizer.interop.training_launch import accumulation, layout_warnings, ranks, shared_warnings
from optimizer.interop.yaml_text import yaml_documents

VERSION: Final = "axolotl 0.19"
"""Release whose schema has these keys (PyPI, 2026-11-30)."""

_OPTIMIZERS: Final = {
    "adamw": "adamw_torch_fused",
    "adamw_8bit": "adamw_bnb_8bit",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
}


def export(plan: LaunchPlan) -> Exported:
    """One configuration for each job."""
    files, warnings = {}, []
    for job in plan.jobs:
        head = [*provenance(plan, [job.purchase]), f"For {VERSION}: axolotl train axolotl-{job.name}.yaml"]
        files[f"axolotl-{job.name}.yaml"] = yaml_documents([configuration(job)], head)
        warnings += [*shared_warnings(job, ("fsdp", "hf", "unsloth")), *layout_warnings(job)]
        warnings.append(f"{job.name}: put your data set in place of the one named in the file")
        if job.optimizer not in _OPTIMIZERS:
            warnings.append(f"{job.name}: axolotl's name for {job.optimizer} is not known here: AdamW is written")
        if job.nodes > 1:
            warnings.append(f"{job.name}: start it with torchrun or Ray on {job.nodes} machines")
    return Exported(files=files, warnings=tuple(warnings))


def configuration(job: TrainingJob) -> dict[str, Any]:
    """The configuration's keys."""
    content: dict[str, Any] = {
        "base_model": job.model,
        "datasets": [{"path": "your/dataset", "type": "chat_template"}],
        "output_dir": f"./{job.name}",
        "sequence_len": job.seq_len,
        "sample_packing": True,
        "micro_batch_size": job.micro_batch,
        "gradient_accumulation_steps": accumulation(job, ranks(job)),
        "max_steps": job.steps,
        "optimizer": _OPTIMIZERS.get(job.optimizer, _OPTIMIZERS["adamw"]),
        "bf16": job.precision == "bf16",
        "fp16": job.precision == "fp16",
        "gradient_checkpointing": job.recompute == "full",
        "attn_implementation": "flash_attention_2",
    }
    if job.task in ("lora", "qlora"):
        content |= {"adapter": job.task, "lora_r": job.lora_rank, "lora_alpha": 2 * (job.lora_rank or 0)}
        content |= {"lora_target_linear": True, "load_in_4bit": job.task == "qlora"}
    if job.zero_stage == 3 and ranks(job) > 1:
        content["fsdp_version"] = 2
        content["fsdp_config"] = {
            "reshard_after_forward": True,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "state_dict_type": "FULL_STATE_DICT",
        }
    return content
