"""Turns groups of replicas into dstack service files, and dstack files into what they ask for."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from optimizer.interop import vllm
from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, device, provenance
from optimizer.interop.yaml_text import yaml_documents
from providers.accelerators import Accelerator

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


def export(plan: LaunchPlan) -> Exported:
    """One service for each group of replicas. dstack makes machines in fleets: one must be there for each."""
    files, warnings = {}, []
    for group in plan.groups:
        head = [
            *provenance(plan, group.purchases),
            f"For dstack {VERSION} and vLLM {vllm.VERSION}: dstack apply -f dstack-{group.name}.dstack.yml",
        ]
        warnings += [
            *vllm.checkpoint_warnings(group),
            *vllm.device_warnings(group),
            *vllm.placement_warnings(group),
            *_warnings(group),
        ]
        if group.instances_per_replica == 1:
            files[f"dstack-{group.name}.dstack.yml"] = yaml_documents([service(group)], head)
    return Exported(files=files, warnings=tuple(warnings))


def service(group: ReplicaGroup) -> dict[str, Any]:
    """The service as dstack's configuration has it."""
    purchase = group.purchase
    found = device(purchase)
    image = vllm.IMAGES.get(found.vendor if found else "NVIDIA", vllm.IMAGES["NVIDIA"])
    gpu: dict[str, Any] = {"name": accelerator_name(purchase.accelerator)}
    if found is not None:
        gpu["memory"] = f"{found.memory_gib:g}GB"
    gpu["count"] = max(1, round(purchase.accelerators))
    document: dict[str, Any] = {
        "type": "service",
        "name": group.name,
        "image": image,
        "env": ["HF_TOKEN"],
        "commands": [vllm.command(vllm.arguments(group))],
        "port": vllm.PORT,
        "model": group.model,
        "replicas": group.instances,
        "resources": {"gpu": gpu},
        "backends": [purchase.provider],
    }
    if purchase.region:
        document["regions"] = [purchase.region]
    if purchase.provider in ("aws", "gcp", "azure", "lambda"):
        document["instance_types"] = [purchase.instance_type]
    document["spot_policy"] = "spot" if group.is_spot else "on-demand"
    # A dearer machine than the plan's is refused, with room for a change of price.
    document["max_price"] = float(round(max(item.usd_per_hour for item in group.purchases) * 11 / 10, 4))
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
    purchase = group.purchase
    if group.instances_per_replica > 1:
        yield f"{group.name}: a dstack service runs on one machine; a replica that spans several has no file"
    if purchase.purchase_option not in ("on_demand", "spot"):
        yield f"{group.name}: dstack does not buy {purchase.purchase_option}: reserve first and name the reservation"
    if purchase.accelerators < 1:
        yield f"{group.name}: a part of an accelerator cannot be expressed: the file takes a whole one"
    yield f"{group.name}: dstack starts it in a fleet that you have made; max_price is the plan's and 10 %"
