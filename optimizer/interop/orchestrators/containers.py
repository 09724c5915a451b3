"""Turns `docker run` lines, Compose, KServe and values of vLLM's production stack into what they ask for."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from optimizer.interop.asks import Ask, line_of, whole
from optimizer.interop.orchestrators import kubernetes, manifests
from optimizer.interop.readers.command_lines import TGI, commands, server
from optimizer.interop.readers.scaling import growth
from optimizer.workload.workload_file import Lines

Words = list[tuple[int, str]]
"""The words of a command with the line of each."""

_IMAGE: Final = re.compile(r"(?:^|/)vllm-openai\b|(?:^|/)vllm:|rocm/vllm")
"""Images whose entry point is vLLM's server: what follows are its options."""

_CONTAINER_PROGRAMS: Final = ("docker", "podman", "nerdctl")
_CONFIG_FLAGS: Final[Mapping[str, str]] = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxNumSeqs": "--max-num-seqs",
}
"""Keys of `vllmConfig` in the values of vLLM's production stack (its chart, read 2026-11-30)."""


def docker_runs(text: str) -> Iterator[Ask]:
    """The servers of `docker run … IMAGE OPTIONS`, where the image starts vLLM by itself."""
    for line, words in commands(text):
        plain = [word for _, word in words]
        started = next((i for i, word in enumerate(plain) if word.rpartition("/")[2] in _CONTAINER_PROGRAMS), None)
        if started is None or "run" not in plain[started:] or server(plain, [n for n, _ in words], line) is not None:
            continue
        image = next((i for i, word in enumerate(plain) if i > started and _is_server(word)), None)
        if image is not None:
            asked, given = _docker_gpus(words[:image]), _docker_variables(plain[:image])
            for ask in _pod(
                "docker run", "server", words[image + 1 :], asked, line=line, image=plain[image], variables=given
            ):
                yield replace(ask, lines={"command": line, **ask.lines})


def is_compose(content: Mapping[str, Any]) -> bool:
    """Whether the document is a Compose file: services with an image or a build."""
    services = content.get("services")
    return isinstance(services, Mapping) and any(
        isinstance(one, Mapping) and ("image" in one or "build" in one) for one in services.values()
    )


def compose(content: Mapping[str, Any], lines: Lines) -> list[Ask]:
    """The servers of a Compose file."""
    asks = []
    for name, one in content["services"].items():
        if not isinstance(one, Mapping):
            continue
        path = ("services", str(name))
        words = [*_given(one, lines, (*path, "entrypoint")), *_given(one, lines, (*path, "command"))]
        reserved = ("deploy", "resources", "reservations", "devices")
        devices = _at(one, *reserved) or one.get("gpus")
        where = (*path, *reserved) if _at(one, *reserved) else (*path, "gpus")
        count = _devices(devices) if isinstance(devices, list) else None
        image = str(one.get("image"))
        if count is None and not _is_server(image) and server(*_apart(words), 1) is None:
            continue
        begin = line_of(lines, *path) or 1
        asked = (count, line_of(lines, *where))
        given = _compose_variables(one.get("environment"))
        found = _pod("Docker Compose", str(name), words, asked, line=begin, image=image, variables=given)
        replicas = whole(_at(one, "deploy", "replicas")) or whole(one.get("scale")) or 1
        asks += [replace(ask, replicas=replicas) for ask in found]
    return asks


def production_stack(content: Mapping[str, Any], lines: Lines) -> list[Ask]:
    """The models of the Helm values of vLLM's production stack."""
    asks = []
    top = ("servingEngineSpec", "modelSpec")
    models = _at(content, *top)
    for index, one in enumerate(models if isinstance(models, list) else ()):
        if not isinstance(one, Mapping):
            continue
        path = (*top, index)
        config = one.get("vllmConfig")
        config = config if isinstance(config, Mapping) else {}
        words = _option(lines, (*path, "modelURL"), "--model", one.get("modelURL"))
        for key, flag in _CONFIG_FLAGS.items():
            words += _option(lines, (*path, "vllmConfig", key), flag, config.get(key))
        words += _given(config, lines, (*path, "vllmConfig", "extraArgs"))
        count = whole(one.get("requestGPU"))
        head = _at(one, "raySpec", "headNode")
        nodes = 1 + (whole(one.get("replicaCount")) or 1) if isinstance(head, Mapping) else 1
        found = _pod(
            "vLLM production stack",
            str(one.get("name") or "model"),
            words,
            (count, line_of(lines, *path, "requestGPU")),
            line=line_of(lines, *path) or 1,
            selector=_terms(one.get("nodeSelectorTerms")),
            selector_line=line_of(lines, *path, "nodeSelectorTerms"),
        )
        replicas = 1 if nodes > 1 else whole(one.get("replicaCount")) or 1
        asks += [replace(ask, nodes=nodes, replicas=replicas, packs=True) for ask in found]
    return asks


def kserve(content: Mapping[str, Any], lines: Lines) -> list[Ask]:
    """The predictor of an InferenceService, or the template of an LLMInferenceService."""
    name = str(_at(content, "metadata", "name") or "service")
    if content.get("kind") == "LLMInferenceService":
        return _llm_service(content, lines, name)
    path: tuple[str | int, ...] = ("spec", "predictor", "model")
    model = _at(content, *path)
    if not isinstance(model, Mapping):
        containers = _at(content, "spec", "predictor", "containers")
        model = containers[0] if isinstance(containers, list) and containers else {}
        path = ("spec", "predictor", "containers", 0)
    if not isinstance(model, Mapping):
        return []
    worker = _at(content, "spec", "predictor", "workerSpec")
    words = _weights(lines, (*path, "storageUri"), model.get("storageUri"))
    words += [*_given(model, lines, (*path, "command")), *_given(model, lines, (*path, "args"))]
    words = [(line, re.sub(r"^--model[_-]id\b", "--model", word)) for line, word in words]
    for key, flag in _CONFIG_FLAGS.items():
        words += _option(lines, ("spec", "predictor", "workerSpec", key), flag, _at(worker, key))
    nodes = whole(_at(worker, "pipelineParallelSize")) or 1
    found = _pod(
        "KServe",
        name,
        words,
        _limits(model, lines, path),
        line=line_of(lines, *path) or 1,
        selector=_at(content, "spec", "predictor", "nodeSelector"),
        selector_line=line_of(lines, "spec", "predictor", "nodeSelector"),
    )
    replicas = whole(_at(content, "spec", "predictor", "minReplicas")) or 1
    most = ("spec", "predictor", "maxReplicas")
    notes = tuple(growth(replicas, _at(content, *most), line_of(lines, *most)))
    return [replace(ask, nodes=nodes, replicas=replicas, packs=True, faults=(*ask.faults, *notes)) for ask in found]


def _llm_service(content: Mapping[str, Any], lines: Lines, name: str) -> list[Ask]:
    path = ("spec", "template", "containers", 0)
    containers = _at(content, "spec", "template", "containers")
    container = containers[0] if isinstance(containers, list) and containers else {}
    container = container if isinstance(container, Mapping) else {}
    words = _weights(lines, ("spec", "model", "uri"), _at(content, "spec", "model", "uri"))
    degrees = (("tensor", "-tp"), ("pipeline", "-pp"), ("dataLocal", "-dp"))
    for key, flag in degrees:
        words += _option(lines, ("spec", "parallelism", key), flag, _at(content, "spec", "parallelism", key))
    words += _given(container, lines, (*path, "args"))
    found = _pod(
        "KServe",
        name,
        words,
        _limits(container, lines, path),
        line=line_of(lines, "spec") or 1,
        selector=_at(content, "spec", "template", "nodeSelector"),
        selector_line=line_of(lines, "spec", "template", "nodeSelector"),
    )
    replicas = whole(_at(content, "spec", "replicas")) or 1
    return [replace(ask, replicas=replicas, packs=True) for ask in found]


def _pod(
    source: str,
    name: str,
    words: Words,
    asked: tuple[int | None, int | None],
    *,
    line: int,
    selector: Any = None,
    selector_line: int | None = None,
    image: str = "",
    variables: Mapping[str, str] | None = None,
) -> list[Ask]:
    """The ask of a container as of a pod's: `words` are its command behind the image, `asked` its accelerators."""
    is_tgi = bool(TGI.search(image))
    count, count_line = asked
    if count is None and not words and not (is_tgi and variables):
        return []
    limits = {} if count is None else {"nvidia.com/gpu": count}
    labels = selector if isinstance(selector, Mapping) else {}
    container = {
        "image": image if is_tgi else "vllm-openai",
        "args": [word for _, word in words] or ["--"],
        "env": [{"name": key, "value": value} for key, value in (variables or {}).items()],
        "resources": {"limits": limits},
    }
    pod = {"nodeSelector": labels, "containers": [container]}
    where = ("spec", "containers", 0)
    known: dict[tuple[str | int, ...], int] = {(*where, "args", i): number for i, (number, _) in enumerate(words)}
    known |= {(*where, "args"): line, (*where, "image"): line}
    if count_line is not None:
        known[(*where, "resources", "limits", "nvidia.com/gpu")] = count_line
    if selector_line is not None:
        known[("spec", "nodeSelector")] = selector_line
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}
    return [replace(ask, source=source, packs=False) for ask in manifests.read(document, known)]


def _is_server(image: str) -> bool:
    """Whether the image starts a server by itself."""
    return bool(_IMAGE.search(image) or TGI.search(image))


def _docker_gpus(words: Words) -> tuple[int | None, int | None]:
    """The number that `--gpus` gives; None for `all`."""
    for index, (line, word) in enumerate(words):
        key, equals, value = word.partition("=")
        if key == "--gpus":
            given = value if equals else words[index + 1][1] if index + 1 < len(words) else ""
            return _number_of_devices(given), line
    return None, None


def _docker_variables(words: Sequence[str]) -> dict[str, str]:
    """What `-e NAME=VALUE` and `--env NAME=VALUE` set."""
    given = [word.removeprefix("--env=") for word in words if word.startswith("--env=")]
    given += [word for flag, word in pairwise(words) if flag in ("-e", "--env")]
    return {name: value for name, equals, value in (word.partition("=") for word in given) if equals}


def _compose_variables(environment: Any) -> dict[str, str]:
    """The values of `environment`, a mapping or a list of NAME=VALUE."""
    if isinstance(environment, Mapping):
        return {str(name): str(value) for name, value in environment.items() if value is not None}
    words = [word for word in environment if isinstance(word, str)] if isinstance(environment, list) else []
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


def _number_of_devices(given: str) -> int | None:
    """`2`, or `"device=0,1"`."""
    listed = given.strip("'\"").removeprefix("device=")
    if listed != given.strip("'\""):
        return len([one for one in listed.split(",") if one])
    return whole(listed)


def _devices(devices: Sequence[Any]) -> int | None:
    """Devices that Compose reserves: a count, or ids; None for `all`."""
    total = 0
    for one in devices:
        ids = one.get("device_ids") if isinstance(one, Mapping) else None
        listed = [part for text in ids for part in str(text).split(",")] if isinstance(ids, list) else []
        total += len(listed) or (whole(one.get("count")) or 0 if isinstance(one, Mapping) else 0)
    return total or None


def _given(content: Mapping[str, Any], lines: Lines, path: tuple[str | int, ...]) -> Words:
    """The words of a key that holds a command, as a text or as a list."""
    value = content.get(str(path[-1]))
    if isinstance(value, list):
        return [(line_of(lines, *path, index) or 1, str(word)) for index, word in enumerate(value)]
    if not isinstance(value, str):
        return []
    begin = (line_of(lines, *path) or 1) + (1 if "\n" in value else 0)
    # A folded text is one command, a literal one may go on without a backslash.
    return [pair for _, words in commands(value, begin) for pair in words]


def _option(lines: Lines, path: tuple[str | int, ...], flag: str, value: Any) -> Words:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool) or value == "":
        return []
    line = line_of(lines, *path) or 1
    return [(line, flag), (line, str(value))]


def _weights(lines: Lines, path: tuple[str | int, ...], uri: Any) -> Words:
    """`--model` of a place where weights are kept: Hugging Face's by their name, others by the end of their path."""
    if not isinstance(uri, str):
        return []
    return _option(lines, path, "--model", uri.removeprefix("hf://").partition("://")[2] or uri.removeprefix("hf://"))


def _limits(container: Mapping[str, Any], lines: Lines, path: tuple[str | int, ...]) -> tuple[int | None, int | None]:
    for part in ("limits", "requests"):
        for key in kubernetes.RESOURCES.values():
            found = whole(_at(container, "resources", part, key))
            if found is not None:
                return found, line_of(lines, *path, "resources", part, key)
    return None, None


def _terms(terms: Any) -> dict[str, str]:
    """Node labels that the selector's terms ask for with one value."""
    found: dict[str, str] = {}
    for term in terms if isinstance(terms, list) else ():
        expressions = _at(term, "matchExpressions")
        for one in expressions if isinstance(expressions, list) else ():
            values = _at(one, "values")
            if isinstance(values, list) and len(values) == 1 and _at(one, "operator") == "In":
                found[str(_at(one, "key"))] = str(values[0])
    return found


def _apart(words: Iterable[tuple[int, str]]) -> tuple[list[str], list[int]]:
    pairs = list(words)
    return [word for _, word in pairs], [number for number, _ in pairs]


def _at(value: Any, *path: str | int) -> Any:
    """The value at a path of mappings; None where it is not there."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
