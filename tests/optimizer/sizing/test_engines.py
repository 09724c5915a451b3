"""Engines are found by name, version and date, and carry the habits of their generation."""

import pytest

from optimizer.sizing.engines import CURRENT_YEAR, ENGINES, engine_in_table, engine_profile, is_large, sequence_limit
from providers.accelerators import resolve
from providers.errors import UnknownName


@pytest.mark.parametrize(
    ("name", "version", "year", "found"),
    [
        ("vLLM", "", None, CURRENT_YEAR),
        ("vllm", "0.6.3", None, 2024.7),
        ("vllm@0.8", "", None, 2025.3),
        ("vllm", "", 2024.2, 2024.2),
        ("vllm", "2023-10", 2023.8, 2023.8),
        ("TensorRT-LLM", "1.0.0rc3", None, 2025.7),
        ("TensorRT-LLM", "0.1", None, 2023.8),
        ("vllm", "9.9", None, CURRENT_YEAR),
        ("vllm", "", 2031.0, CURRENT_YEAR),
    ],
)
def test_a_version_or_a_date_tells_the_generation(name: str, version: str, year: float | None, found: float) -> None:
    assert engine_profile(name, version, year).year == pytest.approx(found)


def test_an_engine_that_nobody_knows_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="known: vllm"):
        engine_profile("abacus")


@pytest.mark.parametrize(
    ("cell", "family"),
    [
        ("vLLM (ROCm)", "vllm"),
        ("TensorRT-LLM v0.12", "tensorrt-llm"),
        ("Ollama", "llama.cpp"),
        ("NVIDIA NIM", "tensorrt-llm"),
        ("Hugging Face Transformers", "transformers"),
        ("abacus", "other"),
    ],
)
def test_a_tables_cell_names_its_engine_freely(cell: str, family: str) -> None:
    assert engine_in_table(cell).family == family


def test_the_version_in_a_tables_cell_counts() -> None:
    assert engine_in_table("vLLM v0.6.3 (CUDA)").year == pytest.approx(2024.7)


def test_large_cards_are_those_that_the_engine_takes_for_large() -> None:
    assert is_large(resolve("H100-SXM5-80GB"))
    assert not is_large(resolve("A100-SXM4-80GB"))
    assert not is_large(resolve("L40S"))


def test_generations_before_chunked_prefill_run_256_sequences_everywhere() -> None:
    card = resolve("H100-SXM5-80GB")
    assert sequence_limit(engine_profile("vllm", "0.6"), card) == 256
    assert sequence_limit(engine_profile("vllm"), card) == 1024


def test_every_engine_takes_at_most_the_whole_card() -> None:
    assert all(0 < profile.memory_share <= 1 for profile in ENGINES.values())
