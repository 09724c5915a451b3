"""Turns a model, a layout and an engine into gibibytes per accelerator, and what is left for the KV cache."""

from dataclasses import dataclass
from typing import Final

from optimizer.sizing.calibration import EngineProfile, is_large
from optimizer.sizing.dtypes import WeightFormat, weight_bytes
from optimizer.sizing.layout import Layout
from optimizer.workload.architecture import Architecture
from providers.accelerators import Accelerator
from providers.units import GIB

TIGHT_SHARE: Final = 0.10
"""A cache below this share of the card is called tight: any change of settings or version can eat it."""

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
    segments = tuple(
        (
            g.layers * g.elements * kv_bytes / (shards if g.sharded else 1) / layout.pp / g.compression,
            g.window,
        )
        for g in model.cache_groups
    )
    return CacheCost(segments=segments, state_bytes=model.state_bytes / layout.tp / layout.pp)


def weights_per_accelerator(model: Architecture, fmt: WeightFormat, layout: Layout) -> float:
    """Bytes of weights on the fullest accelerator: matrices / TP, layers / PP, KV projections copied past the heads.

    Embedding and output matrix sit on the first and the last stage; experts are split like the rest under TP or EP.
    """
    parts = weight_bytes(model, fmt)
    ends = parts.embedding + parts.lm_head
    if layout.pp > 1:
        ends = max(parts.embedding, parts.lm_head)
    copied = 0.0
    if not model.is_mla and layout.tp > model.kv_heads:
        per_copy = 2 * model.layers * model.hidden_size * model.kv_heads * model.head_dim * fmt.linear_bits / 8
        copied = per_copy * (1 / model.kv_heads - 1 / layout.tp)
    stage = (parts.dense + parts.experts / layout.dp) / layout.pp
    return (ends + stage) / layout.tp + copied / layout.pp + parts.vision / layout.tp


def activation_bytes(model: Architecture, engine: EngineProfile, layout: Layout, accelerator: Accelerator) -> float:
    """Peak of one prefill chunk or of sampling, whichever is larger (one is freed before the other).

    Chunk: 2 bytes x tokens x (3 x MLP width / TP + 3 x hidden); with experts the width is k times an expert's.
    Sampling: `logit_bytes` x sequences x vocabulary.
    """
    large = is_large(accelerator)
    tokens = engine.batched_tokens[large]
    sequences = engine.max_sequences[large]
    width: float = model.intermediate_size
    hidden: float = 3 * model.hidden_size
    if model.is_moe:
        width = max(
            model.experts_per_token * model.expert_intermediate + model.shared_intermediate,
            model.intermediate_size if model.dense_layers else 0,
        )
        hidden += model.experts_per_token * model.hidden_size
    chunk = 2.0 * tokens * (3 * width / layout.tp + hidden)
    sampling = engine.logit_bytes * sequences * model.vocab
    return max(chunk, sampling)


def estimate_memory(
    model: Architecture,
    accelerator: Accelerator,
    layout: Layout,
    fmt: WeightFormat,
    kv_bytes: float,
    engine: EngineProfile,
    gpu_memory_utilization: float | None = None,
) -> MemoryEstimate:
    """Memory of one accelerator: budget = usable x utilisation (the engine's own default where None).

    KV room = budget - weights - activations - per-process overhead.
    """
    usable = accelerator.usable_memory_gib
    share = gpu_memory_utilization or engine.memory_share or 1.0
    weights = weights_per_accelerator(model, fmt, layout) / GIB
    activations = activation_bytes(model, engine, layout, accelerator) / GIB
    overhead = engine.process_gib + (engine.communicator_gib if layout.accelerators > 1 else 0.0)
    room = usable * share - weights - activations - overhead
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
