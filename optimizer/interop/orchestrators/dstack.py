"""Turns groups of replicas into dstack service files, and dstack files into what they ask for."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any, Final

from optimizer.interop.asks import Ask, Fault, Place, Wish, divided, line_of, mapping, texts, whole, wish
from optimizer.interop.checkpoints import disk_gb
from optimizer.interop.launch_plan import Exported, LaunchPlan, Purchase, ReplicaGroup, TrainingJob, device, provenance
from optimizer.interop.orchestrators import tpu_slices
from optimizer.interop.readers.command_lines import served, servers
from optimizer.interop.readers.scaling import growth, mixed
from optimizer.interop.serving import vllm
from optimizer.interop.training import stack
from optimizer.interop.yaml_text import yaml_documents
from optimizer.workload.workload_file import Lines
from providers.accelerators import Accelerator, catalogue

VERSION: Final = "0.22.5"
"""Release whose configuration model was read (PyPI, 2026-11-30), with the accelerator names of gpuhunt 0.1.34."""

_OWN_NAMES: Final[Mapping[str, str]] = {
    "H100-NVL-94GB": "H100NVL",
    "H200-NVL-141GB": "H200NVL",
    "GH200-96GB": "GH200",
    "RTX PRO 6000 Blackwell Server": "RTXPRO6000",
    "RTX PRO 6000 Blackwell Workstation": "RTXPRO6000",
}
"""gpuhunt's names where they are not the family's."""

_DISK_GB: Final = 100
"""What dstack takes at least unless told."""


def export(plan: LaunchPlan) -> Exported:
    """A service for each group of replicas, and a task for each training job.

    dstack makes machines in fleets: one must be there for each.
    """
    files, warnings = {}, []
    for job in plan.jobs:
        started = stack.start(job)
        head = [
            *provenance(plan, [job.purchase]),
            f"For dstack {VERSION}: TRAIN_SCRIPT=train.py dstack apply -f dstack-{job.name}.dstack.yml",
            started.made_for,
        ]
        files[f"dstack-{job.name}.dstack.yml"] = yaml_documents([task(job, started)], head)
        warnings += [*started.warnings, *_purchase_warnings(job.name, job.purchase)]
        if job.nodes > 1:
            warnings.append(f"{job.name}: {job.nodes} machines take a fleet with placement: cluster")
    for group in plan.groups:
        head = [
            *provenance(plan, group.purchases),
            f"For dstack {VERSION} and vLLM {vllm.VERSION}: dstack apply -f dstack-{group.name}.dstack.yml",
        ]
        warnings += [*vllm.warnings(group), *vllm.placement_warnings(group), *_warnings(group)]
        if group.instances_per_replica == 1:
            files[f"dstack-{group.name}.dstack.yml"] = yaml_documents([service(group)], head)
    return Exported(files=files, warnings=tuple(warnings))


def service(group: ReplicaGroup) -> dict[str, Any]:
    """The service as dstack's configuration has it."""
    found = device(group.purchase)
    image = vllm.IMAGES.get(found.vendor if found else "NVIDIA", vllm.IMAGES["NVIDIA"])
    document: dict[str, Any] = {
        "type": "service",
        "name": group.name,
        "image": image,
        "env": ["HF_TOKEN"],
        "commands": [vllm.command(vllm.arguments(group))],
        "port": vllm.PORT,
        "model": group.model,
        "replicas": group.instances,
    }
    return document | _machine(group.purchases, group.model)


def task(job: TrainingJob, started: stack.Start) -> dict[str, Any]:
    """The training task; dstack takes TRAIN_SCRIPT from where it is started, and mounts the folder."""
    document: dict[str, Any] = {"type": "task", "name": job.name}
    if job.nodes > 1:
        document["nodes"] = job.nodes
    document |= {"python": "3.12"} if started.image == stack.IMAGES["fsdp"] else {"image": started.image}
    document |= {"env": ["HF_TOKEN", "TRAIN_SCRIPT"], "files": ["."]}
    first = ['MASTER_ADDR="$DSTACK_MASTER_NODE_IP"'] if job.nodes > 1 else []
    document["commands"] = [*started.setup, *first, *started.lines]
    document |= _machine([job.purchase], job.model)
    if job.is_spot:
        document["retry"] = {"on_events": ["no-capacity", "interruption"], "duration": "7d"}
    return document


def _machine(purchases: Sequence[Purchase], model: str) -> dict[str, Any]:
    """Accelerators, disk, place and price of a machine; the purchases differ in zone and price only."""
    purchase = purchases[0]
    found = device(purchase)
    gpu: dict[str, Any] = {"name": accelerator_name(purchase.accelerator)}
    if found is not None:
        gpu["memory"] = f"{found.memory_gib:g}GB"
    gpu["count"] = max(1, round(purchase.accelerators))
    disk = disk_gb(model, _DISK_GB)
    resources: dict[str, Any] = {"gpu": gpu} if disk == _DISK_GB else {"gpu": gpu, "disk": f"{disk}GB.."}
    document: dict[str, Any] = {"resources": resources, "backends": [purchase.provider]}
    if purchase.region:
        document["regions"] = [purchase.region]
    if purchase.provider in ("aws", "gcp", "azure", "lambda"):
        document["instance_types"] = [purchase.machine_type]
    document["spot_policy"] = "spot" if purchase.purchase_option == "spot" else "on-demand"
    # A dearer machine than the plan's is refused, with room for a change of price.
    document["max_price"] = float(round(max(item.usd_per_hour for item in purchases) * 11 / 10, 4))
    return document


def accelerator_name(canonical: str) -> str:
    """gpuhunt's name of an accelerator: its own, or the family's."""
    if canonical in _OWN_NAMES:
        return _OWN_NAMES[canonical]
    name = canonical.removeprefix("RTX A") if canonical.startswith("RTX A") else ""
    return f"A{name}" if name else canonical.split("-")[0].replace(" ", "")


def memory_fits(accelerator: Accelerator, low_gib: float, high_gib: float | None) -> bool:
    """Whether the accelerator's label lies in a range of memory."""
    return accelerator.memory_gib >= low_gib and (high_gib is None or accelerator.memory_gib <= high_gib)


def _warnings(group: ReplicaGroup) -> Iterator[str]:
    if group.instances_per_replica > 1:
        yield f"{group.name}: a dstack service runs on one machine; a replica that spans several has no file"
    yield from _purchase_warnings(group.name, group.purchase)


def _purchase_warnings(name: str, purchase: Purchase) -> Iterator[str]:
    if purchase.purchase_option not in ("on_demand", "spot"):
        yield f"{name}: dstack does not buy {purchase.purchase_option}: reserve first and name the reservation"
    if purchase.accelerators < 1:
        yield f"{name}: a part of an accelerator cannot be expressed: the file takes a whole one"
    yield f"{name}: dstack starts it in a fleet that you have made; max_price is the plan's and 10 %"


def read(content: Mapping[str, Any], lines: Lines) -> list[Ask]:
    """The service or task of a dstack file; memory without a name is a wish for every such accelerator.

    Groups of replicas or of nodes, which have resources and commands of their own, are an ask each.
    """
    for key, count in (("replicas", "replicas"), ("groups", "nodes")):
        groups = content.get(key)
        if isinstance(groups, list):
            return [
                _read({**content, **mapping(group), count: mapping(group).get(count)}, lines, (key, index))
                for index, group in enumerate(groups)
            ]
    return [_read(content, lines, ())]


def _read(content: Mapping[str, Any], lines: Lines, path: tuple[str | int, ...]) -> Ask:
    """One service, task or group; `path` is where its own keys stand."""

    def line(*keys: str | int) -> int | None:
        own = (*path, *keys)
        return line_of(lines, *own) if own[: len(path) + 1] in lines else line_of(lines, *keys)

    wishes, faults = divided(list(_wishes(mapping(content.get("resources")).get("gpu"), line("resources", "gpu"))))
    nodes = whole(content.get("nodes")) or 1
    variables = script_variables(content, wishes[0].count if wishes else None, nodes)
    commands = content.get("commands")
    started = (
        found
        for index, command in enumerate(commands if isinstance(commands, list) else ())
        # The text of a block begins on the line after its dash.
        for found in servers(str(command), (line("commands", index) or 1) + ("\n" in str(command)), variables)
    )
    found = next(started, None)
    types = list(texts(content.get("instance_types")))
    backends = [name.lower() for name in texts(content.get("backends"))]
    regions = list(texts(content.get("regions")))
    spot = content.get("spot_policy") == "spot"
    if len(backends) > 1 or len(regions) > 1:
        places = tuple(_places(backends, regions, types, spot=spot))
        wishes = tuple(replace(one, places=places) for one in wishes)
    replicas = whole(_least(content.get("replicas"))) or 1
    notes = [*growth(replicas, _most(content.get("replicas")), line("replicas"))]
    if content.get("spot_policy") == "auto":
        notes.append(mixed(line("spot_policy"), "on demand"))
    keys = {"model": ("model",), "nodes": ("nodes",), "replicas": ("replicas",), "place": ("regions",)}
    keys |= {"instance_type": ("instance_types",), "spot": ("spot_policy",)}
    return Ask(
        source="dstack",
        name=str(content.get("name") or content.get("type")),
        model=(found.values.get("model") if found else None) or _model(content.get("model")),
        wishes=wishes,
        nodes=nodes,
        replicas=replicas,
        provider=backends[0] if len(backends) == 1 else None,
        region=regions[0] if len(regions) == 1 else None,
        instance_type=_one_type(types),
        spot=spot,
        lines={
            **{what: number for what, where in keys.items() if (number := line(*where)) is not None},
            **(found.lines if found else {}),
        },
        faults=(*faults, *notes),
        **served(found),
    )


def script_variables(content: Mapping[str, Any], count: int | None, nodes: int) -> dict[str, str]:
    """What commands can read: the file's own, as a list or a mapping, and those that dstack sets."""
    env = content.get("env")
    own = {key: value for key, _, value in (text.partition("=") for text in texts(env))}
    own |= {str(key): str(value) for key, value in mapping(env).items() if value is not None}
    own["DSTACK_NODES_NUM"] = str(nodes)
    if count is not None:
        own |= {"DSTACK_GPUS_NUM": str(count * nodes), "DSTACK_GPUS_PER_NODE": str(count)}
    return own


_MOST_PLACES: Final = 64


def _places(backends: list[str], regions: list[str], types: list[str], *, spot: bool) -> Iterator[Place]:
    """Every backend with every region that the file lists."""
    pairs: Iterator[tuple[str | None, str | None]] = product(backends or (None,), regions or (None,))
    for backend, region in islice(pairs, _MOST_PLACES):
        yield Place(provider=backend, region=region, instance_type=_one_type(types), spot=spot)


def _one_type(types: list[str]) -> str | None:
    """The instance type; None for several, and for Google's n1: the GPUs attached to those say what is meant."""
    return types[0] if len(types) == 1 and not types[0].startswith("n1-") else None


def _least(value: Any) -> Any:
    """The lower end of a range: `2`, `2..8` or {min: 2, max: 8}; 1 where it is open or none."""
    if isinstance(value, Mapping):
        value = value.get("min")
    return str(1 if value is None else value).split("..", maxsplit=1)[0] or "1"


def _most(value: Any) -> str | None:
    """The upper end of a range; None where it is open or none."""
    if isinstance(value, Mapping):
        return None if value.get("max") is None else str(value["max"])
    return str(value).partition("..")[2] or None


_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(GB|MB|TB)?", re.IGNORECASE)
_USUAL: Final = ("NVIDIA", "AMD")


def _model(value: Any) -> str | None:
    """`model: NAME` or `model: {name: NAME}`."""
    if isinstance(value, Mapping):
        value = value.get("name")
    return value if isinstance(value, str) else None


def _wishes(gpu: Any, line: int | None) -> Iterator[Wish | Fault]:
    """`H100`, `H100:8`, `A10G,L4:24GB:2`, `24GB..48GB`, `8`, or {name, count, memory}."""
    if gpu is None:
        return
    if isinstance(gpu, Mapping):
        names, count, memory = list(texts(gpu.get("name"))), gpu.get("count", 1), gpu.get("memory")
    else:
        names, count, memory = _short_form(str(gpu))
    names = [name for text in names for name in text.split(",") if name]
    least = _least(count)
    if isinstance(memory, Mapping):
        memory = f"{memory.get('min') or ''}..{memory.get('max') or ''}"
    bounds = None if memory is None else _bounds(str(memory))
    if not names:
        if bounds is None:
            what = f"gpu {gpu!r} names no accelerator and no memory: dstack takes any"
            yield Fault(line=line, what=what, fix="name one, like H100:8, or give --gpu NAME")
            return
        names = [one.name for one in catalogue().values() if one.vendor in _USUAL and memory_fits(one, *bounds)]
    for name in names:
        of_slice = tpu_slices.chips(name)
        asked = wish(name, least, line) if of_slice is None else wish(*of_slice, line)
        if isinstance(asked, Wish) and of_slice is None:
            asked = replace(asked, variants=(*asked.variants, *_called(name, asked.variants)))
        if isinstance(asked, Wish) and bounds is not None:
            fitting = tuple(one for one in asked.variants if memory_fits(one, *bounds))
            if not fitting:
                sizes = ", ".join(f"{one.memory_gib:g} GB" for one in asked.variants)
                yield Fault(line=line, what=f"no {name} has {memory} of memory", fix=f"it has {sizes}")
                continue
            asked = replace(asked, accelerator=fitting[0], variants=fitting)
        yield asked


def _called(name: str, known: Sequence[Accelerator]) -> Iterator[Accelerator]:
    """Accelerators besides the known ones that gpuhunt gives that name."""
    for one in catalogue().values():
        if accelerator_name(one.name).lower() == name.lower() and one not in known:
            yield one


def _short_form(text: str) -> tuple[list[str], str, str | None]:
    names: list[str] = []
    count, memory = "1", None
    for token in text.replace(" ", "").split(":"):
        if token[:1].isalpha():
            names = [] if token.lower() in ("nvidia", "amd", "google", "intel", "tpu") else token.split(",")
        elif any(letter.isalpha() for letter in token):
            memory = token
        else:
            count = token
    return names, count, memory


def _bounds(text: str) -> tuple[float, float | None]:
    """GB from and to: `48GB` is exactly that label, `24GB..` at least."""
    low, dots, high = text.partition("..")
    least = _gigabytes(low) or 0.0
    return least, (_gigabytes(high) if dots else least)


def _gigabytes(text: str) -> float | None:
    match = _SIZE.fullmatch(text.strip())
    if not match:
        return None
    return float(match[1]) * {"MB": 0.001, "TB": 1000.0}.get((match[2] or "GB").upper(), 1.0)
