"""Turns a training job into the flags of Megatron-LM: the plan's layout, and the model's shape where it is known."""

from collections.abc import Iterator
from typing import Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, TrainingJob
from optimizer.interop.training_launch import script, shared_warnings, torchrun
from optimizer.workload.architecture import Architecture, resolve_model
from providers.errors import UnknownName

VERSION: Final = "Megatron-LM with Megatron Core 0.16"
"""Newest on PyPI on 2026-11-30; arguments of megatron/training/arguments.py, not checked by its own parser."""


def export(plan: LaunchPlan) -> Exported:
    """One script for each job."""
    files, warnings = {}, []
    for job in plan.jobs:
        made_for = f"For {VERSION}: TRAIN_SCRIPT is its pretrain_gpt.py."
        files[f"megatron-{job.name}.sh"] = script(plan, job, made_for, torchrun(job, arguments(job)))
        warnings += [*shared_warnings(job, ("megatron", "nemo")), *_warnings(job)]
    return Exported(files=files, warnings=tuple(warnings))


def arguments(job: TrainingJob) -> list[str]:
    """The flags of layout, batch, arithmetic and shape."""
    words = ["--tensor-model-parallel-size", str(job.tensor_parallel)]
    words += ["--pipeline-model-parallel-size", str(job.pipeline_parallel)]
    words += ["--context-parallel-size", str(job.context_parallel)]
    words += ["--expert-model-parallel-size", str(job.expert_parallel)]
    words += ["--micro-batch-size", str(job.micro_batch)]
    words += ["--global-batch-size", str(job.micro_batch * job.data_parallel * job.gradient_accumulation)]
    words += ["--seq-length", str(job.seq_len), "--train-iters", str(job.steps)]
    words.append(f"--{'bf16' if job.precision != 'fp16' else 'fp16'}")
    if job.precision == "fp8":
        words += ["--fp8-format", "hybrid"]
    if job.zero_stage >= 1:
        words.append("--use-distributed-optimizer")
    if job.tensor_parallel > 1:
        words.append("--sequence-parallel")
    if job.recompute == "full":
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"]
    elif job.recompute == "selective":
        words += ["--recompute-granularity", "selective"]
    model = _known(job)
    return words if model is None else [*words, *_shape(model)]


def _shape(model: Architecture) -> list[str]:
    """A decoder's shape with gated MLPs, RMSNorm and rotary positions, as the Llama family has."""
    words = ["--num-layers", str(model.layers), "--hidden-size", str(model.hidden_size)]
    words += ["--ffn-hidden-size", str(model.intermediate_size), "--num-attention-heads", str(model.heads)]
    if model.kv_heads < model.heads:
        words += ["--group-query-attention", "--num-query-groups", str(model.kv_heads)]
    words += ["--max-position-embeddings", str(model.max_position), "--vocab-size", str(model.vocab)]
    if model.is_moe:
        words += ["--num-experts", str(model.experts), "--moe-router-topk", str(model.experts_per_token)]
        words += ["--moe-ffn-hidden-size", str(model.expert_intermediate)]
    if not model.tied:
        words.append("--untie-embeddings-and-output-weights")
    return [*words, "--swiglu", "--normalization", "RMSNorm", "--position-embedding-type", "rope"]


def _warnings(job: TrainingJob) -> Iterator[str]:
    model = _known(job)
    if job.zero_stage > 1:
        yield f"{job.name}: the distributed optimizer is ZeRO 1; stage {job.zero_stage} of the plan needs more sharding"
    if job.lora_rank is not None:
        yield f"{job.name}: pretrain_gpt.py trains no adapters: take NeMo or another target"
    if model is None:
        yield f"{job.name}: {job.model} is not in the table of models: its shape must be added"
    else:
        yield f"{job.name}: the shape is that of the Llama family (gated MLP, RMSNorm, rotary positions): check it"
        if model.is_mla or model.sliding_window or model.hybrid:
            yield f"{job.name}: {job.model} has attention that these flags do not describe"


def _known(job: TrainingJob) -> Architecture | None:
    try:
        return resolve_model(job.model)
    except UnknownName:
        return None
