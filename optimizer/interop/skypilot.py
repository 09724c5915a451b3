"""Turns groups of replicas into SkyPilot service files, and SkyPilot files into what they ask for."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from optimizer.interop import training_stack, vllm
from optimizer.interop.asks import Ask, Fault, Wish, divided, line_of, texts, whole, wish
from optimizer.interop.command_lines import Server, served, servers
from optimizer.interop.launch_plan import (
    Exported,
    LaunchPlan,
    Purchase,
    ReplicaGroup,
    TrainingJob,
    device,
    provenance,
)
from optimizer.interop.yaml_text import yaml_documents
from optimizer.workload.workload_file import Lines

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
    "GH200": "GH200",
    "H100-SXM5-80GB": "H100",
    "H100-PCIe-80GB": "H100",
    "H100-NVL-94GB": "H100-NVL",
    "H200-SXM5-141GB": "H200",
    "L4": "L4",
    "L40": "L40",
    "L40S": "L40S",
    "MI300X": "MI300X",
    "RTX 4090": "RTX4090",
    "RTX 3090": "RTX3090",
    "RTX A4000": "RTXA4000",
    "RTX A5000": "RTXA5000",
    "RTX A6000": "RTXA6000",
    "RTX 6000 Ada": "RTX6000-Ada",
    "T4": "T4",
    "V100-SXM2-16GB": "V100",
    "V100-PCIe-16GB": "V100",
    "V100-SXM2-32GB": "V100-32GB",
}
"""Catalogue names of SkyPilot 0.14.1 by canonical accelerator."""

_RUNPOD_NAMES: Final[Mapping[str, str]] = {"H100-SXM5-80GB": "H100-SXM", "A100-SXM4-80GB": "A100-80GB-SXM"}
"""RunPod's catalogue tells forms apart that the others do not."""

_OWN_INSTANCE_NAMES: Final = frozenset({"runpod"})
"""Clouds whose instance types SkyPilot names in its own way: there the accelerator alone says what is meant."""


def export(plan: LaunchPlan) -> Exported:
    """A service file for each group of replicas, and a task file for each training job.

    SkyServe runs one server on each machine, or on each set of machines.
    """
    files, warnings = {}, []
    for job in plan.jobs:
        started = training_stack.start(job)
        command = "sky jobs launch" if job.is_spot else "sky launch"
        head = [
            *provenance(plan, [job.purchase]),
            f"For SkyPilot {VERSION}: {command} skypilot-{job.name}.yaml --env TRAIN_SCRIPT=train.py",
            started.made_for,
        ]
        files[f"skypilot-{job.name}.yaml"] = yaml_documents([task(job, started)], head)
        warnings += [*started.warnings, *_purchase_warnings(job.name, job.purchase)]
    for group in plan.groups:
        head = [
            *provenance(plan, group.purchases),
            f"For SkyPilot {VERSION} and vLLM {vllm.VERSION}: sky serve up skypilot-{group.name}.yaml",
        ]
        files[f"skypilot-{group.name}.yaml"] = yaml_documents([service(group)], head)
        warnings += [
            *vllm.checkpoint_warnings(group),
            *vllm.device_warnings(group),
            *vllm.placement_warnings(group),
            *_warnings(group),
        ]
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
    document["resources"] = resources(group.purchase) | {"ports": vllm.PORT}
    document["service"] = {
        "readiness_probe": {"path": "/v1/models", "initial_delay_seconds": 3600},
        "replicas": servers,
    }
    if vendor == "AMD":
        # The wheels on PyPI are for NVIDIA.
        document["resources"]["image_id"] = f"docker:{vllm.IMAGES[vendor]}"
    else:
        document["setup"] = f"pip install vllm=={vllm.VERSION}\n"
    document["run"] = run
    return document


def task(job: TrainingJob, started: training_stack.Start) -> dict[str, Any]:
    """The training task; SkyPilot asks for TRAIN_SCRIPT, and copies the folder that it is started in."""
    document: dict[str, Any] = {"name": job.name, "workdir": "."}
    if job.nodes > 1:
        document["num_nodes"] = job.nodes
    document["resources"] = resources(job.purchase)
    document["envs"] = {"TRAIN_SCRIPT": None}
    document["setup"] = started.setup
    first = ['MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n1)"'] if job.nodes > 1 else []
    document["run"] = "\n".join([*first, *started.lines]) + "\n"
    return document


def resources(purchase: Purchase) -> dict[str, Any]:
    """The machine as SkyPilot's `resources` names it."""
    place = purchase.provider + "".join(f"/{part}" for part in (purchase.region, purchase.zone) if part)
    found: dict[str, Any] = {"infra": place}
    if purchase.provider not in _OWN_INSTANCE_NAMES:
        found["instance_type"] = purchase.instance_type
    found["accelerators"] = {accelerator_name(purchase): max(1, round(purchase.accelerators))}
    if purchase.purchase_option == "spot":
        found["use_spot"] = True
    return found


def accelerator_name(purchase: Purchase) -> str:
    """SkyPilot's name; the canonical one where SkyPilot's is not known here."""
    own = _RUNPOD_NAMES.get(purchase.accelerator) if purchase.provider == "runpod" else None
    return own or NAMES.get(purchase.accelerator, purchase.accelerator.replace(" ", "-"))


def _warnings(group: ReplicaGroup) -> Iterator[str]:
    yield from _purchase_warnings(group.name, group.purchase)
    if len(group.purchases) > 1:
        zones = ", ".join(str(item.zone) for item in group.purchases)
        yield f"{group.name}: the plan buys in several zones ({zones}); the file names the first"


def _purchase_warnings(name: str, purchase: Purchase) -> Iterator[str]:
    """What SkyPilot's way of asking for machines cannot say."""
    if purchase.accelerator not in NAMES:
        yield f"{name}: SkyPilot's name for {purchase.accelerator} is not known here: `sky gpus list` has it"
    if purchase.purchase_option not in ("on_demand", "spot"):
        yield f"{name}: SkyPilot does not buy {purchase.purchase_option}: reserve the instances first"
    if purchase.accelerators < 1:
        yield f"{name}: a part of an accelerator cannot be expressed: the file takes a whole one"
    if "PCIe" in purchase.accelerator and purchase.provider in _OWN_INSTANCE_NAMES:
        yield f"{name}: SkyPilot's names may not tell {purchase.accelerator} from other forms: check the offer"


def read(content: Mapping[str, Any], lines: Lines) -> list[Ask]:
    """The one service or task of a SkyPilot file, with every accelerator that it would take as a wish."""
    found: list[Wish | Fault] = []
    base = content.get("resources")
    base = base if isinstance(base, Mapping) else {}
    alternatives: list[tuple[str | int, ...]] = [("resources",)]
    machines: list[Mapping[str, Any]] = [base]
    for key in ("any_of", "ordered"):
        if isinstance(base.get(key), list):
            alternatives = [("resources", key, index) for index in range(len(base[key]))]
            machines = [{**base, **one} if isinstance(one, Mapping) else base for one in base[key]]
    for path, machine in zip(alternatives, machines, strict=True):
        found += _wishes(machine, path, lines)
    wishes, faults = divided(list({(str(one)): one for one in found}.values()))
    server = _server(content, lines, wishes[0].count if wishes else None)
    place = _place(machines[0])
    envs = content.get("envs")
    model = server.values.get("model") if server else None
    if (not model or model.startswith("$")) and isinstance(envs, Mapping):
        model = next((str(envs[key]) for key in _MODEL_VARIABLES if envs.get(key)), None)
    return [
        Ask(
            source="SkyPilot",
            name=str(content.get("name") or "task"),
            model=model,
            wishes=wishes,
            nodes=whole(content.get("num_nodes")) or 1,
            replicas=_replicas(content.get("service")),
            spot=any(machine.get("use_spot") is True for machine in machines),
            lines={
                "model": line_of(lines, "envs") or line_of(lines, "run") or 1,
                **{name: line for name, path in _PATHS.items() if (line := line_of(lines, *path)) is not None},
                **(server.lines if server else {}),
            },
            faults=faults,
            provider=place["provider"],
            region=place["region"],
            instance_type=place["instance_type"],
            **served(server),
        )
    ]


_MODEL_VARIABLES: Final = ("MODEL_NAME", "MODEL_ID", "MODEL", "HF_MODEL", "HF_MODEL_ID")
"""Variables that files of SkyPilot's gallery keep the model in."""

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {
    "nodes": ("num_nodes",),
    "replicas": ("service",),
    "place": ("resources",),
}


def _wishes(machine: Mapping[str, Any], path: tuple[str | int, ...], lines: Lines) -> Iterator[Wish | Fault]:
    """`H100`, `H100:8`, {H100: 8, A100: 8}, or a list of those."""
    asked = machine.get("accelerators")
    line = line_of(lines, *path, "accelerators") or line_of(lines, "resources")
    if isinstance(asked, Mapping):
        for name, count in asked.items():
            yield _wish(str(name), 1 if count is None else count, line_of(lines, *path, "accelerators", str(name)))
        return
    for index, text in enumerate(texts(asked)):
        name, _, count = text.partition(":")
        where = line_of(lines, *path, "accelerators", index) if isinstance(asked, list) else line
        yield _wish(name.strip(), count.strip() or 1, where)


_MEANT: Final[Mapping[str, str]] = {"a100": "A100-40GB", "v100": "V100-16GB", "gh200": "GH200-96GB"}
"""What SkyPilot's catalogue means by names that stand for several sizes."""


def _wish(name: str, count: object, line: int | None) -> Wish | Fault:
    """The wish under the name that the file has."""
    found = wish(_MEANT.get(name.lower(), name), count, line)
    return replace(found, named=name) if isinstance(found, Wish) else found


def _server(content: Mapping[str, Any], lines: Lines, count: int | None) -> Server | None:
    """The first server that the run script starts."""
    run = content.get("run")
    if not isinstance(run, str):
        return None
    envs = content.get("envs")
    variables = {str(key): str(value) for key, value in envs.items()} if isinstance(envs, Mapping) else {}
    if count is not None:
        variables |= {"SKYPILOT_NUM_GPUS_PER_NODE": str(count)}
    # The text of a block begins on the line after its key.
    begin = (line_of(lines, "run") or 1) + (1 if "\n" in run else 0)
    return next(servers(run, begin, variables), None)


def _place(machine: Mapping[str, Any]) -> dict[str, str | None]:
    parts = str(machine.get("infra") or "").split("/")
    cloud = parts[0] or str(machine.get("cloud") or "")
    region = parts[1] if len(parts) > 1 else machine.get("region")
    return {
        "provider": cloud.lower() if cloud and cloud != "*" else None,
        "region": str(region) if region and region != "*" else None,
        "instance_type": str(machine["instance_type"]) if machine.get("instance_type") else None,
    }


def _replicas(service: Any) -> int:
    if not isinstance(service, Mapping):
        return 1
    policy = service.get("replica_policy")
    least = policy.get("min_replicas") if isinstance(policy, Mapping) else None
    return whole(service.get("replicas")) or whole(least) or 1
