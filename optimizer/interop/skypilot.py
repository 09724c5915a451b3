"""Turns groups of replicas into SkyPilot service files, and SkyPilot files into what they ask for."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from optimizer.interop import vllm
from optimizer.interop.launch_plan import Exported, LaunchPlan, Purchase, ReplicaGroup, provenance
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
    """One service file for each group of replicas; SkyServe runs one server on each machine (or set of machines)."""
    files, warnings = {}, []
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
    servers = group.replicas if group.instances_per_replica > 1 else group.instances
    document["resources"] = resources(group.purchase) | {"ports": vllm.PORT}
    document["service"] = {
        "readiness_probe": {"path": "/v1/models", "initial_delay_seconds": 3600},
        "replicas": servers,
    }
    document["setup"] = f"pip install vllm=={vllm.VERSION}\n"
    document["run"] = run
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
    purchase = group.purchase
    if purchase.accelerator not in NAMES:
        yield f"{group.name}: SkyPilot's name for {purchase.accelerator} is not known here: `sky gpus list` has it"
    if purchase.purchase_option not in ("on_demand", "spot"):
        yield f"{group.name}: SkyPilot does not buy {purchase.purchase_option}: reserve the instances first"
    if len(group.purchases) > 1:
        zones = ", ".join(str(item.zone) for item in group.purchases)
        yield f"{group.name}: the plan buys in several zones ({zones}); the file names the first"
    if purchase.accelerators < 1:
        yield f"{group.name}: a part of an accelerator cannot be expressed: the file takes a whole one"
    if "PCIe" in purchase.accelerator and purchase.provider in _OWN_INSTANCE_NAMES:
        yield f"{group.name}: SkyPilot's names may not tell {purchase.accelerator} from other forms: check the offer"
