"""Turns rows of a table of published training measurements into setups and measured figures, or a reason to skip."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from optimizer.sizing.dtypes import sixteen_bit_rate
from optimizer.sizing.training.calibration import SOFTWARE_YEAR, optimizer_name
from optimizer.sizing.training.setup import Cluster, TrainingLayout, TrainingSetup
from optimizer.sizing.training.time import model_flops_per_token
from optimizer.sizing.validation import carried_rows
from optimizer.workload.architecture import Architecture, CacheGroup, resolve_model
from providers.accelerators import Accelerator, has_memory_label, matches
from providers.errors import UsageError
from providers.instance_types import usual_link
from providers.networks import usual_domain, usual_network_gbit

_STACK_WORDS: Final = (
    ("nemo", ("bridge", "nemo")),
    ("megatron-deepspeed", ("megatron-deepspeed",)),
    ("megatron", ("megatron", "meta internal", "nanotron", "neox", "colossal", "flame")),
    ("xla", ("maxtext", "levanter", "jax", "pax", "t5x", "easylm", "xla", "trainium", "neuron")),
    ("eager", ("litgpt", "lit-gpt", "torchtune")),
    ("hf", ("qwen", "hf", "hugging", "deepspeed", "transformers", "trl", "axolotl", "factory", "peft", "swift")),
    ("hf", ("bitsandbytes", "fsdp_qlora", "recipes", "cookbook")),
    ("fsdp", ("unsloth", "foundry", "composer", "torchtitan", "fsdp", "olmo", "lightning", "pytorch", "torch")),
)
"""Words of a framework's name and the stack that they mean, first match first."""

_TASK_WORDS: Final = (("qlora", "qlora"), ("lora", "lora"), ("pre", "train"), ("train", "train"), ("", "finetune"))
"""Words of a method and the task that they mean, first match first."""

_UNMODELLED_PRECISIONS: Final = ("fp32", "tf32", "int8")
_NOTE_TRAITS: Final = {
    "trains_embeddings": ("embedding and output layer trained",),
    "fused_step": ("fused in backward", "optimizer in backward", "no grad buffer", "fused optimizer"),
    "chunked_loss": ("chunked c",),
    "unchunked_loss": ("baseline (padded)", "+ packed;", "+ compile;"),
    "cpu_offload": ("cpu offload",),
}
"""What a row's notes can say of its setup; tables in the project's own form name these in a column `traits`."""

_GUESSED_WIDTH_TO_DEPTH: Final = 128
_UNSTATED_MICRO_TOKENS: Final = 8192
_UNSTATED_EXPERT_RANKS: Final = 64
"""What rows that state neither micro-batch nor expert parallelism are taken to have used: enough to be efficient."""

_AROUND_NAME: Final = re.compile(r"^\d+\s*[x×]\s*|\s*NVL\d+$", re.IGNORECASE)
"""A count before an accelerator's name, and the rack behind it: `8x H100`, `GB200 NVL72`."""

_NAME_TOLERANCE: Final = 0.12
"""A name is believed when its parameters are within this share of the row's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One row: the setup as far as it is stated, and what was measured (None = not stated).

    `whole_run` rates include restarts and evaluation. `layout_stated` and `recompute_stated` say whether the row gives
    what a verdict depends on. `memory_basis` is what the peak is a reading of.
    """

    id: str
    source: str
    framework: str
    setup: TrainingSetup
    tokens_per_s_per_accelerator: float | None
    peak_memory_gib: float | None
    memory_basis: str
    fits: bool | None
    whole_run: bool
    recompute_stated: bool
    layout_stated: bool


def calibration_rows() -> list[dict[str, str]]:
    """The published measurements that the project carries, in the columns that `measurement` reads."""
    return carried_rows("training")


def measurement(row: Mapping[str, str]) -> Measurement | str:
    """The row as a measurement, or why it cannot be used. Columns that are not known are ignored."""
    quality = _text(row, "quality") or "measured"
    if quality in ("suspect", "estimate"):
        return f"quality: {quality}"
    name = (row.get("gpu") or row.get("accelerator") or "").strip()
    try:
        accelerator = _accelerator(name, _number(row, "gpu_memory_gib"))
    except UsageError:
        return f"unknown accelerator {name or '(none)'}"
    if _text(row, "precision") in _UNMODELLED_PRECISIONS or _number(row, "quant_bits") == 8:
        return "precision that is not modelled"
    try:
        optimizer_name(row.get("optimizer") or "adamw")
    except UsageError:
        return f"unknown optimizer {row.get('optimizer')}"
    model = stated_model(row)
    if model is None:
        return "model neither known nor described"
    setup = _setup(row, model, accelerator)
    rate, whole_run = _rate(row, setup)
    peak = _number(row, "peak_memory_gib_per_gpu")
    fits = {"yes": True, "no": False}.get(_text(row, "fits"))
    if rate is None and peak is None and fits is None:
        return "nothing measured"
    return Measurement(
        id=row.get("id") or "",
        source=row.get("source") or "",
        framework=row.get("framework") or "",
        setup=setup,
        tokens_per_s_per_accelerator=rate,
        peak_memory_gib=peak,
        memory_basis=_text(row, "memory_basis"),
        fits=fits,
        whole_run=whole_run,
        recompute_stated=_recompute(row) is not None,
        layout_stated=_layout_stated(row),
    )


def _accelerator(name: str, memory_gib: float | None) -> Accelerator:
    """The variant of that name; where the name leaves several, the one of the stated memory. Raises UnknownName."""
    variants = matches(_AROUND_NAME.sub("", name))
    return next((v for v in variants if memory_gib and has_memory_label(v, memory_gib)), variants[0])


def traits(row: Mapping[str, str]) -> frozenset[str]:
    """What column `traits` names, and what the notes say in words."""
    named = frozenset(word for word in _text(row, "traits").split("|") if word)
    notes = _text(row, "notes")
    return named | {trait for trait, phrases in _NOTE_TRAITS.items() if any(phrase in notes for phrase in phrases)}


def stated_model(row: Mapping[str, str]) -> Architecture | None:
    """The model that a row names, if its parameters are the row's; else the shape that the row describes."""
    params = _number(row, "params_b")
    for name in (row.get("hf_id"), row.get("model")):
        try:
            model = resolve_model(name) if name else None
        except UsageError:
            continue
        if model and (params is None or abs(params * 1e9 / model.params_total - 1) < _NAME_TOLERANCE):
            return model
    return None if params is None else _described_model(row, params * 1e9)


def _described_model(row: Mapping[str, str], total: float) -> Architecture:
    """A decoder of the row's dimensions; where only the size is known, of the usual proportions (N = 12 L h^2)."""
    layers, hidden = _whole(row, "n_layers"), _whole(row, "hidden_size")
    if not layers or not hidden:
        layers = max(4, round((total / 12 / _GUESSED_WIDTH_TO_DEPTH**2) ** (1 / 3)))
        hidden = _GUESSED_WIDTH_TO_DEPTH * layers
    width = _whole(row, "ffn_hidden") or 4 * hidden
    vocab = _whole(row, "vocab_size") or 50_000
    heads = _whole(row, "n_heads") or max(1, round(hidden / 128))
    kv_heads = _whole(row, "n_kv_heads") or heads
    head_dim = max(1, hidden // heads)

    def distance(shape: tuple[int, bool]) -> float:
        matrices, tied = shape
        attention = 2 * hidden * head_dim * (heads + kv_heads)
        embeddings = vocab * hidden * (1 if tied else 2)
        return abs(layers * (attention + matrices * hidden * width) + embeddings - total)

    matrices, tied = min(((m, t) for m in (2, 3) for t in (False, True)), key=distance)
    name = (row.get("model") or f"{total / 1e9:g}B").strip()
    return Architecture(
        name=name,
        hf_id=row.get("hf_id") or name,
        layers=layers,
        hidden_size=hidden,
        intermediate_size=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        max_position=0,
        tied=tied,
        native_dtype="bf16",
        params_total=total,
        params_active=(_number(row, "active_params_b") or total / 1e9) * 1e9,
        source="the row's own dimensions",
        mlp_matrices=matrices,
        cache_groups=(CacheGroup(layers=layers, elements=2 * kv_heads * head_dim),),
    )


def _layout_stated(row: Mapping[str, str]) -> bool:
    """Whether the row says how the model is split: degrees, or a framework that does not split it."""
    unsplit = any(word in _text(row, "dp_or_fsdp") for word in ("single", "deepspeed", "ddp"))
    return bool(_number(row, "gpu_count")) and (unsplit or bool(_number(row, "tp") and _number(row, "pp")))


def _rate(row: Mapping[str, str], setup: TrainingSetup) -> tuple[float | None, bool]:
    """Tokens/s per accelerator, and whether it is of a whole run: stated, or from GPU-hours, or from FLOP/s."""
    whole = _text(row, "quality") == "whole-run"
    rate = _number(row, "tokens_per_s_per_gpu")
    hours, tokens = _number(row, "total_gpu_hours"), _number(row, "total_tokens_b")
    if rate is None and hours and tokens:
        return tokens * 1e9 / (hours * 3600), True
    if rate is None:
        rate = _achieved_flops(row, setup) / model_flops_per_token(setup.model, setup.task, setup.seq_len)
    return (rate if rate > 0 else None), whole


def _achieved_flops(row: Mapping[str, str], setup: TrainingSetup) -> float:
    """Model FLOP/s of an accelerator, from the row's TFLOP/s or its share of the peak; 0 where it states neither.

    Hardware FLOPs count the forward pass that full recomputation repeats: three quarters of them are the model's.
    """
    tflops = _number(row, "tflops_per_gpu")
    if tflops is not None:
        hardware = _text(row, "tflops_basis").startswith("hardware") and setup.recompute == "full"
        return tflops * 1e12 * (0.75 if hardware else 1.0)
    return (_number(row, "mfu_pct") or 0.0) / 100 * sixteen_bit_rate(setup.cluster.accelerator)


def _setup(row: Mapping[str, str], model: Architecture, accelerator: Accelerator) -> TrainingSetup:
    framework, marks = _text(row, "framework"), traits(row)
    method = _text(row, "method") or "pretrain"
    task = next(task for word, task in _TASK_WORDS if word in method)
    stack = _stack(framework, whole_run=_text(row, "quality") == "whole-run")
    seq_len = _whole(row, "seq_len") or (4096 if task == "train" else 2048)
    micro_batch = _whole(row, "micro_batch") or max(1, _UNSTATED_MICRO_TOKENS // seq_len)
    count = _count(row, task)
    tp, pp, cp = (_whole(row, key) or 1 for key in ("tp", "pp", "cp"))
    ep = _whole(row, "ep") or min(max(1, model.experts), count, _UNSTATED_EXPERT_RANKS)
    layout = TrainingLayout(tp=tp, pp=pp, cp=cp, ep=ep, dp=max(1, count // (tp * pp * cp)))
    batch = _number(row, "global_batch_tokens")
    if batch is None:
        batch = 4e6 if task == "train" else float(micro_batch * seq_len * layout.dp)
    sharded = "fsdp" in (_text(row, "dp_or_fsdp") or framework)
    unsharded_litgpt = sharded and "litgpt" in framework
    recompute = _recompute(row) or ("none" if stack in ("megatron", "nemo") else "full")
    return TrainingSetup(
        model=model,
        cluster=_cluster(accelerator, count),
        layout=layout,
        task=task,
        stack=stack,
        seq_len=seq_len,
        micro_batch=micro_batch,
        global_batch_tokens=batch,
        precision=_precision(row),
        optimizer=optimizer_name(row.get("optimizer") or "adamw"),
        mixed=_is_mixed(row, task, stack),
        zero_stage=1 if unsharded_litgpt else _zero_stage(row, stack, sharded=sharded, count=count),
        recompute=recompute,
        offload=_offload(row, marks),
        lora_rank=_whole(row, "lora_rank") or 16,
        trains_embeddings="trains_embeddings" in marks,
        sequence_parallel="deepspeed" not in framework,
        # litgpt's FSDP keeps the gathered weights, and its flat parameters give the frozen base a gradient buffer.
        frozen_gradients=unsharded_litgpt,
        fused_step="fused_step" in marks,
        chunked_loss="chunked_loss" in marks or ("torchtune" in framework and "unchunked_loss" not in marks),
        software_year=_year(row),
    )


def _stack(framework: str, *, whole_run: bool) -> str:
    for stack, words in _STACK_WORDS:
        if any(word in framework for word in words):
            return stack
    return "megatron" if whole_run else "fsdp"


def _count(row: Mapping[str, str], task: str) -> int:
    """The row's count; of a whole run without one, what finishes it in about a month; else the smallest that fits."""
    count = _whole(row, "gpu_count")
    if count:
        return count
    hours = _number(row, "total_gpu_hours")
    if hours:
        return int(max(64, min(8192, 2 ** round(math.log2(hours / 720)))))
    tp, pp, cp, ep = (_whole(row, key) or 1 for key in ("tp", "pp", "cp", "ep"))
    return max(8 if task == "train" else 1, tp * pp * cp, ep)


def _cluster(accelerator: Accelerator, count: int) -> Cluster:
    domain = usual_domain(accelerator)
    per_node = 4 if domain > 8 else 8
    node = min(count, per_node)
    return Cluster(
        accelerator=accelerator,
        nodes=max(1, count // node),
        node_accelerators=node,
        link=usual_link(accelerator, node),
        network_gbit_per_s=usual_network_gbit(accelerator),
        domain=domain if domain > 8 else None,
    )


def _recompute(row: Mapping[str, str]) -> str | None:
    """What the row says is computed again; None where it does not say."""
    text = _text(row, "activation_checkpointing")
    for known in ("full", "selective", "none"):
        if text.startswith(known):
            return known
    return None


def _precision(row: Mapping[str, str]) -> str:
    text = _text(row, "precision") or "bf16"
    if "fp4" in text:
        return "fp4"
    return "fp8" if "fp8" in text else "fp16" if text == "fp16" else "bf16"


def _is_mixed(row: Mapping[str, str], task: str, stack: str) -> bool:
    """FP32 masters: usual but for adapters and the recipes of litgpt and torchtune, which are pure 16-bit."""
    return (stack != "eager" and task not in ("lora", "qlora")) or _number(row, "quant_bits") == 32


def _zero_stage(row: Mapping[str, str], stack: str, *, sharded: bool, count: int) -> int:
    stated = _number(row, "zero_stage")
    if stated is not None:
        return int(stated)
    if stack == "hf" and not sharded and "deepspeed" not in _text(row, "framework") + _text(row, "dp_or_fsdp"):
        return 0
    return 3 if sharded or (stack in ("fsdp", "xla") and count > 1) else 1


def _offload(row: Mapping[str, str], marks: frozenset[str]) -> frozenset[str]:
    moved: set[str] = set()
    if "offload" in _text(row, "dp_or_fsdp") or "cpu_offload" in marks:
        moved |= {"params", "optimizer"}
    if "offload" in _text(row, "activation_checkpointing"):
        moved.add("activations")
    return frozenset(moved)


def _year(row: Mapping[str, str]) -> float:
    """The year, with its part, from `2024-10`; today's software where there is no date."""
    match = re.match(r"(\d{4})(?:-(\d{2}))?", _text(row, "source_date"))
    return int(match[1]) + (int(match[2] or 6) - 0.5) / 12 if match else SOFTWARE_YEAR


def _text(row: Mapping[str, str], key: str) -> str:
    return (row.get(key) or "").strip().lower()


def _number(row: Mapping[str, str], key: str) -> float | None:
    try:
        value = float(row.get(key) or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(row: Mapping[str, str], key: str) -> int:
    """A count; 0 where it is not stated or below 1."""
    value = _number(row, key)
    return int(value) if value is not None and value >= 1 else 0
