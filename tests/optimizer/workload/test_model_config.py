"""A config.json becomes the same architecture as the table has, or an error that names the key."""

from typing import Any

import pytest

from optimizer.workload.architecture import architecture_from_config, models
from providers.errors import InvalidValue, UsageError


def llama_70b(**over: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "num_hidden_layers": 80,
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "intermediate_size": 28672,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    } | over


def deepseek_v3(**over: Any) -> dict[str, Any]:
    return {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "vocab_size": 129280,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "fp8"},
    } | over


def test_a_llama_config_counts_the_published_parameters() -> None:
    model = architecture_from_config(llama_70b(), "mine")
    known = models()["meta-llama/Llama-3.1-70B"]
    assert model.params_total == pytest.approx(known.params_total, rel=1e-3)
    assert model.cache_groups == known.cache_groups
    assert model.native_dtype == "bf16"


def test_a_latent_attention_mixture_counts_the_published_parameters() -> None:
    model = architecture_from_config(deepseek_v3(), "mine")
    known = models()["deepseek-ai/DeepSeek-V3"]
    assert model.params_total == pytest.approx(known.params_total, rel=1e-3)
    assert model.params_active == pytest.approx(known.params_active, rel=1e-3)
    assert model.native_dtype == "fp8"


def test_a_nested_text_configuration_is_read_and_the_tower_is_said_to_be_left_out() -> None:
    model = architecture_from_config(
        {"model_type": "gemma3", "text_config": llama_70b(), "torch_dtype": "bfloat16"}, "m"
    )
    assert model.layers == 80
    assert any("vision" in note for note in model.notes)


def test_a_missing_key_is_named() -> None:
    config = llama_70b()
    del config["hidden_size"]
    with pytest.raises(InvalidValue, match="hidden_size"):
        architecture_from_config(config, "mine")


@pytest.mark.parametrize("value", ["80", -1, 1.5, True])
def test_a_value_that_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue, match="num_hidden_layers"):
        architecture_from_config(llama_70b(num_hidden_layers=value), "mine")


def test_an_architecture_that_is_not_known_is_an_error_and_no_guess() -> None:
    with pytest.raises(UsageError, match="rwkv"):
        architecture_from_config(llama_70b(model_type="rwkv"), "mine")


def test_an_unknown_quantisation_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="quantization_config"):
        architecture_from_config(llama_70b(quantization_config={"quant_method": "magic"}), "mine")


@pytest.mark.parametrize(
    ("over", "window", "full"),
    [
        ({}, None, 80),
        ({"use_sliding_window": False}, None, 80),
        ({"use_sliding_window": True}, 4096, 28),
        ({"use_sliding_window": True, "max_window_layers": 70}, 4096, 70),
        ({"use_sliding_window": True, "max_window_layers": 0}, 4096, 0),
    ],
)
def test_windows_of_qwen_are_off_unless_asked_for_and_spare_the_first_layers(
    over: dict[str, Any], window: int | None, full: int
) -> None:
    model = architecture_from_config(llama_70b(model_type="qwen2", sliding_window=4096, **over), "m")
    assert (model.sliding_window, model.full_attention_layers) == (window, full)


def test_a_file_without_a_longest_context_says_what_is_assumed() -> None:
    config = llama_70b()
    del config["max_position_embeddings"]
    model = architecture_from_config(config, "m")
    assert model.max_position == 2048
    assert "config.json names no longest context: 2,048 tokens assumed" in model.notes
