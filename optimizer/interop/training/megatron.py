"""Turns a training job into the flags of Megatron-LM: the plan's layout, and the model's shape where it is known."""

from collections.abc import Iterator
from typing import Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, TrainingJob
from optimizer.interop.training.launch import script, shared_warnings, torchrun
from optimizer.workload.architecture import Architecture, resolve_model
from providers.errors import UnknownName

VERSION: Final = "Megatron-LM with Megatron Core 0.19"
"""Release whose own parse_args takes these flags (0.19.2 on PyPI, which holds megatron.training; 2026-11-30)."""

STACKS: Final = ("megatron", "nemo", "megatron-deepspeed")
MADE_FOR: Final = f"For {VERSION}: TRAIN_SCRIPT is its pretrain_gpt.py."
_OPTIMIZERS: Final = {"adamw": "adam", "sgd": "sgd", "lion": "lion", "muon": "muon"}
_SAVE_HOURS: Final = 4
"""Between checkpoints where nothing interrupts the run; Megatron-LM asks for a number."""

_SHARDING: Final = {2: "optim_grads", 3: "optim_grads_params"}
"""Strategies of Megatron-FSDP by ZeRO stage; stage 1 is the distributed optimizer."""


def export(plan: LaunchPlan) -> Exported:
    """One script for each job that trains all weights."""
    files: dict[str, str] = {}
    found: list[str] = []
    for job in plan.jobs:
        if job.is_adapter:
            found.append(
                f"{job.name}: pretrain_gpt.py trains no adapters: it has no file; take another target, or NeMo"
            )
            continue
        command = torchrun(job, arguments(job), *tail(job), '"$@"')
        lines = [*start_lines(job), f"exec {command}"]
        files[f"megatron-{job.name}.sh"] = script(plan, job, MADE_FOR, lines)
        found += warnings(job)
    return Exported(files=files, warnings=tuple(found))


def start_lines(job: TrainingJob) -> list[str]:
    """Lines before the command: where checkpoints are, and how kernels queue beside communication."""
    lines = [f'OUTPUT_DIR="${{OUTPUT_DIR:-./{job.name}}}"']
    if _is_fsdp(job):
        # Megatron-FSDP overlaps its communication; one queue would line it up behind the kernels.
        return [*lines, "unset CUDA_DEVICE_MAX_CONNECTIONS"]
    return [*lines, "export CUDA_DEVICE_MAX_CONNECTIONS=1"]


def tail(job: TrainingJob) -> list[str]:
    """What goes behind the flags, for the shell to expand; a run goes on from what is in the folder."""
    interval = job.checkpoint_steps or max(1, round(job.steps * _SAVE_HOURS / job.hours))
    return [f'--save "$OUTPUT_DIR" --load "$OUTPUT_DIR" --save-interval {min(interval, job.steps)}']


def arguments(job: TrainingJob) -> list[str]:
    """The flags of layout, batch, arithmetic, optimizer and shape."""
    words = ["--tensor-model-parallel-size", str(job.tensor_parallel)]
    words += ["--pipeline-model-parallel-size", str(job.pipeline_parallel)]
    words += ["--context-parallel-size", str(job.context_parallel)]
    words += ["--expert-model-parallel-size", str(job.expert_parallel)]
    if job.expert_parallel > 1:
        # Experts are spread over the ranks of a tensor-parallel group as well: none of them is split.
        words += ["--expert-tensor-parallel-size", "1"]
    words += ["--micro-batch-size", str(job.micro_batch)]
    words += ["--global-batch-size", str(job.micro_batch * job.data_parallel * job.gradient_accumulation)]
    words += ["--seq-length", str(job.seq_len), "--train-iters", str(job.steps)]
    words += [*_arithmetic(job), *_optimizer(job)]
    if job.tensor_parallel > 1:
        words.append("--sequence-parallel")
    if job.recompute == "full":
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"]
    elif job.recompute == "selective":
        words += ["--recompute-granularity", "selective"]
    words += ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", job.model]
    model = _known(job)
    return words if model is None else [*words, *_shape(model), *_stages(job, model)]


def _arithmetic(job: TrainingJob) -> Iterator[str]:
    yield "--fp16" if job.precision == "fp16" else "--bf16"
    if job.precision == "fp8":
        yield from ("--fp8-format", "hybrid")
    if job.precision == "fp4":
        yield from ("--fp4-format", "e2m1")


def _optimizer(job: TrainingJob) -> Iterator[str]:
    """The optimizer, how its states are sharded, and in which dtype and where they are kept."""
    yield from ("--optimizer", _OPTIMIZERS.get(job.optimizer, "adam"))
    if _is_fsdp(job):
        yield from ("--use-megatron-fsdp", "--data-parallel-sharding-strategy", _SHARDING[job.zero_stage])
        yield from ("--ckpt-format", "fsdp_dtensor", "--no-gradient-accumulation-fusion")
    if job.zero_stage >= 1:
        yield "--use-distributed-optimizer"
    offloads = _offloads_optimizer(job)
    if offloads or _short_moments(job):
        yield "--use-precision-aware-optimizer"
    if offloads:
        yield from ("--optimizer-cpu-offload", "--optimizer-offload-fraction", "1.0")
    if _short_moments(job):
        yield from ("--exp-avg-dtype", _short_moments(job), "--exp-avg-sq-dtype", _short_moments(job))
    if job.stack == "nemo":
        yield "--grad-reduce-in-bf16"


def _is_fsdp(job: TrainingJob) -> bool:
    return job.zero_stage in _SHARDING


def _offloads_optimizer(job: TrainingJob) -> bool:
    return "optimizer" in (job.offload or ()) and job.zero_stage >= 1


def _short_moments(job: TrainingJob) -> str:
    """The dtype of the moments where it is not FP32; the precision-aware optimizer is a form of the distributed."""
    if job.zero_stage < 1 or job.optimizer not in ("adamw", "adamw-8bit"):
        return ""
    if job.optimizer == "adamw-8bit":
        return "fp8"
    return "bf16" if job.stack == "nemo" else ""


def _shape(model: Architecture) -> list[str]:
    """A decoder's shape with gated MLPs, RMSNorm and rotary positions, as the Llama family has."""
    words = ["--num-layers", str(model.layers), "--hidden-size", str(model.hidden_size)]
    words += ["--ffn-hidden-size", str(model.intermediate_size), "--num-attention-heads", str(model.heads)]
    if model.kv_heads < model.heads:
        words += ["--group-query-attention", "--num-query-groups", str(model.kv_heads)]
    words.append("--disable-bias-linear")
    words += ["--max-position-embeddings", str(model.max_position), "--vocab-size", str(model.vocab)]
    if model.is_moe:
        words += _experts(model)
    words += _latent_attention(model) if model.is_mla else ["--kv-channels", str(model.head_dim)]
    if not model.tied:
        words.append("--untie-embeddings-and-output-weights")
    return [*words, "--swiglu", "--normalization", "RMSNorm", "--position-embedding-type", "rope"]


def _experts(model: Architecture) -> Iterator[str]:
    """The experts, those that every token takes, and which layers have them."""
    yield from ("--num-experts", str(model.experts), "--moe-router-topk", str(model.experts_per_token))
    yield from ("--moe-ffn-hidden-size", str(model.expert_intermediate), "--moe-grouped-gemm")
    yield from ("--moe-token-dispatcher-type", "alltoall")
    if model.shared_intermediate:
        yield from ("--moe-shared-expert-intermediate-size", str(model.shared_intermediate))
    if model.dense_layers and model.moe_interval == 1:
        yield from ("--moe-layer-freq", f"([0]*{model.dense_layers}+[1]*{model.layers - model.dense_layers})")
    elif model.moe_interval > 1:
        yield from ("--moe-layer-freq", str(model.moe_interval))


def _latent_attention(model: Architecture) -> Iterator[str]:
    """Multi-head latent attention (DeepSeek)."""
    yield from ("--multi-latent-attention", "--kv-lora-rank", str(model.kv_lora_rank))
    if model.q_lora_rank:
        yield from ("--q-lora-rank", str(model.q_lora_rank))
    yield from ("--qk-head-dim", str(model.qk_nope_head_dim), "--qk-pos-emb-head-dim", str(model.qk_rope_head_dim))
    yield from ("--v-head-dim", str(model.v_head_dim))


def _stages(job: TrainingJob, model: Architecture) -> Iterator[str]:
    """A last pipeline stage with fewer layers where the stages do not come out even."""
    each = -(-model.layers // job.pipeline_parallel)
    last = model.layers - each * (job.pipeline_parallel - 1)
    if last != each and last > 0:
        yield from ("--decoder-last-pipeline-num-layers", str(last))


def warnings(job: TrainingJob) -> Iterator[str]:
    """What these flags cannot express of the plan."""
    yield from shared_warnings(job, STACKS)
    model = _known(job)
    if job.optimizer == "adamw-8bit" and _short_moments(job):
        yield f"{job.name}: moments are kept in FP8 by the precision-aware optimizer, in place of bitsandbytes' 8 bit"
    elif job.optimizer not in _OPTIMIZERS:
        yield f"{job.name}: Megatron-LM has no optimizer {job.optimizer}: Adam is written, whose states are larger"
    offload = job.offload or frozenset()
    if "optimizer" in offload and not _offloads_optimizer(job):
        yield f"{job.name}: the optimizer is offloaded with the distributed optimizer only: plan with --zero-stage 1"
    if rest := sorted(offload - {"optimizer"}):
        yield f"{job.name}: no flag here keeps {' and '.join(rest)} in host memory: it stays on the accelerators"
    if job.master_weights is False:
        yield f"{job.name}: pure 16 bit cannot be expressed: FP32 master weights are kept"
    yield f"{job.name}: --data-path, learning rate and, to start from a checkpoint, --pretrained-checkpoint are yours"
    if model is None:
        yield f"{job.name}: {job.model} is not in the table of models: its shape must be added"
        return
    yield (
        f"{job.name}: the shape is that of the Llama family (gated MLP, RMSNorm, rotary positions): check it, and add "
        "its --rotary-base"
    )
    if model.sliding_window or model.hybrid:
        yield f"{job.name}: {job.model} has attention that these flags do not describe"
    if model.layers <= -(-model.layers // job.pipeline_parallel) * (job.pipeline_parallel - 1):
        stages = job.pipeline_parallel
        yield f"{job.name}: {model.layers} layers do not split over {stages} stages: give a pipeline layout"


def _known(job: TrainingJob) -> Architecture | None:
    try:
        return resolve_model(job.model)
    except UnknownName:
        return None
