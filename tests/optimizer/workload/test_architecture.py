"""Names resolve to the shape they mean or to an error, and parameters and cache are those of the real model."""

import pytest

from optimizer.workload.architecture import models, resolve_model
from providers.errors import UnknownName


@pytest.mark.parametrize(
    ("text", "hf_id"),
    [
        ("70B", "meta-llama/Llama-3.1-70B"),
        ("8x7b", "mistralai/Mixtral-8x7B-v0.1"),
        ("1.5B", "Qwen/Qwen2.5-1.5B"),
        ("llama-3.1-70b", "meta-llama/Llama-3.1-70B"),
        ("meta-llama/Meta-Llama-3-70B-Instruct", "meta-llama/Meta-Llama-3-70B"),
        ("meta-llama/Llama-2-13b-chat-hf", "meta-llama/Llama-2-13b-hf"),
        ("TheBloke/Llama-2-70B-AWQ", "meta-llama/Llama-2-70b-hf"),
        ("unsloth/QwQ-32B-bnb-4bit", "Qwen/Qwen2.5-32B"),
        ("Qwen/Qwen2.5-7B-Instruct (4-bit)", "Qwen/Qwen2.5-7B"),
        ("tencent/Hy3 (295B MoE)", "tencent/Hy3-preview"),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
    ],
)
def test_a_name_resolves_to_the_model_with_its_shape(text: str, hf_id: str) -> None:
    assert resolve_model(text).hf_id == hf_id


@pytest.mark.parametrize("text", ["69B", "llama-3.1-71b", "Qwen/Qwen2.5-33B", "google/flan-t5-xl", "", "llama"])
def test_a_name_that_nobody_has_is_an_error_and_not_a_near_model(text: str) -> None:
    with pytest.raises(UnknownName):
        resolve_model(text)


def test_an_unknown_model_comes_with_suggestions() -> None:
    with pytest.raises(UnknownName, match=r"Qwen/Qwen2\.5-32B"):
        resolve_model("Qwen/Qwen2.5-33B")


def test_a_quantised_checkpoint_name_sets_the_native_dtype_and_says_so() -> None:
    model = resolve_model("RedHatAI/Llama-3.3-70B-Instruct-FP8")
    assert model.native_dtype == "fp8"
    assert any("fp8" in note for note in model.notes)


@pytest.mark.parametrize(
    ("text", "bytes_per_token"),
    [
        # Published figures: 2 x layers x KV heads x head_dim x 2 bytes; Qwen3-Next caches 12 of 48 layers.
        ("meta-llama/Llama-2-13b-hf", 819_200),
        ("Qwen/Qwen1.5-72B", 2_621_440),
        ("huggyllama/llama-7b", 524_288),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 24_576),
        ("deepseek-ai/DeepSeek-V3", 61 * 576 * 2),
        ("Qwen/Qwen3-30B-A3B", 98_304),
    ],
)
def test_cache_per_token_is_that_of_the_real_attention(text: str, bytes_per_token: int) -> None:
    assert resolve_model(text).cache_elements(1) * 2 == bytes_per_token


@pytest.mark.parametrize(
    ("text", "context", "gib"),
    [
        ("google/gemma-3-27b-it", 131_072, 10.41),
        ("deepseek-ai/DeepSeek-V3.1", 163_840, 10.72),
        ("Qwen/Qwen3-0.6B", 40_960, 4.375),
    ],
)
def test_windows_and_latent_attention_bound_the_cache_of_a_long_context(text: str, context: int, gib: float) -> None:
    assert resolve_model(text).cache_elements(context) * 2 / 2**30 == pytest.approx(gib, rel=0.01)


def test_every_model_of_the_table_has_parts_that_add_up_to_its_parameters() -> None:
    for model in models().values():
        parts = model.params_embedding + model.params_lm_head + model.params_experts + model.params_attention
        parts += model.params_dense_mlp
        routers = 0.0 if model.hybrid else model.params_router
        assert parts + routers == pytest.approx(model.params_total, rel=0.005), model.hf_id
        assert 0 < model.params_active <= model.params_total, model.hf_id


def test_every_model_of_the_table_says_where_its_shape_comes_from() -> None:
    assert all(model.source for model in models().values())


@pytest.mark.parametrize(
    ("name", "native"),
    [("unsloth/DeepSeek-R1-BF16", "bf16"), ("deepseek-ai/DeepSeek-R1", "fp8"), ("unsloth/gpt-oss-20b-BF16", "bf16")],
)
def test_a_quantised_model_that_somebody_unpacked_is_in_16_bit(name: str, native: str) -> None:
    assert resolve_model(name).native_dtype == native
