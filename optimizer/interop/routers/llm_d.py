"""Turns the plan's split of requests into the InferencePools and weighted routes of llm-d."""

from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, provenance
from optimizer.interop.routers import gateway_api
from optimizer.interop.routers.weights import split_warnings
from optimizer.interop.serving import vllm
from optimizer.interop.yaml_text import yaml_documents

POOL_GROUP: Final = "inference.networking.k8s.io"
"""InferencePool v1 of the Gateway API inference extension, which llm-d builds on (its CRD, 2026-11-30)."""

_PICKER_PORT: Final = 9002


def export(plan: LaunchPlan) -> Exported:
    """A pool for each group of replicas and a route for each workload, in one file."""
    head = [
        *provenance(plan),
        "For llm-d and the Gateway API inference extension v1. The pods are those of costopt's kubernetes files.",
    ]
    documents = [*(_pool(group) for group in plan.groups), *gateway_api.routes(plan, _reference)]
    warnings = [*split_warnings(plan), *gateway_api.route_warnings(plan)]
    warnings += [
        f"{group.name}: its endpoint picker {_picker(group)!r} is not in the file: the inferencepool chart makes it"
        for group in plan.groups
    ]
    return Exported(files={"llm-d-routes.yaml": yaml_documents(documents, head)}, warnings=tuple(warnings))


def _pool(group: ReplicaGroup) -> dict[str, Any]:
    """Replicas that answer for the group; of those over several machines, their leaders."""
    labels = {"app": group.name}
    if group.instances_per_replica > 1:
        labels["leaderworkerset.sigs.k8s.io/worker-index"] = "0"
    return {
        "apiVersion": f"{POOL_GROUP}/v1",
        "kind": "InferencePool",
        "metadata": {"name": group.name, "labels": {"app.kubernetes.io/managed-by": "costopt"}},
        "spec": {
            "selector": {"matchLabels": labels},
            "targetPorts": [{"number": vllm.PORT}],
            "endpointPickerRef": {"name": _picker(group), "port": {"number": _PICKER_PORT}},
        },
    }


def _picker(group: ReplicaGroup) -> str:
    return f"{group.name}-epp"


def _reference(group: ReplicaGroup) -> dict[str, Any]:
    return {"group": POOL_GROUP, "kind": "InferencePool", "name": group.name}
