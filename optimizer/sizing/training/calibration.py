"""The constants of training that physics does not give, each with its source, and the stacks they belong to."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from optimizer.sizing.dtypes import sixteen_bit_rate
from optimizer.sizing.intervals import normal_quantile
from providers.accelerators import Accelerator
from providers.errors import UnknownName, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A class of training software: how it keeps states and activations, and what its name means.

    `shards_master`: FSDP shards FP32 weights and gathers them in 16 bit; others keep 16-bit weights beside an FP32
    master in the optimizer. `gradient_bytes` per parameter in mixed precision; `moment_share` is below 1 where moments
    are kept in 16 bit. `gated_bytes` per unit of a gated MLP's width and `logit_bytes` per logit are kept for the
    backward pass; `activation_factor` is the rest of a layer against the fused minimum. `step_bytes` per parameter of
    a group of 10^9 are temporary in the optimizer step. `frozen_embedding_bytes` of a 4-bit base's embeddings;
    `autocast_*` are the same where ZeRO is off, if that differs. `adapter_bytes` per parameter of an adapter, and as
    many of its gradient; `shares_expert_adapters`: one adapter for all experts of a rank instead of one each.
    `shards_scales`: ZeRO-3 also shards the scales of a 4-bit base; `gathers_embeddings`: it holds both embeddings whole
    beside the layers, as FSDP does with what its root unit has.
    """

    name: str
    label: str
    speed: str
    shards_master: bool = False
    gradient_bytes: float = 4.0
    moment_share: float = 1.0
    activation_factor: float = 1.0
    gated_bytes: float = 6.0
    logit_bytes: float = 8.0
    frozen_embedding_bytes: float = 2.0
    step_bytes: float = 0.0
    autocast_logit_bytes: float | None = None
    autocast_embedding_bytes: float | None = None
    adapter_bytes: float = 2.0
    shares_expert_adapters: bool = False
    shards_scales: bool = True
    gathers_embeddings: bool = False


STACKS: Final[Mapping[str, Stack]] = MappingProxyType(
    {
        stack.name: stack
        for stack in (
            # 2 + 4 + 12 / shards bytes: Megatron Core's documentation of the distributed optimizer.
            Stack(name="megatron", label="Megatron-LM", speed="megatron"),
            # DeepSpeed's BF16 optimizer keeps 16-bit and FP32 gradients (BLOOM's runs from 2022-02 on).
            Stack(name="megatron-deepspeed", label="Megatron-DeepSpeed (2022)", speed="old", gradient_bytes=6.0),
            # Megatron Bridge's recipes reduce gradients in bf16 and keep moments in 16 bit: measured peaks, 2026-02.
            # Its LoRA wraps the grouped product of a rank's experts once (megatron/bridge/peft/lora.py, 2026-02).
            Stack(
                name="nemo",
                label="NeMo / Megatron Bridge",
                speed="megatron",
                gradient_bytes=2.0,
                moment_share=0.5,
                shares_expert_adapters=True,
            ),
            # PEFT (since 0.12) and Unsloth hold adapters in FP32, whatever the dtype of the base.
            Stack(
                name="fsdp",
                label="PyTorch FSDP, fused kernels",
                speed="fsdp",
                shards_master=True,
                activation_factor=0.9,
                gated_bytes=8.0,
                logit_bytes=4.0,
                adapter_bytes=4.0,
                shards_scales=False,
            ),
            Stack(
                name="eager",
                label="plain PyTorch (litgpt, torchtune)",
                speed="fsdp",
                shards_master=True,
                gated_bytes=8.0,
                logit_bytes=12.0,
            ),
            # DeepSpeed updates groups of 10^9 parameters in FP32 and holds the rest in 16 bit. Without it the Trainer
            # uses autocast: PEFT casts a 4-bit base's embeddings to FP32, and the loss keeps 14 bytes per logit: 2 (in
            # 16 bit) + 4 (log softmax) + 4 + 4 (its gradient and that of the logits), as PyTorch's profiler shows too.
            Stack(
                name="hf",
                label="Hugging Face Trainer with DeepSpeed or PEFT",
                speed="hf",
                gradient_bytes=2.0,
                activation_factor=1.2,
                gated_bytes=8.0,
                step_bytes=10.0,
                autocast_logit_bytes=14.0,
                autocast_embedding_bytes=4.0,
                adapter_bytes=4.0,
                shards_scales=False,
                gathers_embeddings=True,
            ),
            Stack(
                name="xla",
                label="MaxText (XLA)",
                speed="xla",
                shards_master=True,
                activation_factor=0.9,
                logit_bytes=4.0,
            ),
        )
    }
)
"""Bytes: fit of 276 published peaks by source (2023-07 to 2026-06), within the framework's own documentation."""

USUAL_STACK: Final = MappingProxyType({"train": "megatron", "finetune": "fsdp", "lora": "fsdp", "qlora": "fsdp"})
"""What a task is usually run with where the user does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStates:
    """Bytes per parameter of the moments beside FP32 masters, and in pure 16 bit; `paged` may spill to the host."""

    mixed_bytes: float
    pure_bytes: float
    paged: bool = False


OPTIMIZERS: Final[Mapping[str, OptimizerStates]] = MappingProxyType(
    {
        "adamw": OptimizerStates(mixed_bytes=8.0, pure_bytes=4.0),
        # Two 8-bit moments and an FP32 scale per block of 256 values each (arXiv 2110.02861).
        "adamw-8bit": OptimizerStates(mixed_bytes=2.03, pure_bytes=2.03),
        "paged-adamw": OptimizerStates(mixed_bytes=8.0, pure_bytes=4.0, paged=True),
        "paged-adamw-8bit": OptimizerStates(mixed_bytes=2.03, pure_bytes=2.03, paged=True),
        # Row and column means in place of a matrix (arXiv 1804.04235): below 0.01 byte for matrices of this size.
        "adafactor": OptimizerStates(mixed_bytes=0.01, pure_bytes=0.01),
        # One momentum (Muon, 2024-12; Lion, arXiv 2302.06675; SGD with momentum).
        "muon": OptimizerStates(mixed_bytes=4.0, pure_bytes=2.0),
        "lion": OptimizerStates(mixed_bytes=4.0, pure_bytes=2.0),
        "sgd": OptimizerStates(mixed_bytes=4.0, pure_bytes=2.0),
    }
)
_OPTIMIZER_WORDS: Final = MappingProxyType(
    {"adam": "adamw", "adamwfp32": "adamw", "adamwtorch": "adamw", "adamwfused": "adamw", "fusedadam": "adamw"}
    | {"adam8bit": "adamw-8bit", "adamwbnb8bit": "adamw-8bit", "pagedadamw32bit": "paged-adamw"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConstants:
    """Fit of the same peaks. `qlora_activations`: bitsandbytes keeps wider inputs of its 4-bit products."""

    context_gib: float = 0.7
    communicator_gib: float = 0.5
    fragmentation_share: float = 0.1
    workspace_gib: float = 0.4
    qlora_activations: float = 1.45
    tight_share: float = 0.88
    spread: float = 1.2
    """Half-width of the 80 % interval of a predicted peak, as a factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeConstants:
    """Fit of 833 published rates, each source weighed down by its size, with leave-one-source-out as the check.
    Not fitted: `cdna_share`, from 620 of 1,307 TFLOP/s in large bf16 products of an MI300X (SemiAnalysis, 2024-12)
    against 0.85 of an A100, and `host_bytes_per_s`.

    `*_share` are parts of the dense peak that large matrix products reach: by stack, times one by architecture (or
    by `PRODUCT_TFLOPS`), times one by dtype, times one for experts; `*_yearly` is how software got faster (per
    year, up to 2026-06). `small_expert_tokens`: an expert with as many tokens runs at half of its rate.
    `*_elementwise` is 16-bit values of width `hidden` that norms, activations and residuals move per layer and
    token, in a forward and backward pass; `expert_traffic` is added per expert of a token. `logit_traffic` is bytes
    per logit. `*_launch_s` per layer and micro-batch: below it the host is slower than the accelerator. `*_exposed`
    are parts of communication that no computation hides, `bubble` the part of (PP - 1) micro-batches that
    interleaving leaves, `straggler` the loss per doubling of fast domains. `dequantised_per_s` weights of a 4-bit
    base are unpacked, `host_bytes_per_s` per accelerator is the pace of offloaded states, `goodput` the part of a
    long run that is not restarts and evaluation.
    """

    megatron_share: float = 0.739
    old_share: float = 0.566
    fsdp_share: float = 0.813
    hf_share: float = 0.623
    xla_share: float = 0.911
    hopper_share: float = 0.769
    blackwell_share: float = 0.888
    cdna_share: float = 0.56
    tpu_share: float = 1.11
    tuned_fp8_share: float = 0.888
    plain_fp8_share: float = 0.524
    fp4_share: float = 0.552
    expert_share: float = 0.45
    yearly: float = 0.0451
    expert_yearly: float = 0.146
    small_expert_tokens: float = 258
    attention_share: float = 0.255
    tuned_elementwise: float = 66.5
    plain_elementwise: float = 113
    expert_traffic: float = 0.303
    logit_traffic: float = 32.2
    tuned_launch_s: float = 0.0005
    plain_launch_s: float = 0.0015
    hf_launch_s: float = 0.0066
    expert_launch_s: float = 0.00402
    link_share: float = 0.878
    tensor_exposed: float = 0.667
    expert_exposed: float = 0.0261
    gather_exposed: float = 0.203
    data_exposed: float = 0.248
    bubble: float = 0.262
    straggler: float = 0.00936
    dequantised_per_s: float = 7.72e10
    host_bytes_per_s: float = 3e10
    goodput: float = 0.877


MEMORY: Final = MemoryConstants()
TIME: Final = TimeConstants()

PRODUCT_TFLOPS: Final = MappingProxyType(
    {"A10": 90.5, "A10G": 68.0, "A40": 116.5, "A100-PCIe-40GB": 213.5, "A100-PCIe-80GB": 213.5, "RTX A4000": 56.0}
    | {"RTX A6000": 123.3, "RTX 3090": 76.5, "L4": 58.2, "L20": 111.0, "L40S": 269.0, "RTX 4090": 159.4}
    | {"H20-SXM5-96GB": 141.9, "RTX 5090": 236.0, "RTX PRO 6000 Blackwell Server": 409.0}
    | {"RTX PRO 6000 Blackwell Workstation": 342.1, "V100-SXM2-16GB": 93.4, "V100-SXM2-32GB": 93.4, "T4": 42.3}
    | {"RTX A5000": 86.5, "L40": 168.0, "RTX 6000 Ada": 220.0}
)
"""Measured 16-bit TFLOP/s of large products, of parts whose power limit sets them apart from their architecture: the
mean of 8,192 and 10,240 wide squares in PyTorch, or the best of all sizes where only that is told. Source: GitHub,
zzc0721/torch-performance-test-data, 2025-10 to 2026-07. Not measured there, and taken from a sibling: the larger
A100-PCIe, A10 and RTX A5000 (A40), L40 (L20), RTX 6000 Ada (L40S); A10 and RTX 6000 Ada times the ratio of their
prefill rates in `optimizer/sizing/data/calibration.csv`."""

_REFERENCE_PRODUCT_SHARE: Final = 264.5 / 312
"""Of an A100-SXM4-80GB in the same source: the stacks' shares are those on an A100."""

TIME_SPREAD: Final = 1.3
"""Half-width of the 80 % interval of a predicted rate, as a factor: residuals of sources left out of the fit."""

SOFTWARE_YEAR: Final = 2026.5
"""The year that today's software is taken to be of, which `yearly` counts from."""


def time_margin(confidence: float) -> float:
    """The factor by which hours reach the careful end of the interval of that confidence (log-normal residuals)."""
    return float(TIME_SPREAD ** (normal_quantile((1 + confidence) / 2) / normal_quantile(0.9)))


def product_factor(accelerator: Accelerator, constants: TimeConstants = TIME) -> float:
    """The part of its 16-bit peak that large products reach, over the part that they reach on an A100-SXM."""
    measured = PRODUCT_TFLOPS.get(accelerator.name)
    if measured is not None:
        return measured * 1e12 / sixteen_bit_rate(accelerator) / _REFERENCE_PRODUCT_SHARE
    if "Blackwell" in accelerator.architecture:
        return constants.blackwell_share
    if "Hopper" in accelerator.architecture:
        return constants.hopper_share
    return {"Google": constants.tpu_share, "AMD": constants.cdna_share}.get(accelerator.vendor, 1.0)


def is_calibrated(accelerator: Accelerator) -> bool:
    """Whether published training rates stand behind the estimates: NVIDIA from Ampere on, and TPUs."""
    if accelerator.vendor == "Google":
        return accelerator.name in ("TPU v4", "TPU v5e", "TPU v5p")
    return accelerator.vendor == "NVIDIA" and "bf16" in accelerator.dense_tflops


@cache
def optimizer_states(name: str) -> OptimizerStates:
    """What an optimizer keeps, by any usual spelling of its name. Raises UnknownName."""
    return OPTIMIZERS[optimizer_name(name)]


@cache
def optimizer_name(name: str) -> str:
    """The canonical name of an optimizer: `paged_adamw_8bit` is `paged-adamw-8bit`. Raises UnknownName."""
    plain = name.strip().lower().replace("_", "").replace("-", "").replace(" ", "")
    by_word = {known.replace("-", ""): known for known in OPTIMIZERS} | dict(_OPTIMIZER_WORDS)
    if plain not in by_word:
        raise UnknownName("optimizer", name, nearest(name, OPTIMIZERS), f"known: {', '.join(OPTIMIZERS)}")
    return by_word[plain]


@cache
def stack_named(name: str) -> Stack:
    """The stack of that name. Raises UnknownName."""
    key = name.strip().lower()
    if key not in STACKS:
        raise UnknownName("training stack", name, nearest(key, STACKS), f"known: {', '.join(STACKS)}")
    return STACKS[key]
