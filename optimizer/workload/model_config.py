"""Turns the parsed `config.json` of a Hugging Face checkpoint into an architecture."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from optimizer.workload.architecture import Architecture, cache_groups
from providers.errors import InvalidValue, UsageError

_GATED: Final = frozenset(
    """llama mistral mistral3 ministral3 mixtral yi qwen2 qwen2_moe qwen3 qwen3_moe qwen2_vl qwen2_vl_text qwen2_5_vl
    qwen2_5_vl_text qwen3_vl qwen3_vl_text internlm internlm2 internlm3 gemma gemma2 gemma3 gemma3_text gpt_oss phi3
    phimoe deepseek deepseek_v2 deepseek_v3 kimi_k2 cohere cohere2 olmo olmo2 olmo3 granite granitemoe glm glm4 glm4_moe
    glm4_moe_lite baichuan stablelm seed_oss smollm3 exaone4 minimax_m2 dbrx chatglm llama4 llama4_text ernie4_5
    ernie4_5_moe hunyuan_v1_dense""".split()  # noqa: SIM905 - sixty names read better as words than as sixty lines
)
"""Architectures whose MLP has three matrices (gate, up, down)."""
_PLAIN: Final = frozenset(
    ["falcon", "gpt_neox", "gpt_neo", "gptj", "gpt2", "gpt_bigcode", "opt", "bloom", "mpt", "phi", "starcoder2"]
) | {"nemotron"}
"""Architectures whose MLP has two matrices (up, down)."""
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "intermediate_size": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "intermediate_size_mlp"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "max_position": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "moe_top_k"),
}
_QUANTISATIONS: Final = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "awq": "int4",
    "gptq": "int4",
    "bitsandbytes": "nf4",
    "mxfp4": "mxfp4",
    "modelopt_fp4": "fp4",
    "nvfp4": "fp4",
}
_ASSUMED_POSITIONS: Final = 2048
"""The longest context of the older models, whose files may leave it out (OPT, BLOOM, Falcon)."""

_QWEN_FULL_LAYERS: Final = 28
"""Qwen's first layers see everything; how many, where the file is silent (transformers, Qwen2Config). Its windows are
off unless the file turns them on."""

_DTYPES: Final = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def read_config(config: Mapping[str, Any], name: str) -> Architecture:
    """The architecture that a `config.json` describes; `name` is what to call it.

    Nested text configurations (`text_config`, of multimodal checkpoints) are read; the vision tower is not in it and
    is said in the notes. Raises UsageError for an architecture that is not known, InvalidValue for a key that is
    missing or is no positive number: nothing is guessed.
    """
    if not isinstance(config, Mapping):
        raise InvalidValue(f"{name}: config.json", type(config).__name__, "must hold a JSON object")
    nested = config.get("text_config")
    text = nested if isinstance(nested, Mapping) else config
    kind = str(text.get("model_type") or config.get("model_type") or "")
    if not kind:
        raise InvalidValue(
            f"{name}: model_type", None, "config.json has no `model_type`: it says which architecture it is"
        )
    if kind not in _GATED and kind not in _PLAIN:
        raise UsageError(
            f"{name}: architecture {kind!r} is not known, and a guess would size it wrong; "
            f"known: {', '.join(sorted(_GATED | _PLAIN))}"
        )
    reader = _Reader(text, name)
    shape = _shape(reader, kind)
    attention = "mla" if shape.kv_lora_rank is not None else "standard"
    return _counted(_with_notes(shape, config, nested is not None), attention)


class _Reader:
    """Reads positive whole numbers under any of their names."""

    def __init__(self, config: Mapping[str, Any], name: str) -> None:
        self.config = config
        self.name = name

    def optional(self, *keys: str) -> int | None:
        for key in keys:
            value = self.config.get(key)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise InvalidValue(f"{self.name}: {key}", value, "must be a whole number of at least 0")
                return value
        return None

    def needed(self, field: str) -> int:
        value = self.optional(*_KEYS[field])
        if not value:
            first, *others = _KEYS[field]
            also = f" (nor {', '.join(others)})" if others else ""
            raise InvalidValue(f"{self.name}: {first}", value, f"config.json lacks it{also}; download it again")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        return bool(default if value is None else value)


def _shape(reader: _Reader, kind: str) -> Architecture:
    layers, hidden, heads = reader.needed("layers"), reader.needed("hidden_size"), reader.needed("heads")
    experts = reader.optional(*_KEYS["experts"]) or 0
    width = reader.optional(*_KEYS["intermediate_size"])
    expert_width = reader.optional("moe_intermediate_size") or (width if experts else 0) or 0
    if width is None:
        if kind in _GATED and not expert_width:
            raise InvalidValue(f"{reader.name}: intermediate_size", None, "config.json lacks it")
        width = 4 * hidden if kind in _PLAIN else expert_width
    per_token = reader.needed("experts_per_token") if experts > 1 else 0
    rank = reader.optional("kv_lora_rank")
    nope, rope = reader.optional("qk_nope_head_dim") or 0, reader.optional("qk_rope_head_dim") or 0
    window, full = _windows(reader, kind, layers)
    longest = reader.optional(*_KEYS["max_position"])
    return Architecture(
        name=reader.name,
        hf_id=reader.name,
        layers=layers,
        hidden_size=hidden,
        intermediate_size=width,
        heads=heads,
        kv_heads=_kv_heads(reader, kind, heads),
        head_dim=nope + rope if rank else reader.optional("head_dim") or hidden // heads,
        vocab=reader.needed("vocab"),
        max_position=longest or _ASSUMED_POSITIONS,
        tied=reader.flag("tie_word_embeddings", _tied_by_default(kind)),
        native_dtype="bf16",
        params_total=0.0,
        params_active=0.0,
        source="config.json",
        mlp_matrices=3 if kind in _GATED else 2,
        experts=experts if experts > 1 else 0,
        experts_per_token=per_token,
        expert_intermediate=expert_width if experts > 1 else 0,
        shared_intermediate=_shared_width(reader, expert_width) if experts > 1 else 0,
        dense_layers=reader.optional("first_k_dense_replace") or 0,
        moe_interval=reader.optional("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq") or 1
        if not isinstance(reader.config.get("moe_layer_freq"), list)
        else 1,
        kv_lora_rank=rank,
        q_lora_rank=reader.optional("q_lora_rank"),
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=reader.optional("v_head_dim") or 0,
        sliding_window=window,
        soft_capped=bool(reader.config.get("attn_logit_softcapping")),
        full_attention_layers=full,
        notes=() if longest else (f"config.json names no longest context: {_ASSUMED_POSITIONS:,} tokens assumed",),
    )


def _kv_heads(reader: _Reader, kind: str, heads: int) -> int:
    one_head = kind in ("gpt_bigcode", "falcon") and reader.flag("multi_query", False)
    if one_head and not reader.flag("new_decoder_architecture", False):
        return 1
    return reader.optional(*_KEYS["kv_heads"]) or heads


def _shared_width(reader: _Reader, expert_width: int) -> int:
    explicit = reader.optional("shared_expert_intermediate_size")
    if explicit is not None:
        return explicit
    return expert_width * (reader.optional("n_shared_experts", "num_shared_experts") or 0)


def _windows(reader: _Reader, kind: str, layers: int) -> tuple[int | None, int]:
    """The sliding window, and how many layers attend to everything."""
    window = reader.optional("sliding_window", "attention_chunk_size")
    is_qwen = kind.startswith("qwen")
    if not window or not reader.flag("use_sliding_window", not is_qwen):
        return None, layers
    types = reader.config.get("layer_types")
    if isinstance(types, list):
        return window, sum(1 for entry in types if entry == "full_attention")
    if is_qwen:
        first = reader.optional("max_window_layers")
        return window, min(layers, _QWEN_FULL_LAYERS if first is None else first)
    pattern = reader.optional("sliding_window_pattern", "_sliding_window_pattern")
    if kind in ("gemma3", "gemma3_text"):
        pattern = pattern or 6
    elif kind in ("gemma2", "gpt_oss"):
        pattern = pattern or 2
    elif kind in ("cohere2", "llama4", "llama4_text"):
        pattern = pattern or 4
    return window, layers // pattern if pattern else 0


def _tied_by_default(kind: str) -> bool:
    """transformers' default where the file is silent."""
    return kind.startswith(("gemma", "cohere", "gpt2", "gpt_neo", "gpt_bigcode", "opt", "bloom", "mpt", "falcon")) and (
        kind != "gpt_neox"
    )


def _with_notes(model: Architecture, config: Mapping[str, Any], multimodal: bool) -> Architecture:
    notes = [*model.notes, *(["the vision tower is not counted"] if multimodal else [])]
    dtype = _DTYPES.get(str(config.get("torch_dtype") or config.get("dtype") or "").removeprefix("torch."), "")
    if not dtype:
        notes.append("config.json names no dtype: 16 bit assumed")
    quantisation = config.get("quantization_config")
    if isinstance(quantisation, Mapping):
        dtype = _quantised(quantisation, model.name)
    return replace(model, native_dtype=dtype or "bf16", notes=tuple(notes))


def _quantised(quantisation: Mapping[str, Any], name: str) -> str:
    method = str(quantisation.get("quant_method") or quantisation.get("quant_algo") or "").lower()
    if method == "compressed-tensors":
        groups = cast(Mapping[str, Any], quantisation.get("config_groups") or {})
        weights = next((group.get("weights") or {} for group in groups.values() if isinstance(group, Mapping)), {})
        packed = f"{weights.get('type')}{weights.get('num_bits')}"
        found = {"float8": "fp8", "int8": "int8", "int4": "int4", "float4": "fp4"}.get(packed)
        if found:
            return found
    if method in ("gptq", "bitsandbytes") and (quantisation.get("bits") == 8 or quantisation.get("load_in_8bit")):
        return "int8_gptq"
    if method == "modelopt":
        method = {"fp8": "fp8", "nvfp4": "nvfp4"}.get(str(quantisation.get("quant_algo", "")).lower(), method)
    if method not in _QUANTISATIONS:
        known = ", ".join(sorted([*_QUANTISATIONS, "compressed-tensors"]))
        raise InvalidValue(f"{name}: quantization_config", method or dict(quantisation), f"not known; known: {known}")
    return _QUANTISATIONS[method]


def _counted(model: Architecture, attention: str) -> Architecture:
    """The model with its parameters counted: embeddings + layers x (attention + norms + MLP, or router and experts)."""
    h, layers, moe = model.hidden_size, model.layers, model.moe_layers
    per_expert = 3 * h * model.expert_intermediate
    shared = 3 * h * model.shared_intermediate
    outside = model.params_embedding + model.params_lm_head + model.params_attention + 2 * h * layers + h
    outside += (layers - moe) * model.mlp_matrices * h * model.intermediate_size + moe * (h * model.experts + shared)
    return replace(
        model,
        params_total=outside + moe * model.experts * per_expert,
        params_active=outside + moe * model.experts_per_token * per_expert,
        cache_groups=cache_groups(model, attention),
    )
