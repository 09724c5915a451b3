"""Turns the name and version of a serving engine into its generation and its habits with memory."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Final

from providers.accelerators import Accelerator
from providers.errors import UnknownName, nearest

CURRENT_YEAR: Final = 2026.5
"""Generation of an engine that is named without a version: the newest that the measurements cover (vLLM 0.22)."""

OLDEST_YEAR: Final = 2023.6

LARGE_CARD_GIB: Final = 70.0
"""vLLM raises its defaults from this card size on, except on A100 (usage-context defaults of EngineArgs)."""

CHUNKED_YEAR: Final = 2025.25
"""From here on (vLLM 0.8) prompts are read in chunks by default; before, the longest prompt was read at once."""

ALWAYS_CHUNKED_TOKENS: Final = 32_768
"""Before that, vLLM read in chunks only where the maximum length was above this (EngineArgs of 0.5 to 0.7)."""

CAREFUL_YEAR: Final = 2024.5
"""Before this (vLLM 0.5) a prefill kept more than its matrices' outputs, see `memory.activation_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """An engine and its generation: which constants it takes, and how it uses memory.

    `max_sequences` and `batched_tokens` are its defaults on ordinary and on large cards (see `is_large`).
    `memory_share` is what it may take of the card, or of what is free after loading where `share_of_free`.
    `activations_gib` None means that they follow from the chunk and the vocabulary; `embedding_on_host` that the
    input embedding is left to the CPU and layers are spread evenly over stages.
    """

    name: str
    family: str
    year: float
    max_sequences: tuple[int, int]
    batched_tokens: tuple[int, int]
    memory_share: float
    share_of_free: bool = False
    activations_gib: float | None = None
    embedding_on_host: bool = False
    process_gib: float = 0.2
    """Library buffers of one process, as vLLM's start-up log counts them (0.13 to 0.25 GiB)."""
    communicator_gib: float = 0.4
    """Added per accelerator when a replica spans several: 0.54 to 0.55 GiB in all on two H100 (llm-d-planner, 2026)."""
    logit_bytes: float = 38.5
    """Peak bytes per (sequence x vocabulary entry) while sampling: 4.76 GiB at 1,024 x 128,256 and 5.56 at 1,024 x
    151,936 (llm-d-planner, 2026), 1.26 at 256 x 128,256 (vllm pull request 10511, 2024-11)."""

    def __hash__(self) -> int:
        return hash((self.name, self.year))


_VLLM: Final = EngineProfile(
    name="vllm",
    family="vllm",
    year=CURRENT_YEAR,
    max_sequences=(256, 1024),
    batched_tokens=(2048, 8192),
    memory_share=0.9,
)
_TENSORRT: Final = EngineProfile(
    name="tensorrt-llm",
    family="tensorrt-llm",
    year=CURRENT_YEAR,
    max_sequences=(2048, 2048),
    batched_tokens=(8192, 8192),
    memory_share=0.9,
    share_of_free=True,
    # Engines reserve their activations when they are built: 1 to 2 GiB at 8,192 tokens (TensorRT-LLM memory docs).
    activations_gib=1.5,
)
_LLAMA_CPP: Final = EngineProfile(
    name="llama.cpp",
    family="llama.cpp",
    year=CURRENT_YEAR,
    max_sequences=(64, 64),
    batched_tokens=(512, 512),
    memory_share=1.0,
    embedding_on_host=True,
    process_gib=0.3,
    communicator_gib=0.1,
    logit_bytes=4.0,
)


ENGINES: Final[Mapping[str, EngineProfile]] = MappingProxyType(
    {
        p.name: p
        for p in (
            _VLLM,
            _TENSORRT,
            _LLAMA_CPP,
            replace(_VLLM, name="sglang", family="sglang"),
            replace(_VLLM, name="tgi", family="tgi"),
            replace(_VLLM, name="lmdeploy", family="lmdeploy"),
            replace(_VLLM, name="deepspeed-mii", family="deepspeed-mii"),
            replace(_LLAMA_CPP, name="exllamav2", family="exllamav2"),
            replace(_LLAMA_CPP, name="mlc-llm", family="mlc-llm"),
            replace(_VLLM, name="transformers", family="transformers"),
            # An engine that is not listed: the starting values, which are about the average of those that are.
            replace(_VLLM, name="other", family="other"),
        )
    }
)
_ALIASES: Final = MappingProxyType(
    {"tensorrt-llm (triton backend)": "tensorrt-llm", "trt-llm": "tensorrt-llm", "trtllm": "tensorrt-llm"}
    | {"tensorrt_llm": "tensorrt-llm", "nim": "tensorrt-llm", "nvidia nim": "tensorrt-llm", "triton": "tensorrt-llm"}
    | {"lmdeploy turbomind": "lmdeploy", "turbomind": "lmdeploy", "mlc llm": "mlc-llm", "mlc": "mlc-llm"}
    | {"llama-cpp": "llama.cpp", "llamacpp": "llama.cpp", "ollama": "llama.cpp", "exllama": "exllamav2"}
    | {"text-generation-inference": "tgi", "huggingface tgi": "tgi", "hf tgi": "tgi", "deepspeed": "deepspeed-mii"}
    | {"deepspeed-fastgen": "deepspeed-mii", "exllama2": "exllamav2", "hf transformers": "transformers"}
    | {"huggingface transformers": "transformers", "hugging face": "transformers", "huggingface": "transformers"}
    | {"pytorch": "transformers", "fastertransformer": "tensorrt-llm", "mlx": "llama.cpp", "llama-bench": "llama.cpp"}
    | {"llamafile": "llama.cpp", "koboldcpp": "llama.cpp", "dynamo": "other", "lightllm": "other"}
)
_RELEASES: Final[Mapping[str, tuple[tuple[tuple[int, ...], float], ...]]] = MappingProxyType(
    {
        # First day of a minor version as a decimal year (the projects' release pages).
        "vllm": (
            ((0, 2), 2023.8),
            ((0, 4), 2024.3),
            ((0, 5), 2024.5),
            ((0, 6), 2024.7),
            ((0, 7), 2025.1),
            ((0, 8), 2025.3),
            ((0, 9), 2025.4),
            ((0, 10), 2025.6),
            ((0, 11), 2025.8),
            ((0, 13), 2026.0),
            ((0, 15), 2026.1),
            ((0, 18), 2026.2),
            ((0, 20), 2026.4),
            ((0, 22), 2026.5),
        ),
        "tensorrt-llm": (
            ((0, 5), 2023.8),
            ((0, 6), 2023.9),
            ((0, 9), 2024.3),
            ((0, 12), 2024.6),
            ((0, 14), 2024.8),
            ((0, 17), 2025.1),
            ((0, 20), 2025.5),
            ((1, 0), 2025.7),
            ((1, 2), 2026.0),
        ),
        "sglang": (
            ((0, 2), 2024.6),
            ((0, 3), 2024.7),
            ((0, 4), 2024.9),
            ((0, 5), 2025.6),
        ),
    }
)
_VERSION_IN_NAME = re.compile(r"\d+(?:\.\d+)+")
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)+)")


@cache
def engine_profile(name: str, version: str = "", year: float | None = None) -> EngineProfile:
    """The engine called `name`, of the generation of `version`; an unknown version counts as of `year`, or current.

    `name` may carry the version (`vllm@0.6`). Raises UnknownName for an engine that nobody knows.
    """
    key, _, inline = name.strip().lower().partition("@")
    key = _ALIASES.get(key, key)
    if key not in ENGINES:
        raise UnknownName("engine", name, nearest(key, [*ENGINES, *_ALIASES]), f"known: {', '.join(ENGINES)}")
    profile = ENGINES[key]
    released = _released(profile.family, inline or version)
    if released is None:
        released = year if year is not None else profile.year
    released = min(max(released, OLDEST_YEAR), CURRENT_YEAR)
    if released == profile.year:
        return profile
    return replace(profile, year=released)


def engine_in_table(name: str, version: str = "", year: float | None = None) -> EngineProfile:
    """The engine that a table's cell names, with whatever else it says of it; one that is not known is `other`.

    `vLLM (ROCm)` is vllm, `TensorRT-LLM v0.12` is that version.
    """
    try:
        return engine_profile(name, version, year)
    except UnknownName:
        text = name.lower()
        known = [key for key in (*ENGINES, *_ALIASES) if key in text]
        if not known:
            return engine_profile("other", "", year)
        found = max(known, key=len)
        inline = _VERSION_IN_NAME.search(text)
        return engine_profile(found, version or (inline[0] if inline else ""), year)


def is_large(accelerator: Accelerator) -> bool:
    """Whether vLLM takes its large-card defaults."""
    return accelerator.usable_memory_gib >= LARGE_CARD_GIB and not accelerator.name.startswith(("A100", "A800"))


def sequence_limit(engine: EngineProfile, accelerator: Accelerator) -> int:
    """Requests that the engine runs at once by default; generations before chunking had one limit for all cards."""
    return engine.max_sequences[is_large(accelerator) and engine.year >= CHUNKED_YEAR]


def _released(family: str, version: str) -> float | None:
    found = _NUMBERS.match(version.strip())
    if not found or family not in _RELEASES:
        return None
    number = tuple(int(part) for part in found[1].split("."))
    earlier = [year for release, year in _RELEASES[family] if release <= number]
    return earlier[-1] if earlier else _RELEASES[family][0][1]
