"""Builders of plan documents as `costopt plan -f json` writes them."""

import json
from typing import Any

from optimizer.interop.launch_plan import LaunchPlan
from optimizer.interop.plan_file import parse_plan


def make_instances(**over: Any) -> dict[str, Any]:
    """One p5.48xlarge of AWS on demand."""
    fields: dict[str, Any] = {
        "provider": "aws",
        "instance_type": "p5.48xlarge",
        "region": "us-east-1",
        "zone": None,
        "purchase_option": "on_demand",
        "commitment": None,
        "accelerator": "H100-SXM5-80GB",
        "accelerator_count": 8,
        "usd_per_hour": "55.04",
        "as_of": "2026-11-09",
        "source": "a test",
        "count": 1,
    }
    return fields | over


def make_replicas(**over: Any) -> dict[str, Any]:
    """One replica on TP 8 of the instance that `make_instances` gives."""
    fields: dict[str, Any] = {
        "workload": "chat",
        "instance_type": "p5.48xlarge",
        "provider": "aws",
        "region": "us-east-1",
        "purchase_option": "on_demand",
        "accelerator": "H100-SXM5-80GB",
        "precision": "bf16",
        "tensor_parallel": 8,
        "pipeline_parallel": 1,
        "instances_per_replica": 1,
        "count": 1,
        "requests_per_s": 5.0,
        "batch": 64,
    }
    return fields | over


def make_document(
    instances: list[dict[str, Any]] | None = None, replicas: list[dict[str, Any]] | None = None, **over: Any
) -> dict[str, Any]:
    """A plan of one workload; `model` and `name` go to the workload."""
    workload = {
        "name": over.pop("name", "chat"),
        "model": over.pop("model", "meta-llama/Llama-3.1-70B"),
        "context_tokens": 4096,
        "kv_precision": over.pop("kv_precision", None),
    }
    document: dict[str, Any] = {
        "schema": "costopt.plan",
        "schema_version": "1.0",
        "status": "optimal",
        "workloads": [workload],
        "instances": [make_instances()] if instances is None else instances,
        "replicas": [make_replicas()] if replicas is None else replicas,
        "routing": [],
        "totals": {"usd_per_month": "40179.20"},
    }
    return document | over


def make_plan(*arguments: Any, **over: Any) -> LaunchPlan:
    """The parsed plan of that document."""
    return parse_plan(json.dumps(make_document(*arguments, **over)), "plan.json")


def two_groups() -> LaunchPlan:
    """A spot group with two replicas on each of its two machines in Azure, and another on AWS."""
    azure = {"provider": "azure", "instance_type": "Standard_NC80adis_H100_v5", "region": "eastus"}
    azure |= {"purchase_option": "spot", "accelerator": "H100-NVL-94GB"}
    return make_plan(
        [make_instances(), make_instances(**azure, accelerator_count=2, usd_per_hour="5.5", count=2)],
        [
            make_replicas(precision="fp8", requests_per_s=3.0),
            make_replicas(**azure, tensor_parallel=1, precision="fp8", count=4, requests_per_s=2.0),
        ],
    )


def over_two_machines() -> LaunchPlan:
    """A replica that spans two machines of AWS."""
    return make_plan(
        [make_instances(count=2)],
        [make_replicas(pipeline_parallel=2, instances_per_replica=2)],
        model="meta-llama/Llama-3.1-405B",
    )


def on_google() -> LaunchPlan:
    """Machines of Google Cloud with a zone."""
    google = {
        "provider": "gcp",
        "instance_type": "a2-ultragpu-1g",
        "region": "us-central1",
        "accelerator": "A100-SXM4-80GB",
    }
    return make_plan(
        [make_instances(**google, zone="us-central1-a", accelerator_count=1, count=3, purchase_option="spot")],
        [make_replicas(**google, tensor_parallel=1, count=3, precision="fp8", purchase_option="spot")],
    )


def make_memory(**over: float) -> dict[str, float]:
    """What a card of 80 GB holds at a share of 0.85."""
    fields = {
        "usable_gib_per_gpu": 80.0,
        "weights_gib": 20.0,
        "activations_gib": 4.0,
        "overhead_gib": 0.5,
        "kv_room_gib": 43.5,
    }
    return fields | over


def with_experts() -> LaunchPlan:
    """A mixture of experts in FP8 with its experts split over eight cards, a cache in FP8 and shared prefixes."""
    machine = {"instance_type": "p5en.48xlarge", "accelerator": "H200-SXM5-141GB"}
    replicas = {
        **machine,
        "precision": "fp8",
        "kv_precision": "fp8",
        "expert_parallel": 8,
        "engine": "vllm",
        "gpu_memory_utilization": 0.85,
        "prefix_cache_hit": 0.4,
        "memory": make_memory(),
    }
    return make_plan([make_instances(**machine)], [make_replicas(**replicas)], model="deepseek-ai/DeepSeek-V3")


def several_models() -> LaunchPlan:
    """A chat on committed machines and in part on spot, and a small model that writes code."""
    small = {"instance_type": "g6.xlarge", "accelerator": "L4", "precision": "fp16", "tensor_parallel": 1}
    commitment = {"kind": "savings_plan", "term_months": 12, "upfront_usd": "0"}
    committed = {"purchase_option": "reserved_1y"}
    document = make_document(
        [
            make_instances(**committed, commitment=commitment, count=2),
            make_instances(purchase_option="spot", usd_per_hour="20.1"),
            make_instances(
                **{key: small[key] for key in ("instance_type", "accelerator")}, accelerator_count=1, count=5
            ),
        ],
        [
            make_replicas(**committed, tensor_parallel=4, count=4, engine="sglang", memory=make_memory()),
            make_replicas(purchase_option="spot", tensor_parallel=4, count=2, requests_per_s=1.25),
            make_replicas(**small, workload="code", count=5, batch=16, requests_per_s=4.0),
        ],
        routing=[
            {"workload": "chat", "replica_group": 0, "input_tokens": 100, "output_tokens": 10, "share": 0.9},
            {"workload": "chat", "replica_group": 1, "input_tokens": 100, "output_tokens": 10, "share": 0.1},
            {"workload": "chat", "replica_group": 0, "input_tokens": 4000, "output_tokens": 10, "share": 0.5},
            {"workload": "chat", "replica_group": 1, "input_tokens": 4000, "output_tokens": 10, "share": 0.5},
        ],
    )
    code = {"name": "code", "model": "Qwen/Qwen2.5-7B-Instruct", "context_tokens": 8192, "kv_precision": None}
    document["workloads"].append(code)
    return parse_plan(json.dumps(document), "plan.json")


def in_two_zones() -> LaunchPlan:
    """Equal machines of one group at two zones' prices."""
    zones = [make_instances(zone="us-east-1a"), make_instances(zone="us-east-1b", usd_per_hour="60", count=2)]
    return make_plan(zones, [make_replicas(count=3)])


def on_cards_of_one_name() -> LaunchPlan:
    """Single cards of RunPod that targets have no name for, or one name for several."""
    cards = [
        {"provider": "runpod", "region": None, "instance_type": f"1x_{name.replace(' ', '_')}", "accelerator": name}
        for name in ("RTX A4000", "RTX A4500", "RTX PRO 6000 Blackwell Workstation")
    ]
    return make_plan(
        [make_instances(**card, accelerator_count=1, usd_per_hour="0.25", count=2) for card in cards],
        [make_replicas(**card, tensor_parallel=1, count=2) for card in cards],
        model="meta-llama/Llama-3.2-1B",
    )


PLANS = {
    "two groups": two_groups,
    "over two machines": over_two_machines,
    "on Google": on_google,
    "with experts": with_experts,
    "several models": several_models,
    "in two zones": in_two_zones,
}
