"""`costopt import` of training jobs: memory, speed, hours, cost, what would be cheaper; what the file leaves open."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

QLORA = """\
type: task
resources: {gpu: 48GB}
model: deepseek-ai/DeepSeek-V2-Lite
method: qlora
lora_r: 16
max_seq_len: 512
per_device_batch: 8
"""
SFT = """\
name: sft
num_nodes: 2
resources: {infra: aws, accelerators: H100:8}
envs: {MODEL: Qwen/Qwen2.5-7B}
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE train.py \\
    --model_name_or_path $MODEL --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \\
    --bf16 True --fsdp full_shard --gradient_checkpointing True --max_length 4096 --max_steps 1000
"""
AXOLOTL = """\
base_model: NousResearch/Meta-Llama-3-8B
load_in_4bit: true
adapter: qlora
sequence_len: 2048
lora_r: 32
micro_batch_size: 1
gradient_accumulation_steps: 4
optimizer: paged_adamw_8bit
bf16: auto
gradient_checkpointing: true
"""


def imported(costopt: Command, text: str, *flags: str, code: int = 0, name: str = "job.yaml") -> dict[str, Any]:
    """The one job of a file."""
    Path(name).write_text(text)
    outcome = costopt("import", name, *flags, "-f", "json")
    assert outcome.code == code, outcome.err
    (service,) = json.loads(outcome.out)["services"]
    found: dict[str, Any] = service
    return found


def notes(service: dict[str, Any]) -> str:
    every = [*service["faults"], *(fault for option in service["options"] for fault in option["faults"])]
    return " | ".join(f"{fault['line']}: {fault['fault']}" for fault in every)


def test_d74_a_dstack_task_for_qlora_is_answered_as_its_maintainers_say(costopt: Command) -> None:
    """github.com/dstackai/dstack, examples/llms/deepseek: 48 GB are asked for, about 25 GB are used."""
    service = imported(costopt, QLORA)
    assert service["works"]
    assert service["training"]["task"] == "qlora"
    options = {option["accelerator"]: option for option in service["options"]}
    assert "T4" not in options
    assert options["L40S"]["verdict"] == "fits"
    assert 15 <= options["L40S"]["training"]["memory_gib_per_gpu"] <= 32
    assert imported(costopt, QLORA.replace("48GB", "T4"), code=3)["options"][0]["verdict"] == "does_not_fit"


def test_a_run_with_steps_has_tokens_hours_and_a_cost(costopt: Command) -> None:
    service = imported(costopt, SFT)
    (option,) = service["options"]
    job = option["training"]
    assert (service["nodes"], service["model"]) == (2, "Qwen/Qwen2.5-7B")
    assert option["instance"]["instance_type"] == "p5.48xlarge"
    assert option["count"] == 2
    assert (job["zero_stage"], job["micro_batch"], job["recompute"], job["data_parallel"]) == (3, 2, "full", 16)
    assert job["global_batch_tokens"] == 2 * 4 * 16 * 4096
    assert job["tokens"] == 1000 * job["global_batch_tokens"]
    assert job["hours"] == pytest.approx(job["tokens"] / job["tokens_per_s"] / 3600, rel=0.3)
    assert float(job["usd_total"]) == pytest.approx(float(option["usd_per_hour"]) * job["hours"], rel=0.001)
    cluster = service["cheaper_cluster"]
    assert float(cluster["usd_total"]) <= float(job["usd_total"]) * 1.001
    assert cluster["hours"] <= job["hours"] * 1.001


def test_without_steps_there_are_no_hours_but_a_cost_per_token(costopt: Command) -> None:
    (option,) = imported(costopt, QLORA.replace("48GB", "L40S"))["options"]
    assert option["training"]["hours"] is None
    assert float(option["training"]["usd_per_million_tokens"]) > 0
    (option,) = imported(costopt, QLORA.replace("48GB", "L40S"), "--tokens", "100M")["options"]
    assert option["training"]["hours"] > 0
    assert float(option["training"]["usd_total"]) > 0


def test_what_the_file_leaves_open_and_memory_depends_on_is_told(costopt: Command) -> None:
    command = "torchrun --nproc_per_node 8 t.py --model_name_or_path Qwen/Qwen2.5-7B"
    text = f"resources: {{accelerators: H100:8}}\nrun: {command}\n"
    said = notes(imported(costopt, text))
    for words in ("the task (finetune)", "the length of sequences", "the micro-batch", "sharding of states"):
        assert words in said
    assert imported(costopt, text, "--task", "lora")["options"][0]["training"]["task"] == "lora"


def test_a_configuration_without_accelerators_is_sized_on_those_of_a_flag(costopt: Command) -> None:
    (option,) = imported(costopt, AXOLOTL, "--gpu", "RTX4090")["options"]
    job = option["training"]
    assert (job["task"], job["optimizer"], job["micro_batch"]) == ("qlora", "paged-adamw-8bit", 1)
    assert option["accelerator_count"] == 1


def test_degrees_of_a_command_give_the_accelerators_that_it_takes(costopt: Command) -> None:
    text = (
        "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 "
        "--train-iters 1000 --bf16 --use-distributed-optimizer\n"
    )
    service = imported(costopt, text, "--gpu", "H100-SXM", "--model", "8B", name="job.sh")
    (option,) = service["options"]
    job = option["training"]
    assert (option["accelerator_count"], service["nodes"]) == (8, 2)
    assert (job["tensor_parallel"], job["pipeline_parallel"], job["data_parallel"]) == (4, 2, 2)
    assert (job["task"], job["stack"], job["zero_stage"]) == ("train", "megatron", 1)


def test_settings_in_another_file_are_told_and_not_opened(costopt: Command) -> None:
    Path("lora.yml").write_text(AXOLOTL)
    text = "resources: {accelerators: L4:1}\nrun: axolotl train lora.yml\n"
    service = imported(costopt, text, code=3)
    assert "settings stand in lora.yml" in notes(service)
    assert service["model"] is None


@pytest.mark.parametrize("format_", ["table", "csv", "md"])
def test_every_format_has_verdict_rate_and_cost(costopt: Command, format_: str) -> None:
    Path("job.yaml").write_text(SFT)
    outcome = costopt("import", "job.yaml", "-f", format_)
    assert outcome.code == 0, outcome.err
    assert "fits" in outcome.out
    assert "p5.48xlarge" in outcome.out
    assert "None" not in outcome.out


def test_a_job_that_does_not_fit_has_no_speed(costopt: Command) -> None:
    text = SFT.replace("Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-405B")
    (option,) = imported(costopt, text, code=3)["options"]
    assert option["training"]["tokens_per_s"] is None
    assert option["training"]["usd_total"] is None


def test_spot_takes_longer_by_its_interruptions_and_may_be_moved_to_spot(costopt: Command) -> None:
    (plain,) = imported(costopt, SFT)["options"]
    service = imported(costopt, SFT.replace("accelerators: H100:8", "accelerators: H100:8, use_spot: true"))
    (spot,) = service["options"]
    assert plain["training"]["interrupted_share"] == 0
    assert spot["training"]["interrupted_share"] > 0
    assert spot["training"]["hours"] > plain["training"]["hours"]
    assert float(spot["usd_per_hour"]) < float(plain["usd_per_hour"])
    assert service["cheaper_cluster"]["instance"]["purchase_option"] in ("spot", "on_demand")
