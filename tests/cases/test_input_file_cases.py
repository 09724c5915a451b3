"""Users' cases of files that they already had: each gives the figures that turned out to be right."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command


def json_of(costopt: Command, *command: str, code: int = 0) -> dict[str, Any]:
    outcome = costopt(*command, "-f", "json")
    assert outcome.code == code, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def test_d73_a_skypilot_service_with_a_list_of_accelerators(costopt: Command) -> None:
    """github.com/skypilot-org/skypilot, llm/llama-3_1/llama-3_1.yaml: two replicas, names in mixed case."""
    Path("task.yaml").write_text(
        "envs: {MODEL_NAME: meta-llama/Meta-Llama-3.1-8B-Instruct}\n"
        "service: {replicas: 2}\n"
        "resources:\n"
        "  accelerators: {L4: 8, A10G: 8, A10: 8, A100: 4, A100-80GB: 2}\n"
        "  cpus: 32+\n"
        "  disk_size: 1000\n"
    )
    (service,) = json_of(costopt, "import", "task.yaml", "--context", "4096")["services"]
    assert service["replicas"] == 2
    assert service["model"] == "meta-llama/Llama-3.1-8B"
    named = {option["named"]: option for option in service["options"]}
    assert {name: option["accelerator_count"] for name, option in named.items()} == {
        "L4": 8,
        "A10G": 8,
        "A10": 8,
        "A100": 4,
        "A100-80GB": 2,
    }
    assert {option["verdict"] for option in named.values()} == {"fits"}


@pytest.mark.parametrize(
    ("model", "precision", "gpu", "count", "verdicts"),
    [
        ("8B", "bf16", "L4", 1, {"fits", "tight"}),
        ("405B", "fp8", "A100-40GB", 8, {"does_not_fit"}),
        ("405B", "fp8", "L4", 8, {"does_not_fit"}),
        ("70B", "bf16", "L4", 8, {"fits", "tight"}),
        ("70B", "bf16", "A100-40GB", 4, {"tight"}),
    ],
)
def test_d73_what_its_comments_and_arithmetic_say_of_each_card(
    costopt: Command, model: str, precision: str, gpu: str, count: int, verdicts: set[str]
) -> None:
    arguments = ("--model", model, "--precision", precision, "--gpu", gpu, "--count", str(count), "--context", "4096")
    assert json_of(costopt, "size", *arguments)["verdict"] in verdicts


QLORA = ("--task", "qlora", "--lora-rank", "16", "--seq-len", "512", "--micro-batch", "8")
"""What the file's command says; that activations are computed again is the default of its software."""


@pytest.mark.parametrize("stack", [(), ("--stack", "hf")])
@pytest.mark.parametrize(("gpu", "fits"), [("L40S", True), ("T4", False)])
def test_d74_a_dstack_task_of_48_gb_for_qlora(costopt: Command, gpu: str, fits: bool, stack: tuple[str, ...]) -> None:
    """github.com/dstackai/dstack, examples/llms/deepseek: 48 GB are asked for, and 16 GB would not do."""
    Path("task.dstack.yml").write_text("type: task\nresources: {gpu: 48GB}\nmodel: deepseek-ai/DeepSeek-V2-Lite\n")
    (service,) = json_of(costopt, "import", "task.dstack.yml")["services"]
    assert (gpu in {option["accelerator"] for option in service["options"]}) == fits
    sized = json_of(costopt, "size", "--model", service["model"], *QLORA, *stack, "--gpu", gpu)
    assert (sized["verdict"] != "does_not_fit") == fits


@pytest.mark.parametrize(("stack", "low"), [((), 15), (("--stack", "hf"), 20)])
def test_d74_the_memory_that_its_maintainers_saw(costopt: Command, stack: tuple[str, ...], low: float) -> None:
    """The file's comment says that about 25 GB are used; its Trainer has no fused kernels."""
    sized = json_of(costopt, "size", "--model", "deepseek-ai/DeepSeek-V2-Lite", *QLORA, *stack, "--gpu", "L40S")
    assert low <= sized["memory"]["per_gpu_gib"] <= 32
    assert sized["recompute"] == "full"
    assert any("experts included" in line for line in sized["assumptions"])


D74_TASK = """type: task
name: trl-train-deepseek-v2
python: "3.10"
env:
  - MODEL_ID=deepseek-ai/DeepSeek-V2-Lite
commands:
  - pip install trl peft bitsandbytes
  - python train.py
    --model_name_or_path "deepseek-ai/DeepSeek-V2-Lite"
    --max_seq_len 512
    --bf16 True
    --packing True
    --per_device_train_batch_size 8
    --gradient_accumulation_steps 4
    --gradient_checkpointing True
    --use_peft_lora True
    --lora_r 16
    --lora_target_modules "all-linear"
    --use_4bit_quantization True
    --use_nested_quant True
resources:
  gpu: 48GB
"""
"""The settings of the file that decide its memory, as its commands name them."""


def test_d74_the_commands_of_the_file_are_sized_as_they_are(costopt: Command) -> None:
    Path("task.dstack.yml").write_text(D74_TASK)
    (job,) = json_of(costopt, "import", "task.dstack.yml")["services"]
    assert (job["training"]["task"], job["training"]["recompute"], job["training"]["stack"]) == ("qlora", "full", "hf")
    sized = {one["accelerator"]: one for one in job["options"] if one["training"] is not None}
    assert sized["L40S"]["verdict"] == "fits"
    # About 25 GB, its comment says.
    assert sized["L40S"]["training"]["memory_gib_per_gpu"] == pytest.approx(25e9 / 2**30, rel=0.1)
