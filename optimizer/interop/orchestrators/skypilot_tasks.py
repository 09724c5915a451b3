"""Turns SkyPilot's files of tasks and services into what they ask for."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from optimizer.interop.asks import (
    CLUSTERS,
    Ask,
    Degrees,
    Fault,
    Place,
    Wish,
    divided,
    line_of,
    mapping,
    texts,
    whole,
    wish,
)
from optimizer.interop.orchestrators import tpu_slices
from optimizer.interop.readers.command_lines import Server, filled, served, servers
from optimizer.interop.readers.scaling import growth, mixed
from optimizer.workload.workload_file import Lines
from providers.accelerators import catalogue


def read(content: Mapping[str, Any], lines: Lines) -> list[Ask]:
    """The one service or task of a SkyPilot file, with every accelerator that it would take as a wish."""
    machines, left_out = _machines(mapping(content.get("resources")), lines)
    places = [_place(machine, path, lines) for path, machine in machines]
    is_one_place = all(place == places[0] for place in places)
    found = [
        one if is_one_place or isinstance(one, Fault) else replace(one, places=(place,))
        for (path, machine), place in zip(machines, places, strict=True)
        for one in _wishes(machine, path, lines)
    ]
    found += [
        Fault(line=line_of(lines, *path), what=f"{place.instance_type} is not looked at", fix=_UNNAMED, fatal=False)
        for (path, machine), place in zip(machines, places, strict=True)
        if place.instance_type and not is_one_place and not {"accelerators", "gpus"} & machine.keys()
    ]
    wishes, faults = divided(_merged(found))
    nodes = whole(content.get("num_nodes")) or 1
    variables = script_variables(content, wishes[0].count if wishes else None, nodes)
    server = _server(content, lines, variables)
    wishes = _with_degrees(wishes, server, content, lines, nodes)
    replicas = _replicas(content.get("service"))
    notes = _scaling(mapping(mapping(content.get("service")).get("replica_policy")), lines, replicas)
    return [
        Ask(
            source="SkyPilot",
            name=str(content.get("name") or "task"),
            model=_model(content, server, variables),
            wishes=wishes,
            nodes=nodes,
            replicas=replicas,
            spot=any(place.spot for place in places),
            lines={
                "model": line_of(lines, "envs") or line_of(lines, "run") or 1,
                **{name: line for name, path in _PATHS.items() if (line := line_of(lines, *path)) is not None},
                **(server.lines if server else {}),
            },
            faults=(*faults, *left_out, *notes),
            provider=_common(places, "provider"),
            region=_common(places, "region"),
            instance_type=_common(places, "instance_type"),
            **served(server),
        )
    ]


_MODEL_VARIABLES: Final = ("MODEL_NAME", "MODEL_ID", "MODEL", "HF_MODEL", "HF_MODEL_ID")
"""Variables that files of SkyPilot's gallery keep the model in."""

_DOWNLOAD: Final = re.compile(r"\b(?:tune|hf|huggingface-cli)\s+download\s+([\w.${}-]+/[\w.${}-]+)")
_UNNAMED: Final = "name the accelerators of every alternative"
_MOST_ALTERNATIVES: Final = 100
_MOST_COUNTS: Final = 16
"""Numbers of accelerators that degrees are worked out for, each by reading the script again."""

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "nodes": ("num_nodes",),
    "replicas": ("service",),
    "place": ("resources", "infra"),
    "instance_type": ("resources", "instance_type"),
    "spot": ("resources", "use_spot"),
}


def _machines(
    base: Mapping[str, Any], lines: Lines
) -> tuple[list[tuple[tuple[str | int, ...], Mapping[str, Any]]], list[Fault]]:
    """The alternatives with the paths of their own keys: one, those of `any_of`, or those of `ordered`."""
    key = next((key for key in ("ordered", "any_of") if isinstance(base.get(key), list)), None)
    if key is None:
        return [(("resources",), base)], []
    left_out = []
    if len(base[key]) > _MOST_ALTERNATIVES:
        what = f"{len(base[key]):,} alternatives: the first {_MOST_ALTERNATIVES} are looked at"
        line = line_of(lines, "resources", key)
        left_out.append(Fault(line=line, what=what, fix="keep those that you would take", fatal=False))
    first = base[key][:_MOST_ALTERNATIVES]
    return [(("resources", key, index), {**base, **mapping(one)}) for index, one in enumerate(first)], left_out


def _merged(found: Iterable[Wish | Fault]) -> list[Wish | Fault]:
    """Each wish and fault once; alternatives with the same accelerators on the same line are places of one wish."""
    merged: dict[object, Wish | Fault] = {}
    for one in found:
        if isinstance(one, Fault):
            merged.setdefault(one, one)
            continue
        key = (one.named, one.accelerator.name, one.count, one.line)
        known = merged.get(key)
        if isinstance(known, Wish):
            one = replace(known, places=tuple(dict.fromkeys([*known.places, *one.places])))
        merged[key] = one
    return list(merged.values())


def _with_degrees(
    wishes: tuple[Wish, ...], server: Server | None, content: Mapping[str, Any], lines: Lines, nodes: int
) -> tuple[Wish, ...]:
    """The wishes with the degrees that the run script takes from the number of accelerators, where they differ."""
    counts = sorted({one.count for one in wishes})[:_MOST_COUNTS]
    if server is None or len(counts) == 1 or "$" not in str(content.get("run")):
        return wishes
    started = {count: _server(content, lines, script_variables(content, count, nodes)) for count in counts}
    degrees = {count: _degrees(one) for count, one in started.items() if one is not None}
    if len(set(degrees.values())) == 1:
        return wishes
    return tuple(replace(one, degrees=degrees.get(one.count)) for one in wishes)


def _degrees(server: Server) -> Degrees:
    fields = served(server)
    return Degrees(**{name: fields[name] for name in Degrees.__slots__})


def script_variables(content: Mapping[str, Any], count: int | None, nodes: int) -> dict[str, str]:
    """What the run script can read: the file's own, and those that SkyPilot sets."""
    own = {**mapping(content.get("envs")), **mapping(content.get("secrets"))}
    variables = {str(key): str(value) for key, value in own.items() if value is not None}
    variables["SKYPILOT_NUM_NODES"] = str(nodes)
    if count is not None:
        variables["SKYPILOT_NUM_GPUS_PER_NODE"] = str(count)
    return variables


def _model(content: Mapping[str, Any], server: Server | None, variables: Mapping[str, str]) -> str | None:
    """What is served, or the variable that names it, or what the scripts download."""
    model = server.values.get("model") if server else None
    if model and "$" not in model:
        return model
    named = next((variables[key] for key in _MODEL_VARIABLES if variables.get(key)), None)
    scripts = "\n".join(str(content.get(key) or "") for key in ("setup", "run"))
    downloaded = _DOWNLOAD.search(scripts)
    if named is None and downloaded is not None:
        named = filled(downloaded[1], variables)
    return named or model


def _wishes(machine: Mapping[str, Any], path: tuple[str | int, ...], lines: Lines) -> Iterator[Wish | Fault]:
    """`H100`, `H100:8`, `80GB+`, {H100: 8, A100: 8}, {H100:8, A100:8} or a list of those; `gpus` is the same key."""
    key = "accelerators" if "accelerators" in machine else "gpus"
    asked = machine.get(key)
    if (*path, key) not in lines:
        # An alternative takes what stands beside it.
        path = ("resources",)
    if isinstance(asked, Mapping):
        for name, count in asked.items():
            where = line_of(lines, *path, key, str(name))
            yield from _asked(str(name) if count is None else f"{name}:{count}", where, machine)
        return
    for index, text in enumerate(texts(asked)):
        where = line_of(lines, *path, key, *([index] if isinstance(asked, list) else []))
        yield from _asked(text, where, machine)


def _asked(text: str, line: int | None, machine: Mapping[str, Any]) -> Iterator[Wish | Fault]:
    """One name or size with its count."""
    memory = _MEMORY.fullmatch(text.replace(" ", ""))
    if memory is None:
        name, _, count = text.partition(":")
        of_slice = tpu_slices.chips(name)
        if of_slice is not None:
            found = wish(of_slice[0], of_slice[1] * (whole(count or 1) or 1), line)
            yield replace(found, named=name.strip()) if isinstance(found, Wish) else found
            return
        yield _wish(name.strip(), count.strip() or 1, line, machine)
        return
    vendor = (memory["vendor"] or "nvidia").lower()
    least = float(memory["size"])
    for one in catalogue().values():
        fits = one.memory_gib >= least if memory["more"] else one.memory_gib == least
        if fits and one.vendor.lower() == vendor:
            yield wish(one.name, memory["count"] or 1, line)


_MEMORY: Final = re.compile(
    r"(?:(?P<vendor>nvidia|amd):)?(?P<size>\d{1,4})GB(?P<more>\+?)(?::(?P<count>\d+))?", re.IGNORECASE
)
_MEANT: Final[Mapping[str, str]] = {
    "a100": "A100-40GB",
    "gh200": "GH200-96GB",
    "h100-mega": "H100-SXM5-80GB",
    "rtx6000": "Quadro RTX 6000",
    "rtxpro6000-wk": "RTX PRO 6000 Blackwell Workstation",
    "v100": "V100-16GB",
}
"""What SkyPilot's catalogue means by names that stand for several sizes, or are its own."""

_MEANT_ON: Final[Mapping[str, Mapping[str, str]]] = {
    "runpod": {"a100-80gb": "A100-PCIe-80GB", "h100": "H100-PCIe-80GB"},
    "standard_nc": {"h100": "H100-NVL-94GB", "a100-80gb": "A100-PCIe-80GB"},
}
"""The form that a name means on a cloud, or on instance types that begin so."""


def _wish(name: str, count: object, line: int | None, machine: Mapping[str, Any]) -> Wish | Fault:
    """The wish under the name that the file has."""
    place = _place(machine)
    meant = _MEANT.get(name.lower(), name)
    for begin, names in _MEANT_ON.items():
        if begin == place.provider or (place.instance_type or "").lower().startswith(begin):
            meant = names.get(name.lower(), meant)
    found = wish(meant, count, line)
    return replace(found, named=name) if isinstance(found, Wish) else found


def _server(content: Mapping[str, Any], lines: Lines, variables: Mapping[str, str]) -> Server | None:
    """The first server that the run script starts."""
    run = content.get("run")
    if not isinstance(run, str):
        return None
    # The text of a block begins on the line after its key.
    begin = (line_of(lines, "run") or 1) + (1 if "\n" in run else 0)
    return next(servers(run, begin, variables), None)


def _common(places: Sequence[Place], key: str) -> str | None:
    """What all alternatives say alike."""
    values: set[str | None] = {getattr(place, key) for place in places}
    return values.pop() if len(values) == 1 else None


def _place(machine: Mapping[str, Any], path: tuple[str | int, ...] = (), lines: Lines | None = None) -> Place:
    """Where and how a machine is bought, and the lines below `path` that say so."""
    parts = str(machine.get("infra") or "").split("/")
    cloud = parts[0] or str(machine.get("cloud") or "")
    # What stands behind a cluster of one's own is its context.
    region = None if cloud.lower() in CLUSTERS else parts[1] if len(parts) > 1 else machine.get("region")
    named = next((key for key in ("infra", "region", "cloud") if key in machine), "infra")
    keys = {"place": named, "instance_type": "instance_type", "spot": "use_spot"}
    return Place(
        provider=cloud.lower() if cloud and cloud != "*" else None,
        region=str(region) if region and region != "*" else None,
        instance_type=_instance_type(machine),
        spot=machine.get("use_spot") is True,
        lines={what: lines[(*path, key)] for what, key in keys.items() if lines and (*path, key) in lines},
    )


def _instance_type(machine: Mapping[str, Any]) -> str | None:
    """The instance type; None for Google's machines whose GPUs are attached: those say what is meant."""
    named = machine.get("instance_type")
    return str(named) if named and not str(named).startswith("n1-") else None


def _scaling(policy: Mapping[str, Any], lines: Lines, replicas: int) -> Iterator[Fault]:
    """How a service may grow, and that it takes machines on demand beside spot."""
    path = ("service", "replica_policy")
    yield from growth(replicas, policy.get("max_replicas"), line_of(lines, *path, "max_replicas"))
    for key in ("dynamic_ondemand_fallback", "base_ondemand_fallback_replicas"):
        if policy.get(key):
            yield mixed(line_of(lines, *path, key), "spot")


def _replicas(service: Any) -> int:
    if not isinstance(service, Mapping):
        return 1
    policy = service.get("replica_policy")
    least = policy.get("min_replicas") if isinstance(policy, Mapping) else None
    return whole(service.get("replicas")) or whole(least) or 1
