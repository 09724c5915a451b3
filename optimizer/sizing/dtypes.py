"""Turns the name of a weight or cache format into bytes per value, and says what an accelerator computes it in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from optimizer.workload.architecture import Architecture
from providers.accelerators import Accelerator
from providers.errors import UnknownName, nearest

Kernel = str
"""How quantised weights are multiplied: `dense`, `weight_only` (dequantised to 16 bit), `gguf`, `bnb` or `exl2`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """Bits per stored weight by part of the model, scales included, and the arithmetic that the format asks for.

    `linear_bits` is for attention and MLP matrices (experts alone where `experts_only`); embeddings, output matrix
    and router keep `embedding_bits`, `head_bits` and 16. `lossy` marks formats that cost quality.
    """

    name: str
    linear_bits: float
    embedding_bits: float = 16.0
    head_bits: float = 16.0
    compute: str = "16bit"
    kernel: Kernel = "dense"
    experts_only: bool = False
    outside_bits: float = 16.0
    """Where `experts_only`: bits of the attention and dense matrices."""
    lossy: bool = False


def _float(name: str, bits: float) -> WeightFormat:
    compute = "fp32" if bits == 32 else "16bit"
    return WeightFormat(name=name, linear_bits=bits, embedding_bits=bits, head_bits=bits, compute=compute)


def _gguf(name: str, linear: float, embedding: float, head: float) -> WeightFormat:
    lossy = linear < 8
    return WeightFormat(
        name=name, linear_bits=linear, embedding_bits=embedding, head_bits=head, kernel="gguf", lossy=lossy
    )


FORMATS: Final[Mapping[str, WeightFormat]] = MappingProxyType(
    {
        f.name: f
        for f in (
            _float("fp32", 32.0),
            _float("bf16", 16.0),
            _float("fp16", 16.0),
            WeightFormat(name="fp8", linear_bits=8.0, compute="fp8"),
            # One 32-bit scale per 128 x 128 block (DeepSeek-V3 report, section 3.3).
            WeightFormat(name="fp8_block", linear_bits=8.0 + 32 / 128**2, compute="fp8"),
            WeightFormat(name="int8", linear_bits=8.0, compute="int8", lossy=True),
            WeightFormat(name="int8_gptq", linear_bits=8.0 + 16 / 128, kernel="weight_only", lossy=True),
            # A 16-bit scale and a 4-bit zero point per group of 128 (AWQ, arXiv 2306.00978; GPTQ, arXiv 2210.17323).
            WeightFormat(name="int4", linear_bits=4.0 + 20 / 128, kernel="weight_only", lossy=True),
            # QServe: 4-bit weights in groups of 128, multiplied in 8-bit integers (arXiv 2405.04532).
            WeightFormat(name="w4a8", linear_bits=4.0 + 20 / 128, compute="int8", kernel="weight_only", lossy=True),
            # MLC LLM: 4 bits and a 16-bit scale per 32 values, embeddings too (mlc_llm quantization q4f16_1).
            WeightFormat(
                name="q4f16", linear_bits=4.5, embedding_bits=4.5, head_bits=4.5, kernel="weight_only", lossy=True
            ),
            # QLoRA's double quantisation: 4 + 8/64 + 32/(64 x 256) bits (arXiv 2305.14314, section 3).
            WeightFormat(name="nf4", linear_bits=4.127, kernel="bnb", lossy=True),
            # NVFP4: an FP8 scale per 16 values; MXFP4: an 8-bit exponent per 32 (OCP Microscaling 1.0).
            WeightFormat(name="fp4", linear_bits=4.5, compute="fp4", lossy=True),
            WeightFormat(name="mxfp4", linear_bits=4.25, compute="fp4", experts_only=True),
            # DeepSeek-V4 as published: experts in FP4 with a scale per 32, the rest in FP8, multiplied in FP8.
            WeightFormat(
                name="fp8_fp4",
                linear_bits=4.25,
                compute="fp8",
                kernel="weight_only",
                experts_only=True,
                outside_bits=8.0,
            ),
            # GGUF block formats (llama.cpp ggml-common.h); K mixes: 4.80 bits in the matrices of Llama 3 8B and 70B
            # (files of 4.58 and 39.6 GiB), output matrix in q6_K, embedding in the named type.
            _gguf("f16", 16.0, 16.0, 16.0),
            _gguf("q8_0", 8.5, 8.5, 8.5),
            _gguf("q6_k", 6.5625, 6.5625, 6.5625),
            _gguf("q5_k_m", 5.66, 5.5, 6.5625),
            _gguf("q5_k_s", 5.5, 5.5, 6.5625),
            _gguf("q5_1", 6.0, 6.0, 6.5625),
            _gguf("q5_0", 5.5, 5.5, 6.5625),
            _gguf("q4_k_m", 4.80, 4.5, 6.5625),
            _gguf("q4_k_s", 4.54, 4.5, 6.5625),
            _gguf("q4_1", 5.0, 5.0, 6.5625),
            _gguf("q4_0", 4.5, 4.5, 6.5625),
            _gguf("q4_k_l", 4.80, 8.5, 8.5),
            _gguf("q4_k_xl", 4.95, 6.5625, 6.5625),
            _gguf("iq4_nl", 4.5, 4.5, 6.5625),
            _gguf("iq4_xs", 4.25, 4.5, 6.5625),
            _gguf("q3_k_l", 4.2, 3.4375, 6.5625),
            _gguf("q3_k_m", 3.85, 3.4375, 6.5625),
            _gguf("q3_k_s", 3.4375, 3.4375, 6.5625),
            _gguf("iq3_m", 3.66, 3.4375, 6.5625),
            _gguf("iq3_xxs", 3.06, 3.4375, 6.5625),
            _gguf("q2_k", 3.1, 2.625, 6.5625),
            _gguf("iq2_m", 2.7, 2.625, 5.5),
            _gguf("iq2_xxs", 2.06, 2.625, 5.5),
            _gguf("iq1_s", 1.56, 2.625, 5.5),
        )
    }
)

_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {"float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "16-bit": "bf16", "16bit": "bf16"}
    | {"int4-gptq": "int4", "int4-awq": "int4", "awq": "int4", "gptq": "int4", "int4 (awq)": "int4", "4bit": "int4"}
    | {"int4 (gptq)": "int4", "w4a16": "int4", "4-bit": "int4", "int8 (gptq)": "int8_gptq", "w8a16": "int8_gptq"}
    | {"int8 (w8a8)": "int8", "w8a8": "int8", "nf4 (bitsandbytes)": "nf4", "bnb-4bit": "nf4", "fp8_e4m3": "fp8"}
    | {
        "nvfp4": "fp4",
        "e4m3": "fp8",
        "q4": "q4_0",
        "q8": "q8_0",
        "fp8-block": "fp8_block",
        "q4_k": "q4_k_m",
        "q5_k": "q5_k_m",
        "q3_k": "q3_k_m",
        "q6": "q6_k",
        "q5": "q5_k_m",
    }
    | {"q4f16_1": "q4f16", "q4f16_0": "q4f16", "w4a8kv4": "w4a8", "f32": "fp32"}
)


@dataclass(frozen=True, slots=True)
class _Spelling:
    """Words for a format: one of `sizes`, any of `schemes`, and where given one of `needs`."""

    format: str
    sizes: frozenset[str]
    schemes: frozenset[str]
    needs: frozenset[str] = frozenset()


_BNB: Final = frozenset({"bnb", "bitsandbytes"})
_SPELLINGS: Final = (
    _Spelling("nf4", frozenset({"nf4", "int4", "4bit"}), _BNB | {"dq"}, _BNB | {"nf4"}),
    _Spelling("int4", frozenset({"int4", "4bit", "w4a16"}), frozenset({"gptq", "awq", "autoround", "marlin", "g128"})),
    _Spelling(
        "int8_gptq",
        frozenset({"int8", "8bit", "w8a16"}),
        frozenset({"gptq", "awq", "marlin", "g128"}),
        frozenset({"gptq", "awq", "w8a16"}),
    ),
    _Spelling("int8", frozenset({"int8", "8bit", "w8a8", "llm.int8"}), _BNB),
    _Spelling("fp8", frozenset({"fp8", "float8"}), frozenset({"dynamic", "e4m3", "e4m3fn", "w8a8"})),
    _Spelling("fp4", frozenset({"nvfp4", "fp4"}), frozenset({"w4a4"})),
)
"""Words of checkpoints' names. Groups other than 128 take other bits, so that `g64` is not known."""

_KV_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {"fp32": 4.0, "f32": 4.0, "fp16": 2.0, "bf16": 2.0, "f16": 2.0, "16-bit": 2.0, "fp8": 1.0, "int8": 1.0}
    | {"fp8_e4m3": 1.0, "fp8_e5m2": 1.0}
    # QServe's 4-bit cache: a 16-bit scale and zero point per head and token (128 values).
    | {"int4": 0.5 + 4 / 128, "kv4": 0.5 + 4 / 128, "kv8": 1.0}
    # GGUF blocks: bytes of a block over its 32 values (ggml-common.h); NVFP4: 4 bits and an FP8 scale per 16.
    | {"q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32, "fp4": 0.5625}
)
_EXL2 = re.compile(r"(\d+(?:\.\d+)?)bpw(?: \(exl2\))?")


@cache
def weight_format(name: str) -> WeightFormat:
    """The format called `name` in flags, checkpoints and tables. Raises UnknownName."""
    key = name.strip().lower()
    key = _ALIASES.get(key, key)
    if key in FORMATS:
        return FORMATS[key]
    spelled = _spelled(key)
    if spelled is not None:
        return FORMATS[spelled]
    exl2 = _EXL2.fullmatch(key)
    if exl2:
        # ExLlamaV2 keeps the output matrix at 6 bits and the embedding in 16 (its convert.py defaults).
        return WeightFormat(name=key, linear_bits=float(exl2[1]), head_bits=6.0, kernel="exl2", lossy=True)
    raise UnknownName("precision", name, nearest(key, [*FORMATS, *_ALIASES]), f"known: {', '.join(FORMATS)}")


def _spelled(key: str) -> str | None:
    """The format that words in any order mean (`gptq-int4`, `fp8-dynamic`, `8-bit bnb`); None if one is not known."""
    words = set(re.sub(r"(\d)[-_ ]bits?", r"\1bit", key).replace("(", " ").replace(")", " ").replace("-", " ").split())
    if "gguf" in words and len(words) == 2:
        (name,) = words - {"gguf"}
        return name if name in FORMATS else None
    for spelling in _SPELLINGS:
        known = spelling.sizes | spelling.schemes
        if words & spelling.sizes and words <= known and (not spelling.needs or words & spelling.needs):
            return spelling.format
    return None


@cache
def kv_bytes_per_element(name: str | None) -> float:
    """Bytes of one cached value; None or `auto` is the model's 16 bits. Raises UnknownName."""
    key = (name or "auto").strip().lower()
    if key == "auto":
        return 2.0
    if key not in _KV_BYTES:
        raise UnknownName("KV-cache precision", key, nearest(key, _KV_BYTES), f"known: {', '.join(_KV_BYTES)}")
    return _KV_BYTES[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """Bytes of the loaded weights by part, over all accelerators (before replication)."""

    embedding: float
    lm_head: float
    dense: float
    experts: float
    vision: float

    @property
    def total(self) -> float:
        """All parts."""
        return self.embedding + self.lm_head + self.dense + self.experts + self.vision

    @property
    def read_per_step(self) -> float:
        """Bytes that every step reads: all but the experts and an untied embedding (a step looks up single rows)."""
        return self.dense + self.lm_head


@cache
def weight_bytes(model: Architecture, fmt: WeightFormat) -> WeightBytes:
    """Stored bytes by part: parameters x bits / 8. Routers stay in 16 bits; under MXFP4 all but the experts does.

    A tied matrix is stored once, in the wider of the two formats (llama.cpp writes it as the output type).
    """
    linear = fmt.linear_bits / 8
    outside = fmt.outside_bits / 8 if fmt.experts_only and model.is_moe else linear
    dense = model.params_attention + model.params_dense_mlp
    router = model.params_router * min(2.0, max(linear, 2.0))
    embedding = model.params_embedding * fmt.embedding_bits / 8
    head = model.params_lm_head * fmt.head_bits / 8
    if model.tied:
        embedding, head = 0.0, model.params_embedding * max(fmt.embedding_bits, fmt.head_bits) / 8
    return WeightBytes(
        embedding=embedding,
        lm_head=head,
        dense=dense * outside + router,
        experts=model.params_experts * linear,
        vision=model.params_vision * max(2.0, linear if fmt.linear_bits > 16 else 2.0),
    )


def arithmetic(accelerator: Accelerator, fmt: WeightFormat) -> tuple[str, float]:
    """The dtype that `accelerator` multiplies `fmt` in, and its dense rate in FLOP/s.

    A format without arithmetic in the hardware is dequantised to 16 bit first (weight-only kernels).
    """
    rates = accelerator.dense_tflops
    if fmt.compute in rates:
        return fmt.compute, rates[fmt.compute] * 1e12
    if fmt.compute == "fp32":
        # TF32 or plain FP32 pipelines: half of the 16-bit rate at best on every listed part.
        return "fp32", sixteen_bit_rate(accelerator) / 2
    return "16bit", sixteen_bit_rate(accelerator)


def sixteen_bit_rate(accelerator: Accelerator) -> float:
    """Dense FLOP/s in bf16, or in fp16 where there is no bf16."""
    rates = accelerator.dense_tflops
    return (rates.get("bf16") or rates["fp16"]) * 1e12


def unsupported_reason(accelerator: Accelerator, fmt: WeightFormat) -> str | None:
    """Why `accelerator` cannot run `fmt` at all, or None.

    bf16 needs compute capability 8.0 (CUDA C programming guide, table of arithmetic); so do the weight-only FP8 and
    FP4 kernels (vLLM's Marlin); a GGUF file runs on anything.
    """
    capability = _capability(accelerator)
    if fmt.name == "bf16" and "bf16" not in accelerator.dense_tflops:
        return f"{accelerator.name} does not compute bf16"
    weight_only = fmt.compute in ("fp8", "fp4") and fmt.compute not in accelerator.dense_tflops
    if weight_only and accelerator.vendor == "NVIDIA" and capability is not None and capability < 8.0:
        return f"{accelerator.name} has no {fmt.name} kernels"
    if weight_only and fmt.compute == "fp8" and accelerator.vendor != "NVIDIA":
        return f"{accelerator.name} does not compute {fmt.name}"
    return None


def precision_notes(accelerator: Accelerator, fmt: WeightFormat) -> tuple[str, ...]:
    """What a reader should know of running `fmt` there: emulated arithmetic, loss of quality."""
    notes = []
    if fmt.compute in ("fp8", "fp4", "int8") and fmt.compute not in accelerator.dense_tflops:
        notes.append(
            f"{accelerator.name} has no {fmt.compute} arithmetic: {fmt.name} weights run in 16 bit (weight-only)"
        )
    if fmt.lossy:
        notes.append(f"{fmt.name} weights lose some quality: test before use")
    return tuple(notes)


def auto_precisions(model: Architecture, accelerator: Accelerator) -> tuple[str, ...]:
    """`--precision auto`: the native dtype (fp16 for bf16 where the hardware lacks it), and FP8 for a 16-bit model.

    FP8 is added only where the hardware computes it. Empty when the native dtype cannot run.
    """
    native = weight_format(model.native_dtype)
    if native.name == "bf16" and "bf16" not in accelerator.dense_tflops:
        native = FORMATS["fp16"]
    chosen = [] if unsupported_reason(accelerator, native) else [native.name]
    if native.linear_bits == 16 and "fp8" in accelerator.dense_tflops:
        chosen.append("fp8")
    return tuple(chosen)


def _capability(accelerator: Accelerator) -> float | None:
    try:
        return float(accelerator.compute_capability or "")
    except ValueError:
        return None
