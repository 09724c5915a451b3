"""Turns Kubernetes manifests, of its own kinds and of training operators, into what they ask for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from optimizer.interop.asks import Ask, Fault, divided, line_of, mapping, whole, wish
from optimizer.interop.orchestrators.kubernetes import ACCELERATOR_NOTE, RESOURCES, SPOT_LABELS
from optimizer.interop.readers.command_lines import TGI, Server, served, server, servers, tgi_server
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


def _selector(pod: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The labels that a node must have and the values that would do: of its selector, and of a required affinity."""
    found: dict[str, tuple[str, ...]] = {
        str(key): (str(value),) for key, value in mapping(pod.get("nodeSelector")).items() if value is not None
    }
    terms = _at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    expressions = _at(terms[0], "matchExpressions") if isinstance(terms, list) and len(terms) == 1 else None
    for item in expressions if isinstance(expressions, list) else ():
        values = _at(item, "values")
        if _at(item, "operator") == "In" and isinstance(values, list) and values:
            found.setdefault(str(_at(item, "key")), tuple(str(value) for value in values))
    return found


_PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "gpu.nvidia.com/class",
)
"""Labels of nodes that name the accelerator: of device plugins, GKE, Karpenter, EKS and CoreWeave."""

_PRODUCTS: Final[Mapping[str, str]] = {
    "NVIDIA-H100-80GB-HBM3": "H100-SXM5-80GB",
    "H100_NVLINK_80GB": "H100-SXM5-80GB",
    "nvidia-tesla-a100": "A100-SXM4-40GB",
    "nvidia-a100-80gb": "A100-SXM4-80GB",
    "nvidia-h100-80gb": "H100-SXM5-80GB",
    "nvidia-h100-mega-80gb": "H100-SXM5-80GB",
    "tpu-v4-podslice": "TPU v4",
    "tpu-v5-lite-device": "TPU v5e",
    "tpu-v5-lite-podslice": "TPU v5e",
    "tpu-v5p-slice": "TPU v5p",
    "tpu-v6e-slice": "TPU v6e",
}
"""Values of labels that stand for one form of an accelerator, or are their own names."""

_SHARED: Final = "-SHARED"
"""What GPU feature discovery puts behind the name of a card whose time is shared."""

_ZONE: Final = re.compile(r"(.*\d)(?:[a-z]|-[a-z])|([a-z]+\d?)-\d")
"""A zone of AWS (us-east-1a), Google (us-east1-b) or Azure (eastus-1)."""

_SLICE: Final = "nvidia.com/mig-"
"""Begins the resource names of slices of a card (MIG)."""

_LONGEST_VALUE: Final = 1000
_MOST_REFERENCES: Final = 20
_REFERENCE: Final = re.compile(r"\$(\$?)\(([A-Za-z_][\w.-]*)\)", re.ASCII)


def _ask(
    container: Mapping[str, Any],
    where: tuple[str | int, ...],
    lines: Lines,
    *,
    name: str,
    noted: str | None,
    selector: Mapping[str, tuple[str, ...]],
    pods: _Pods,
) -> Ask | None:
    """What a container asks for; None where it takes no accelerators and starts nothing that is known."""
    count, line = _accelerators(container, lines, where)
    found = _server(container, lines, where)
    job = None if found is not None else _job(container, lines, where)
    if count is None and found is None and job is None:
        return None
    wishes, faults = divided([wish(name, count, line) for name in _named(noted, selector)] if count else [])
    faults += tuple(_slice_faults(container, lines, where))
    types = selector.get("node.kubernetes.io/instance-type", ())
    if len(types) > 1 and not wishes:
        what = f"any of {', '.join(types)} would do: taken as the first"
        faults += (Fault(line=line, what=what, fix="import it with each alone to compare", fatal=False),)
    # Google's n1 machines have their GPUs attached: those say what is meant.
    instance_type = types[0] if types and not types[0].startswith("n1-") else None
    spot = any(selector.get(key, ("",))[0].lower() in ("spot", "true") for key, _ in SPOT_LABELS.values())
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
        region=_one_region(selector),
        instance_type=None if len(types) > 1 and wishes else instance_type,
        packs=True,
        spot=spot or selector.get("karpenter.sh/capacity-type") == ("spot",),
        lines={
            **(dict(started.lines) if started else {}),
            **{what: number for what, number in known.items() if number is not None},
        },
        faults=faults,
        **{"accelerators_per_machine": count, **(job.fields if job else served(found))},
    )


def _named(noted: str | None, selector: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The accelerators that an exported manifest notes, or that labels of the nodes name."""
    product = next((values for label in _PRODUCT_LABELS if (values := selector.get(label))), ())
    return [noted] if noted else [_PRODUCTS.get(name, name.removesuffix(_SHARED)) for name in product]


def _one_region(selector: Mapping[str, tuple[str, ...]]) -> str | None:
    """The region of the nodes, or of their zones; None for several."""
    zones = selector.get("topology.kubernetes.io/zone", ())
    places = set(selector.get("topology.kubernetes.io/region") or map(_region, zones))
    return places.pop() if len(places) == 1 else None


def _region(zone: str) -> str:
    match = _ZONE.fullmatch(zone)
    return zone if match is None else match[1] or match[2]


def _job(container: Mapping[str, Any], lines: Lines, where: tuple[str | int, ...]) -> Launched | None:
    """The training job of `command` and `args`: as words, or as a script behind `sh -c`."""
    words, numbers = _words(container, lines, where)
    variables = _variables(container)
    found = launch(words, numbers, numbers[0] if numbers else 1)
    # The text of a block begins on the line after its key.
    scripts = (
        launched(word, number + 1, variables) for word, number in zip(words, numbers, strict=True) if "\n" in word
    )
    return next((one for script in scripts for one in script), None) or found


def _slice_faults(container: Mapping[str, Any], lines: Lines, where: tuple[str | int, ...]) -> Iterator[Fault]:
    """Slices of a card (MIG), which have memory and speed of their own."""
    limits = mapping(_at(container, "resources", "limits")) or mapping(_at(container, "resources", "requests"))
    for key in limits:
        if str(key).startswith(_SLICE):
            line = line_of(lines, *where, "resources", "limits", key)
            what = f"{str(key).removeprefix('nvidia.com/')} is a slice of an accelerator: slices are not sized here"
            yield Fault(line=line, what=what, fix="ask for nvidia.com/gpu, or give --gpu NAME to size whole ones")


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
        given = _variables(container)
        scripts = (servers(word, number, given) for word, number in zip(words, numbers, strict=True) if " " in word)
        found = next((one for script in scripts for one in script), None)
    image = str(container.get("image"))
    launcher = words[:1] and words[0].rpartition("/")[2] == "text-generation-launcher"
    if found is None and launcher:
        return tgi_server(words[1:], numbers[1:], numbers[0], _variables(container))
    if found is not None or container.get("command"):
        # A command takes the place of what the image starts.
        return found
    if TGI.search(image):
        return tgi_server(words, numbers, line_of(lines, *where, "image") or 1, _variables(container))
    if "vllm-openai" in image and words:
        found = server(["vllm", "serve", *words], [numbers[0], numbers[0], *numbers], numbers[0])
    return found


def _words(container: Mapping[str, Any], lines: Lines, where: tuple[str | int, ...]) -> tuple[list[str], list[int]]:
    """The words of `command` and `args`, with the container's variables filled in, and the line of each."""
    words, numbers = [], []
    variables = _variables(container)
    for key in ("command", "args"):
        value = container.get(key)
        for index, word in enumerate(value if isinstance(value, list) else ()):
            words.append(_filled(str(word), variables))
            numbers.append(line_of(lines, *where, key, index) or 1)
    return words, numbers


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    """The container's variables whose values stand in the file."""
    given = container.get("env")
    return {
        str(_at(item, "name")): str(_at(item, "value"))
        for item in (given if isinstance(given, list) else ())
        if _at(item, "value") is not None
    }


def _filled(word: str, variables: Mapping[str, str]) -> str:
    """The word as Kubernetes hands it on: `$(NAME)` is the variable's value where there is one, `$$(` means `$(`.

    A word with more references than a command has is left as it is: it could fill the memory.
    """
    if word.count("$(") > _MOST_REFERENCES:
        return word

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        return variables.get(match[2], match[0])[:_LONGEST_VALUE]

    return _REFERENCE.sub(value, word)


def _at(value: Any, *path: str | int) -> Any:
    """The value at a path of mappings and lists; None where it is not there."""
    for key in path:
        if isinstance(value, list) and isinstance(key, int):
            value = value[key] if key < len(value) else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value
