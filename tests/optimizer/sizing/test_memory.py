"""Memory is that of published start-up logs and files: weights, cache, activations, verdicts."""

import pytest

from optimizer.sizing.dtypes import weight_bytes, weight_format
from optimizer.sizing.engines import engine_profile
from optimizer.sizing.layout import Hardware, Layout
from optimizer.sizing.memory import activation_bytes, estimate_memory
from optimizer.sizing.serving import ServingEstimate, size_serving
from optimizer.workload.architecture import resolve_model
from optimizer.workload.workload import RequestShape
from providers.accelerators import resolve
from providers.errors import InvalidValue
from providers.units import GIB


def sized(model: str, accelerator: str, count: int = 1, **over: object) -> ServingEstimate:
    hardware = Hardware(accelerator=resolve(accelerator), count=count, link="nvlink")
    shape = RequestShape(input_tokens=1000, output_tokens=300)
    return size_serving(resolve_model(model), hardware, shape=shape, **over)


@pytest.mark.parametrize(
    ("model", "fmt", "gib"),
    [
        ("meta-llama/Meta-Llama-3-70B-Instruct", "bf16", 131.4),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "bf16", 87.0),
        ("meta-llama/Llama-2-7b-hf", "fp32", 25.1),
        # File sizes: llama.cpp Q4_0 of 70B is 37.22 GiB, Q4_K_M of Llama 3 is 4.58 and 39.6 GiB.
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "q4_0", 37.22),
        ("meta-llama/Meta-Llama-3-8B", "q4_k_m", 4.58),
        ("meta-llama/Meta-Llama-3-70B", "q4_k_m", 39.6),
        # The published files of gpt-oss-120b (vLLM pads them to 65.97); vLLM's log for Llama-3.3-70B in FP8.
        ("openai/gpt-oss-120b", "mxfp4", 60.8),
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8", 67.72),
    ],
)
def test_weights_weigh_what_files_and_logs_say(model: str, fmt: str, gib: float) -> None:
    assert weight_bytes(resolve_model(model), weight_format(fmt)).total / GIB == pytest.approx(gib, rel=0.02)


@pytest.mark.parametrize(
    ("model", "gib"),
    [("meta-llama/Llama-3.1-8B", 4.76), ("Qwen/Qwen3-32B", 5.64), ("openai/gpt-oss-120b", 7.4)],
)
def test_sampling_over_a_thousand_sequences_takes_the_activations_that_logs_show(model: str, gib: float) -> None:
    # H100 with vLLM's defaults of 2025-2026 (llm-d-planner, 2026; gpt-oss: about 7 GiB).
    peak = activation_bytes(resolve_model(model), engine_profile("vllm"), Layout(), resolve("H100-SXM5-80GB"), 16_000)
    assert peak / GIB == pytest.approx(gib, rel=0.04)


def test_an_unchunked_prefill_grows_with_the_longest_context() -> None:
    # vllm issue 10517 (2024-11): 2.07 GiB at 20,000 tokens and 2.99 at 29,000 on an RTX 3090.
    old = engine_profile("vllm", "0.6")
    model, card = resolve_model("meta-llama/Llama-3.1-8B"), resolve("RTX 3090")
    for context, gib in ((20_000, 2.07), (29_000, 2.99)):
        assert activation_bytes(model, old, Layout(), card, context) / GIB == pytest.approx(gib, rel=0.03)


def test_gpt_oss_120b_leaves_no_cache_on_one_80_gb_card_with_default_settings() -> None:
    answer = sized("openai/gpt-oss-120b", "H100-SXM5-80GB", context_tokens=131_072)
    assert answer.verdict in ("tight", "does_not_fit")
    assert any("little" in warning or "missing" in warning for warning in answer.warnings)


def test_memory_does_not_pool_without_tensor_parallelism() -> None:
    answer = sized("meta-llama/Meta-Llama-3-70B-Instruct", "RTX A6000", 8, precision="bf16", tp=1)
    assert answer.verdict == "does_not_fit"
    assert any("does not pool" in warning for warning in answer.warnings)
    assert sized("meta-llama/Meta-Llama-3-70B-Instruct", "RTX A6000", 8, precision="bf16", tp=8).verdict == "fits"


def test_fp32_doubles_the_weights_and_no_longer_fits_24_gb() -> None:
    assert sized("meta-llama/Llama-2-7b-hf", "RTX 3090", precision="fp32").verdict == "does_not_fit"
    assert sized("meta-llama/Llama-2-7b-hf", "RTX 3090", precision="fp16").verdict != "does_not_fit"


def test_a_degree_that_does_not_divide_the_heads_is_refused_with_those_that_do() -> None:
    with pytest.raises(InvalidValue, match="12 attention heads do not divide by 8; valid: 1, 2, 4"):
        sized("Qwen/Qwen2-VL-2B-Instruct", "A100-SXM4-80GB", 8, tp=8)


def test_bf16_on_a_card_without_it_is_sized_as_fp16_and_said() -> None:
    answer = sized("baichuan-inc/Baichuan2-13B-Chat", "T4", 4, precision="bf16")
    assert answer.precision == "fp16"
    assert any("does not compute bf16" in line for line in (*answer.assumptions, *answer.warnings))


def test_the_cache_of_a_tokens_worth_matches_the_log_of_a_4_kv_head_mixture() -> None:
    # vllm pull request 25350: 10.55 GiB of FP8 cache hold 230,528 tokens of Qwen3-30B-A3B.
    model, engine = resolve_model("Qwen/Qwen3-30B-A3B"), engine_profile("vllm")
    memory = estimate_memory(model, resolve("H100-SXM5-80GB"), Layout(), weight_format("fp8"), 1.0, engine)
    assert memory.kv_bytes_per_token == 49_152
    assert memory.cache.tokens_in(10.55 * GIB) == pytest.approx(230_528, rel=0.01)


def test_block_quantised_cache_counts_bytes_per_block_of_32() -> None:
    answer = sized("huggyllama/llama-7b", "A100-SXM4-80GB", kv_precision="q8_0", context_tokens=2048)
    assert answer.memory.cache.bytes_for(8192) / GIB == pytest.approx(2.125, rel=0.001)


def test_two_80_gb_cards_for_a_16_bit_70b_are_tight_and_four_are_comfortable() -> None:
    answer = sized("meta-llama/Llama-2-70b-hf", "A100-SXM4-80GB", 2, precision="fp16", context_tokens=4096)
    assert answer.verdict == "tight"
    assert answer.min_gpus_comfortable == 4
