"""Turns settings of training software, flags of a command or keys of a file, into what a job asks for.

Names are those of transformers and TRL, axolotl, LLaMA-Factory, DeepSpeed, torchtune and Megatron-LM (their
documentation, read 2026-11-30); case, dashes and underscores do not matter.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from optimizer.interop.asks import Fault, TrainingAsk, whole
from optimizer.workload.training import token_count
from providers.errors import InvalidValue

COUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    "seq_len": (
        *("max_seq_length", "max_seq_len", "max_length", "sequence_len", "seq_length", "seq_len", "sequence_length"),
        *("cutoff_len", "model_max_length", "block_size", "tokenizer.max_seq_len", "data.max_seq_length"),
    ),
    "micro_batch": (
        *("per_device_train_batch_size", "micro_batch_size", "train_micro_batch_size_per_gpu", "per_device_batch"),
        *("per_device_batch_size", "per_gpu_train_batch_size", "device_batch_size", "batch_size"),
    ),
    "gradient_accumulation": ("gradient_accumulation_steps", "gradient_accumulation", "grad_accum", "accum_steps"),
    "sequences_per_step": ("global_batch_size", "train_batch_size", "global_train_batch_size"),
    "steps": ("max_steps", "train_iters", "max_train_steps", "num_train_steps"),
    "lora_rank": ("lora_r", "lora_rank", "lora_dim", "model.lora_rank", "peft.r", "peft_config.r", "lora.r"),
    "zero_stage": ("zero_stage", "zero_optimization.stage", "deepspeed_config.zero_stage"),
    "tensor_parallel": ("tensor_model_parallel_size", "tensor_parallel_size", "tensor_parallel_dim"),
    "pipeline_parallel": ("pipeline_model_parallel_size", "pipeline_parallel_size"),
    "context_parallel": ("context_parallel_size", "context_parallel_dim", "sequence_parallel_degree"),
    "expert_parallel": ("expert_model_parallel_size", "expert_parallel_size"),
    "nodes": ("nnodes", "num_machines", "num_nodes"),
    "ranks_per_node": ("nproc_per_node", "num_gpus"),
    "ranks": ("num_processes",),
}
"""Settings that are whole numbers, by what they say; the first name that is given counts."""

MODELS: Final = (
    *("model_name_or_path", "base_model", "pretrained_model_name_or_path", "model_name", "model_id", "hf_model"),
    *("model", "base_model_id"),
)
_EVIDENCE: Final = frozenset(
    {
        *("per_device_train_batch_size", "micro_batch_size", "train_micro_batch_size_per_gpu", "per_device_batch"),
        *("per_device_batch_size", "per_gpu_train_batch_size", "gradient_accumulation_steps", "lora_r", "lora_rank"),
        *("finetuning_type", "train_iters", "train_samples", "zero_optimization.stage", "num_train_epochs", "use_peft"),
        *("distributed_type", "fsdp_config.fsdp_sharding_strategy", "fsdp_config.fsdp_version"),
    }
)
"""Settings that only a training job has."""

_SIGNS: Final = frozenset(
    {
        *("adapter", "train_type", "tuner_type", "num_epochs", "max_steps", "sequence_len", "qlora", "load_in_4bit"),
        *("method", "training_method", *MODELS),
    }
)
"""Settings that others have too: two of them together are a training job's."""

_TASKS: Final[Mapping[str, str]] = {
    "full": "finetune",
    "full_finetune": "finetune",
    "finetune": "finetune",
    "fine_tune": "finetune",
    "finetuning": "finetune",
    "fine_tuning": "finetune",
    "sft": "finetune",
    "lora": "lora",
    "dora": "lora",
    "peft": "lora",
    "qlora": "qlora",
    "pretrain": "train",
    "pretraining": "train",
    "pre_training": "train",
    "train": "train",
}
_METHODS: Final = ("method", "adapter", "finetuning_type", "train_type", "tuner_type", "training_method", "task")
_FOUR_BITS: Final = (
    *("load_in_4bit", "use_4bit_quantization", "use_4bit", "bnb_config.load_in_4bit", "qlora"),
    *("quantize_base", "model.quantize_base"),
)
TARGETS: Final = (
    *("lora_target_modules", "target_modules", "lora_target", "peft_config.target_modules", "lora.target_modules"),
    "peft.target_modules",
)
"""Settings that name the matrices which have adapters, one or several."""

_ATTENTION: Final = re.compile(
    r"(?:^|\.)(?:[qkvo]_proj|[qk]v?_[ab]_proj\w*|qkv_proj|c_attn|query_key_value|Wqkv|out_proj)$"
)
_ADAPTERS: Final = ("use_peft", "use_peft_lora", "use_lora", "peft", "lora")
_PRECISIONS: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "fp8": "fp8",
}
_SWITCHED: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "fp16": "fp16",
    "bf16.enabled": "bf16",
    "fp16.enabled": "fp16",
    "bfloat16": "bf16",
    "float16": "fp16",
}
"""Switches of an arithmetic; the last two are axolotl's for weights and optimizer in 16 bit, too."""

_OPTIMIZERS: Final = (
    "optim",
    "optimizer",
    "optimizer_type",
    "optimizer.type",
    "optimizer._component_",
    "optimizer_name",
)
_OPTIMIZER_WORDS: Final = (
    ("paged", "8bit", "paged-adamw-8bit"),
    ("paged", "32bit", "paged-adamw"),
    ("paged", "adamw", "paged-adamw"),
    ("adam", "8bit", "adamw-8bit"),
    ("adam", "", "adamw"),
    ("adafactor", "", "adafactor"),
    ("muon", "", "muon"),
    ("lion", "", "lion"),
    ("sgd", "", "sgd"),
)
_RECOMPUTES: Final = (
    *(
        "gradient_checkpointing",
        "enable_activation_checkpointing",
        "activation_checkpointing",
        "use_gradient_checkpointing",
    ),
    *("fsdp_config.activation_checkpointing", "fsdp_activation_checkpointing"),
    "fsdp_config.fsdp_activation_checkpointing",
)
_OFFLOADS: Final[Mapping[str, str]] = {
    "zero_optimization.offload_optimizer.device": "optimizer",
    "zero_optimization.offload_param.device": "params",
    "offload_optimizer_device": "optimizer",
    "offload_param_device": "params",
    "deepspeed_config.offload_optimizer_device": "optimizer",
    "deepspeed_config.offload_param_device": "params",
    "fsdp_offload_params": "params",
    "fsdp_config.fsdp_offload_params": "params",
    "fsdp_config.offload_params": "params",
    "fsdp_cpu_offload": "params",
    "fsdp_config.cpu_offload": "params",
    "activation_offloading": "activations",
    "enable_activation_offloading": "activations",
    "optimizer_cpu_offload": "optimizer",
}
_HOSTS: Final = ("cpu", "nvme", "true", "1")
_MEGATRON_SHARDING: Final[Mapping[str, int]] = {"optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_ZERO_IN_A_NAME: Final = re.compile(r"(?:z|zero)[_-]?(?:stage)?[_-]?([0-3])(?!\d)", re.IGNORECASE)
_HUGGING_FACE: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w-][\w.-]*(?<!\.model)(?<!\.json)", re.ASCII)
_BUILDER: Final = re.compile(r"(?:q?lora_|dora_)?([a-z]+)(\d(?:_[1-9])?)?_(\d+(?:_\d)?b)(?:_[a-z_]+)?", re.ASCII)
_UNCOUNTED: Final = (
    (
        ("rl", "stage", "rlhf_type", "method", "training_method"),
        re.compile(r"dpo|ipo|kto|orpo|simpo|grpo|gspo|ppo|rloo|rm|gkd"),
        "losses on preferences take longer batches, and most a second model or generation",
    ),
    (
        ("modules_to_save", "lora_modules_to_save", "additional_target", "peft_config.modules_to_save"),
        re.compile(r".*\S.*"),
        "what is trained in full beside adapters takes gradients and optimizer states",
    ),
    (
        ("packing", "sample_packing", "dataset.packed"),
        re.compile(r"false|0|no"),
        "padding is computed, too, and is no training token",
    ),
    (("use_dora", "peft_use_dora", "model.use_dora"), re.compile(r"true|1|yes"), "DoRA is slower than LoRA"),
)
"""Names, the values that matter, and what the estimate leaves out."""

_DEEPEST: Final = 6
_MOST_SETTINGS: Final = 2000


@dataclass(frozen=True, slots=True)
class Setting:
    """A value as text, and the line where it stands."""

    value: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings by plain name (lower case, underscores, dots between levels)."""

    values: Mapping[str, Setting] = field(default_factory=dict)

    def first(self, names: Iterable[str]) -> Setting | None:
        """The first of the names that is given and not empty."""
        return next((self.values[name] for name in names if name in self.values and self.values[name].value), None)

    def text(self, *names: str) -> str | None:
        found = self.first(names)
        return None if found is None else found.value

    def is_on(self, *names: str) -> bool | None:
        """Whether a switch is on; None where none of the names is given, or its value is no switch."""
        word = (self.text(*names) or "").lower()
        if word in ("true", "yes", "on", "1", "auto", "unsloth"):
            return True
        return False if word in ("false", "no", "off", "0", "none", "null") else None

    def count(self, what: str) -> int | None:
        """A whole number of COUNTS; None where it is not given or none."""
        found = self.first(COUNTS[what])
        return None if found is None else whole(found.value.replace(",", "").replace("_", ""))

    @property
    def model(self) -> str | None:
        """The model that is trained; of Megatron-LM, which is given a shape, the one whose tokenizer it takes."""
        tokenizer = self.text("tokenizer_model") or ""
        builder = torchtune_model((self.text("model._component_") or "").rpartition(".")[2])
        return self.text(*MODELS) or builder or (tokenizer if _HUGGING_FACE.fullmatch(tokenizer) else None)

    def ranks_per_node(self, nodes: int | None) -> int | None:
        """Ranks of each machine, said as such or as those of all machines."""
        ranks = self.count("ranks")
        if ranks is not None and ranks % (nodes or 1) == 0:
            return self.count("ranks_per_node") or ranks // (nodes or 1)
        return self.count("ranks_per_node")

    @property
    def lines(self) -> dict[str, int]:
        """The line of each thing that is said, by the names of an Ask's fields."""
        groups = {**COUNTS, "model": MODELS, "optimizer": _OPTIMIZERS, "task": _METHODS, "recompute": _RECOMPUTES}
        groups["precision"] = ("mixed_precision", "precision", "dtype", "bf16", "fp16", "fp8_format", "fp8")
        found = {what: self.first(names) for what, names in groups.items()}
        return {what: one.line for what, one in found.items() if one is not None and one.line is not None}


def torchtune_model(name: str) -> str | None:
    """The model of a builder or recipe of torchtune: `lora_llama3_1_70b` is llama-3.1-70b; None for another name."""
    match = _BUILDER.fullmatch(name.lower().replace("/", "_"))
    if match is None:
        return None
    family, version, size = ((part or "").replace("_", ".") for part in match.groups())
    return f"{family}{version}-{size}" if family == "qwen" else "-".join(filter(None, (family, version, size)))


def plain(name: str) -> str:
    """A setting's name without dashes before it, in lower case, with underscores."""
    return name.lstrip("-").lower().replace("-", "_")


def settings_of(content: Mapping[str, Any], lines: Mapping[tuple[str | int, ...], int]) -> Settings:
    """The scalar keys of a file, nested ones with dots between the levels."""
    found: dict[str, Setting] = {}
    for path, value in _leaves(content, (), _DEEPEST):
        if len(found) >= _MOST_SETTINGS:
            break
        found[".".join(plain(str(part)) for part in path)] = Setting(_text(value), lines.get(path))
    return Settings(values=found)


def is_training(settings: Settings) -> bool:
    """Whether something is set that only training has, or two things that it has among others."""
    names = settings.values.keys()
    if _EVIDENCE & names:
        return True
    signs = _SIGNS & names
    return len(signs) > 1 and not signs <= {*MODELS}


def training_of(settings: Settings, *, stack: str | None = None) -> TrainingAsk:
    """What the settings say of the training; without a `stack` they also tell whose they are."""
    return TrainingAsk(
        task=_task(settings),
        stack=stack or _stack(settings),
        seq_len=settings.count("seq_len"),
        micro_batch=settings.count("micro_batch"),
        gradient_accumulation=settings.count("gradient_accumulation"),
        sequences_per_step=settings.count("sequences_per_step"),
        steps=settings.count("steps"),
        epochs=_number(settings.text("num_train_epochs", "num_epochs", "epochs")),
        tokens=_tokens(settings),
        optimizer=_optimizer(settings),
        precision=_precision(settings),
        master_weights=_master_weights(settings),
        lora_rank=settings.count("lora_rank"),
        lora_experts=_lora_experts(settings),
        zero_stage=_zero_stage(settings),
        offload=frozenset(_offloaded(settings)),
        recompute=_recompute(settings),
        context_parallel=settings.count("context_parallel"),
        expert_parallel=settings.count("expert_parallel"),
        uncounted=tuple(_uncounted(settings)),
    )


def _leaves(value: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and depth:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)), depth - 1)
    elif isinstance(value, (str, int, float)) and path:
        yield path, value
    elif isinstance(value, list) and path and all(isinstance(item, str) for item in value):
        yield path, " ".join(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 < number < 1e6 else None


def _stack(settings: Settings) -> str | None:
    """Software by settings that only it has, in the names of sizing."""
    names = settings.values.keys()
    if {"tensor_model_parallel_size", "num_layers", "train_iters", "train_samples"} & names:
        return "megatron"
    if any("_component_" in name for name in names):
        return "eager"
    trainer = {"per_device_train_batch_size", "finetuning_type", "base_model", "zero_optimization.stage"} & names
    if not trainer:
        return None
    fused = settings.is_on("use_liger_kernel", "model_init_kwargs.use_kernels", "liger_rms_norm") is True
    return "fsdp" if fused else "hf"


def _task(settings: Settings) -> str | None:
    """The task by the method that is named, by 4-bit weights, or by adapters that are set."""
    four_bits = settings.is_on(*_FOUR_BITS) is True
    four_bits = four_bits or settings.text("quantization_bit", "quant_bits") == "4"
    named = None
    for name in _METHODS:
        word = (settings.text(name) or "").lower().replace("-", "_")
        named = named or _TASKS.get(word)
    adapters = settings.count("lora_rank") is not None or settings.is_on(*_ADAPTERS) is True
    if named in (None, "finetune", "lora") and adapters:
        named = "lora"
    if four_bits and named in (None, "lora"):
        return "qlora"
    return named


def _tokens(settings: Settings) -> float | None:
    """Tokens in all, or Megatron's samples times the length of a sequence."""
    stated = settings.text("tokens", "train_tokens", "num_tokens", "total_tokens")
    if stated is not None:
        try:
            return token_count("tokens", stated)
        except InvalidValue:
            return None
    samples, length = whole(settings.text("train_samples")), settings.count("seq_len")
    return float(samples * length) if samples and length else None


def _optimizer(settings: Settings) -> str | None:
    """One of the names that sizing knows; another name as it is written."""
    stated = settings.text(*_OPTIMIZERS)
    if stated is None:
        return None
    word = stated.lower().replace("-", "").replace("_", "")
    return next((name for first, second, name in _OPTIMIZER_WORDS if first in word and second in word), stated)


def _precision(settings: Settings) -> str | None:
    if settings.text("fp8_format", "fp8_recipe") or settings.is_on("fp8") is True:
        return "fp8"
    for name, precision in _SWITCHED.items():
        if settings.is_on(name) is True:
            return precision
    word = (settings.text("mixed_precision", "precision", "torch_dtype", "dtype") or "").lower()
    return _PRECISIONS.get(word.removeprefix("torch.").removesuffix("_mixed").removesuffix("-mixed"))


def _master_weights(settings: Settings) -> bool | None:
    """Whether weights are kept in FP32 beside the arithmetic; None where the settings leave it open."""
    if settings.is_on("bfloat16", "float16", "bf16.bf16_master_weights_and_grads") is True:
        return False
    loaded = (settings.text("dtype", "torch_dtype") or "").removeprefix("torch.")
    mixed = settings.is_on("bf16"), settings.is_on("fp16")
    if _stack(settings) == "eager":
        # torchtune trains in the dtype alone.
        return None if not loaded else loaded not in ("bf16", "fp16")
    if _PRECISIONS.get(loaded) in ("bf16", "fp16") and mixed == (False, False):
        return False
    return True if loaded == "float32" and True in mixed else None


def _lora_experts(settings: Settings) -> bool | None:
    """False where adapters are on matrices of attention only; None where experts may have some, too."""
    named = re.findall(r"[\w.]+", settings.text(*TARGETS) or "")
    is_attention = bool(named) and all(_ATTENTION.search(name) for name in named)
    return False if is_attention and settings.is_on("lora_target_linear") is not True else None


def _uncounted(settings: Settings) -> Iterator[Fault]:
    """Settings that change memory or speed, and that no estimate counts."""
    for names, words, effect in _UNCOUNTED:
        found = settings.first(names)
        if found is not None and words.fullmatch(found.value.lower()):
            name = next(name for name in names if settings.values.get(name) is found)
            what = f"{name} {found.value[:40]} is not counted: {effect}"
            yield Fault(line=found.line, what=what, fix="measure it before relying", fatal=False)


def _zero_stage(settings: Settings) -> int | None:
    """The ZeRO stage, by its setting, by FSDP's way to shard, or by the name of DeepSpeed's configuration."""
    stated = settings.text(*COUNTS["zero_stage"])
    if stated in ("0", "1", "2", "3"):
        return int(stated)
    sharded = _MEGATRON_SHARDING.get(settings.text("data_parallel_sharding_strategy") or "")
    if sharded is not None and settings.is_on("use_megatron_fsdp", "use_custom_fsdp") is True:
        return sharded
    if settings.is_on("use_distributed_optimizer") is True:
        return 1
    sharding = settings.text("fsdp_config.fsdp_sharding_strategy", "fsdp_sharding_strategy", "fsdp") or ""
    if "grad_op" in sharding.lower() or sharding == "2":
        return 2
    gathered = settings.is_on(
        "fsdp_config.reshard_after_forward",
        "fsdp_reshard_after_forward",
        "fsdp_config.fsdp_reshard_after_forward",
    )
    has_fsdp = sharding and settings.is_on("fsdp") is not False
    if has_fsdp or settings.is_on("use_fsdp", "fsdp") or any(name.startswith("fsdp_") for name in settings.values):
        return 2 if gathered is False else 3
    in_name = _ZERO_IN_A_NAME.search((settings.text("deepspeed", "deepspeed_config_file") or "").rpartition("/")[2])
    if in_name:
        return int(in_name[1])
    # Trainers that are told neither FSDP nor DeepSpeed keep a whole copy on every rank.
    elsewhere = settings.text("deepspeed", "deepspeed_config_file", "config_file", "config", "accelerate_config")
    return 0 if _stack(settings) == "hf" and not elsewhere else None


def _offloaded(settings: Settings) -> Iterator[str]:
    for name, part in _OFFLOADS.items():
        if (settings.text(name) or "").lower() in _HOSTS:
            yield part
            if "fsdp" in name:
                yield "optimizer"
    if "offload" in (settings.text("fsdp") or ""):
        yield from ("params", "optimizer")


def _recompute(settings: Settings) -> str | None:
    granularity = (settings.text("recompute_granularity") or "").lower()
    if granularity in ("full", "selective"):
        return granularity
    if settings.is_on("recompute_activations") is True:
        return "selective"
    switched = {settings.is_on(name) for name in _RECOMPUTES} - {None}
    if not switched:
        return None
    # FSDP's own switch stands beside the trainer's, which is then off.
    return "full" if True in switched else "none"
