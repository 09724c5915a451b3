"""Training plans as launch files: batch sizes that multiply up to the plan's step, layouts, and what cannot be said."""

import json
import math
import subprocess
from typing import Any

import pytest
import yaml

from optimizer.interop import deepspeed, fsdp, megatron, targets
from optimizer.interop.launch_plan import LaunchPlan, TrainingJob, parse_plan
from providers.errors import UsageError
from tests.optimizer.interop.builders import make_instances, make_plan


def make_training_plan(**over: Any) -> LaunchPlan:
    """Full fine-tuning of Llama 3.1 8B on two machines of 8 H100 with FSDP; `task` and `lora_rank` go to the run."""
    run = {
        "name": "run",
        "model": over.pop("model", "meta-llama/Llama-3.1-8B"),
        "task": over.pop("task", "finetune"),
        "tokens": 1e9,
        "seq_len": 2048,
        "optimizer": "adamw",
        "lora_rank": over.pop("lora_rank", None),
    }
    job: dict[str, Any] = {
        "workload": "run",
        "provider": "aws",
        "instance_type": "p5.48xlarge",
        "region": "us-east-1",
        "purchase_option": "on_demand",
        "count": 2,
        "precision": "bf16",
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "context_parallel": 1,
        "expert_parallel": 1,
        "data_parallel": 16,
        "zero_stage": 3,
        "micro_batch": 2,
        "global_batch_tokens": 262144,
        "recompute": "full",
        "stack": "fsdp",
        "hours": 10.5,
    }
    document = {
        "schema": "costopt.plan",
        "schema_version": "1.0",
        "status": "optimal",
        "workloads": [run],
        "instances": [make_instances(count=2)],
        "replicas": [],
        "jobs": [job | over],
        "totals": {"usd_total": "1155.84"},
    }
    return parse_plan(json.dumps(document), "plan.json")


def job_of(**over: Any) -> TrainingJob:
    return make_training_plan(**over).jobs[0]


def flags(words: list[str]) -> dict[str, str]:
    return {word: after for word, after in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}


@pytest.mark.parametrize("target", [*targets.TRAINING, *targets.BOTH])
def test_every_file_says_which_plan_it_comes_from(target: str) -> None:
    plan = make_training_plan()
    files = targets.export(plan, target).files
    assert files
    assert all(plan.digest in text for text in files.values())


def test_fsdp_takes_the_whole_step() -> None:
    job = job_of()
    found = flags(fsdp.arguments(job))
    sequences = int(found["--per_device_train_batch_size"]) * int(found["--gradient_accumulation_steps"]) * 16
    assert sequences * job.seq_len == job.global_batch_tokens
    assert int(found["--max_steps"]) == math.ceil(1e9 / 262144)
    assert found["--fsdp"] == "True"
    assert json.loads(found["--fsdp_config"])["reshard_after_forward"] is True


def test_deepspeed_multiplies_up_to_its_batch() -> None:
    found = deepspeed.configuration(job_of(zero_stage=2))
    product = found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * 16
    assert product == found["train_batch_size"] == 128
    assert found["zero_optimization"]["stage"] == 2


def test_megatron_has_the_layout_and_the_shape() -> None:
    job = job_of(tensor_parallel=4, pipeline_parallel=2, data_parallel=2, zero_stage=1, stack="megatron")
    found = flags(megatron.arguments(job))
    assert found["--tensor-model-parallel-size"] == "4"
    assert found["--pipeline-model-parallel-size"] == "2"
    assert found["--num-query-groups"] == "8"
    assert int(found["--global-batch-size"]) * job.seq_len == job.global_batch_tokens


def test_axolotl_asks_for_adapters_in_four_bits() -> None:
    (text,) = targets.export(make_training_plan(task="qlora", lora_rank=16), "axolotl").files.values()
    content = yaml.safe_load(text)
    assert (content["adapter"], content["load_in_4bit"], content["lora_r"]) == ("qlora", True, 16)


def test_a_layout_that_a_target_cannot_express_is_a_warning() -> None:
    plan = make_training_plan(tensor_parallel=8, data_parallel=2, stack="megatron")
    warnings = " ".join(targets.export(plan, "fsdp").warnings)
    assert "TP 8" in warnings
    assert "sized for megatron" in warnings


@pytest.mark.parametrize("target", ["fsdp", "deepspeed", "megatron", "slurm"])
def test_scripts_are_bash_and_start_the_words_of_the_plan(target: str) -> None:
    plan = make_training_plan(model="evil/$(touch owned)';`id`")
    for name, text in targets.export(plan, target).files.items():
        if not name.endswith(".json"):
            checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
            assert checked.returncode == 0, checked.stderr
            assert "\n$(touch" not in text


def test_slurm_asks_for_the_machines_and_enough_time() -> None:
    (text,) = targets.export(make_training_plan(), "slurm").files.values()
    assert "#SBATCH --nodes=2\n" in text
    assert "#SBATCH --gpus-per-node=8\n" in text
    assert "#SBATCH --time=0-16:00:00\n" in text


def test_targets_of_the_other_kind_are_refused() -> None:
    with pytest.raises(UsageError, match="plans training"):
        targets.export(make_training_plan(), "vllm")
    with pytest.raises(UsageError, match="plans serving"):
        targets.export(make_plan(), "deepspeed")


def test_a_task_of_skypilot_asks_for_the_machines_and_the_script() -> None:
    (text,) = targets.export(make_training_plan(), "skypilot").files.values()
    content = yaml.safe_load(text)
    assert content["num_nodes"] == 2
    assert content["resources"]["accelerators"] == {"H100": 8}
    assert content["envs"] == {"TRAIN_SCRIPT": None}
    assert "service" not in content
    checked = subprocess.run(["bash", "-n"], input=content["run"], text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_task_is_valid_by_the_schema_of_skypilot() -> None:
    schemas = pytest.importorskip("sky.utils.schemas", exc_type=ImportError)
    jsonschema = pytest.importorskip("jsonschema", exc_type=ImportError)
    (text,) = targets.export(make_training_plan(), "skypilot").files.values()
    jsonschema.validate(yaml.safe_load(text), schemas.get_task_schema())
