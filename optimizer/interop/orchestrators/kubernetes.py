"""Turns groups of replicas and training jobs into Kubernetes manifests."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from optimizer.interop.checkpoints import disk_gb
from optimizer.interop.launch_plan import Exported, LaunchPlan, Purchase, ReplicaGroup, TrainingJob, device, provenance
from optimizer.interop.serving import vllm
from optimizer.interop.training import stack
from optimizer.interop.yaml_text import yaml_documents

VERSIONS: Final = "apps/v1, v1 and leaderworkerset.x-k8s.io/v1"
RESOURCES: Final = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
    "Intel": "habana.ai/gaudi",
    "Google": "google.com/tpu",
    "AWS": "aws.amazon.com/neuron",
}
"""Resource names of the vendors' device plug-ins."""

_MANAGED: Final = frozenset({"aws", "gcp", "azure"})
"""Providers whose Kubernetes service labels its nodes with the instance type."""

SPOT_LABELS: Final[Mapping[str, tuple[str, str]]] = {
    "aws": ("eks.amazonaws.com/capacityType", "SPOT"),
    "gcp": ("cloud.google.com/gke-spot", "true"),
    "azure": ("kubernetes.azure.com/scalesetpriority", "spot"),
}
_SPOT_TAINTS: Final = frozenset({"gcp", "azure"})
"""Where spot nodes carry their label as a taint too (GKE on request, AKS always)."""

_TPU_HOSTS: Final[Mapping[str, tuple[str, str]]] = {
    **{f"ct5lp-hightpu-{n}t": ("tpu-v5-lite-podslice", shape) for n, shape in ((1, "1x1"), (4, "2x2"), (8, "2x4"))},
    **{f"ct6e-standard-{n}t": ("tpu-v6e-slice", shape) for n, shape in ((1, "1x1"), (4, "2x2"), (8, "2x4"))},
    "ct5p-hightpu-4t": ("tpu-v5p-slice", "2x2x1"),
    "ct4p-hightpu-4t": ("tpu-v4-podslice", "2x2x1"),
}
"""Kind and topology of TPUs on one host, by machine type; GKE wants both of a pod (its documentation, 2026-11-30)."""

GROUP_LABEL: Final = "costopt-group"
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
"""What the value of a label may be: at most 63 characters (Kubernetes' documentation of labels)."""

ACCELERATOR_NOTE: Final = "costopt/accelerator"
_SHARED_MEMORY_GIB: Final = 16
_SHARED_MEMORY: Final = {
    "name": "shared-memory",
    "emptyDir": {"medium": "Memory", "sizeLimit": f"{_SHARED_MEMORY_GIB}Gi"},
}
_SHARED_MEMORY_MOUNT: Final = {"name": "shared-memory", "mountPath": "/dev/shm"}  # noqa: S108 - where NCCL looks
_HF_TOKEN: Final = {
    "name": "HF_TOKEN",
    "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}},
}
_DISK_GB: Final = 128
"""The most that a managed node has unless told: 20 on EKS, 100 on GKE, 128 on AKS."""

_STARTUP_MINUTES: Final = 60
_SCRIPT_PATH: Final = "/workspace/train.py"
_OUTPUT_PATH: Final = "/output"


def export(plan: LaunchPlan) -> Exported:
    """One manifest for each group of replicas, and for each training job."""
    files, warnings = {}, []
    for job in plan.jobs:
        started = stack.start(job)
        head = [
            *provenance(plan, [job.purchase]),
            f"For batch/v1 and v1. Nodes are not made by it: {job.nodes} x {job.purchase.instance_type} must be there.",
            started.made_for,
        ]
        files[f"kubernetes-{job.name}.yaml"] = yaml_documents(_training(plan, job, started), head)
        warnings += [*started.warnings, *_training_warnings(job), *_purchase_warnings(job.name, job.purchase)]
        warnings += _disk_warnings(job.name, job.model)
    for group in plan.groups:
        head = [
            *provenance(plan, group.purchases),
            f"For vLLM {vllm.VERSION}; {VERSIONS}. Nodes are not made by it: {group.instances} x "
            f"{group.purchase.instance_type} must be there.",
        ]
        files[f"kubernetes-{group.name}.yaml"] = yaml_documents([_replicas(plan, group), _service(group)], head)
        warnings += [*vllm.warnings(group), *_warnings(group), *_disk_warnings(group.name, group.model)]
    return Exported(files=files, warnings=tuple(warnings))


def node_labels(purchase: Purchase, group: str) -> dict[str, str]:
    """Labels of the nodes that the plan bought: the provider's own, or one that the operator must set."""
    if purchase.provider not in _MANAGED or not _LABEL_VALUE.fullmatch(purchase.machine_type):
        return {GROUP_LABEL: group}
    labels = {"node.kubernetes.io/instance-type": purchase.machine_type}
    if purchase.attached:
        labels["cloud.google.com/gke-accelerator"] = purchase.attached
    chips = _TPU_HOSTS.get(purchase.machine_type)
    if chips is not None:
        labels["cloud.google.com/gke-tpu-accelerator"], labels["cloud.google.com/gke-tpu-topology"] = chips
    if purchase.region:
        labels["topology.kubernetes.io/region"] = purchase.region
    if purchase.purchase_option == "spot":
        key, value = SPOT_LABELS[purchase.provider]
        labels[key] = value
    return {key: value for key, value in labels.items() if _LABEL_VALUE.fullmatch(value)}


def _warnings(group: ReplicaGroup) -> Iterator[str]:
    yield from _purchase_warnings(group.name, group.purchase)
    if group.instances_per_replica > 1:
        yield f"{group.name}: a replica spans {group.instances_per_replica} nodes: LeaderWorkerSet must be installed"


def _purchase_warnings(name: str, purchase: Purchase) -> Iterator[str]:
    if purchase.provider not in _MANAGED:
        yield (
            f"{name}: {purchase.provider} has no node labels that are known here: label its nodes with "
            f"{GROUP_LABEL}={name}"
        )
    else:
        yield from _label_warnings(name, purchase)
    if purchase.purchase_option not in ("on_demand", "spot"):
        yield f"{name}: a manifest cannot buy {purchase.purchase_option}: buy the nodes so"


def _disk_warnings(name: str, model: str) -> Iterator[str]:
    needed = disk_gb(model, _DISK_GB)
    if needed > _DISK_GB:
        yield f"{name}: the checkpoint is loaded onto the node's disk: {needed} GB are more than nodes have by default"


def _label_warnings(name: str, purchase: Purchase) -> Iterator[str]:
    if not _LABEL_VALUE.fullmatch(purchase.machine_type):
        yield (
            f"{name}: {purchase.machine_type!r} can be no label of a node: label its nodes with {GROUP_LABEL}={name}"
        )
        return
    for value in (purchase.attached, purchase.region):
        if value and not _LABEL_VALUE.fullmatch(value):
            yield f"{name}: {value!r} can be no label of a node: the selector leaves it out"


def _replicas(plan: LaunchPlan, group: ReplicaGroup) -> dict[str, Any]:
    labels = {"app": group.name}
    metadata = _metadata(plan, group.name, group.purchases)
    if group.instances_per_replica > 1:
        template = {"metadata": {"labels": labels}, "spec": _pod(group, _ranks(group))}
        worker = {"spec": _pod(group, [*_ranks(group), "--headless"], serves=False)}
        return {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": metadata,
            "spec": {
                "replicas": group.replicas,
                "leaderWorkerTemplate": {
                    "size": group.instances_per_replica,
                    "restartPolicy": "RecreateGroupOnPodRestart",
                    "leaderTemplate": template,
                    "workerTemplate": worker,
                },
            },
        }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": group.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(group, [])},
        },
    }


def _metadata(plan: LaunchPlan, name: str, purchases: Sequence[Purchase]) -> dict[str, Any]:
    days = sorted({purchase.as_of or "no date" for purchase in purchases})
    return {
        "name": name,
        "labels": {"app": name},
        "annotations": {
            "costopt/plan": f"{plan.file} sha256:{plan.digest}",
            "costopt/price-as-of": ", ".join(days),
            ACCELERATOR_NOTE: purchases[0].accelerator,
        },
    }


def _ranks(group: ReplicaGroup) -> list[str]:
    return [
        "--nnodes",
        str(group.instances_per_replica),
        "--node-rank",
        "$(LWS_WORKER_INDEX)",
        "--master-addr",
        "$(LWS_LEADER_ADDRESS)",
    ]


def _pod(group: ReplicaGroup, ranks: list[str], *, serves: bool = True) -> dict[str, Any]:
    found = device(group.purchase)
    vendor = found.vendor if found else "NVIDIA"
    resource = RESOURCES.get(vendor, RESOURCES["NVIDIA"])
    per_pod = group.accelerators_per_replica // group.instances_per_replica
    # The words go to the process as they are, but Kubernetes expands $(NAME): a name with it is escaped.
    words = [word.replace("$(", "$$(") for word in vllm.arguments(group, per_instance=False)]
    container: dict[str, Any] = {
        "name": "vllm",
        "image": vllm.IMAGES.get(vendor, vllm.IMAGES["NVIDIA"]),
        "command": words[:2],
        "args": [*words[2:], *ranks],
        "env": [_HF_TOKEN],
        "resources": {"limits": {resource: str(per_pod)}, "requests": {resource: str(per_pod)}},
        "volumeMounts": [_SHARED_MEMORY_MOUNT],
    }
    if serves:
        probe = {"httpGet": {"path": "/health", "port": vllm.PORT}}
        container["ports"] = [{"name": "http", "containerPort": vllm.PORT}]
        container["startupProbe"] = {**probe, "periodSeconds": 10, "failureThreshold": _STARTUP_MINUTES * 6}
        container["readinessProbe"] = {**probe, "periodSeconds": 10}
    pod: dict[str, Any] = {
        "nodeSelector": node_labels(group.purchase, group.name),
        "containers": [container],
        "volumes": [_SHARED_MEMORY],
    }
    tolerations = list(_tolerations(group.purchase, resource))
    return pod | {"tolerations": tolerations}


def _tolerations(purchase: Purchase, resource: str) -> Iterator[dict[str, str]]:
    yield {"key": resource, "operator": "Exists", "effect": "NoSchedule"}
    if purchase.purchase_option == "spot" and purchase.provider in _SPOT_TAINTS:
        key, value = SPOT_LABELS[purchase.provider]
        yield {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def _service(group: ReplicaGroup) -> dict[str, Any]:
    selector = {"app": group.name}
    if group.instances_per_replica > 1:
        # Only leaders answer requests.
        selector["leaderworkerset.sigs.k8s.io/worker-index"] = "0"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": group.name, "labels": {"app": group.name}},
        "spec": {"selector": selector, "ports": [{"name": "http", "port": vllm.PORT, "targetPort": vllm.PORT}]},
    }


def _training(plan: LaunchPlan, job: TrainingJob, started: stack.Start) -> list[dict[str, Any]]:
    """A Job with a pod for each machine; several find the first by the name that a headless Service gives."""
    spec: dict[str, Any] = {"backoffLimit": 3, "template": {"metadata": {"labels": {"app": job.name}}}}
    if job.is_spot:
        # Pods that go with their machine are started again without being counted as failures.
        disrupted = [{"type": "DisruptionTarget", "status": "True"}]
        spec["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": disrupted}]}
    spec["template"]["spec"] = pod = _training_pod(job, started)
    work = {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(plan, job.name, [job.purchase])}
    if job.nodes == 1:
        return [work | {"spec": spec}]
    spec |= {"completionMode": "Indexed", "completions": job.nodes, "parallelism": job.nodes}
    pod["subdomain"] = job.name
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job.name, "labels": {"app": job.name}},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": job.name}},
    }
    return [service, work | {"spec": spec}]


def _training_pod(job: TrainingJob, started: stack.Start) -> dict[str, Any]:
    found = device(job.purchase)
    resource = RESOURCES.get(found.vendor if found else "NVIDIA", RESOURCES["NVIDIA"])
    accelerators = {resource: str(job.accelerators_per_node)}
    lines = ["set -euo pipefail", *started.setup, *started.lines]
    environment: list[dict[str, Any]] = [
        {"name": "TRAIN_SCRIPT", "value": _SCRIPT_PATH},
        {"name": "OUTPUT_DIR", "value": _OUTPUT_PATH},
        _HF_TOKEN,
    ]
    if job.nodes > 1:
        environment.insert(0, {"name": "MASTER_ADDR", "value": f"{job.name}-0.{job.name}"})
    container = {
        "name": "train",
        "image": started.image,
        # Kubernetes expands $(NAME), which a shell means otherwise.
        "command": ["bash", "-c", "\n".join(lines).replace("$(", "$$(")],
        "env": environment,
        "resources": {"limits": accelerators, "requests": accelerators},
        "volumeMounts": [_SHARED_MEMORY_MOUNT, {"name": "output", "mountPath": _OUTPUT_PATH}],
    }
    claim = {"claimName": f"{job.name}-output"}
    return {
        "restartPolicy": "Never",
        "nodeSelector": node_labels(job.purchase, job.name),
        "tolerations": list(_tolerations(job.purchase, resource)),
        "containers": [container],
        "volumes": [_SHARED_MEMORY, {"name": "output", "persistentVolumeClaim": claim}],
    }


def _training_warnings(job: TrainingJob) -> Iterator[str]:
    yield (
        f"{job.name}: put an image with your script ({_SCRIPT_PATH}) in place of the one named; its checkpoints go to "
        f"the PersistentVolumeClaim {job.name}-output, which must be there"
    )
