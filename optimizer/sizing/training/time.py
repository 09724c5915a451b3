"""Turns a training setup into seconds per optimizer step, tokens per second and the share of the peak reached."""

import math
from dataclasses import dataclass, fields
from typing import Final

from optimizer.sizing.dtypes import FORMATS, sixteen_bit_rate
from optimizer.sizing.training.calibration import SOFTWARE_YEAR, TIME, TimeConstants, product_factor, stack_named
from optimizer.sizing.training.memory import local_adapters, local_parameters
from optimizer.sizing.training.setup import TrainingSetup
from optimizer.workload.architecture import Architecture

_OPTIMIZER_BYTES: Final = 30.0
"""Read and written per parameter by an AdamW step in mixed precision: master, moments, gradient, 16-bit weight."""

_UNKNOWN_NETWORK_GBIT: Final = 100.0
"""What a node is taken to have where its network is not known: the least that clouds give accelerator machines."""

_PCIE_PEER_SHARE: Final = 0.35
"""Part of a PCIe link that a ring over cards without peer access reaches (host memory is crossed twice)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step by what they go to. `tokens` are of the step, `accelerators` of the job."""

    products_s: float
    attention_s: float
    elementwise_s: float
    communication_s: float
    launch_s: float
    bubble_s: float
    optimizer_s: float
    waiting_s: float
    tokens: float
    accelerators: int
    model_flops_per_token: float
    peak_flops: float

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """What the time goes to, by name."""
        return tuple((f.name.removesuffix("_s"), getattr(self, f.name)) for f in fields(self) if f.name[-2:] == "_s")

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.parts)

    @property
    def tokens_per_s(self) -> float:
        """Of the whole job, at steady state."""
        return self.tokens / self.seconds

    @property
    def tokens_per_s_per_accelerator(self) -> float:
        return self.tokens_per_s / self.accelerators

    @property
    def mfu(self) -> float:
        """Model FLOPs (recomputation not counted) over the 16-bit dense peak (PaLM, arXiv 2204.02311, appendix B)."""
        return self.tokens_per_s_per_accelerator * self.model_flops_per_token / self.peak_flops


def model_flops_per_token(model: Architecture, task: str, seq_len: float) -> float:
    """FLOPs that training needs for one token: 6 N (4 N over a frozen base) + attention.

    N = active parameters that multiply. Causal attention is computed once forward and takes twice that backward.
    """
    passes = 2.0 if task in ("lora", "qlora") else 3.0
    return passes * 2.0 * multiplied_parameters(model) + 3.0 * attention_flops_per_token(model, seq_len)


def multiplied_parameters(model: Architecture) -> float:
    """Active parameters that take part in a matrix product: all but the (untied) input embedding."""
    return model.params_active - (0.0 if model.tied else model.params_embedding)


def attention_flops_per_token(model: Architecture, seq_len: float) -> float:
    """FLOPs of causal attention forward, averaged over the tokens of a sequence."""
    return model.prefill_attention_flops(seq_len) / seq_len


def step_time(setup: TrainingSetup, constants: TimeConstants = TIME) -> StepTime:
    """Time of one optimizer step: micro-batches x (computation + exposed communication), bubble, update, stragglers.

    Gathers of ZeRO-3 and the host's launches run beside the computation: what is longer than it shows.
    """
    c, layout, cluster = constants, setup.layout, setup.cluster
    passes = _passes(setup)
    products_s = _products_s(setup, c, passes)
    attention_s = _attention_s(setup, c)
    elementwise_s = _elementwise_s(setup, c, passes)
    communication_s = _communication_s(setup, c, passes)
    busy = products_s + attention_s + elementwise_s + communication_s
    launches = _launch_s(setup, c) * setup.stage_layers * passes / 3
    launch_s = _longer(busy, launches, 4) - busy
    hidden = busy + launch_s
    gather_s = _longer(hidden, _gather_s(setup, c, passes), 3) - hidden
    micro_s = hidden + gather_s
    steps = setup.micro_steps
    # A stage can be interleaved in as many parts as it has layers (arXiv 2104.04473, section 2.2).
    bubble_s = (layout.pp - 1) * micro_s * max(c.bubble, 1.0 / setup.stage_layers)
    optimizer_s = _optimizer_s(setup, c)
    domains = max(1.0, cluster.accelerators / cluster.fast_domain)
    waiting_s = (steps * micro_s + bubble_s + optimizer_s) * c.straggler * math.log2(domains)
    return StepTime(
        products_s=steps * products_s,
        attention_s=steps * attention_s,
        elementwise_s=steps * elementwise_s,
        communication_s=steps * (communication_s + gather_s),
        launch_s=steps * launch_s,
        bubble_s=bubble_s,
        optimizer_s=optimizer_s,
        waiting_s=waiting_s,
        tokens=steps * layout.dp * setup.micro_batch * setup.seq_len,
        accelerators=layout.accelerators,
        model_flops_per_token=model_flops_per_token(setup.model, setup.task, setup.seq_len),
        peak_flops=sixteen_bit_rate(cluster.accelerator),
    )


def _longer(one: float, other: float, sharpness: int) -> float:
    """A smooth maximum: two things that run beside each other slow each other where they are equally long."""
    return float((one**sharpness + other**sharpness) ** (1 / sharpness))


def _passes(setup: TrainingSetup) -> float:
    """Forward passes' worth of products: 1 forward, 2 backward (1 over a frozen base), and what is computed again.

    Selective recomputation is of attention's core (free with a fused attention) in Megatron, and of every second
    operation in PyTorch's selective checkpointing.
    """
    backward = 1.0 if setup.is_adapter else 2.0
    selective = 0.5 if stack_named(setup.stack).speed in ("fsdp", "hf") else 0.0
    return 1.0 + backward + {"full": 1.0, "selective": selective}.get(setup.recompute, 0.0)


def _slices(setup: TrainingSetup) -> float:
    """Parts into which TP and the fullest stage cut the model."""
    return setup.layout.tp * setup.model.layers / setup.stage_layers


def _products_s(setup: TrainingSetup, c: TimeConstants, passes: float) -> float:
    """Matrix products of one micro-batch on one rank; a 4-bit base is unpacked in each pass."""
    slices = _slices(setup)
    flops = passes * 2.0 * multiplied_parameters(setup.model) * setup.micro_tokens / slices
    seconds = flops / (sixteen_bit_rate(setup.cluster.accelerator) * product_share(setup, c))
    if setup.task == "qlora":
        packed = setup.model.params_total - setup.model.params_embedding - setup.model.params_lm_head
        seconds += passes * packed / slices / c.dequantised_per_s
    return seconds


def product_share(setup: TrainingSetup, c: TimeConstants) -> float:
    """Rate of matrix products over the 16-bit dense peak (above 1 where FP8 or FP4 arithmetic is faster than that)."""
    accelerator, stack = setup.cluster.accelerator, stack_named(setup.stack)
    by_stack = {"megatron": c.megatron_share, "old": c.old_share, "fsdp": c.fsdp_share, "hf": c.hf_share}
    share = by_stack.get(stack.speed, c.xla_share)
    share *= product_factor(accelerator, c)
    rates = accelerator.dense_tflops
    if setup.precision in ("fp8", "fp4") and setup.precision in rates:
        tuned = c.tuned_fp8_share if stack.speed in ("megatron", "xla") else c.plain_fp8_share
        low = tuned if setup.precision == "fp8" else c.fp4_share
        share *= rates[setup.precision] * 1e12 / sixteen_bit_rate(accelerator) * low
    age = setup.software_year - SOFTWARE_YEAR
    share *= math.exp(c.yearly * age)
    if setup.model.is_moe:
        model = setup.model
        per_expert = setup.micro_tokens * model.experts_per_token * setup.layout.ep / model.experts
        share *= c.expert_share * math.exp(c.expert_yearly * age) / (1.0 + c.small_expert_tokens / per_expert)
    return share


def _attention_s(setup: TrainingSetup, c: TimeConstants) -> float:
    """Scores and values of one micro-batch on one rank, in 16 bit whatever the dtype of the products."""
    passes = 3.0 + (1.0 if setup.recompute == "full" else 0.0)
    flops = passes * attention_flops_per_token(setup.model, setup.seq_len) * setup.micro_tokens
    return flops / _slices(setup) / (sixteen_bit_rate(setup.cluster.accelerator) * c.attention_share)


def _elementwise_s(setup: TrainingSetup, c: TimeConstants, passes: float) -> float:
    """Norms, activations, residuals and logits of one micro-batch: bytes over the memory bandwidth."""
    model = setup.model
    tuned = stack_named(setup.stack).speed not in ("fsdp", "hf")
    values = (c.tuned_elementwise if tuned else c.plain_elementwise) * model.hidden_size * model.layers
    if model.is_moe:
        values *= 1.0 + c.expert_traffic * model.experts_per_token
    moved = 2.0 * values * passes / 3 + c.logit_traffic * model.vocab
    return moved * setup.micro_tokens / _slices(setup) / (setup.cluster.accelerator.memory_bandwidth_gb_per_s * 1e9)


def _launch_s(setup: TrainingSetup, c: TimeConstants) -> float:
    """Host time per layer and micro-batch, in three passes. XLA launches whole steps."""
    speed = stack_named(setup.stack).speed
    if setup.model.is_moe and speed != "xla":
        return c.expert_launch_s
    return {"hf": c.hf_launch_s, "fsdp": c.plain_launch_s}.get(speed, c.tuned_launch_s)


def _communication_s(setup: TrainingSetup, c: TimeConstants, passes: float) -> float:
    """Exposed communication of one micro-batch on one rank: TP's reductions, experts' all-to-all, CP's rings.

    TP: 4 all-reduces of 2 (tp - 1) / tp x message a layer forward and backward (arXiv 1909.08053, section 3), 2 more
    when recomputing. EP: each token goes to k experts and back, in each pass. CP: keys and values of the other ranks.
    """
    model, layout = setup.model, setup.layout
    message = setup.micro_tokens * model.hidden_size * 2.0
    layers = setup.stage_layers
    seconds = 0.0
    if layout.tp > 1:
        volume = layers * 4.0 * passes / 3 * 2.0 * (layout.tp - 1) / layout.tp * message
        seconds += c.tensor_exposed * volume / _bandwidth(setup, layout.tp, c)
    if layout.ep > 1 and model.is_moe:
        sent = model.experts_per_token * message * (layout.ep - 1) / layout.ep / layout.tp
        volume = min(model.moe_layers, layers) * 2.0 * passes * sent
        seconds += c.expert_exposed * volume / _bandwidth(setup, layout.ep * layout.tp, c)
    if layout.cp > 1:
        ring = setup.micro_tokens * 4.0 * model.kv_heads * model.head_dim / layout.tp * (layout.cp - 1)
        seconds += c.tensor_exposed * layers * ring * passes / 2 / _bandwidth(setup, layout.tp * layout.cp, c)
    return seconds


def _gather_s(setup: TrainingSetup, c: TimeConstants, passes: float) -> float:
    """ZeRO-3's gathers of the weights (twice) and scatter of the gradients, and weights fetched from the host."""
    layout = setup.layout
    seconds = 0.0
    weights = local_parameters(setup).total
    if setup.zero_stage >= 3 and layout.shards > 1:
        each = FORMATS["nf4"].linear_bits / 8 if setup.task == "qlora" else 2.0
        volume = each * weights * (2.0 if setup.is_adapter else 3.0)
        far = layout.accelerators > setup.cluster.fast_domain
        exposed = c.gather_exposed if far else 1.0 - 1.0 / layout.shards
        seconds += exposed * volume / _bandwidth(setup, layout.accelerators, c)
    if "params" in setup.offload:
        shards = layout.shards if setup.zero_stage >= 3 else 1
        seconds += 2.0 * weights / shards * passes / c.host_bytes_per_s
    return seconds


def _optimizer_s(setup: TrainingSetup, c: TimeConstants) -> float:
    """The update of the rank's shard, and the exchange of gradients and weights that ZeRO below stage 3 does a step."""
    layout = setup.layout
    local = local_parameters(setup).total
    if setup.is_adapter:
        local = local_adapters(setup)
    shard = local / (layout.shards if setup.zero_stage >= 1 else 1)
    pace = setup.cluster.accelerator.memory_bandwidth_gb_per_s * 1e9
    if "optimizer" in setup.offload:
        pace = c.host_bytes_per_s
    seconds = _OPTIMIZER_BYTES * shard / pace
    if layout.shards > 1 and setup.zero_stage < 3:
        seconds += c.data_exposed * 4.0 * local / _bandwidth(setup, layout.accelerators, c)
    return seconds


def _bandwidth(setup: TrainingSetup, ranks: int, c: TimeConstants) -> float:
    """Bytes per second, one way, that a rank has among `ranks` neighbours: the link's, or its part of a network."""
    cluster = setup.cluster
    if ranks <= cluster.fast_domain:
        one_way = cluster.accelerator.link_gb_per_s / 2 * 1e9
        if cluster.link in ("pcie", "none"):
            one_way = min(one_way, 32e9) * _PCIE_PEER_SHARE
        return c.link_share * one_way
    sharing = min(cluster.node_accelerators, setup.layout.accelerators)
    gbit = _UNKNOWN_NETWORK_GBIT if cluster.network_gbit_per_s is None else cluster.network_gbit_per_s
    return c.link_share * gbit / 8 * 1e9 / sharing
