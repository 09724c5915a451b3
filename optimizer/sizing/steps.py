"""Turns a model on hardware into the time of a decode step and of a prefill: bytes and FLOPs moved, plus overhead."""

from dataclasses import dataclass

from optimizer.sizing.calibration import BANDWIDTH_SHARE, GEMM_SHARE, EngineProfile, allreduce_seconds
from optimizer.sizing.dtypes import WeightFormat, arithmetic, sixteen_bit_rate, weight_bytes
from optimizer.sizing.layout import Hardware, Layout
from optimizer.sizing.memory import CacheCost, cache_cost
from optimizer.workload.architecture import Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """The coefficients of one replica's step time, in seconds per unit; `decode_s` and `prefill_s` put them together.

    A step reads the dense weights once, the touched experts, and the cache of every sequence; it multiplies every
    token with the active parameters. Pipeline stages work on different sequences: each sees 1/pp of the batch.
    """

    dense_read_s: float
    experts_read_s: float
    experts: int
    experts_per_token: int
    token_flops_s: float
    cache: CacheCost
    cache_byte_s: float
    attention_flops_s: float
    prefill_attention_s: float
    overhead_s: float
    sequence_s: float
    layers: int
    hand_over_bytes: int
    tp: int
    pp: int
    dp: int
    link: str
    link_gb_per_s: float
    model: Architecture

    def touched(self, tokens: float) -> float:
        """Share of the experts that `tokens` touch: 1 - (1 - k/E)^tokens, for independent uniform routing."""
        if not self.experts:
            return 0.0
        return float(1.0 - (1.0 - self.experts_per_token / self.experts) ** tokens)

    def decode_s(self, batch: float, context_tokens: float) -> float:
        """Seconds in which `batch` sequences of `context_tokens` each gain one token."""
        stage = max(1.0, batch / self.pp / self.dp)
        read = self.dense_read_s + self.experts_read_s * self.touched(stage)
        compute = self.token_flops_s * stage
        cache = stage * self.cache_byte_s * self.cache.bytes_for(context_tokens) * self.pp
        attention = stage * self.attention_flops_s * context_tokens
        return (
            max(read, compute)
            + max(cache, attention)
            + self.overhead_s
            + self.sequence_s * stage
            + self._communication_s(stage)
        )

    def prefill_s(self, tokens: float) -> float:
        """Seconds to read one prompt of `tokens`, alone."""
        read = self.dense_read_s + self.experts_read_s * self.touched(tokens)
        compute = self.token_flops_s * tokens
        return (
            max(read, compute)
            + self.prefill_attention_s * tokens * tokens
            + self.overhead_s
            + self._communication_s(tokens)
        )

    def _communication_s(self, tokens: float) -> float:
        message = tokens * self.hand_over_bytes
        hops = self.pp - 1
        reduce = 2 * self.layers * allreduce_seconds(message, self.tp, self.link, self.link_gb_per_s)
        return reduce + (hops * (20e-6 + message / (self.link_gb_per_s * 0.25e9)) if hops else 0.0)


def step_costs(
    model: Architecture,
    hardware: Hardware,
    layout: Layout,
    fmt: WeightFormat,
    kv_bytes: float,
    engine: EngineProfile,
) -> StepCosts:
    """The coefficients for one replica: bytes over bandwidth, FLOPs over rate, both at their calibrated share."""
    accelerator = hardware.accelerator
    parts = weight_bytes(model, fmt)
    bandwidth = accelerator.memory_bandwidth_gb_per_s * 1e9 * BANDWIDTH_SHARE
    _, rate = arithmetic(accelerator, fmt)
    attention_rate = sixteen_bit_rate(accelerator) * GEMM_SHARE
    active = model.params_active - (0.0 if model.tied else model.params_embedding)
    probe = 1024.0
    return StepCosts(
        dense_read_s=parts.read_per_step / layout.tp / bandwidth,
        experts_read_s=parts.experts / layout.tp / layout.dp / bandwidth,
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        token_flops_s=2 * active / layout.tp / (rate * GEMM_SHARE),
        cache=cache_cost(model, layout, kv_bytes),
        cache_byte_s=1 / bandwidth,
        attention_flops_s=model.attention_flops(probe) / probe / layout.tp / attention_rate,
        prefill_attention_s=model.prefill_attention_flops(probe) / probe**2 / layout.tp / attention_rate,
        overhead_s=(engine.step_us + engine.layer_us * model.layers) * 1e-6,
        sequence_s=engine.sequence_us * 1e-6,
        layers=model.layers,
        hand_over_bytes=2 * model.hidden_size,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        link=hardware.link,
        link_gb_per_s=accelerator.link_gb_per_s,
        model=model,
    )
