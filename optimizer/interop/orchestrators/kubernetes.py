"""Turns groups of replicas and training jobs into Kubernetes manifests, and manifests into what they ask for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from optimizer.interop.asks import Ask, divided, line_of, mapping, whole, wish
from optimizer.interop.launch_plan import (
    Exported,
    LaunchPlan,
    Purchase,
    ReplicaGroup,
    TrainingJob,
    device,
    provenance,
)
from optimizer.interop.readers.command_lines import Server, served, server, servers
from optimizer.interop.readers.training_commands import Launched, launch, launched
from optimizer.interop.serving import vllm
from optimizer.interop.training import stack
from optimizer.interop.yaml_text import yaml_documents
from optimizer.workload.workload_file import Lines

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

_SPOT_LABELS: Final[Mapping[str, tuple[str, str]]] = {
    "aws": ("eks.amazonaws.com/capacityType", "SPOT"),
    "gcp": ("cloud.google.com/gke-spot", "true"),
    "azure": ("kubernetes.azure.com/scalesetpriority", "spot"),
}
_SPOT_TAINTS: Final = frozenset({"gcp", "azure"})
"""Where spot nodes carry their label as a taint too (GKE on request, AKS always)."""

GROUP_LABEL: Final = "costopt-group"
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
    for group in plan.groups:
        head = [
            *provenance(plan, group.purchases),
            f"For vLLM {vllm.VERSION}; {VERSIONS}. Nodes are not made by it: {group.instances} x "
            f"{group.purchase.instance_type} must be there.",
        ]
        files[f"kubernetes-{group.name}.yaml"] = yaml_documents([_replicas(plan, group), _service(group)], head)
        warnings += [*vllm.checkpoint_warnings(group), *vllm.device_warnings(group)]
        warnings += [*vllm.context_warnings(group), *_warnings(group)]
    return Exported(files=files, warnings=tuple(warnings))


def node_labels(purchase: Purchase, group: str) -> dict[str, str]:
    """Labels of the nodes that the plan bought: the provider's own, or one that the operator must set."""
    if purchase.provider not in _MANAGED:
        return {GROUP_LABEL: group}
    labels = {"node.kubernetes.io/instance-type": purchase.machine_type}
    if purchase.attached:
        labels["cloud.google.com/gke-accelerator"] = purchase.attached
    if purchase.region:
        labels["topology.kubernetes.io/region"] = purchase.region
    if purchase.purchase_option == "spot":
        key, value = _SPOT_LABELS[purchase.provider]
        labels[key] = value
    return labels


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
    if purchase.purchase_option not in ("on_demand", "spot"):
        yield f"{name}: a manifest cannot buy {purchase.purchase_option}: buy the nodes so"


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
        key, value = _SPOT_LABELS[purchase.provider]
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


def read(document: Mapping[str, Any], lines: Lines) -> list[Ask]:
    """What each pod template of one manifest asks for; documents without accelerators give nothing."""
    metadata = mapping(document.get("metadata"))
    noted = mapping(metadata.get("annotations")).get(ACCELERATOR_NOTE)
    asks = []
    for pods in _pods(document):
        pod = mapping(_at(document, *pods.path))
        if document.get("kind") == "TrainJob":
            pod = {"containers": [{**pod, "resources": pod.get("resourcesPerNode")}]}
        containers = pod.get("containers")
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            where = (*pods.path, "containers", index)
            ask = _ask(
                mapping(container),
                where,
                lines,
                name=str(metadata.get("name") or "pod"),
                noted=noted if isinstance(noted, str) else None,
                selector=_selector(pod),
                pods=pods,
            )
            if ask is not None:
                asks.append(ask)
    return asks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pods:
    """Where a manifest keeps a template of pods: `nodes` of them make a replica or a job, of which `replicas` run."""

    path: tuple[str | int, ...]
    nodes: int = 1
    replicas: int = 1


_TEMPLATE: Final = ("spec", "template", "spec")
_REPLICA_SPECS: Final = ("pytorchReplicaSpecs", "mpiReplicaSpecs", "tfReplicaSpecs", "jaxReplicaSpecs")


def _pods(document: Mapping[str, Any]) -> Iterator[_Pods]:
    """The pods of a manifest by its kind; of jobs, those that have the accelerators."""
    spec = mapping(document.get("spec"))
    kind = document.get("kind")
    replicas = whole(spec.get("replicas")) or 1
    if kind == "LeaderWorkerSet":
        nodes = whole(_at(spec, "leaderWorkerTemplate", "size")) or 1
        leader = "leaderTemplate" if _at(spec, "leaderWorkerTemplate", "leaderTemplate") else "workerTemplate"
        yield _Pods(path=("spec", "leaderWorkerTemplate", leader, "spec"), nodes=nodes, replicas=replicas)
    elif kind == "Pod":
        yield _Pods(path=("spec",))
    elif kind == "Job":
        yield _Pods(path=_TEMPLATE, nodes=whole(spec.get("parallelism")) or 1)
    elif kind == "TrainJob":
        yield _Pods(path=("spec", "trainer"), nodes=whole(_at(spec, "trainer", "numNodes")) or 1)
    elif kind == "CronJob":
        path: tuple[str | int, ...] = ("spec", "jobTemplate", *_TEMPLATE)
        yield _Pods(path=path, nodes=whole(_at(spec, "jobTemplate", "spec", "parallelism")) or 1)
    elif kind == "JobSet":
        jobs = spec.get("replicatedJobs")
        for index, job in enumerate(jobs if isinstance(jobs, list) else ()):
            pods = whole(_at(job, "template", "spec", "parallelism")) or 1
            path = ("spec", "replicatedJobs", index, "template", *_TEMPLATE)
            yield _Pods(path=path, nodes=pods * (whole(_at(job, "replicas")) or 1))
    elif any(name in spec for name in _REPLICA_SPECS):
        name = next(name for name in _REPLICA_SPECS if name in spec)
        roles = mapping(spec[name])
        # The master trains, too; of MPI's launcher only the workers have accelerators.
        nodes = sum(whole(_at(role, "replicas")) or 1 for title, role in roles.items() if title != "Launcher")
        worker = next((title for title in ("Worker", "Master") if title in roles), None)
        if worker is not None:
            yield _Pods(path=("spec", name, worker, "template", "spec"), nodes=nodes)
    else:
        yield _Pods(path=_TEMPLATE, replicas=replicas)


def _selector(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The labels that a node must have: its selector, and those of a required affinity with one value."""
    found = dict(mapping(pod.get("nodeSelector")))
    terms = _at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    expressions = _at(terms[0], "matchExpressions") if isinstance(terms, list) and len(terms) == 1 else None
    for item in expressions if isinstance(expressions, list) else ():
        values = _at(item, "values")
        if _at(item, "operator") == "In" and isinstance(values, list) and len(values) == 1:
            found.setdefault(str(_at(item, "key")), values[0])
    return found


_PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
"""Labels of nodes that name the accelerator."""

_PRODUCTS: Final[Mapping[str, str]] = {
    "nvidia-tesla-a100": "A100-SXM4-40GB",
    "nvidia-h100-mega-80gb": "H100-SXM5-80GB",
}
"""Values of GKE's label that stand for one form, or are its own."""


def _ask(
    container: Mapping[str, Any],
    where: tuple[str | int, ...],
    lines: Lines,
    *,
    name: str,
    noted: str | None,
    selector: Mapping[str, Any],
    pods: _Pods,
) -> Ask | None:
    """What a container asks for; None where it takes no accelerators and starts nothing that is known."""
    count, line = _accelerators(container, lines, where)
    found = _server(container, lines, where)
    job = None if found is not None else _job(container, lines, where)
    if count is None and found is None and job is None:
        return None
    product = next((str(selector[label]) for label in _PRODUCT_LABELS if selector.get(label)), None)
    wishes, faults = divided(
        [wish(noted or _PRODUCTS.get(product or "", product or ""), count, line)]
        if count and (noted or product)
        else []
    )
    instance_type = selector.get("node.kubernetes.io/instance-type")
    region = selector.get("topology.kubernetes.io/region")
    spot = any(str(selector.get(key, "")).lower() in ("spot", "true") for key, _ in _SPOT_LABELS.values())
    place_line = line_of(lines, *pods.path, "nodeSelector")
    known = {"place": place_line, "accelerators": line}
    known["instance_type"] = line_of(lines, *pods.path, "nodeSelector", "node.kubernetes.io/instance-type")
    started = found or job
    return Ask(
        source="Kubernetes",
        name=name,
        model=found.values.get("model") if found else job.model if job else None,
        wishes=wishes,
        nodes=pods.nodes,
        replicas=pods.replicas,
        region=str(region) if region else None,
        # Google's n1 machines have their GPUs attached: those say what is meant.
        instance_type=str(instance_type) if instance_type and not str(instance_type).startswith("n1-") else None,
        packs=True,
        spot=spot or selector.get("karpenter.sh/capacity-type") == "spot",
        lines={
            **(dict(started.lines) if started else {}),
            **{what: number for what, number in known.items() if number is not None},
        },
        faults=faults,
        **{"accelerators_per_machine": count, **(job.fields if job else served(found))},
    )


def _job(container: Mapping[str, Any], lines: Lines, where: tuple[str | int, ...]) -> Launched | None:
    """The training job of `command` and `args`: as words, or as a script behind `sh -c`."""
    words, numbers = _words(container, lines, where)
    given = container.get("env")
    variables = {
        str(_at(item, "name")): str(_at(item, "value"))
        for item in (given if isinstance(given, list) else ())
        if _at(item, "value") is not None
    }
    found = launch(words, numbers, numbers[0] if numbers else 1)
    # The text of a block begins on the line after its key.
    scripts = (
        launched(word, number + 1, variables) for word, number in zip(words, numbers, strict=True) if "\n" in word
    )
    return next((one for script in scripts for one in script), None) or found


def _accelerators(
    container: Mapping[str, Any], lines: Lines, where: tuple[str | int, ...]
) -> tuple[int | None, int | None]:
    """How many accelerators a container takes, and the line that says so."""
    for part in ("limits", "requests"):
        resources = _at(container, "resources", part)
        for key in RESOURCES.values():
            if isinstance(resources, Mapping) and key in resources:
                return whole(resources[key]), line_of(lines, *where, "resources", part, key)
    return None, None


def _server(container: Mapping[str, Any], lines: Lines, where: tuple[str | int, ...]) -> Server | None:
    """The server of `command` and `args`: as words, or as a script behind `sh -c`."""
    words, numbers = _words(container, lines, where)
    found = server(words, numbers, numbers[0] if numbers else 1)
    if found is None:
        scripts = (servers(word, number) for word, number in zip(words, numbers, strict=True) if " " in word)
        found = next((one for script in scripts for one in script), None)
    if found is None and "vllm-openai" in str(container.get("image")) and words:
        found = server(["vllm", "serve", *words], [numbers[0], numbers[0], *numbers], numbers[0])
    return found


def _words(container: Mapping[str, Any], lines: Lines, where: tuple[str | int, ...]) -> tuple[list[str], list[int]]:
    """The words of `command` and `args` and the line of each."""
    words, numbers = [], []
    for key in ("command", "args"):
        value = container.get(key)
        for index, word in enumerate(value if isinstance(value, list) else ()):
            words.append(str(word).replace("$$(", "$("))
            numbers.append(line_of(lines, *where, key, index) or 1)
    return words, numbers


def _at(value: Any, *path: str | int) -> Any:
    """The value at a path of mappings and lists; None where it is not there."""
    for key in path:
        if isinstance(value, list) and isinstance(key, int):
            value = value[key] if key < len(value) else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value
