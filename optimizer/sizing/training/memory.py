"""Turns a training setup into gibibytes per accelerator by what holds them, and the host memory that offload needs."""

from dataclasses import dataclass
from typing import Final

from optimizer.sizing.dtypes import FORMATS
from optimizer.sizing.training.calibration import MEMORY, OptimizerStates, Stack, optimizer_states, stack_named
from optimizer.sizing.training.setup import TrainingSetup
from optimizer.workload.architecture import Architecture
from providers.units import GIB

_NF4_BYTES: Final = FORMATS["nf4"].linear_bits / 8
_PACKED_BYTES: Final = 0.5
"""Of a 4-bit parameter without its scales."""

_OFFLOADED_SHARE: Final = 0.1
"""Of the activations, what is on the accelerator at a time while the rest is copied to the host and back."""

_LOSS_CHUNKS: Final = 8.0
"""Parts in which a chunked cross-entropy works (torchtune's default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMemory:
    """Memory of the fullest accelerator in GiB, by what holds it; `host_gib` is per node.

    `allocated_gib` is what the framework's tensors take at the peak; `needed_gib` adds the allocator's fragments, the
    CUDA context and communication buffers: that is what must be within `usable_gib`.
    """

    usable_gib: float
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    logits_gib: float
    buffers_gib: float
    context_gib: float
    fragmentation_gib: float
    host_gib: float
    host_usable_gib: float | None
    adapters_gib: float = 0.0
    """Of the states: adapters with their gradients and moments."""

    @property
    def states_gib(self) -> float:
        """Weights, gradients and optimizer states."""
        return self.weights_gib + self.gradients_gib + self.optimizer_gib

    @property
    def allocated_gib(self) -> float:
        return self.states_gib + self.activations_gib + self.logits_gib + self.buffers_gib

    @property
    def needed_gib(self) -> float:
        return self.allocated_gib + self.fragmentation_gib + self.context_gib

    @property
    def verdict(self) -> str:
        """`fits`, `tight` (within the model's own error of the limit), or `does_not_fit`."""
        if self.needed_gib > self.usable_gib or self.limiting == "host_ram":
            return "does_not_fit"
        return "tight" if self.needed_gib > self.usable_gib * MEMORY.tight_share else "fits"

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """What holds the memory, by name."""
        return (
            ("weights", self.weights_gib),
            ("gradients", self.gradients_gib),
            ("optimizer states", self.optimizer_gib),
            ("activations", self.activations_gib),
            ("logits", self.logits_gib),
            ("gathered layers and buffers", self.buffers_gib),
            ("context and fragmentation", self.context_gib + self.fragmentation_gib),
        )

    @property
    def dominant(self) -> str:
        """The largest item."""
        return max(self.parts, key=lambda part: part[1])[0]

    @property
    def limiting(self) -> str:
        """What runs out first: accelerator, or host_ram."""
        short = self.host_usable_gib is not None and self.host_gib > self.host_usable_gib
        return "host_ram" if short else "accelerator"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParameters:
    """Parameters that the fullest rank holds before ZeRO shards them: dense (with embeddings) and experts."""

    dense: float
    experts: float
    embedding: float
    layer: float
    """One transformer layer, whole: what FSDP gathers at once."""

    @property
    def total(self) -> float:
        return self.dense + self.experts


def training_memory(setup: TrainingSetup) -> TrainingMemory:
    """Memory of the fullest rank at its peak: states + the larger of backward pass and optimizer step.

    States by rank = bytes per parameter / the ranks that ZeRO shards them over (Rajbhandari et al., arXiv 1910.02054);
    activations after Korthikanti et al. (arXiv 2205.05198).
    """
    stack = stack_named(setup.stack)
    local = local_parameters(setup)
    states = _adapter_states(setup, local, stack) if setup.is_adapter else _full_states(setup, local, stack)
    activations, logits = _backward_bytes(setup)
    buffers = _buffer_bytes(setup, local)
    # The optimizer step runs when activations are gone: only what it needs beyond them raises the peak.
    buffers += max(0.0, _step_bytes(setup, local, stack) - activations - logits)
    moving = states.gradients + activations + logits + buffers
    cluster = setup.cluster
    ranks = min(cluster.node_accelerators, setup.layout.accelerators)
    return TrainingMemory(
        usable_gib=cluster.accelerator.usable_memory_gib,
        weights_gib=states.weights / GIB,
        gradients_gib=states.gradients / GIB,
        optimizer_gib=states.optimizer / GIB,
        activations_gib=activations / GIB,
        logits_gib=logits / GIB,
        buffers_gib=buffers / GIB,
        context_gib=MEMORY.context_gib + (MEMORY.communicator_gib if setup.layout.accelerators > 1 else 0.0),
        fragmentation_gib=MEMORY.fragmentation_share * moving / GIB,
        host_gib=max(states.host * ranks, _loading_bytes(setup)) / GIB,
        host_usable_gib=cluster.host_memory_gib,
        adapters_gib=states.adapters / GIB,
    )


def local_parameters(setup: TrainingSetup) -> LocalParameters:
    """The parameters of the fullest rank: its stage's layers over TP (experts over EP) and its embedding.

    With pipeline stages the first holds the embedding, the last the output matrix (a tied one is on both).
    """
    model, layout = setup.model, setup.layout
    embeddings = model.params_embedding + model.params_lm_head
    body = max(0.0, model.params_total - embeddings - model.params_experts)
    at_end = embeddings if layout.pp == 1 else model.params_embedding
    stage = setup.stage_layers / max(1, model.layers)
    return LocalParameters(
        dense=(body * stage + at_end) / layout.tp,
        experts=model.params_experts * stage / (layout.ep if layout.ep > 1 else layout.tp),
        embedding=at_end / layout.tp,
        layer=(body + model.params_experts) / max(1, model.layers) / layout.tp,
    )


def adapter_parameters(model: Architecture, rank: int, *, experts: bool = True) -> float:
    """Parameters of LoRA over all linear layers, with or without those of experts: rank x (inputs + outputs) of each
    matrix (arXiv 2106.09685)."""
    return rank * (_unrouted_width(model) + (model.experts * _expert_width(model) if experts else 0.0))


def local_adapters(setup: TrainingSetup) -> float:
    """Adapter parameters that the fullest rank holds before ZeRO shards them: over TP and PP, experts' over EP.

    Software that gives the experts of a rank one adapter in common holds it once per layer.
    """
    model, layout = setup.model, setup.layout
    experts = 0.0
    if setup.expert_adapters:
        shared = stack_named(setup.stack).shares_expert_adapters
        own = 1.0 if shared else model.experts / (layout.ep if layout.ep > 1 else layout.tp)
        experts = own * _expert_width(model)
    return setup.lora_rank * (_unrouted_width(model) / layout.tp + experts) / layout.pp


def _expert_width(model: Architecture) -> float:
    """Inputs + outputs of one expert's matrices, in all layers.

    Hybrids have experts in some of their layers: in as many as hold their experts' parameters.
    """
    h, width = model.hidden_size, model.expert_intermediate
    if not model.is_moe or not width:
        return 0.0
    layers = float(model.moe_layers)
    if model.hybrid:
        layers = min(layers, model.params_experts / (model.experts * model.mlp_matrices * h * width))
    return layers * model.mlp_matrices * (h + width)


def _unrouted_width(model: Architecture) -> float:
    """Inputs + outputs of all matrices that every token passes: attention, dense and shared MLPs."""
    h, heads = model.hidden_size, model.heads
    if model.kv_lora_rank is None:
        attention = 2 * (h + heads * model.head_dim) + 2 * (h + model.kv_heads * model.head_dim)
    else:
        queries = heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
        values = heads * model.v_head_dim
        attention = h + queries + 2 * (model.q_lora_rank or 0)
        attention += h + 2 * model.kv_lora_rank + model.qk_rope_head_dim + heads * model.qk_nope_head_dim + values
        attention += values + h
    dense = model.layers - model.moe_layers

    def mlp(width: int) -> int:
        return model.mlp_matrices * (h + width) if width else 0

    mlps = dense * mlp(model.intermediate_size) + model.moe_layers * mlp(model.shared_intermediate)
    return float(model.layers * attention + mlps)


@dataclass(frozen=True, slots=True)
class _States:
    """Bytes of a rank's states, and of what is moved to the host for it."""

    weights: float
    gradients: float
    optimizer: float
    host: float
    adapters: float = 0.0


def _full_states(setup: TrainingSetup, local: LocalParameters, stack: Stack) -> _States:
    """All parameters are trained: weights, gradients and optimizer states, each sharded from its ZeRO stage on."""
    states = optimizer_states(setup.optimizer)
    weight, gradient, moments = _bytes_per_parameter(setup.mixed, states, stack)
    shards, expert_shards = setup.layout.shards, setup.layout.expert_shards

    def held(per_parameter: float, stage: int) -> float:
        if setup.zero_stage < stage:
            return per_parameter * local.total
        return per_parameter * (local.dense / shards + local.experts / expert_shards)

    weights, gradients, optimizer = held(weight, 3), held(gradient, 2), held(moments, 1)
    if setup.fused_step:
        gradients = gradient * local.layer / (shards if setup.zero_stage >= 2 else 1)
    host = 0.0
    if states.paged or "optimizer" in setup.offload:
        host, optimizer = host + optimizer, 0.0
    if "optimizer" in setup.offload and not setup.fused_step:
        host, gradients = host + gradients, 0.0
    if "params" in setup.offload:
        host, weights = host + weights, 0.0
    return _States(weights, gradients, optimizer, host)


def _bytes_per_parameter(mixed: bool, states: OptimizerStates, stack: Stack) -> tuple[float, float, float]:
    """Bytes of weights, gradients, and moments with the master copy.

    Mixed precision (arXiv 1710.03740): 2 + 4 + (moments + 4 of the FP32 master copy); FSDP shards the FP32 master
    itself and gathers it in 16 bit: 4 + 4 + moments. Pure 16 bit: 2 + 2 + half-size moments.
    """
    if not mixed:
        return 2.0, 2.0, states.pure_bytes
    if stack.shards_master:
        return 4.0, 4.0, states.mixed_bytes
    return 2.0, stack.gradient_bytes, states.mixed_bytes * stack.moment_share + 4.0


def _adapter_states(setup: TrainingSetup, local: LocalParameters, stack: Stack) -> _States:
    """A frozen base in 16 or 4 bit; adapters in the stack's dtype and what is trained beside them in 16 bit, both with
    FP32 moments.

    QLoRA (arXiv 2305.14314): NF4 with double quantisation in the matrices; the scales of bitsandbytes are no
    parameters, so that nothing shards them. A base held in FP32 under autocast (`mixed`) also keeps the 16-bit copies
    for the backward pass: 6 bytes.
    """
    shards = setup.layout.shards
    base, scales = _frozen_bytes(setup, local, stack)
    adapters = local_adapters(setup)
    others = local.embedding if setup.trains_embeddings else 0.0
    trained = stack.adapter_bytes * adapters + 2.0 * others
    states = optimizer_states(setup.optimizer)
    moments = states.mixed_bytes * (adapters + others)

    def sharded(size: float, stage: int) -> float:
        return size / shards if setup.zero_stage >= stage else size

    held = sharded(base, 3)
    weights, gradients, optimizer = sharded(trained, 3), sharded(trained, 2), sharded(moments, 1)
    host = 0.0
    if states.paged or "optimizer" in setup.offload:
        host, optimizer = host + optimizer, 0.0
    if "params" in setup.offload:
        host, held = host + held, 0.0
    return _States(
        weights=held + scales + weights,
        gradients=gradients + (base / shards if setup.frozen_gradients else 0.0),
        optimizer=optimizer,
        host=host,
        adapters=weights + gradients + optimizer,
    )


def _frozen_bytes(setup: TrainingSetup, local: LocalParameters, stack: Stack) -> tuple[float, float]:
    """Bytes of a frozen base: what ZeRO-3 shards, and the scales of a 4-bit base that it does not."""
    if setup.task != "qlora":
        return local.total * (6.0 if setup.mixed else 2.0), 0.0
    whole = 0.0 if setup.quantised_experts else local.experts
    packed = local.total - local.embedding - whole
    each = (stack.autocast_embedding_bytes if setup.zero_stage == 0 else None) or stack.frozen_embedding_bytes
    kept = local.embedding * each + 2.0 * whole
    if stack.shards_scales:
        return packed * _NF4_BYTES + kept, 0.0
    return packed * _PACKED_BYTES + kept, packed * (_NF4_BYTES - _PACKED_BYTES)


def _backward_bytes(setup: TrainingSetup) -> tuple[float, float]:
    """Bytes of activations and logits on the stage that has more of them.

    The first of a pipeline keeps PP micro-batches and no logits, the last one micro-batch and its logits.
    """
    activations, logits = activation_bytes(setup), logit_bytes(setup)
    if setup.layout.pp == 1:
        return activations, logits
    last = _kept_bytes(setup, 1.0)
    return (last, logits) if last + logits > activations else (activations, 0.0)


def activation_bytes(setup: TrainingSetup) -> float:
    """Bytes of what the forward pass keeps for the backward pass on the fullest rank.

    The first stage of 1F1B keeps PP micro-batches of its layers: all layers' worth, whatever PP. Full recomputation
    keeps 2 h bytes a token and layer, and works on one layer at a time.
    """
    return _kept_bytes(setup, min(float(setup.layout.pp), setup.micro_steps))


def _kept_bytes(setup: TrainingSetup, micro_batches: float) -> float:
    """The same with so many micro-batches between their passes."""
    model, layout = setup.model, setup.layout
    kept_layers = setup.stage_layers * micro_batches
    split = layout.tp if setup.sequence_parallel else 1
    layer = layer_activation_bytes(setup) * setup.micro_tokens
    if setup.recompute == "full":
        inputs = 2.0 * model.hidden_size * setup.micro_tokens / split * kept_layers
        return layer + (0.0 if "activations" in setup.offload else inputs)
    return kept_layers * layer * (_OFFLOADED_SHARE if "activations" in setup.offload else 1.0)


def layer_activation_bytes(setup: TrainingSetup) -> float:
    """Bytes per token that one layer keeps, on one rank: attention, MLP and norms in 16 bit with a fused attention.

    For the GPT shape this is the 34 h of arXiv 2205.05198, table 2 (without the 5 a s / h of unfused attention).
    Without sequence parallelism norms and residuals (about 10 h) are on every rank of TP.
    """
    model, tp = setup.model, setup.layout.tp
    stack = stack_named(setup.stack)
    h = model.hidden_size
    attention = 4.0 * model.heads * model.head_dim + 4.0 * model.kv_heads * model.head_dim
    per_width = stack.gated_bytes if model.mlp_matrices == 3 else 4.0
    mlp = per_width * model.intermediate_size
    if model.is_moe:
        routed = model.experts_per_token * (per_width * model.expert_intermediate + 2.0 * h)
        experts = routed + per_width * model.shared_intermediate
        share = model.moe_layers / max(1, model.layers)
        mlp = share * experts + (1 - share) * mlp
    factor = stack.activation_factor * (MEMORY.qlora_activations if setup.task == "qlora" else 1.0)
    return factor * (10.0 * h / (tp if setup.sequence_parallel else 1) + (attention + mlp) / tp)


def logit_bytes(setup: TrainingSetup) -> float:
    """Logits and their gradient on the last stage: bytes x vocabulary x tokens / TP."""
    stack = stack_named(setup.stack)
    chunks = _LOSS_CHUNKS if setup.chunked_loss else 1.0
    vocabulary = setup.model.vocab / setup.layout.tp
    each = (stack.autocast_logit_bytes if setup.zero_stage == 0 else None) or stack.logit_bytes
    return each * vocabulary * setup.micro_tokens / chunks


def _buffer_bytes(setup: TrainingSetup, local: LocalParameters) -> float:
    """What ZeRO-3 has gathered: the layer that computes, and the next one or the embedding (or, by stack, both and the
    output matrix); a 4-bit base's largest matrix in 16 bit; workspace."""
    model = setup.model
    total = MEMORY.workspace_gib * GIB
    if setup.zero_stage >= 3 and setup.layout.shards > 1:
        layer = local.layer * (_NF4_BYTES if setup.task == "qlora" else 2.0)
        if stack_named(setup.stack).gathers_embeddings:
            total += 2.0 * layer + 2.0 * local.embedding
        else:
            total += layer + max(layer, 2.0 * model.params_embedding / setup.layout.tp)
    if setup.task == "qlora":
        total += 2.0 * model.hidden_size * max(model.intermediate_size, model.hidden_size)
    return total


def _step_bytes(setup: TrainingSetup, local: LocalParameters, stack: Stack) -> float:
    """Temporary tensors of the optimizer step, which works in groups of 10^9 parameters."""
    if setup.is_adapter or setup.fused_step:
        return 0.0
    shard = local.total / (setup.layout.shards if setup.zero_stage >= 1 else 1)
    return stack.step_bytes * min(shard, 1e9)


def _loading_bytes(setup: TrainingSetup) -> float:
    """Host memory of a node while a sharded fine-tuning starts: one rank reads the whole checkpoint in 16 bit."""
    reads_whole = setup.task != "train" and setup.zero_stage >= 3 and setup.layout.shards > 1
    return 2.0 * setup.model.params_total if reads_whole else 0.0


def zero3_states_gib(
    parameters: float, largest_layer: float, *, accelerators: int = 1, nodes: int = 1, offload: frozenset[str]
) -> tuple[float, float]:
    """GiB per accelerator and of host memory per node that ZeRO-3 needs for states alone, as DeepSpeed estimates it.

    Without offload 18 bytes per parameter / accelerators + 4 bytes x largest layer; with the optimizer offloaded 2
    bytes stay; with the parameters offloaded nothing. Host: 16 or 18 bytes / nodes x 1.5 for buffers.
    Source: the estimator of DeepSpeed's documentation, "Memory Requirements" (ZeRO-3).
    """
    largest = 4.0 * largest_layer
    per_node = accelerators // nodes
    if "params" in offload:
        return largest / GIB, parameters * max(4.0 * per_node, 18.0 / nodes) * 1.5 / GIB
    if "optimizer" in offload:
        held = 2.0 * parameters / accelerators + largest
        return held / GIB, parameters * max(4.0 * per_node, 16.0 / nodes) * 1.5 / GIB
    return (18.0 * parameters / accelerators + largest) / GIB, 4.0 * parameters * per_node * 1.5 / GIB
