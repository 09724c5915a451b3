"""Turns a seller's machine name and its accelerator label into an InstanceType: variant, link and traits."""

import re
from dataclasses import dataclass
from typing import Final

from providers.accelerators import Accelerator, has_memory_label, matches
from providers.offers import InstanceType, Trait

_LINKED_FORMS: Final = frozenset({"SXM", "OAM", "TPU", "Trn", "Inf"})
"""Forms whose link joins all devices of a machine; cards come without NVLink bridges unless an offer says so."""

_PCIE_BY_MACHINE: Final = (
    ("azure", re.compile(r"Standard_NCC?\d"), frozenset({"a100", "v100"})),
    ("gcp", re.compile(r""), frozenset({"p100"})),
)
"""Sellers that write a bare family for a PCIe card: Azure's NC types are cards, its ND types are SXM."""

_RETIRED: Final = (
    ("aws", re.compile(r"(g2|g3|g3s|p2|p3)\.")),
    ("azure", re.compile(r"Standard_(NC\d+r?s?(_Promo|_v2|_v3)?|NV\d+(_Promo|s_v2)?|NC\d+r?_Promo)$")),
)
"""Previous generations that AWS and Azure retire or have announced to retire."""

_ARM64_ARCHITECTURES: Final = ("Hopper (Grace Hopper)", "Blackwell (Grace Blackwell)", "Blackwell Ultra (Grace)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotOnDemand:
    """Machines whose listed on-demand price cannot be bought: spot, flex start or reservation only."""

    provider: str
    pattern: re.Pattern[str]
    machines: str
    accelerators: frozenset[str]


NOT_SOLD_ON_DEMAND: Final = (
    NotOnDemand(
        provider="gcp",
        pattern=re.compile(r"a3-highgpu-[124]g$"),
        machines="a3-highgpu-1g, -2g and -4g",
        accelerators=frozenset({"H100-SXM5-80GB"}),
    ),
    NotOnDemand(
        provider="gcp",
        pattern=re.compile(r"a4x?-"),
        machines="a4 and a4x (B200, GB200)",
        accelerators=frozenset({"B200", "GB200"}),
    ),
)
"""Source: Google's table of consumption options by machine type (read 2025-09)."""


def describe(
    provider: str,
    name: str,
    accelerator_label: str,
    accelerator_count: float,
    *,
    accelerator_memory_gib: float | None = None,
    vcpus: float | None = None,
    memory_gib: float | None = None,
    network_gbit_per_s: float | None = None,
    bridged: bool = False,
    hosts: int = 1,
    traits: frozenset[Trait] = frozenset(),
) -> InstanceType:
    """The instance type that a seller means by `name` with `accelerator_count` devices labelled so.

    `accelerator_memory_gib`, where the seller states it, tells variants apart and must be that of the accelerator.
    `bridged` says that the offer states NVLink bridges between its cards.
    Raises UnknownName for an accelerator without facts and ValueError for an impossible count or memory.
    """
    accelerator = accelerator_of(provider, name, accelerator_label, accelerator_memory_gib)
    return InstanceType(
        provider=provider,
        name=name,
        accelerator=accelerator.name,
        accelerator_count=accelerator_count,
        link=usual_link(accelerator, accelerator_count, bridged=bridged),
        vcpus=vcpus,
        memory_gib=memory_gib,
        network_gbit_per_s=network_gbit_per_s,
        hosts=hosts,
        traits=traits | _traits(provider, name, accelerator),
    )


def accelerator_of(
    provider: str, instance_type: str, label: str, accelerator_memory_gib: float | None = None
) -> Accelerator:
    """The variant behind a seller's label on that machine: `A100-80GB` is a PCIe card on Azure's NC types.

    Raises UnknownName when no facts are known for the label, ValueError when the stated memory is not a variant's.
    """
    found = matches(label)
    for seller, pattern, families in _PCIE_BY_MACHINE:
        if seller == provider and pattern.match(instance_type) and families & set(found[0].families):
            found = tuple(a for a in found if a.form_factor == "PCIe")
    if accelerator_memory_gib is not None:
        found = tuple(a for a in found if has_memory_label(a, accelerator_memory_gib))
    if not found:
        raise ValueError(f"{instance_type}: no variant of {label} with {accelerator_memory_gib} GiB")
    return found[0]


def is_sold_on_demand(provider: str, instance_type: str) -> bool:
    """False for machines whose listed on-demand price cannot be bought."""
    return not any(rule.provider == provider and rule.pattern.match(instance_type) for rule in NOT_SOLD_ON_DEMAND)


def usual_link(accelerator: Accelerator, count: float, *, bridged: bool = False) -> str:
    """What joins `count` devices inside one machine, as sellers build them: cards without bridges unless `bridged`."""
    if count <= 1:
        return "none"
    if accelerator.form_factor in _LINKED_FORMS:
        return accelerator.link
    return "nvlink_bridge" if bridged and accelerator.link == "nvlink_bridge" else "pcie"


def _traits(provider: str, name: str, accelerator: Accelerator) -> frozenset[Trait]:
    traits: set[Trait] = set()
    if accelerator.architecture in _ARM64_ARCHITECTURES:
        traits.add(Trait.ARM64)
    if any(p == provider and pattern.match(name) for p, pattern in _RETIRED):
        traits.add(Trait.RETIRED)
    if provider == "azure" and name.startswith("Standard_NCC"):
        traits.add(Trait.CONFIDENTIAL)
    if provider == "runpod" and name.endswith("_COMMUNITY"):
        traits.add(Trait.COMMUNITY)
    return frozenset(traits)
