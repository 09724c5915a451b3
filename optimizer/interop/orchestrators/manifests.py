"""Turns Kubernetes manifests, of its own kinds and of training operators, into what they ask for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from optimizer.interop.asks import Ask, divided, line_of, mapping, whole, wish
from optimizer.interop.orchestrators.kubernetes import ACCELERATOR_NOTE, RESOURCES, SPOT_LABELS
from optimizer.interop.readers.command_lines import Server, served, server, servers
from optimizer.interop.readers.training_commands import Launched, launch, launched
from optimizer.workload.workload_file import Lines


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
    spot = any(str(selector.get(key, "")).lower() in ("spot", "true") for key, _ in SPOT_LABELS.values())
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
