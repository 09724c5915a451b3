"""Builders of training plans as `costopt plan -f json` writes them."""

import json
from typing import Any, Final

from optimizer.interop.launch_plan import LaunchPlan, TrainingJob
from optimizer.interop.plan_file import parse_plan
from tests.optimizer.interop.builders import make_instances

RUN: Final = {
    "model": "meta-llama/Llama-3.1-8B",
    "task": "finetune",
    "lora_rank": None,
    "lora_experts": None,
    "optimizer": "adamw",
}
MACHINE: Final = {"provider": "aws", "instance_type": "p5.48xlarge", "region": "us-east-1"}


def training_document(**over: Any) -> str:
    """Full fine-tuning of Llama 3.1 8B on two machines of 8 H100 with FSDP.

    Keys of RUN go to the run, those of MACHINE, `accelerator` and `accelerator_count` to the instances; the others to
    the job.
    """
    run = {"name": "run", "tokens": 1e9, "seq_len": 2048} | {key: over.pop(key, value) for key, value in RUN.items()}
    machine = {key: over.pop(key, value) for key, value in MACHINE.items()}
    hardware = {key: over.pop(key) for key in ("accelerator", "accelerator_count") if key in over}
    job: dict[str, Any] = {
        "workload": "run",
        **machine,
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
        "master_weights": run["task"] in ("train", "finetune"),
        "offload": [],
        "recompute": "full",
        "stack": "fsdp",
        "hours": 10.5,
        "checkpoint_interval_hours": None,
    }
    job |= over
    bought = make_instances(**machine, **hardware, count=job["count"], purchase_option=job["purchase_option"])
    document = {
        "schema": "costopt.plan",
        "schema_version": "1.0",
        "status": "optimal",
        "workloads": [run],
        "instances": [bought],
        "replicas": [],
        "jobs": [job],
        "totals": {"usd_total": "1155.84"},
    }
    return json.dumps(document)


def make_training_plan(**over: Any) -> LaunchPlan:
    """The parsed plan of that document."""
    return parse_plan(training_document(**over), "plan.json")


def job_of(**over: Any) -> TrainingJob:
    return make_training_plan(**over).jobs[0]


ONE_L40S: Final = {
    "instance_type": "g6e.2xlarge",
    "accelerator": "L40S",
    "accelerator_count": 1,
    "count": 1,
    "data_parallel": 1,
}
ONE_MACHINE: Final = {"count": 1, "data_parallel": 8}

PLANS: Final[dict[str, dict[str, Any]]] = {
    "full fine-tuning on two machines": {},
    "LoRA on a spot machine": {
        **ONE_L40S,
        "task": "lora",
        "lora_rank": 16,
        "zero_stage": 0,
        "recompute": "none",
        "global_batch_tokens": 131072,
        "purchase_option": "spot",
        "checkpoint_interval_hours": 0.5,
    },
    "QLoRA over eight": {**ONE_MACHINE, "task": "qlora", "lora_rank": 64, "model": "meta-llama/Llama-3.1-70B"},
    "optimizer in host memory": {**ONE_MACHINE, "zero_stage": 2, "offload": ["optimizer"], "recompute": "none"},
    "weights in host memory": {**ONE_MACHINE, "offload": ["activations", "optimizer", "params"]},
    "pure 16 bit": {**ONE_L40S, "zero_stage": 0, "master_weights": False, "optimizer": "paged-adamw-8bit"},
    "8-bit states, sharded": {**ONE_MACHINE, "zero_stage": 2, "optimizer": "adamw-8bit", "stack": "hf"},
    "fp16": {**ONE_L40S, "zero_stage": 0, "precision": "fp16", "optimizer": "adafactor"},
    "pre-training with TP and PP": {
        "task": "train",
        "model": "meta-llama/Llama-3.1-70B",
        "tensor_parallel": 4,
        "pipeline_parallel": 2,
        "data_parallel": 2,
        "zero_stage": 1,
        "precision": "fp8",
        "recompute": "selective",
        "stack": "megatron",
        "global_batch_tokens": 4194304,
    },
    "long context": {
        "task": "train",
        "tensor_parallel": 2,
        "context_parallel": 4,
        "data_parallel": 2,
        "zero_stage": 1,
        "micro_batch": 1,
        "offload": ["optimizer"],
        "stack": "nemo",
        "global_batch_tokens": 4194304,
    },
    "experts": {
        "task": "train",
        "model": "deepseek-ai/DeepSeek-V3",
        "tensor_parallel": 2,
        "pipeline_parallel": 2,
        "expert_parallel": 8,
        "data_parallel": 4,
        "zero_stage": 1,
        "recompute": "none",
        "stack": "megatron",
        "global_batch_tokens": 4194304,
    },
}
"""What changes against `training_document()`, by what a plan is like."""
