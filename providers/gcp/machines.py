"""Turns Google's machine and accelerator types, or the shipped table of them, into machines and where they are sold."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from providers.errors import InvalidAnswer
from providers.gcp.rates import Part
from providers.specifications import Specification, specifications
from providers.tally import Tally

_SSD_PARTITION_GIB: Final = 375
_MIB_PER_GIB: Final = 1024
_TPU_MACHINE: Final = re.compile(r"(?P<family>ct\w+?)-\w+-(?P<chips>\d+)t")
_TPU_SLICE: Final = re.compile(r"(?P<generation>v4|v5p|v5litepod|v6e)-\d+")
_ATTACHED: Final = re.compile(r"(?P<shape>n1-\w+-\d+)\+(?P<accelerator>[\w-]+)x(?P<count>\d+)")

_TPU_GENERATIONS: Final = MappingProxyType(
    {"ct4p": "v4", "ct5lp": "v5e", "ct5l": "v5e", "ct5p": "v5p", "ct6e": "v6e", "tpu7x": "v7", "v5litepod": "v5e"}
)
_SLICE_HOSTS: Final = MappingProxyType(
    {"v4": "ct4p-hightpu-4t", "v5e": "ct5lp-hightpu-4t", "v5p": "ct5p-hightpu-4t", "v6e": "ct6e-standard-4t"}
)
_CHIPS_PER_HOST: Final = 4
"""A TPU slice of several hosts has four chips a host (Cloud TPU system architecture)."""

_FAMILIES: Final = MappingProxyType({"a3-megagpu": "a3plus", "a3-ultragpu": "a3ultra"})
"""Machine series whose host is billed under another family name than the machine type's first word."""

_ACCELERATOR_LABELS: Final = MappingProxyType(
    {
        "nvidia-tesla-a100": "A100-40GB",
        "nvidia-tesla-v100": "V100-16GB",
        "nvidia-h100-mega-80gb": "H100-80GB",
    }
)
"""Accelerator types whose name leaves the memory open, or holds a word that is no part of the device's name."""


_BUNDLED: Final = MappingProxyType(
    {
        "a2-highgpu": "nvidia-tesla-a100",
        "a2-megagpu": "nvidia-tesla-a100",
        "a2-ultragpu": "nvidia-a100-80gb",
        "a3-highgpu": "nvidia-h100-80gb",
        "a3-megagpu": "nvidia-h100-mega-80gb",
        "a3-ultragpu": "nvidia-h200-141gb",
        "g2": "nvidia-l4",
        "g4": "nvidia-rtx-pro-6000",
    }
)
"""Source: Google, accelerator-optimized machine family (read 2026-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A shape that is sold, with the parts that make its price and the zones of each region that sells it (empty =
    not known). `accelerator` is the catalogue's accelerator type, `label` what it is called among accelerators."""

    name: str
    accelerator: str
    label: str
    accelerator_count: float
    accelerator_memory_gib: float | None
    vcpus: float | None
    memory_gib: float | None
    local_ssd_gib: float
    hosts: int
    regions: Mapping[str, tuple[str, ...]]

    @property
    def tpu_generation(self) -> str | None:
        match = _TPU_MACHINE.fullmatch(self.name) or _TPU_SLICE.fullmatch(self.name)
        if not match:
            return None
        family = match.group(1)
        return _TPU_GENERATIONS.get(family, family)

    @property
    def family(self) -> str:
        """The family under which the host's cores and memory are billed."""
        series = "-".join(self.name.split("-")[:2])
        return _FAMILIES.get(series, self.name.split("-")[0])

    def parts(self, *, sliced: bool) -> list[tuple[Part, float]]:
        """What one hour of the machine consists of, with amounts. A slice holds its share of the host."""
        if self.tpu_generation:
            return [(Part("tpu", self.tpu_generation), self.accelerator_count)]
        if sliced:
            return [(Part("slice", self.accelerator), self.accelerator_count)]
        parts = [
            (Part("core", self.family), self.vcpus or 0.0),
            (Part("ram", self.family), self.memory_gib or 0.0),
            (Part("gpu", self.accelerator), self.accelerator_count),
        ]
        return [*parts, (Part("ssd"), self.local_ssd_gib)] if self.local_ssd_gib else parts


def shipped_machines() -> list[Machine]:
    """The machines of the shipped table, with the regions that sold them when it was gathered."""
    return [
        _from_table(row, dict.fromkeys(row.regions, ()))
        for row in specifications("gcp").values()
        if row.accelerator_count is not None
    ]


def parse_machines(machine_pages: Iterable[Any], accelerator_pages: Iterable[Any], tally: Tally) -> list[Machine]:
    """The machines of `machineTypes.aggregatedList` that have accelerators, N1 shapes with those that can be attached
    by `acceleratorTypes.aggregatedList`, and TPU slices where their hosts are sold. A row of another shape is counted
    in the tally. Raises InvalidAnswer for a page of another shape."""
    types: dict[str, Machine] = {}
    zones: dict[str, set[str]] = {}
    for zone, row in _rows(machine_pages, "machineTypes"):
        try:
            if (row.get("deprecated") or {}).get("state") in ("DEPRECATED", "OBSOLETE", "DELETED"):
                continue
            machine = _from_api(row)
        except (KeyError, TypeError, AttributeError, ValueError):
            tally.reject("row of another shape")
            continue
        types.setdefault(machine.name, machine)
        zones.setdefault(machine.name, set()).add(zone)
    cards: dict[str, dict[str, int]] = {}
    for zone, row in _rows(accelerator_pages, "acceleratorTypes"):
        try:
            cards.setdefault(row["name"], {})[zone] = int(row["maximumCardsPerInstance"])
        except (KeyError, TypeError, ValueError):
            tally.reject("row of another shape")
    machines = [replace(machine, regions=_by_region(zones[name])) for name, machine in types.items() if machine.label]
    return machines + _attached(zones, cards) + _slices(zones)


def _rows(pages: Iterable[Any], key: str) -> Iterable[tuple[str, Any]]:
    """Zone and row of every entry; a zone with nothing carries a warning instead of a list."""
    for page in pages:
        items = page.get("items") if isinstance(page, Mapping) else None
        if not isinstance(items, Mapping):
            raise InvalidAnswer("gcp", f"the reply has no map `items` of {key}")
        for scope, entry in items.items():
            rows = entry.get(key) or () if isinstance(entry, Mapping) else [entry]
            for row in rows if isinstance(rows, list | tuple) else [rows]:
                yield scope.removeprefix("zones/"), row


def _from_api(row: Mapping[str, Any]) -> Machine:
    """The machine of one row, its zones left out; `label` is empty for one without accelerators."""
    name = row["name"]
    known = specifications("gcp").get(name)
    accelerators = row.get("accelerators") or [{}]
    kind = accelerators[0].get("guestAcceleratorType", "")
    count = float(accelerators[0].get("guestAcceleratorCount") or 0)
    tpu = _TPU_MACHINE.fullmatch(name)
    if tpu:
        count = float(tpu["chips"])
    elif known and known.accelerator_count and known.accelerator_count < 1:
        count = known.accelerator_count
    return Machine(
        name=name,
        accelerator=kind,
        label=_label(kind, known, tpu["family"] if tpu else None),
        accelerator_count=count,
        accelerator_memory_gib=None,
        vcpus=float(row["guestCpus"]),
        memory_gib=float(row["memoryMb"]) / _MIB_PER_GIB,
        local_ssd_gib=float((row.get("bundledLocalSsds") or {}).get("partitionCount") or 0) * _SSD_PARTITION_GIB,
        hosts=1,
        regions={},
    )


def _label(kind: str, known: Specification | None, tpu_family: str | None) -> str:
    if tpu_family:
        return f"TPU {_TPU_GENERATIONS.get(tpu_family, tpu_family)}"
    if known:
        return known.accelerator
    return _ACCELERATOR_LABELS.get(kind, kind)


def _from_table(row: Specification, regions: Mapping[str, tuple[str, ...]]) -> Machine:
    attached = _ATTACHED.fullmatch(row.instance_type)
    count = row.accelerator_count or 0.0
    return Machine(
        name=row.instance_type,
        accelerator=attached["accelerator"] if attached else _accelerator_type(row),
        label=row.accelerator,
        accelerator_count=count,
        accelerator_memory_gib=row.accelerator_memory_gib,
        vcpus=row.vcpus,
        memory_gib=row.memory_gib,
        local_ssd_gib=row.local_ssd_gib or 0.0,
        hosts=max(1, int(count) // _CHIPS_PER_HOST) if _TPU_SLICE.fullmatch(row.instance_type) else 1,
        regions=regions,
    )


def _accelerator_type(row: Specification) -> str:
    """The catalogue's accelerator type of a shipped machine with bundled accelerators."""
    series = "-".join(row.instance_type.split("-")[:2])
    return _BUNDLED.get(series) or _BUNDLED.get(row.instance_type.split("-")[0], "")


def _attached(zones: Mapping[str, set[str]], cards: Mapping[str, Mapping[str, int]]) -> list[Machine]:
    """N1 shapes with attached accelerators, in the zones that have both."""
    machines = []
    for row in specifications("gcp").values():
        match = _ATTACHED.fullmatch(row.instance_type)
        if not match:
            continue
        able = {zone for zone, most in cards.get(match["accelerator"], {}).items() if most >= int(match["count"])}
        both = able & zones.get(match["shape"], set())
        if both:
            machines.append(_from_table(row, _by_region(both)))
    return machines


def _slices(zones: Mapping[str, set[str]]) -> list[Machine]:
    machines = []
    for row in specifications("gcp").values():
        match = _TPU_SLICE.fullmatch(row.instance_type)
        if not match:
            continue
        generation = _TPU_GENERATIONS.get(match["generation"], match["generation"])
        sold = zones.get(_SLICE_HOSTS[generation], set())
        if sold:
            machines.append(_from_table(row, _by_region(sold)))
    return machines


def _by_region(zones: Iterable[str]) -> dict[str, tuple[str, ...]]:
    regions: dict[str, list[str]] = {}
    for zone in sorted(zones):
        regions.setdefault(zone.rpartition("-")[0], []).append(zone)
    return {region: tuple(found) for region, found in regions.items()}
