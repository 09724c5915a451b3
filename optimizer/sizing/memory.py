"""Turns a model, a layout and an engine into gibibytes per accelerator, and what is left for the KV cache."""

from dataclasses import dataclass
from typing import Final

from optimizer.sizing.dtypes import WeightFormat, weight_bytes
from optimizer.sizing.engines import (
    ALWAYS_CHUNKED_TOKENS,
    CAREFUL_YEAR,
    CHUNKED_YEAR,
    LARGE_CARD_GIB,
    EngineProfile,
    is_large,
    sequence_limit,
)
from optimizer.sizing.layout import Layout
from optimizer.workload.architecture import Architecture
from providers.accelerators import Accelerator
from providers.units import GIB

TIGHT_SHARE: Final = 0.10
"""A cache below this share of the card is called tight: any change of settings or version can eat it."""

_USUAL_CONTEXT: Final = 4096
"""Context that activations are sized for where nobody says one (it matters to engines without chunked prefill)."""

_CARELESS: Final = 1.3
_CARELESS_EXPERTS: Final = 4.6
"""Activations before vLLM 0.5 over what the matrices' outputs need: 3.7 GiB where 2.8 would do (Qwen1.5-7B at 32,768,
QwenLM/Qwen3 issue 16, 2024-02); with experts 18 GiB where 4 would do (Mixtral at 32,768, vllm issue 2382, 2024-01)."""

_ENCODER_GIB: Final = 2.5
"""Profile run of a vision encoder: 2.51 GiB for Qwen2.5-VL-72B (vllm issue 16570, 2025-04)."""

_EARLY_PROCESS_GIB: Final = 1.8
"""Memory outside PyTorch that vLLM before 0.8 counted per rank on 80 GB cards: 1.79 GiB alone, 3.58 in pairs (vllm
pull request 10511, 2024-11)."""

_HYBRID_PADDING: Final = 1.1
"""Pages that attention shares with recurrent states are padded: 11,305 bytes per token where 10,240 would do
(Qwen3.6-35B-A3B, club-3090 issue 612, 2026)."""

COMFORTABLE_SEQUENCES: Final = 2
"""A cache that cannot hold this many requests of the longest length is called tight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCost:
    """KV bytes per accelerator as a function of the context: a x tokens up to each window, plus a state per sequence.

    `segments` are (bytes per token, window or None).
    """

    segments: tuple[tuple[float, int | None], ...]
    state_bytes: float

    def bytes_for(self, context_tokens: float) -> float:
        """Bytes that one sequence of `context_tokens` holds on one accelerator."""
        total = self.state_bytes
        for per_token, window in self.segments:
            total += per_token * (context_tokens if window is None else min(context_tokens, window))
        return total

    def tokens_in(self, room_bytes: float) -> int:
        """The longest single sequence that `room_bytes` hold; a model that caches only windows is unbounded (10^9)."""
        growing = sum(per_token for per_token, window in self.segments if window is None)
        fixed = self.state_bytes + sum(p * w for p, w in self.segments if w is not None)
        if room_bytes < self.state_bytes:
            return 0
        if room_bytes >= fixed and growing == 0:
            return 10**9
        if room_bytes >= fixed and growing > 0:
            tokens = (room_bytes - fixed) / growing
            if all(window is None or tokens >= window for _, window in self.segments):
                return int(tokens)
        windows = sorted(w for _, w in self.segments if w is not None)
        low, high = 0.0, float(windows[-1]) if windows else room_bytes
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.bytes_for(middle) <= room_bytes else (low, middle)
        return int(low)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """One accelerator's memory in GiB: what the engine may take, what goes where, and the room left for the cache.

    `kv_room_gib` can be negative: that much is missing. `kv_bytes_per_token` is of one replica, for one token of full
    attention. `max_context_tokens` is the longest single request; `kv_tokens` what the cache holds in all.
    """

    usable_gib: float
    budget_gib: float
    weights_gib: float
    activations_gib: float
    overhead_gib: float
    kv_room_gib: float
    kv_bytes_per_token: float
    kv_tokens: int
    max_context_tokens: int
    cache: CacheCost

    @property
    def fixed_gib(self) -> float:
        """Everything but the cache."""
        return self.weights_gib + self.activations_gib + self.overhead_gib

    def concurrency(self, context_tokens: float) -> int:
        """Requests of `context_tokens` that the cache holds at once."""
        if self.kv_room_gib <= 0:
            return 0
        return int(self.kv_room_gib * GIB / self.cache.bytes_for(context_tokens))

    def verdict(self, context_tokens: float) -> str:
        """`fits`, `tight` or `does_not_fit` for requests of `context_tokens`."""
        if self.kv_room_gib <= 0 or self.max_context_tokens < context_tokens:
            return "does_not_fit"
        small = self.kv_room_gib < TIGHT_SHARE * self.usable_gib
        if small or self.concurrency(context_tokens) < COMFORTABLE_SEQUENCES:
            return "tight"
        return "fits"


def cache_cost(model: Architecture, layout: Layout, kv_bytes: float) -> CacheCost:
    """Cache bytes of one sequence on one accelerator of a replica.

    Sharded layers divide by min(TP, KV heads): beyond that, heads are replicated. MLA's latent is on every rank.
    """
    shards = min(layout.tp, model.kv_heads)
    padding = _HYBRID_PADDING if model.state_layers else 1.0
    segments = tuple(
        (
            padding * g.layers * g.elements * kv_bytes / (shards if g.sharded else 1) / layout.pp / g.compression,
            g.window,
        )
        for g in model.cache_groups
    )
    return CacheCost(segments=segments, state_bytes=model.state_bytes / layout.tp / layout.pp)


def weights_per_accelerator(model: Architecture, fmt: WeightFormat, layout: Layout, engine: EngineProfile) -> float:
    """Bytes of weights on the fullest accelerator: matrices / TP, layers / PP, KV projections copied past the heads.

    Embedding and output matrix sit on the first and the last stage; experts are split like the rest under TP or EP.
    llama.cpp leaves the input embedding to the host and spreads the output matrix like a layer.
    """
    parts = weight_bytes(model, fmt)
    copied = 0.0
    if not model.is_mla and layout.tp > model.kv_heads:
        per_copy = 2 * model.layers * model.hidden_size * model.kv_heads * model.head_dim * fmt.linear_bits / 8
        copied = per_copy * (1 / model.kv_heads - 1 / layout.tp)
    stage = (parts.dense + parts.experts / layout.dp) / layout.pp
    if engine.embedding_on_host:
        ends = parts.lm_head / layout.pp
    else:
        ends = max(parts.embedding, parts.lm_head) if layout.pp > 1 else parts.embedding + parts.lm_head
    return (ends + stage + parts.vision) / layout.tp + copied / layout.pp


def activation_bytes(
    model: Architecture, engine: EngineProfile, layout: Layout, accelerator: Accelerator, context_tokens: int
) -> float:
    """Peak of one prefill chunk or of sampling, whichever is larger (one is freed before the other).

    Chunk: 2 bytes x tokens x (3 x MLP width / TP + 3 x hidden); with experts the width is k times an expert's.
    Sampling: `logit_bytes` x sequences x vocabulary. A multimodal model's encoder is profiled too.
    """
    if engine.activations_gib is not None:
        return engine.activations_gib * GIB
    tokens = engine.batched_tokens[is_large(accelerator)]
    # Each running sequence has a token in the step.
    sampled = min(sequence_limit(engine, accelerator), tokens)
    if engine.family == "llama.cpp":
        # Logits of one micro-batch, and without flash attention its scores over the whole context, both in 32 bit.
        return 4.0 * tokens * (model.vocab + model.heads / layout.tp * context_tokens)
    if CAREFUL_YEAR <= engine.year < CHUNKED_YEAR and context_tokens > ALWAYS_CHUNKED_TOKENS:
        sampled = 0
    elif engine.year < CHUNKED_YEAR:
        tokens = max(tokens, context_tokens)
    width: float = model.intermediate_size
    hidden: float = 3 * model.hidden_size
    if model.is_moe:
        width = max(
            model.experts_per_token * model.expert_intermediate + model.shared_intermediate,
            model.intermediate_size if model.dense_layers else 0,
        )
        hidden += model.experts_per_token * model.hidden_size
    chunk = 2.0 * tokens * (3 * width / layout.tp + hidden)
    if engine.year < CAREFUL_YEAR:
        chunk *= _CARELESS_EXPERTS if model.is_moe else _CARELESS
    sampling = engine.logit_bytes * sampled * model.vocab
    return max(chunk, sampling, _ENCODER_GIB * GIB if model.params_vision else 0.0)


def estimate_memory(
    model: Architecture,
    accelerator: Accelerator,
    layout: Layout,
    fmt: WeightFormat,
    kv_bytes: float,
    engine: EngineProfile,
    gpu_memory_utilization: float | None = None,
    context_tokens: int | None = None,
) -> MemoryEstimate:
    """Memory of one accelerator: budget = usable x utilisation (the engine's own default where None).

    KV room = budget - weights - activations - per-process overhead.
    """
    usable = accelerator.usable_memory_gib
    share = gpu_memory_utilization or engine.memory_share
    context = min(context_tokens or _USUAL_CONTEXT, model.longest_context)
    weights = weights_per_accelerator(model, fmt, layout, engine) / GIB
    activations = activation_bytes(model, engine, layout, accelerator, context) / GIB
    overhead = engine.process_gib + (engine.communicator_gib if layout.accelerators > 1 else 0.0)
    if engine.family == "vllm" and engine.year < CHUNKED_YEAR and usable >= LARGE_CARD_GIB:
        overhead = _EARLY_PROCESS_GIB * (2 if layout.accelerators > 1 else 1)
    fixed = weights + activations + overhead
    room = share * (usable - fixed) if engine.share_of_free else usable * share - fixed
    cost = cache_cost(model, layout, kv_bytes)
    room_bytes = max(0.0, room) * GIB
    growing = sum(per_token for per_token, window in cost.segments if window is None)
    per_token = growing or sum(per_token for per_token, _ in cost.segments)
    longest = cost.tokens_in(room_bytes) if room > 0 else 0
    return MemoryEstimate(
        usable_gib=usable,
        budget_gib=usable * share,
        weights_gib=weights,
        activations_gib=activations,
        overhead_gib=overhead,
        kv_room_gib=room,
        kv_bytes_per_token=model.cache_elements(1) * kv_bytes,
        kv_tokens=int(room_bytes / per_token) if per_token else longest,
        max_context_tokens=min(longest, model.max_position),
        cache=cost,
    )
