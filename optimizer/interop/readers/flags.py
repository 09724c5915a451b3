"""Turns the flags of a server that mean nothing as they stand, or that no estimate counts, into faults."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from optimizer.interop.asks import Fault, whole

if TYPE_CHECKING:
    from optimizer.interop.readers.command_lines import Server

_COUNTS: Final = ("tensor_parallel", "pipeline_parallel", "data_parallel")
_LEFT_TO_THE_ENGINE: Final = ("", "auto", "-1", "none")
_CACHE_DTYPES: Final = ("bfloat16", "float16", "bf16", "fp16")
_SPECULATION: Final = "tokens come faster than estimated where the guesses are good, and the draft takes memory"
_ADAPTERS: Final = "adapters take memory, and make steps slower"
_HOST: Final = "the card holds more, and what comes from the host is slow"
_EAGER: Final = "without graphs small batches are slower"
_CACHE: Final = "the cache has another size than estimated"
_CHUNKS: Final = "time to first token and the memory of activations follow it"
_APART: Final = "prefill and decode on different servers are estimated as one"
_RANKS: Final = "ranks that split a context change cache and speed"
_NO_TOKENS: Final = "nothing is generated: only the memory of the weights is right"
_ELSEWHERE: Final = "settings that stand in another file are not read"
_SHARED: Final = (
    "ranks of attention are estimated as tensor parallelism, whose cache is smaller and whose speed differs"
)
_UNCOUNTED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("--speculative-config", "-sc", "--speculative-model", "--speculative-algorithm"), _SPECULATION),
    **dict.fromkeys(("--enable-lora", "--lora-modules", "--lora-paths"), _ADAPTERS),
    **dict.fromkeys(("--cpu-offload-gb", "--kv-offloading-size", "--enable-hierarchical-cache"), _HOST),
    **dict.fromkeys(("--enforce-eager", "--disable-cuda-graph"), _EAGER),
    **dict.fromkeys(("--num-gpu-blocks-override", "--kv-cache-memory-bytes", "--max-total-tokens"), _CACHE),
    "--mem-fraction-static": _CACHE,
    **dict.fromkeys(("--max-num-batched-tokens", "--chunked-prefill-size", "--max-num-tokens"), _CHUNKS),
    **dict.fromkeys(("--kv-transfer-config", "--disaggregation-mode"), _APART),
    **dict.fromkeys(("--decode-context-parallel-size", "-dcp", "--prefill-context-parallel-size", "-pcp"), _RANKS),
    **dict.fromkeys(("--task", "--runner", "--is-embedding"), _NO_TOKENS),
    **dict.fromkeys(("--config", "--extra-llm-api-options"), _ELSEWHERE),
    **dict.fromkeys(("--enable-dp-attention", "--attn-dp-size"), _SHARED),
}
"""Options of vLLM 0.33, SGLang 0.5 and TensorRT-LLM 1.2 that change speed or memory, and what of it is left out."""

_GENERATES: Final = ("generate", "auto", "draft")


def flag_faults(found: "Server") -> tuple[Fault, ...]:
    """Numbers that are none, variables whose value the file does not have, and what no estimate counts."""
    return (*_faults(found), *_uncounted(found))


def _uncounted(found: "Server") -> Iterator[Fault]:
    for flag, (value, line) in found.others.items():
        effect = _UNCOUNTED.get(flag)
        if effect is None or (effect is _NO_TOKENS and value in _GENERATES):
            continue
        yield Fault(line=line, what=f"{flag} is not counted: {effect}", fix="measure it before relying", fatal=False)


def _faults(found: "Server") -> Iterator[Fault]:
    readable = {
        **{name: whole(found.values.get(name)) is not None for name in _COUNTS},
        "context": found.context_tokens is not None,
        "memory_share": found.memory_share is not None,
        "quantization": found.precision is not None,
        "kv_dtype": found.kv_precision is not None or found.values.get("kv_dtype") in _CACHE_DTYPES,
        "sequences": found.count("sequences") is not None,
    }
    for name, is_read in readable.items():
        value = found.values.get(name, "")
        if is_read or value.strip().lower() in _LEFT_TO_THE_ENGINE:
            continue
        line = found.lines.get(name)
        flag = {"kv_dtype": "the cache's dtype", "sequences": "the number of sequences"}.get(
            name, name.replace("_", " ")
        )
        if "$" in value or "{{" in value:
            what = f"{flag} is {value[:60]}, whose value is not in the file: the engine's default is taken"
            yield Fault(line=line, what=what, fix="put the value in", fatal=False)
        elif name == "quantization":
            what = f"quantization {value[:60]!r} is not known here: the checkpoint's format is taken"
            yield Fault(line=line, what=what, fix="--precision says what the weights are in", fatal=False)
        elif name == "kv_dtype":
            what = f"a cache in {value[:60]!r} is not known here: 16 bit is taken"
            yield Fault(line=line, what=what, fix="one of auto, bfloat16, fp8 is", fatal=False)
        else:
            fix = "give a share above 0 and up to 1" if name == "memory_share" else "give a whole number from 1 on"
            yield Fault(line=line, what=f"{flag} cannot be {value[:60]!r}", fix=fix)
