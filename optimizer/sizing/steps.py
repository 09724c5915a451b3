"""Turns a model on hardware into the time of a decode step and of a prefill: bytes and FLOPs moved, plus overhead."""

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.sizing.calibration import rates
from optimizer.sizing.dtypes import WeightFormat, weight_bytes
from optimizer.sizing.engines import EngineProfile
from optimizer.sizing.layout import Hardware, Layout
from optimizer.sizing.memory import CacheCost, cache_cost
from optimizer.workload.architecture import Architecture

_SOFT_CAP_WINDOW = 4096
"""Tokens that a soft-capped kernel walks at most: half of Gemma 2's layers slide over 4,096, long contexts are rare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """One replica's step time, taken apart: seconds per unit of what a step moves or multiplies.

    A step reads the dense weights once, the experts that its tokens touch, and the cache of every sequence; every
    token is multiplied with the active parameters. Reading and multiplying overlap (`sharpness`: a p-norm of both,
    never below the larger). Pipeline stages work on different sequences, data-parallel ranks too: each sees its part.
    """

    dense_read_s: float
    experts_read_s: float
    experts: int
    experts_per_token: int
    token_s: float
    prompt_token_s: float
    expert_token_s: float
    tile_tokens: float
    cache: CacheCost
    cache_byte_s: float
    attention_token_s: float
    prefill_attention_s: float
    serial_attention_s: float
    layers_s: float
    step_s: float
    sequence_s: float
    sharpness: float
    ramp_tokens: float
    reduce_s: float
    reduce_token_s: float
    exchange_s: float
    exchange_token_s: float
    hand_over_s: float
    stage_factor: float
    prompt_stages: int
    pp: int
    dp: int

    @property
    def lanes(self) -> int:
        """Sequences that are worked on at the same time at least: pipeline stages x data-parallel ranks."""
        return self.pp * self.dp

    def touched(self, tokens: float) -> float:
        """Share of the experts that `tokens` touch: 1 - (1 - k/E)^tokens, for independent uniform routing."""
        if not self.experts:
            return 0.0
        return float(1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens)

    def decode_s(self, batch: float, context_tokens: float) -> float:
        """Seconds in which `batch` sequences of `context_tokens` each gain one token."""
        stage = max(1.0, batch / self.lanes)
        read, compute = self.dense_read_s, self.token_s * stage
        if self.experts:
            touched = self.touched(stage * self.dp)
            read += self.experts_read_s * touched
            # Each touched expert multiplies whole tiles of rows: half a tile is wasted on average.
            rows = stage + touched * self.experts / self.experts_per_token / self.dp * self.tile_tokens / 2
            compute += self.expert_token_s * rows
        cache = stage * max(
            self.cache_byte_s * self.cache.bytes_for(context_tokens) * self.pp, self.attention_token_s * context_tokens
        )
        serial = self.serial_attention_s * min(context_tokens, _SOFT_CAP_WINDOW)
        overhead = self.layers_s + self.step_s + self.sequence_s * stage
        talk = self.reduce_s + self.reduce_token_s * stage + self.exchange_s + self.exchange_token_s * stage
        return (self._overlap(read, compute) + cache + serial + overhead + talk + self.hand_over_s) * self.stage_factor

    def prefill_s(self, tokens: float, cached: float = 0.0) -> float:
        """Seconds until `tokens` of a prompt are read after a `cached` prefix, when nothing else runs."""
        read = self.dense_read_s + self.experts_read_s * self.touched(tokens)
        compute = (self.prompt_token_s + self.expert_token_s) * (tokens + self.ramp_tokens)
        work = self._overlap(read, compute)
        if self.prompt_stages > 1 and tokens > 512:
            # llama.cpp sends chunks of 512 through the stages: they overlap, by the root of what they could.
            work /= min(self.prompt_stages, tokens / 512) ** 0.5
        attention = self._prompt_attention_s(tokens, cached)
        talk = self.reduce_s + (self.reduce_token_s + self.exchange_token_s) * tokens
        return work + attention + self.layers_s + self.step_s + talk + self.hand_over_s

    def prompt_share_s(self, tokens: float, cached: float = 0.0) -> float:
        """Seconds that `tokens` of a prompt add to steps that run anyway (their FLOPs and messages), per lane."""
        work = (self.prompt_token_s + self.expert_token_s) * tokens + self._prompt_attention_s(tokens, cached)
        return work + (self.reduce_token_s + self.exchange_token_s) * tokens

    def _prompt_attention_s(self, tokens: float, cached: float) -> float:
        """Causal attention grows with the square of the length; what a cached prefix has done is not done again."""
        return self.prefill_attention_s * tokens * (tokens + 2 * cached)

    def _overlap(self, read: float, compute: float) -> float:
        p = self.sharpness
        return float((read**p + compute**p) ** (1.0 / p))


def step_costs(
    model: Architecture,
    hardware: Hardware,
    layout: Layout,
    fmt: WeightFormat,
    kv_bytes: float,
    engine: EngineProfile,
    known: Mapping[str, float] | None = None,
) -> StepCosts:
    """The costs of one replica. `known` replaces the shipped constants (for calibration).

    All-reduce twice a layer: latency + 2 (n - 1) / n x 2 bytes x hidden over one direction of the link (ring bound).
    Experts over data-parallel ranks: every rank gathers all tokens and scatters its sums, (n - 1) x 4 bytes x hidden.
    """
    r = rates(hardware.accelerator, hardware.link, layout.tp * layout.dp, engine, fmt, model, known)
    parts = weight_bytes(model, fmt)
    tp, pp, dp, layers, hidden = layout.tp, layout.pp, layout.dp, model.layers, model.hidden_size
    active_experts = model.params_experts * model.experts_per_token / model.experts if model.experts else 0.0
    dense = max(0.0, model.params_active - active_experts - model.params_embedding - model.params_lm_head)
    prompt_token = 2 * dense / tp / r.dense_flops_per_s
    exchanging = model.is_moe and dp > 1
    probe = 1024.0
    attends = model.attention_flops(probe) / probe / tp / r.attention_flops_per_s if model.is_mla else 0.0
    return StepCosts(
        dense_read_s=parts.read_per_step / tp / r.weight_bytes_per_s,
        experts_read_s=parts.experts / (tp * dp) / r.weight_bytes_per_s,
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        token_s=prompt_token + 2 * model.params_embedding / tp / r.head_flops_per_s,
        prompt_token_s=prompt_token,
        expert_token_s=2 * active_experts / tp / r.expert_flops_per_s,
        tile_tokens=r.tile_tokens,
        cache=cache_cost(model, layout, kv_bytes),
        cache_byte_s=1 / r.cache_bytes_per_s,
        attention_token_s=attends,
        prefill_attention_s=model.prefill_attention_flops(probe) / probe**2 / tp / r.attention_flops_per_s,
        serial_attention_s=r.serial_attention_s * layers,
        layers_s=r.layer_s * layers,
        step_s=r.step_s,
        sequence_s=r.sequence_s,
        sharpness=r.sharpness,
        ramp_tokens=r.ramp_tokens,
        reduce_s=2 * layers * r.allreduce_s if tp > 1 else 0.0,
        reduce_token_s=2 * layers * 2 * (tp - 1) / tp * 2 * hidden / r.link_bytes_per_s,
        exchange_s=2 * layers * r.exchange_s if exchanging else 0.0,
        exchange_token_s=2 * layers * (dp - 1) * 2 * hidden / r.link_bytes_per_s if exchanging else 0.0,
        hand_over_s=(pp - 1) * r.hand_over_s,
        stage_factor=1 + r.stage_imbalance * (pp - 1),
        prompt_stages=pp if engine.family == "llama.cpp" else 1,
        pp=pp,
        dp=dp,
    )
