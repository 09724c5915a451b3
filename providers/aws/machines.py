"""Turns EC2's descriptions of instance types, or the shipped table of them, into the hardware behind a name."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from providers.accelerators import is_known
from providers.offers import InstanceType
from providers.specifications import Specification, specifications
from providers.tally import Tally

_MIB_PER_GIB: Final = 1024
_NETWORK: Final = re.compile(r"(\d+(?:\.\d+)?) Gigabit")
_WRONG_MEMORY: Final = frozenset({"Trainium2"})
"""Devices whose memory EC2 reports wrongly: 512 GiB for Trainium2, which has 96 (AWS, Trn2 product page)."""

_AMAZON_NAMES: Final = MappingProxyType({"RTX PRO Server 6000": "RTX PRO 6000"})
"""EC2's word order for the server edition of the RTX PRO 6000 (G7e product page)."""


class Machines:
    """The instance types of one fetch: each name is described once, so that all its offers agree.

    `specifications` come from EC2 where it may be asked, else from the shipped table; `zones` says where EC2 offers
    a type in the region (None = not asked).
    """

    def __init__(
        self,
        specifications: Mapping[str, Specification],
        tally: Tally,
        zones: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._specifications = specifications
        self._tally = tally
        self._zones = zones
        self._kinds: dict[str, InstanceType | None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._specifications

    def zones(self, name: str) -> tuple[str, ...] | None:
        """The zones of the region that offer the type; empty = none does, None = not known."""
        return None if self._zones is None else self._zones.get(name, ())

    def kind(self, name: str, network_performance: str = "") -> InstanceType | None:
        """The machine of that name; None, and a rejection, when its hardware is not known."""
        if name not in self._kinds:
            self._kinds[name] = self._describe(name, network_performance)
        elif self._kinds[name] is None:
            self._tally.reject("price of an instance type whose hardware is not known")
        return self._kinds[name]

    def _describe(self, name: str, network_performance: str) -> InstanceType | None:
        known = self._specifications.get(name)
        self._tally.see(name)
        if known is None:
            self._tally.reject(f"instance type without a specification: {name}")
            return None
        if known.accelerator_count is None:
            self._tally.reject(f"instance type with an unknown number of accelerators: {name}")
            return None
        speed = _NETWORK.fullmatch(network_performance.strip())
        return self._tally.instance_type(
            name,
            known.accelerator,
            known.accelerator_count,
            accelerator_memory_gib=known.accelerator_memory_gib,
            vcpus=known.vcpus,
            memory_gib=known.memory_gib,
            network_gbit_per_s=float(speed[1]) if speed else None,
        )


def parse_instance_types(rows: Iterable[Mapping[str, Any]], tally: Tally) -> dict[str, Specification]:
    """The types with accelerators among the rows of `describe_instance_types`; a row of another shape is counted.

    Where EC2's fields are empty or known to be wrong the shipped table fills in, and nothing else does.
    """
    found: dict[str, Specification] = {}
    for row in rows:
        try:
            specification = _specification(row)
        except (KeyError, TypeError, AttributeError, ValueError):
            tally.reject("row of another shape")
            continue
        if specification is not None:
            found[specification.instance_type] = specification
    return found


def _specification(row: Mapping[str, Any]) -> Specification | None:
    name = row["InstanceType"]
    table = specifications("aws").get(name)
    device = _device(row)
    if device is None:
        return None
    label = str(device.get("Name") or "")
    label = _AMAZON_NAMES.get(label, label)
    if not is_known(label) and table is not None:
        label = table.accelerator
    count = _count(device, table)
    mib = float((device.get("MemoryInfo") or {}).get("SizeInMiB") or 0)
    is_slice = count is not None and count < 1
    memory_gib = None if is_slice or not mib or label in _WRONG_MEMORY else mib / _MIB_PER_GIB
    return Specification(
        instance_type=name,
        accelerator=label,
        accelerator_count=count,
        accelerator_memory_gib=memory_gib if memory_gib or table is None else table.accelerator_memory_gib,
        vcpus=float(row["VCpuInfo"]["DefaultVCpus"]),
        memory_gib=float(row["MemoryInfo"]["SizeInMiB"]) / _MIB_PER_GIB,
        local_ssd_gib=None,
        regions=frozenset(),
        source="ec2 describe_instance_types",
    )


def _device(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The accelerator entry: GPUs, Neuron devices (which have no GPU fields), or the older inference accelerators."""
    for group, entries in (
        ("GpuInfo", "Gpus"),
        ("NeuronInfo", "NeuronDevices"),
        ("InferenceAcceleratorInfo", "Accelerators"),
    ):
        devices = (row.get(group) or {}).get(entries)
        if devices:
            first: Mapping[str, Any] = devices[0]
            return first
    return None


def _count(device: Mapping[str, Any], table: Specification | None) -> float | None:
    """Devices of the machine. EC2 counts 0 for a fraction, whose size is `GpuPartitionSize`, and 0 by mistake too."""
    count = float(device.get("Count") or 0)
    if count > 0:
        return count
    partition = float(device.get("GpuPartitionSize") or 0)
    if 0 < partition < 1:
        return partition * float(device.get("LogicalGpuCount") or 1)
    return table.accelerator_count if table is not None else None
