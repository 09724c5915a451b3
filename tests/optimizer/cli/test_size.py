"""`costopt size`: verdicts, what the running requests need, bounds that are missed, and the promised keys."""

import json
from typing import Any

import pytest

from tests.conftest import Command

DOCUMENT = {
    *("schema", "schema_version", "verdict", "headroom_tokens", "min_gpus", "min_gpus_comfortable"),
    *("valid_tensor_parallel", "memory", "performance", "assumptions", "warnings"),
}
MEMORY = {
    *("usable_gib_per_gpu", "weights_gib", "kv_cache_gib", "kv_bytes_per_token", "activations_gib", "optimizer_gib"),
    *("gradients_gib", "overhead_gib", "total_gib", "per_gpu_gib", "max_context_tokens", "max_concurrency"),
}
PERFORMANCE = {"output_tokens_per_s", "requests_per_s", "prefill_tokens_per_s", "ttft_ms", "tpot_ms"}


def sized(costopt: Command, *arguments: str) -> dict[str, Any]:
    outcome = costopt("size", *arguments, "--format", "json")
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def test_a_sizing_has_the_promised_keys_and_intervals(costopt: Command) -> None:
    document = sized(costopt, "--model", "70B", "--gpu", "H100", "--count", "4")
    assert document.keys() >= DOCUMENT
    assert document["memory"].keys() >= MEMORY
    assert document["performance"].keys() >= PERFORMANCE
    for key in PERFORMANCE:
        estimate = document["performance"][key]
        assert estimate["low"] <= estimate["value"] <= estimate["high"]


@pytest.mark.parametrize(("count", "verdicts"), [(1, {"does_not_fit"}), (8, {"fits"})])
def test_the_verdict_does_not_change_the_exit_code(costopt: Command, count: int, verdicts: set[str]) -> None:
    document = sized(costopt, "--model", "70B", "--gpu", "A100-80GB", "--count", str(count), "--precision", "bf16")
    assert document["verdict"] in verdicts
    assert (document["performance"] is None) == (document["verdict"] == "does_not_fit")


def test_the_smallest_count_fits_and_a_smaller_one_does_not(costopt: Command) -> None:
    arguments = ("--model", "70B", "--gpu", "L40S", "--precision", "fp8")
    smallest = sized(costopt, *arguments)["min_gpus"]
    assert sized(costopt, *arguments, "--count", str(smallest))["verdict"] != "does_not_fit"
    assert sized(costopt, *arguments, "--count", str(smallest // 2))["verdict"] == "does_not_fit"


def test_the_longest_request_fits_and_a_longer_one_does_not(costopt: Command) -> None:
    arguments = ("--model", "8B", "--gpu", "L4", "--count", "1")
    longest = sized(costopt, *arguments)["memory"]["max_context_tokens"]
    assert sized(costopt, *arguments, "--context", str(longest))["verdict"] != "does_not_fit"
    assert sized(costopt, *arguments, "--context", str(longest + 1000))["verdict"] == "does_not_fit"


def test_more_running_requests_than_a_replica_holds_take_more_replicas(costopt: Command) -> None:
    arguments = ("--model", "8B", "--gpu", "L4")
    assert sized(costopt, *arguments)["replicas"] is None
    assert sized(costopt, *arguments, "--concurrency", "1")["replicas"] == 1
    many = sized(costopt, *arguments, "--concurrency", "5000")
    assert many["replicas"] > 10
    assert any("5,000 take" in warning for warning in many["warnings"])
    assert many["memory"]["per_gpu_gib"] <= many["memory"]["usable_gib_per_gpu"]


def test_a_bound_that_is_missed_is_said(costopt: Command) -> None:
    document = sized(costopt, "--model", "70B", "--gpu", "H100", "--count", "4", "--ttft-ms", "1", "--tpot-ms", "1")
    assert document["performance"]["batch"] == 1
    warnings = " ".join(document["warnings"])
    assert "TTFT of" in warnings
    assert "TPOT of" in warnings
    assert "asked for" in warnings


def test_a_dtype_that_the_hardware_lacks_is_replaced_in_the_open(costopt: Command) -> None:
    document = sized(costopt, "--model", "8B", "--gpu", "V100-32GB", "--precision", "bf16")
    assert document["precision"] == "fp16"
    assert any("does not compute bf16" in line for line in document["assumptions"])


def test_a_family_name_is_taken_as_one_variant_and_says_which(costopt: Command) -> None:
    document = sized(costopt, "--model", "8B", "--gpu", "a100-80gb")
    assert document["accelerator"] == "A100-SXM4-80GB"
    assert "a100-80gb is taken as A100-SXM4-80GB, not A100-PCIe-80GB" in document["assumptions"]


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("H100-80GB-SXM", "H100-SXM5-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("RTX4090-24GB", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("h100_nvl", "H100-NVL-94GB"),
        ("MI300X-192GB", "MI300X"),
        ("Tesla T4", "T4"),
        ("A6000-48GB", "RTX A6000"),
    ],
)
def test_an_accelerator_is_known_by_what_people_write(costopt: Command, name: str, canonical: str) -> None:
    assert sized(costopt, "--model", "1B", "--gpu", name)["accelerator"] == canonical
