"""Turns a model's name, size class or `config.json` into its architecture: parameters by part, cache by layer."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from providers.errors import UnknownName, nearest

_QUANTISED_NAMES: Final = MappingProxyType(
    {"fp8": "fp8", "nvfp4": "fp4", "fp4": "fp4", "mxfp4": "mxfp4", "awq": "int4", "gptq": "int4", "int4": "int4"}
    | {"4bit": "int4", "w4a16": "int4", "w8a8": "int8", "int8": "int8", "8bit": "int8", "w8a16": "int8"}
)
"""What a suffix of a checkpoint's name says of its weights."""

_NEUTRAL_SUFFIXES: Final = frozenset(
    ["instruct", "chat", "it", "hf", "base", "gguf", "bf16", "fp16", "dynamic", "kv", "bnb", "quantized", "pt", "exl2"]
)
"""Suffixes of a name that change neither the shape nor the weights' format."""

_PREFIXES: Final = ("meta-", "nvidia-")
_GGUF_TAG = re.compile(r"[-:.](i?q\d)(?:[-_](k|0|1|nl|xxs|xs))?(?:[-_](s|m|l|xl))?$")
_SIXTEEN_BIT = re.compile(r"[-_.](bf16|fp16)$")
"""Ends of the names of checkpoints that somebody unpacked to 16 bit."""

_PAREN = re.compile(r"\(([^)]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Layers that keep the same cache: `elements` values per token and layer, of the last `window` tokens (None = all).

    `sharded` says whether tensor parallelism splits it (MLA's latent is copied to every rank); `compression` tokens
    share one entry.
    """

    layers: int
    elements: int
    window: int | None = None
    sharded: bool = True
    compression: int = 1

    def cached_tokens(self, context_tokens: float) -> float:
        """Entries kept per layer for a sequence of `context_tokens`."""
        if self.window is not None:
            return min(context_tokens, self.window)
        return context_tokens / self.compression


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder's shape. Counts are parameters, `*_b` of the table is 10^9; tokens are tokens.

    `params_total` is the text stack; `params_vision` is an encoder that is loaded beside it. `experts` = 0 for a dense
    model. `soft_capped` attention squashes its scores (Gemma 2). Engines take `max_position` x `rope_factor` as their
    default longest context. `cache_groups` hold what attention keeps per token; `state_bytes` what recurrent layers
    keep per sequence.
    """

    name: str
    hf_id: str
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int
    tied: bool
    native_dtype: str
    params_total: float
    params_active: float
    source: str
    mlp_matrices: int = 3
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    dense_layers: int = 0
    moe_interval: int = 1
    kv_lora_rank: int | None = None
    q_lora_rank: int | None = None
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int | None = None
    full_attention_layers: int = 0
    hybrid: bool = False
    state_layers: int = 0
    state_bytes: int = 0
    params_vision: float = 0.0
    soft_capped: bool = False
    rope_factor: int = 1
    cache_groups: tuple[CacheGroup, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __hash__(self) -> int:
        return hash((self.name, self.hf_id, self.native_dtype))

    @property
    def is_moe(self) -> bool:
        """Whether a router picks experts."""
        return self.experts > 0

    @property
    def is_mla(self) -> bool:
        """Whether attention caches one low-rank latent per token instead of keys and values."""
        return self.kv_lora_rank is not None

    @property
    def longest_context(self) -> int:
        """Tokens that engines allow a sequence unless told; 0 where the config names no limit."""
        return self.max_position * self.rope_factor

    @property
    def moe_layers(self) -> int:
        """Layers that have experts."""
        return (self.layers - self.dense_layers) // self.moe_interval if self.is_moe else 0

    @property
    def params_embedding(self) -> float:
        """The input embedding: vocab x hidden."""
        return float(self.vocab * self.hidden_size)

    @property
    def params_lm_head(self) -> float:
        """The output matrix; 0 where it is the (tied) input embedding."""
        return 0.0 if self.tied else self.params_embedding

    @property
    def params_experts(self) -> float:
        """All routed experts of all layers: E x (total - active) / (E - k), since total - active = (E - k) experts."""
        if not self.is_moe:
            return 0.0
        idle = self.experts - self.experts_per_token
        return self.experts * (self.params_total - self.params_active) / idle

    @property
    def params_attention(self) -> float:
        """Projections of all attention layers: Q, K, V, O, or MLA's low-rank factors (DeepSeek-V2, arXiv 2405.04434).

        Hybrids mix attention with recurrent layers of other shapes: there it is what the other parts leave.
        """
        if self.hybrid:
            return self.params_total - self.params_embedding - self.params_lm_head - self.params_experts
        h = self.hidden_size
        if self.kv_lora_rank is None:
            return float(self.layers * h * self.head_dim * 2 * (self.heads + self.kv_heads))
        qk = self.qk_nope_head_dim + self.qk_rope_head_dim
        rank = self.q_lora_rank
        q = h * self.heads * qk if rank is None else rank * (h + self.heads * qk)
        kv = h * (self.kv_lora_rank + self.qk_rope_head_dim)
        kv += self.kv_lora_rank * self.heads * (self.qk_nope_head_dim + self.v_head_dim)
        return float(self.layers * (q + kv + self.heads * self.v_head_dim * h))

    @property
    def params_router(self) -> float:
        """Routers: hidden x experts per MoE layer."""
        return float(self.moe_layers * self.hidden_size * self.experts)

    @property
    def params_dense_mlp(self) -> float:
        """Everything else: dense and shared MLPs, norms, biases, position tables."""
        if self.hybrid:
            return 0.0
        known = self.params_embedding + self.params_lm_head + self.params_experts
        return max(0.0, self.params_total - known - self.params_attention - self.params_router)

    def cache_elements(self, context_tokens: float) -> float:
        """Values that attention caches for one sequence of `context_tokens`, summed over layers."""
        return sum(g.layers * g.elements * g.cached_tokens(context_tokens) for g in self.cache_groups)

    def attention_flops(self, context_tokens: float) -> float:
        """FLOPs of attention scores and values for one new token after `context_tokens`, all layers.

        4 x heads x head_dim x visible tokens per layer; MLA works on its latent: 2 x heads x (2 rank + rope).
        """
        if self.kv_lora_rank is not None:
            per_token = 2 * self.heads * (2 * self.kv_lora_rank + self.qk_rope_head_dim)
        else:
            per_token = 4 * self.heads * self.head_dim
        return per_token * sum(g.layers * g.cached_tokens(context_tokens) for g in self._attending_groups())

    def prefill_attention_flops(self, tokens: float) -> float:
        """FLOPs of causal attention over a prompt of `tokens`: each token sees half of them on average.

        Prefill expands MLA's latent to full heads, so its head sizes are those of ordinary attention.
        """
        width = self.head_dim + (self.v_head_dim or self.head_dim)
        seen = sum(
            g.layers * (min(tokens / 2, g.window) if g.window is not None else tokens / 2 / g.compression)
            for g in self._attending_groups()
        )
        return 2 * self.heads * width * seen * tokens

    def _attending_groups(self) -> Iterator[CacheGroup]:
        """The groups that attention reads in full: MLA's small indexer cache is not one of them."""
        for group in self.cache_groups:
            if self.kv_lora_rank is None or group.elements >= self.kv_lora_rank:
                yield group


def resolve_model(text: str) -> Architecture:
    """The architecture that `text` names: a size class (`70B`), an alias or a Hugging Face id.

    A relative (instruction-tuned, quantised by somebody else) resolves only if the rest of its name is a known shape;
    what was inferred is in `notes`, and a quantised checkpoint's format becomes `native_dtype`.
    Raises UnknownName, with suggestions, for anything else.
    """
    wanted = text.strip()
    size = _size_classes().get(wanted.lower())
    if size is not None:
        model = _model(size)
        return replace(model, name=wanted, notes=(f"{wanted} stands for the {size} shape", *model.notes))
    hf_id = _ids_by_lower().get(wanted.lower())
    if hf_id is not None:
        return _model(hf_id)
    found = _by_stripped_name(wanted)
    if found is None:
        raise UnknownName(
            "model", text, _suggestions(wanted), "give a size, an alias, a Hugging Face id or a config.json"
        )
    return found


def architecture_from_config(config: Mapping[str, Any], name: str) -> Architecture:
    """The architecture that a parsed `config.json` describes, see `optimizer.workload.model_config`."""
    # Imported here: most runs name a model of the table, and the reader of configurations builds on this module.
    from optimizer.workload.model_config import read_config

    return read_config(config, name)


@cache
def models() -> Mapping[str, Architecture]:
    """Every known model by Hugging Face id."""
    return MappingProxyType({hf_id: _model(hf_id) for hf_id in _table()})


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    return {row["hf_id"]: row for row in _rows("models.csv")}


@cache
def _model(hf_id: str) -> Architecture:
    return _architecture(_table()[hf_id])


@cache
def _ids_by_lower() -> Mapping[str, str]:
    return {hf_id.lower(): hf_id for hf_id in _table()}


def _rows(name: str) -> Iterable[dict[str, str]]:
    text = Path(__file__).with_name("data").joinpath(name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


def _architecture(row: Mapping[str, str]) -> Architecture:
    def whole(key: str) -> int:
        return int(row[key] or 0)

    def optional(key: str) -> int | None:
        return int(row[key]) if row[key] else None

    partial = Architecture(
        name=row["hf_id"],
        hf_id=row["hf_id"],
        layers=whole("layers"),
        hidden_size=whole("hidden_size"),
        intermediate_size=whole("intermediate_size"),
        heads=whole("heads"),
        kv_heads=whole("kv_heads"),
        head_dim=whole("head_dim"),
        vocab=whole("vocab"),
        max_position=whole("max_position"),
        tied=row["tied"] == "yes",
        native_dtype="fp8_fp4" if row["native_dtype"] == "fp8+fp4 experts" else row["native_dtype"],
        params_total=float(row["params_total_b"]) * 1e9,
        params_active=float(row["params_active_b"]) * 1e9,
        source=row["source"],
        mlp_matrices=whole("mlp_matrices") or 3,
        experts=whole("experts"),
        experts_per_token=whole("experts_per_token"),
        expert_intermediate=whole("expert_intermediate"),
        shared_intermediate=whole("shared_intermediate"),
        dense_layers=whole("dense_layers"),
        moe_interval=whole("moe_interval") or 1,
        kv_lora_rank=optional("kv_lora_rank"),
        q_lora_rank=optional("q_lora_rank"),
        qk_nope_head_dim=whole("qk_nope_head_dim"),
        qk_rope_head_dim=whole("qk_rope_head_dim"),
        v_head_dim=whole("v_head_dim"),
        sliding_window=optional("sliding_window"),
        full_attention_layers=whole("full_attention_layers"),
        hybrid=row["attention"] in ("hybrid", "compressed"),
        state_layers=whole("state_layers"),
        state_bytes=whole("state_layers") * whole("state_bytes_per_layer"),
        params_vision=float(row["vision_params_b"] or 0) * 1e9,
        soft_capped=row["soft_capped"] == "yes",
        rope_factor=whole("rope_factor") or 1,
        notes=(row["notes"],) if row["notes"] else (),
    )
    return replace(partial, cache_groups=cache_groups(partial, row["attention"]))


def cache_groups(model: Architecture, attention: str) -> tuple[CacheGroup, ...]:
    """What each kind of layer caches. `attention`: standard, mla, mla+indexer, hybrid or compressed.

    Standard: 2 x kv_heads x head_dim per token; layers outside `full_attention_layers` keep a sliding window.
    MLA: kv_lora_rank + rope dims, once. Indexer (DeepSeek-V3.2, GLM-5): 128 FP8 values and a scale, 66 16-bit values.
    Hybrid: only the full-attention layers cache. Compressed (DeepSeek-V4): a 128-token window everywhere, and half of
    the layers one entry per 4 tokens, half one per 128; keys and values share one vector.
    """
    if model.kv_lora_rank is not None:
        latent = CacheGroup(layers=model.layers, elements=model.kv_lora_rank + model.qk_rope_head_dim, sharded=False)
        index = CacheGroup(layers=model.layers, elements=66, sharded=False)
        return (latent, index) if attention == "mla+indexer" else (latent,)
    elements = 2 * model.kv_heads * model.head_dim
    if attention == "compressed":
        half = model.layers // 2
        return (
            CacheGroup(layers=model.layers, elements=model.head_dim, window=model.sliding_window, sharded=False),
            CacheGroup(layers=half, elements=model.head_dim, compression=4, sharded=False),
            CacheGroup(layers=model.layers - half, elements=model.head_dim, compression=128, sharded=False),
        )
    full = CacheGroup(layers=model.full_attention_layers, elements=elements)
    windowed = model.layers - model.full_attention_layers
    if attention == "hybrid" or model.sliding_window is None or not windowed:
        return (full,)
    local = CacheGroup(layers=windowed, elements=elements, window=model.sliding_window)
    return (full, local) if full.layers else (local,)


@cache
def _size_classes() -> Mapping[str, str]:
    return {row["size"].lower(): row["hf_id"] for row in _rows("size_classes.csv")}


@cache
def _by_key() -> Mapping[str, tuple[str, int | None, str, str]]:
    """Stripped name -> (Hugging Face id, maximum position, native dtype, note); aliases win over table names."""
    table: dict[str, tuple[str, int | None, str, str]] = {}
    for hf_id in _table():
        table.setdefault(_strip(hf_id)[0], (hf_id, None, "", ""))
    for row in _rows("model_aliases.csv"):
        limit = int(row["max_position"]) if row["max_position"] else None
        table[_strip(row["alias"])[0]] = (row["hf_id"], limit, row["native_dtype"], row["note"])
    return table


def _by_stripped_name(text: str) -> Architecture | None:
    key, quantised = _strip(text)
    entry = _by_key().get(key)
    if entry is None:
        return None
    hf_id, limit, dtype, note = entry
    model = _model(hf_id)
    notes = list(model.notes)
    unpacked = _SIXTEEN_BIT.search(text.lower())
    if not quantised and unpacked and model.native_dtype not in ("bf16", "fp16", "fp32"):
        quantised = unpacked[1]
    if note:
        notes.insert(0, f"{text}: {note} ({hf_id})")
    if quantised and quantised != model.native_dtype:
        notes.insert(0, f"{text}: the name says {quantised} weights; shape of {hf_id}")
    return replace(
        model,
        name=text,
        max_position=limit or model.max_position,
        native_dtype=quantised or dtype or model.native_dtype,
        notes=tuple(notes),
    )


def _strip(text: str) -> tuple[str, str]:
    """The part of a name that tells the shape, and the weight format that the rest says ('' if none)."""
    name = _PAREN.sub(lambda m: "-" + m[1].replace("-", "") if "bit" in m[1] else "", text.lower()).strip()
    name = re.sub(r"[\s_:]+", "-", name.rsplit("/", 1)[-1]).strip("-")
    name = name.removeprefix("models--")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    quantised = ""
    tag = _GGUF_TAG.search(name)
    if tag:
        quantised = "_".join(part for part in tag.groups() if part)
        name = name[: tag.start()]
    words = [word for word in name.split("-") if word]
    while len(words) > 1:
        last = words[-1].split(".")[-1] if words[-1].startswith("quantized.") else words[-1]
        if last in _QUANTISED_NAMES:
            quantised = _QUANTISED_NAMES[last]
        elif last not in _NEUTRAL_SUFFIXES:
            break
        words.pop()
    kept = [word for word in words if word not in ("instruct", "chat")]
    return "-".join(kept), quantised


def _suggestions(text: str) -> tuple[str, ...]:
    keys = nearest(_strip(text)[0], [*_by_key(), *_size_classes()])
    return tuple(dict.fromkeys(_by_key()[k][0] if k in _by_key() else k.upper() for k in keys))
