"""Turns a file of unknown kind into what it asks for, by what is written in it."""

import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Final, Literal

from optimizer.interop.asks import Ask, Fault, Wish, divided, texts, wish
from optimizer.interop.orchestrators import containers, dstack, manifests, skypilot_tasks, slurm, terraform
from optimizer.interop.readers import command_lines, scaling
from optimizer.interop.readers.request_log import is_log_header, is_log_json
from optimizer.interop.readers.training_commands import Launched, launched
from optimizer.interop.readers.training_settings import is_training, settings_of, training_of
from optimizer.interop.serving import engine_settings, ray
from optimizer.interop.training import deepspeed
from optimizer.workload.workload_file import load_yaml
from providers.errors import UsageError

Kind = Literal["launch", "model", "melange", "log"]
KNOWN: Final = (
    "SkyPilot, dstack, Kubernetes, KServe and Compose YAML, values of vLLM's production stack, commands that serve or "
    "train, settings of serving engines (vLLM, Ray Serve, Triton), configurations of training software, a model's "
    "config.json or folder, Melange JSON, request logs, tables of quotes, FOCUS cost exports"
)
_DOCUMENT_MARK: Final = re.compile(r"^---(?:\s.*)?$")
_INSTANCES: Final = re.compile(
    r"^# Instances: (?P<count>\d{1,6}) x (?P<provider>\w+) (?P<type>\S+) "
    r"\((?P<each>\d{1,6}) x (?P<accelerator>[^()]+)\), (?P<place>any region|[^, ]+)(?: zone [^, ]+)?, (?P<option>\w+):"
)
"""The line that exported scripts carry; it says where their command runs."""

_ENGINES: Final = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}
_EACH: Final = re.compile(r"^# .*replicas on each: (?P<each>\d{1,4})\.", re.MULTILINE)
"""The line that says how many servers a script, or a machine with it, starts."""

_WEIGHTS: Final = "holds the shares of a router, which say no model and no machines: import the services behind it"
_PARTS: Final = (
    (
        re.compile(r'^\s*(?:backend|platform):\s*"', re.MULTILINE),
        "is a part of a repository of Triton: import its folder",
    ),
    (re.compile(r"^\s*upstream\s+\S+\s*\{", re.MULTILINE), _WEIGHTS),
)
"""Files that are no YAML and only a part of something."""

_ROUTES: Final = re.compile(r"^kind:\s*(?:HTTPRoute|InferencePool|Gateway)\s*$", re.MULTILINE)
_DSTACK_TYPES: Final = ("task", "service", "dev-environment", "fleet")
_SKYPILOT_KEYS: Final = frozenset({"resources", "run", "setup", "num_nodes", "service"})
_OF_THE_TASK: Final = frozenset(
    {"type", "resources", "run", "setup", "commands", "service", "name", "num_nodes", "nodes"}
)
"""Keys of the orchestrators themselves: settings of training may stand beside them."""

_APART: Final = Fault(
    line=None,
    what="the script starts several: each is priced on machines of its own",
    fix="give --count the accelerators of one; those that share a machine cost it once",
    fatal=False,
)
_KSERVE_KINDS: Final = ("InferenceService", "LLMInferenceService")
_MOST_DOCUMENTS: Final = 200
_MACHINE: Final = 8
"""Accelerators of the usual machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """What kind of file it is, and what it asks for where it launches something."""

    kind: Kind
    asks: tuple[Ask, ...] = ()


def recognise(text: str, name: str) -> Recognised:
    """The kind of a file by its content. Raises UsageError for one that is none of KNOWN, or damaged."""
    if "\0" in text:
        raise UsageError(f"{name} is a binary file; known: {KNOWN}")
    stripped = text.lstrip()
    if is_log_header(stripped.partition("\n")[0]) or is_log_json(stripped):
        return Recognised(kind="log")
    if stripped.startswith("{"):
        return _json(text, name)
    if terraform.is_terraform(text):
        return Recognised(kind="launch", asks=tuple(terraform.read(text)))
    script = _script(text)
    if script and (stripped.startswith("#!") or not _is_yaml(stripped)):
        return Recognised(kind="launch", asks=script)
    for pattern, what in _PARTS:
        if pattern.search(text) and not script:
            raise UsageError(f"{name} {what}")
    documents = list(_documents(text, name))
    asks = [ask for document, lines in documents for ask in _of_document(document, lines, text)]
    asks = scaling.autoscaled(asks, documents)
    if not asks and not script:
        if _ROUTES.search(text):
            raise UsageError(f"{name} {_WEIGHTS}")
        raise UsageError(f"{name} asks for nothing that is known here; known: {KNOWN}")
    return Recognised(kind="launch", asks=tuple(asks) or script)


def _json(text: str, name: str) -> Recognised:
    """One object is a Melange problem or a model's config."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{name} holds a {type(content).__name__}; known: {KNOWN}")
    if "gpu_info" in content:
        return Recognised(kind="melange")
    if is_training(settings_of(content, {})):
        note = "\n".join(f"# {line}" for line in texts(content.get(deepspeed.NOTE)))
        ask = _of_settings(content, _json_lines(text, name))
        return Recognised(kind="launch", asks=(_on_stated(ask, None, next(_stated(note), None)),))
    if "num_hidden_layers" in content or "architectures" in content or "text_config" in content:
        return Recognised(kind="model")
    if engine_settings.is_engine(content):
        return Recognised(kind="launch", asks=(engine_settings.read(content, _json_lines(text, name)),))
    if content.get("schema") == "costopt.plan":
        raise UsageError(f"{name} is a plan of costopt: `costopt export {name} --to TARGET` writes its files")
    raise UsageError(f"{name} is JSON of a kind that is not known here; known: {KNOWN}")


def _json_lines(text: str, name: str) -> Any:
    """The line of each path, as far as YAML reads the text too."""
    try:
        return load_yaml(text, name)[1]
    except UsageError:
        return {}


def repository(config: str, model: str, name: str) -> Recognised:
    """A model repository of Triton: the head of `config.pbtxt` says where the engine of `1/model.json` runs."""
    return Recognised(kind="launch", asks=tuple(_of_engine(ask, config) for ask in recognise(model, name).asks))


def _is_yaml(text: str) -> bool:
    """Whether some line looks like a key of YAML."""
    return any(re.match(r"[A-Za-z_][\w.-]*:(\s|$)", line) for line in text.splitlines())


def _script(text: str) -> tuple[Ask, ...]:
    """The servers and training jobs that a shell script or a bare command line starts, in the order of their lines."""
    stated = next(_stated(text), None)
    batch = slurm.read(text)
    given = {} if batch is None else batch.variables
    asks = [_on_each(_of_server(found, stated), text) for found in command_lines.servers(text, 1, given)]
    asks += [_of_launched(found, stated) for found in launched(text, 1, given)]
    asks += containers.docker_runs(text)
    asks = [ask if batch is None else slurm.in_batch(ask, batch) for ask in asks]
    if len(asks) > 1:
        asks = [
            replace(ask, name=f"{ask.name}, line {ask.lines['command']}", faults=(*ask.faults, _APART)) for ask in asks
        ]
    return tuple(sorted(asks, key=lambda ask: ask.lines["command"]))


def _stated(text: str) -> Iterator[Mapping[str, Any]]:
    """What the head of an exported file says of its instances; those that differ in zone and price only are one."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for match in filter(None, map(_INSTANCES.match, text.splitlines())):
        same = found.setdefault(match.group("provider", "type", "place", "option"), {**match.groupdict(), "count": 0})
        same["count"] += int(match["count"])
    yield from found.values()


def _on_each(ask: Ask, text: str) -> Ask:
    """The ask with as many replicas on each machine as the head of an exported file says."""
    each = _EACH.search(text)
    return ask if each is None else replace(ask, data_parallel=max(ask.data_parallel, int(each["each"])))


def _of_engine(ask: Ask, head: str) -> Ask:
    """An engine's settings on the machines that the head names: as many for a replica as its accelerators take."""
    stated = next(_stated(head), None)
    nodes = None if stated is None else math.ceil((ask.accelerators_per_machine or 1) / max(1, int(stated["each"])))
    return _on_each(_on_stated(ask, nodes, stated), head)


def _of_server(found: command_lines.Server, stated: Mapping[str, Any] | None) -> Ask:
    ask = Ask(
        source=f"{_ENGINES[found.engine]} command",
        name="server",
        model=found.values.get("model"),
        lines={"command": found.line, **found.lines},
        **command_lines.served(found),
    )
    return _on_stated(ask, found.count("nodes"), stated)


def _of_launched(found: Launched, stated: Mapping[str, Any] | None) -> Ask:
    ask = Ask(
        source=f"{found.program} command",
        name="job",
        model=found.model,
        lines=found.lines,
        faults=_elsewhere(found),
        **found.fields,
    )
    return _on_stated(ask, found.nodes, stated)


def _elsewhere(found: Launched) -> tuple[Fault, ...]:
    """Settings that stand in a file which the command names: it is not opened."""
    if found.config is None:
        return ()
    if not PurePath(found.config).suffix:
        what = f"settings are those of the recipe {found.config}, which are not known here"
        fix = f"`tune cp {shlex.quote(found.config)} FILE.yaml` writes them, and import reads that"
        return (Fault(line=found.line, what=what, fix=fix, fatal=False),)
    what = f"settings stand in {found.config}, which is not opened"
    return (
        Fault(line=found.line, what=what, fix=f"`costopt import {shlex.quote(found.config)}` reads it", fatal=False),
    )


def _on_stated(ask: Ask, nodes: int | None, stated: Mapping[str, Any] | None) -> Ask:
    """The ask on the machines that an exported script's head names."""
    if stated is None:
        return replace(ask, nodes=nodes or 1)
    wishes, faults = divided([wish(stated["accelerator"], stated["each"], None)])
    return replace(
        ask,
        wishes=wishes,
        faults=(*ask.faults, *faults),
        nodes=nodes or (stated["count"] if ask.training is not None else 1),
        replicas=1 if ask.training is not None else max(1, stated["count"] // (nodes or 1)),
        provider=stated["provider"],
        region=None if stated["place"] == "any region" else stated["place"],
        instance_type=stated["type"],
        spot=stated["option"] == "spot",
    )


def _documents(text: str, name: str) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Each YAML document with the lines of its paths, counted from the top of the file."""
    raw = text.splitlines(keepends=True)
    marks = [index for index, line in enumerate(raw) if _DOCUMENT_MARK.match(line.rstrip())]
    starts = [0, *(mark + 1 for mark in marks)]
    if len(starts) > _MOST_DOCUMENTS:
        raise UsageError(f"{name} has {len(starts):,} YAML documents; at most {_MOST_DOCUMENTS} are read")
    for start, end in zip(starts, [*marks, len(raw)], strict=True):
        part = "".join(raw[start:end])
        if not part.strip():
            continue
        # Empty lines before it keep the numbers of its lines.
        content, lines = load_yaml("\n" * start + part, name)
        if isinstance(content, dict):
            yield content, lines
        elif isinstance(content, str):
            raise UsageError(f"{name} has no command and no file in it that is known here; known: {KNOWN}")
        elif content is not None:
            raise UsageError(f"{name}, line {start + 1}: a {type(content).__name__}, not a mapping; known: {KNOWN}")


def _of_document(content: Mapping[str, Any], lines: Any, text: str) -> Sequence[Ask]:
    if str(content.get("kind")) in _KSERVE_KINDS:
        return containers.kserve(content, lines)
    if content.get("kind") == "RayService":
        return engine_settings.read_ray_service(content, lines)
    if content.get("kind") == "List" and isinstance(content.get("items"), list):
        return [ask for item, own in _items(content["items"], lines) for ask in _of_document(item, own, text)]
    if "apiVersion" in content and "kind" in content:
        return manifests.read(content, lines)
    if isinstance(content.get("servingEngineSpec"), Mapping):
        return containers.production_stack(content, lines)
    if containers.is_compose(content):
        return containers.compose(content, lines)
    if content.get("type") in _DSTACK_TYPES:
        known = dstack.script_variables
        return [_trained(ask, content, lines, "commands", known) for ask in dstack.read(content, lines)]
    if _SKYPILOT_KEYS & content.keys():
        known = skypilot_tasks.script_variables
        return [_trained(ask, content, lines, "run", known) for ask in skypilot_tasks.read(content, lines)]
    if engine_settings.is_ray(content):
        return engine_settings.read_ray(content, lines, ray.stated(text))
    settings = settings_of(content, lines)
    if is_training(settings):
        return [_on_stated(_of_settings(content, lines), settings.count("nodes"), next(_stated(text), None))]
    if engine_settings.is_engine(content):
        return [_of_engine(engine_settings.read(content, lines), text)]
    return ()


def _items(items: Sequence[Any], lines: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """The manifests of a list, as `kubectl get -o yaml` prints several, each with the lines of its own paths."""
    own: dict[object, dict[tuple[str | int, ...], int]] = {}
    for path, line in lines.items():
        if path[:1] == ("items",) and len(path) > 1:
            own.setdefault(path[1], {})[path[2:]] = line
    for index, item in enumerate(items):
        if isinstance(item, Mapping) and item.get("kind") != "List":
            yield item, own.get(index, {})


def _trained(
    ask: Ask,
    content: Mapping[str, Any],
    lines: Any,
    script: str,
    script_variables: Callable[[Mapping[str, Any], int | None, int], dict[str, str]],
) -> Ask:
    """A task whose own keys, or whose script, say how it trains."""
    if ask.engine is not None or ask.training is not None:
        return ask
    variables = script_variables(content, ask.wishes[0].count if ask.wishes else None, ask.nodes)
    found = next(_jobs(content.get(script), lines, script, variables), None)
    settings = settings_of({key: value for key, value in content.items() if key not in _OF_THE_TASK}, lines)
    if found is None and not is_training(settings):
        return ask
    if found is None:
        return replace(
            ask,
            model=settings.model or ask.model,
            training=training_of(settings),
            lines={**settings.lines, **ask.lines},
        )
    return replace(
        ask,
        model=ask.model if found.model is None or "$" in found.model else found.model,
        nodes=ask.nodes if ask.nodes > 1 else found.nodes or 1,
        lines={**ask.lines, **found.lines},
        faults=(*ask.faults, *_elsewhere(found)),
        **found.fields,
    )


def _jobs(text: Any, lines: Any, script: str, variables: Mapping[str, str]) -> Iterator[Launched]:
    """The training jobs of a task's script: one text, or a list of commands."""
    if isinstance(text, str):
        # The text of a block begins on the line after its key.
        yield from launched(text, (lines.get((script,)) or 1) + (1 if "\n" in text else 0), variables)
    for index, command in enumerate(text if isinstance(text, list) else ()):
        yield from launched(str(command), lines.get((script, index)) or 1, variables)


def _of_settings(content: Mapping[str, Any], lines: Any) -> Ask:
    """The configuration of training software: axolotl, LLaMA-Factory, torchtune, DeepSpeed."""
    settings = settings_of(content, lines)
    return Ask(
        source="training configuration",
        name="job",
        model=settings.model,
        tensor_parallel=settings.count("tensor_parallel"),
        pipeline_parallel=settings.count("pipeline_parallel"),
        accelerators_per_machine=settings.ranks_per_node(settings.count("nodes")),
        training=training_of(settings),
        lines=settings.lines,
    )


def with_wish(ask: Ask, named: str, count: int | None) -> Ask:
    """The ask on accelerators that the user names beside the file; without a count, as many as its degrees take.

    More than a usual machine has are taken as several machines.
    """
    degrees = (ask.tensor_parallel or 1) * (ask.pipeline_parallel or 1) * ask.data_parallel
    nodes = ask.nodes
    if count is None and ask.accelerators_per_machine is None and nodes == 1 and degrees > _MACHINE:
        nodes = degrees // _MACHINE if degrees % _MACHINE == 0 else 1
    count = count or ask.accelerators_per_machine or max(1, degrees // nodes)
    wishes, faults = divided([wish(named, count, None)])
    kept: tuple[Wish, ...] = wishes or ask.wishes
    return replace(ask, wishes=kept, nodes=nodes, faults=(*ask.faults, *faults))
