"""Turns groups of replicas and training jobs into SkyPilot files of services and tasks."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from optimizer.interop.checkpoints import disk_gb
from optimizer.interop.launch_plan import Exported, LaunchPlan, Purchase, ReplicaGroup, TrainingJob, device, provenance
from optimizer.interop.orchestrators import tpu_slices
from optimizer.interop.serving import vllm
from optimizer.interop.training import stack
from optimizer.interop.yaml_text import yaml_documents

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
