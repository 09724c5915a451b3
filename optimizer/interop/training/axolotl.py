"""Turns a fine-tuning job into an axolotl configuration: LoRA, QLoRA or all weights."""

from collections.abc import Iterator
from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, TrainingJob, provenance
from optimizer.interop.training import fsdp, hugging_face
from optimizer.interop.training.launch import accumulation, layout_warnings, shared_warnings
from optimizer.interop.yaml_text import yaml_documents

VERSION: Final = "axolotl 0.19"
"""Release whose schema takes these keys (PyPI, 2026-11-30)."""

STACKS: Final = fsdp.STACKS
_MUON: Final = {"muon": "muon"}


def export(plan: LaunchPlan) -> Exported:
    """One configuration for each job."""
    files, warnings = {}, []
    for job in plan.jobs:
        head = [*provenance(plan, [job.purchase]), f"For {VERSION}: {_start(job)}"]
        files[f"axolotl-{job.name}.yaml"] = yaml_documents([configuration(job)], head)
        warnings += [*shared_warnings(job, STACKS), *_warnings(job)]
    return Exported(files=files, warnings=tuple(warnings))


def configuration(job: TrainingJob) -> dict[str, Any]:
    """The configuration's keys."""
    names = {**fsdp.names(job), **_MUON}
    content: dict[str, Any] = {
        "base_model": job.model,
        "datasets": [{"path": "your/dataset", "type": "completion" if job.task == "train" else "chat_template"}],
        "output_dir": f"./{job.name}",
        "sequence_len": job.seq_len,
        "sample_packing": True,
        "micro_batch_size": job.micro_batch,
        "gradient_accumulation_steps": accumulation(job, job.ranks // job.context_parallel),
        "max_steps": job.steps,
        "optimizer": names.get(job.optimizer, names["adamw"]),
        "learning_rate": 2e-4 if job.is_adapter else 2e-5,
        **_arithmetic(job),
        "attn_implementation": "flash_attention_2",
    }
    if job.precision == "fp8":
        content["fp8"] = True
    if job.stack == "fsdp":
        # The plan counts on fused kernels, and on a loss that never holds all logits.
        content["plugins"] = ["axolotl.integrations.liger.LigerPlugin"]
        content |= dict.fromkeys(("liger_rope", "liger_rms_norm", "liger_glu_activation"), True)
        content["liger_fused_linear_cross_entropy"] = True
    if job.context_parallel > 1:
        content["context_parallel_size"] = job.context_parallel
    if job.is_adapter:
        content |= {"adapter": job.task, "lora_r": job.lora_rank, "lora_alpha": hugging_face.lora_alpha(job)}
        content |= {"lora_target_linear": True, "load_in_4bit": job.task == "qlora"}
    if job.checkpoint_steps is not None:
        content |= {"save_strategy": "steps", "save_steps": job.checkpoint_steps, "auto_resume_from_checkpoints": True}
    offloads = "activations" in (job.offload or ())
    if offloads:
        # Of layers that are computed again, by the trainer's own switch.
        content["activation_offloading"] = True
    content["gradient_checkpointing"] = offloads or (job.recompute != "none" and not fsdp.shards(job))
    if fsdp.shards(job):
        content |= {
            "fsdp_version": 2,
            "fsdp_config": _sharding(job, recomputes=job.recompute != "none" and not offloads),
        }
    return content


def _start(job: TrainingJob) -> str:
    command = f"axolotl train axolotl-{job.name}.yaml"
    if job.nodes == 1:
        return f"{command} --launcher torchrun -- --nproc-per-node {job.accelerators_per_node}"
    return (
        f"{command} --launcher torchrun -- --nnodes {job.nodes} --nproc-per-node {job.accelerators_per_node} "
        f"--rdzv-backend c10d --rdzv-id {job.name} --rdzv-endpoint FIRST_MACHINE:29500, on every machine."
    )


def _arithmetic(job: TrainingJob) -> dict[str, bool]:
    """Mixed precision; bfloat16 and float16 keep weights and optimizer in 16 bit, too."""
    half = job.precision == "fp16"
    if job.master_weights is False and not job.is_adapter:
        return {"float16" if half else "bfloat16": True, "bf16": False, "fp16": False}
    return {"bf16": not half, "fp16": half}


def _sharding(job: TrainingJob, *, recomputes: bool) -> dict[str, Any]:
    """FSDP 2 as axolotl names it."""
    plain = fsdp.configuration(job)
    return {
        "reshard_after_forward": plain["reshard_after_forward"],
        "activation_checkpointing": recomputes,
        "offload_params": plain["cpu_offload"],
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "state_dict_type": "FULL_STATE_DICT",
    }


def _warnings(job: TrainingJob) -> Iterator[str]:
    if max(job.tensor_parallel, job.pipeline_parallel, job.expert_parallel) > 1:
        yield from layout_warnings(job)
    yield from fsdp.offload_warnings(job)
    yield f"{job.name}: put your data set in place of the one named in the file; its learning rate is a usual one"
    if job.optimizer not in _MUON:
        yield from hugging_face.optimizer_warnings(job, fsdp.names(job))
    if "activations" in (job.offload or ()) and job.recompute == "none":
        yield f"{job.name}: axolotl offloads activations of recomputed layers only: they are recomputed, and slower"
    if job.precision == "fp4":
        yield f"{job.name}: axolotl has no {job.precision} arithmetic: bf16 is written, which is slower"
    if job.master_weights and not job.is_adapter and not fsdp.shards(job):
        yield f"{job.name}: axolotl keeps FP32 weights with FSDP only: without it weights and optimizer are in 16 bit"
    if job.counts_expert_adapters and hugging_face.has_experts(job.model):
        four_bits = ", with quantize_moe_experts: true, or they stay in 16 bit" if job.task == "qlora" else ""
        yield (
            f"{job.name}: lora_target_linear leaves out the fused experts of Transformers 5, which the plan counts; "
            f"name them in lora_target_parameters, and the other layers in lora_target_modules{four_bits}"
        )
    elif job.task == "qlora" and hugging_face.has_experts(job.model):
        yield f"{job.name}: fused experts stay in 16 bit without quantize_moe_experts: true; the plan counts 4"
    yield from hugging_face.usual_warnings(job)
