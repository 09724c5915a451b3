"""Turns a training job into flags of Hugging Face's training scripts: transformers' TrainingArguments and TRL's SFT."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from optimizer.interop.launch_plan import TrainingJob
from optimizer.interop.training.launch import accumulation
from optimizer.workload.architecture import resolve_model
from providers.errors import UsageError

VERSION: Final = "transformers 5.24 and TRL 1.16"
"""Releases whose argument parsers take these flags (PyPI, 2026-11-30)."""

OPTIMIZERS: Final = {
    "adamw": "adamw_torch_fused",
    "adamw-8bit": "adamw_bnb_8bit",
    "paged-adamw": "paged_adamw_32bit",
    "paged-adamw-8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "lion": "lion_32bit",
    "sgd": "sgd",
}
"""Names of transformers' OptimizerNames by the plan's."""

SHARDED: Final = {
    "adamw": "adamw_torch_fused",
    "adamw-8bit": "adamw_torch_8bit",
    "paged-adamw": "adamw_torch_fused",
    "paged-adamw-8bit": "adamw_torch_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}
"""Those that take FSDP 2's tensors: bitsandbytes' do not (its issue 1633, and axolotl's validation), torchao's do."""


def arguments(job: TrainingJob, names: Mapping[str, str] = OPTIMIZERS) -> list[str]:
    """Model, batch, length, arithmetic, optimizer (by one of the tables of names) and adapters."""
    words = ["--model_name_or_path", job.model]
    words += ["--per_device_train_batch_size", str(job.micro_batch)]
    words += ["--gradient_accumulation_steps", str(accumulation(job, job.ranks))]
    words += ["--max_steps", str(job.steps), "--max_length", str(job.seq_len), "--packing", "True"]
    words += ["--optim", names.get(job.optimizer, names["adamw"])]
    words += _arithmetic(job)
    if job.stack == "fsdp":
        # The plan counts on fused kernels.
        words += ["--model_init_kwargs", json.dumps({"use_kernels": True})]
    if "activations" in (job.offload or ()):
        words += ["--activation_offloading", "True"]
    if job.is_adapter:
        words += ["--use_peft", "True", "--lora_r", str(job.lora_rank), "--lora_alpha", str(lora_alpha(job))]
        words += ["--lora_target_modules", "all-linear"]
    if job.task == "qlora":
        words += ["--load_in_4bit", "True", "--bnb_4bit_quant_type", "nf4", "--use_bnb_nested_quant", "True"]
        if job.zero_stage > 0 and job.ranks > 1:
            # Only equal dtypes are sharded together.
            words += ["--bnb_4bit_quant_storage", "bfloat16"]
    if job.checkpoint_steps is not None:
        words += ["--save_strategy", "steps", "--save_steps", str(job.checkpoint_steps)]
    return words


def lora_alpha(job: TrainingJob) -> int:
    """The usual scale of adapters, twice their rank: it changes no memory and no time."""
    return 2 * (job.lora_rank or 0)


def resume_lines(job: TrainingJob) -> list[str]:
    """Lines before the command: the folder of the checkpoints, and the newest one where a run may be interrupted."""
    lines = [f'OUTPUT_DIR="${{OUTPUT_DIR:-./{job.name}}}"']
    if job.checkpoint_steps is not None:
        folders = 'find "$OUTPUT_DIR" -maxdepth 1 -name "checkpoint-*" 2>/dev/null'
        lines.append(f'newest="$({folders} | sort -V | tail -n1 || true)"')
    return lines


def resume_tail(job: TrainingJob) -> list[str]:
    """What goes behind the flags, for the shell to expand."""
    words = ['--output_dir "$OUTPUT_DIR"']
    if job.checkpoint_steps is not None:
        words.append('${newest:+--resume_from_checkpoint "$newest"}')
    return words


def warnings(job: TrainingJob, names: Mapping[str, str] = OPTIMIZERS) -> Iterator[str]:
    """What these flags cannot say."""
    yield from optimizer_warnings(job, names)
    if job.precision in ("fp8", "fp4"):
        yield (
            f"{job.name}: {job.precision} arithmetic takes Transformer Engine or torchao in the script (accelerate's "
            "mixed_precision); bf16 is written, which is slower"
        )
    if job.counts_expert_adapters and has_experts(job.model):
        four_bits = ", and they stay in 16 bit" if job.task == "qlora" else ""
        yield (
            f"{job.name}: all-linear leaves out the fused experts of transformers 5, which the plan counts{four_bits}; "
            "name them in --lora_target_parameters"
        )
    elif job.task == "qlora" and has_experts(job.model):
        yield f"{job.name}: fused experts of transformers 5 stay in 16 bit; the plan counts 4"
    yield from usual_warnings(job)


def has_experts(model: str) -> bool:
    """Whether a model is known to be a mixture of experts."""
    try:
        return resolve_model(model).is_moe
    except UsageError:
        return False


def usual_warnings(job: TrainingJob) -> Iterator[str]:
    """What nothing that is built on transformers says."""
    if job.recompute == "selective":
        yield f"{job.name}: selective recomputation cannot be expressed: whole layers are recomputed, which is slower"
    if job.is_adapter:
        yield f"{job.name}: lora_alpha ({lora_alpha(job)}, twice the rank) is a usual start, not from the plan"


def optimizer_warnings(job: TrainingJob, names: Mapping[str, str]) -> Iterator[str]:
    """Optimizers of the plan that are another one in the file."""
    if job.optimizer not in names:
        yield f"{job.name}: optimizer {job.optimizer} has no name here: AdamW is written, whose states are larger"
    elif job.optimizer.startswith("paged") and names is SHARDED:
        yield f"{job.name}: paged optimizers do not work with FSDP: {names[job.optimizer]} never spills to the host"
    if job.optimizer == "adamw-8bit" and names is SHARDED:
        yield f"{job.name}: adamw_torch_8bit is torchao's: bitsandbytes' does not work with FSDP 2"


def _arithmetic(job: TrainingJob) -> list[str]:
    """Mixed precision keeps FP32 weights and computes in 16 bit; pure 16 bit and frozen bases load in 16 bit."""
    sixteen = "float16" if job.precision == "fp16" else "bfloat16"
    pure = job.master_weights is False and not job.is_adapter
    if pure:
        return ["--dtype", sixteen, "--bf16", "False", "--fp16", "False"]
    mixed = "--fp16" if job.precision == "fp16" else "--bf16"
    return ["--dtype", sixteen if job.is_adapter else "float32", mixed, "True"]
