"""Builders of plan documents as `costopt plan -f json` writes them."""

import json
from typing import Any

from optimizer.interop.launch_plan import LaunchPlan, parse_plan


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


PLANS = {"two groups": two_groups, "over two machines": over_two_machines, "on Google": on_google}
