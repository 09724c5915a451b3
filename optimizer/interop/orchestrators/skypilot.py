"""Turns groups of replicas into SkyPilot service files, and SkyPilot files into what they ask for."""

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
from optimizer.interop.checkpoints import disk_gb
from optimizer.interop.launch_plan import Exported, LaunchPlan, Purchase, ReplicaGroup, TrainingJob, device, provenance
from optimizer.interop.orchestrators import tpu_slices
from optimizer.interop.readers.command_lines import Server, filled, served, servers
from optimizer.interop.readers.scaling import growth, mixed
from optimizer.interop.serving import vllm
from optimizer.interop.training import stack
from optimizer.interop.yaml_text import yaml_documents
from optimizer.workload.workload_file import Lines
from providers.accelerators import catalogue

VERSION: Final = "0.14.1"
"""Release whose YAML reference (docs.skypilot.co) and catalogue names were read, 2026-11-30."""

NAMES: Final[Mapping[str, str]] = {
    "A100-SXM4-40GB": "A100",
    "A100-PCIe-40GB": "A100",
    "A100-SXM4-80GB": "A100-80GB",
    "A100-PCIe-80GB": "A100-80GB",
    "A10": "A10",
    "A10G": "A10G",
    "A40": "A40",
    "B200": "B200",
    "B300": "B300",
    "GB200": "GB200",
    "GH200-96GB": "GH200",
    "H100-SXM5-80GB": "H100",
    "H100-PCIe-80GB": "H100",
    "H100-NVL-94GB": "H100",
    "H200-SXM5-141GB": "H200",
    "L4": "L4",
    "L40": "L40",
    "L40S": "L40S",
    "MI300X": "MI300X",
    "P100-PCIe-16GB": "P100",
    "Quadro RTX 6000": "RTX6000",
    "RTX 2000 Ada": "RTX2000-Ada",
    "RTX 3070": "RTX3070",
    "RTX 3080": "RTX3080",
    "RTX 3080 Ti": "RTX3080-Ti",
    "RTX 3090": "RTX3090",
    "RTX 3090 Ti": "RTX3090-Ti",
    "RTX 4000 Ada": "RTX4000-Ada",
    "RTX 4080": "RTX4080",
    "RTX 4080 SUPER": "RTX4080-SUPER",
    "RTX 4090": "RTX4090",
    "RTX 5000 Ada": "RTX5000-Ada",
    "RTX 5080": "RTX5080",
    "RTX 5090": "RTX5090",
    "RTX 6000 Ada": "RTX6000-Ada",
    "RTX A4000": "RTXA4000",
    "RTX A4500": "RTXA4500",
    "RTX A5000": "RTXA5000",
    "RTX A6000": "RTXA6000",
    "RTX PRO 6000 Blackwell Server": "RTXPRO6000",
    "T4": "T4",
    "V100-SXM2-16GB": "V100",
    "V100-PCIe-16GB": "V100",
    "V100-SXM2-32GB": "V100-32GB",
}
"""Catalogue names of SkyPilot 0.14.1 by canonical accelerator."""

_OWN_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "lambda": {"RTX A6000": "A6000"},
    "runpod": {
        "A100-SXM4-80GB": "A100-80GB-SXM",
        "H100-NVL-94GB": "H100-NVL",
        "H100-SXM5-80GB": "H100-SXM",
        "H200-SXM5-141GB": "H200-SXM",
        "RTX PRO 6000 Blackwell Workstation": "RTXPRO6000-WK",
        "V100-SXM2-16GB": "V100-SXM2",
        "V100-SXM2-32GB": "V100-SXM2-32GB",
    },
}
"""Where a cloud's catalogue names one otherwise than the others do."""

_GATED: Final = "A model that its publisher gates takes your token: add --secret HF_TOKEN."

_DISK_GB: Final = 256
"""What SkyPilot takes unless told."""

_MEGA: Final = "a3-megagpu"
"""Google's machines whose H100 the catalogue calls H100-MEGA, for their network."""

_TPU_HOSTS: Final[Mapping[str, str]] = {
    **{f"ct5lp-hightpu-{chips}t": f"tpu-v5litepod-{chips}" for chips in (1, 4, 8)},
    **{f"ct6e-standard-{chips}t": f"tpu-v6e-{chips}" for chips in (1, 4, 8)},
    "ct5p-hightpu-4t": "tpu-v5p-8",
    "ct4p-hightpu-4t": "tpu-v4-8",
}
"""Slices of TPU pods that are one host, by Google's machine type; v4 and v5p are counted in cores, two of a chip."""

_OWN_INSTANCE_NAMES: Final = frozenset({"runpod"})
"""Clouds whose instance types SkyPilot names in its own way: there the accelerator alone says what is meant."""


def export(plan: LaunchPlan) -> Exported:
    """A service file for each group of replicas, and a task file for each training job.

    SkyServe runs one server on each machine, or on each set of machines.
    """
    files, warnings = {}, []
    for job in plan.jobs:
        started = stack.start(job)
        command = "sky jobs launch" if job.is_spot else "sky launch"
        head = [
            *provenance(plan, [job.purchase]),
            f"For SkyPilot {VERSION}: {command} skypilot-{job.name}.yaml --env TRAIN_SCRIPT=train.py",
            started.made_for,
            _GATED,
        ]
        files[f"skypilot-{job.name}.yaml"] = yaml_documents([task(job, started)], head)
        warnings += [*started.warnings, *_purchase_warnings(job.name, job.purchase)]
    for group in plan.groups:
        head = [
            *provenance(plan, group.purchases),
            f"For SkyPilot {VERSION} and vLLM {vllm.VERSION}: sky serve up skypilot-{group.name}.yaml",
            _GATED,
        ]
        files[f"skypilot-{group.name}.yaml"] = yaml_documents([service(group)], head)
        warnings += [*vllm.warnings(group), *vllm.placement_warnings(group), *_warnings(group)]
    return Exported(files=files, warnings=tuple(warnings))


def service(group: ReplicaGroup) -> dict[str, Any]:
    """The service as SkyPilot's YAML has it."""
    words = vllm.arguments(group)
    run = vllm.command(words) + "\n"
    document: dict[str, Any] = {"name": group.name}
    if group.instances_per_replica > 1:
        document["num_nodes"] = group.instances_per_replica
        run = (
            'MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n1)"\n'
            'ranks=(--nnodes "$SKYPILOT_NUM_NODES" --node-rank "$SKYPILOT_NODE_RANK" --master-addr "$MASTER_ADDR")\n'
            'if [ "$SKYPILOT_NODE_RANK" != 0 ]; then ranks+=(--headless); fi\n'
            f'{vllm.command(words)} \\\n  "${{ranks[@]}}"\n'
        )
    found = device(group.purchase)
    vendor = None if found is None else found.vendor
    servers = group.replicas if group.instances_per_replica > 1 else group.instances
    document["resources"] = resources(group.purchase) | _disk(group.model) | {"ports": vllm.PORT}
    document["service"] = {
        "readiness_probe": {"path": "/v1/models", "initial_delay_seconds": 3600},
        "replicas": servers,
    }
    if vendor == "AMD":
        # The wheels on PyPI are for NVIDIA.
        document["resources"]["image_id"] = f"docker:{vllm.IMAGES[vendor]}"
    else:
        document["setup"] = f"pip install {vllm.REQUIREMENTS.get(vendor or '', vllm.REQUIREMENTS['NVIDIA'])}\n"
    document["run"] = run
    return document


def task(job: TrainingJob, started: stack.Start) -> dict[str, Any]:
    """The training task; SkyPilot copies the folder that it is started in, where TRAIN_SCRIPT is."""
    document: dict[str, Any] = {"name": job.name, "workdir": "."}
    if job.nodes > 1:
        document["num_nodes"] = job.nodes
    document["resources"] = resources(job.purchase) | _disk(job.model)
    document["envs"] = {"TRAIN_SCRIPT": "train.py"}
    if started.setup:
        document["setup"] = "\n".join(started.setup) + "\n"
    else:
        document["resources"]["image_id"] = f"docker:{started.image}"
    first = ['MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n1)"'] if job.nodes > 1 else []
    document["run"] = "\n".join([*first, *started.lines]) + "\n"
    return document


def resources(purchase: Purchase) -> dict[str, Any]:
    """The machine as SkyPilot's `resources` names it."""
    place = purchase.provider + "".join(f"/{part}" for part in (purchase.region, purchase.zone_name) if part)
    found: dict[str, Any] = {"infra": place}
    tpu = _slice_name(purchase)
    if tpu is not None:
        found["accelerators"] = {tpu: 1}
    else:
        if purchase.provider not in _OWN_INSTANCE_NAMES:
            found["instance_type"] = purchase.machine_type
        found["accelerators"] = {accelerator_name(purchase): max(1, round(purchase.accelerators))}
    if purchase.purchase_option == "spot":
        found["use_spot"] = True
    return found


def _disk(model: str) -> dict[str, int]:
    """The disk where the checkpoint takes a larger one than SkyPilot's own."""
    needed = disk_gb(model, _DISK_GB)
    return {} if needed == _DISK_GB else {"disk_size": needed}


def _slice_name(purchase: Purchase) -> str | None:
    """The slice of a TPU pod as SkyPilot names it, also that of one host; None for another machine."""
    if purchase.provider == "gcp" and tpu_slices.chips(purchase.instance_type) is not None:
        return f"tpu-{purchase.instance_type}"
    return _TPU_HOSTS.get(purchase.machine_type)


def accelerator_name(purchase: Purchase) -> str:
    """SkyPilot's name; the canonical one where SkyPilot's is not known here."""
    if purchase.instance_type.startswith(_MEGA):
        return "H100-MEGA"
    own = _OWN_NAMES.get(purchase.provider, {}).get(purchase.accelerator)
    return own or NAMES.get(purchase.accelerator, purchase.accelerator.replace(" ", "-"))


def _warnings(group: ReplicaGroup) -> Iterator[str]:
    yield from _purchase_warnings(group.name, group.purchase)
    if len(group.purchases) > 1:
        zones = ", ".join(str(item.zone) for item in group.purchases)
        yield f"{group.name}: the plan buys in several zones ({zones}); the file names the first"


def _purchase_warnings(name: str, purchase: Purchase) -> Iterator[str]:
    """What SkyPilot's way of asking for machines cannot say."""
    if purchase.accelerator not in NAMES and _slice_name(purchase) is None:
        yield f"{name}: SkyPilot's name for {purchase.accelerator} is not known here: `sky gpus list` has it"
    if purchase.zone != purchase.zone_name:
        yield (
            f"{name}: zone {purchase.zone} has another name in each account: the file names the region; `aws ec2 "
            "describe-availability-zones` has yours"
        )
    if purchase.purchase_option not in ("on_demand", "spot"):
        yield f"{name}: SkyPilot does not buy {purchase.purchase_option}: reserve the instances first"
    if purchase.accelerators < 1:
        yield f"{name}: a part of an accelerator cannot be expressed: the file takes a whole one"
    if "PCIe" in purchase.accelerator and purchase.provider in _OWN_INSTANCE_NAMES:
        yield f"{name}: SkyPilot's names may not tell {purchase.accelerator} from other forms: check the offer"


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
    variables = _variables(content, wishes[0].count if wishes else None, nodes)
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
    started = {count: _server(content, lines, _variables(content, count, nodes)) for count in counts}
    degrees = {count: _degrees(one) for count, one in started.items() if one is not None}
    if len(set(degrees.values())) == 1:
        return wishes
    return tuple(replace(one, degrees=degrees.get(one.count)) for one in wishes)


def _degrees(server: Server) -> Degrees:
    fields = served(server)
    return Degrees(**{name: fields[name] for name in Degrees.__slots__})


def _variables(content: Mapping[str, Any], count: int | None, nodes: int) -> dict[str, str]:
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
