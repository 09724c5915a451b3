"""Turns the shipped table of machine shapes into specifications, for sellers whose price lists do not state them."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """What is in a machine; None = not known here. `regions` says where it was sold when the table was gathered,
    for sellers (GCP) that price machines also where they are not; `local_ssd_gib` is billed with the machine there."""

    instance_type: str
    accelerator: str
    accelerator_count: float | None
    accelerator_memory_gib: float | None
    vcpus: float | None
    memory_gib: float | None
    local_ssd_gib: float | None
    regions: frozenset[str]
    source: str


@cache
def specifications(provider: str) -> Mapping[str, Specification]:
    """The shipped specifications of one provider by instance type; empty for one whose API states them."""
    text = Path(__file__).with_name("data").joinpath("instance_types.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return MappingProxyType({row["instance_type"]: _parse(row) for row in rows if row["provider"] == provider})


def _parse(row: Mapping[str, str]) -> Specification:
    return Specification(
        instance_type=row["instance_type"],
        accelerator=row["accelerator"],
        accelerator_count=_number(row["accelerator_count"]),
        accelerator_memory_gib=_number(row["accelerator_memory_gib"]),
        vcpus=_number(row["vcpus"]),
        memory_gib=_number(row["memory_gib"]),
        local_ssd_gib=_number(row["local_ssd_gib"]),
        regions=frozenset(filter(None, row["regions"].split("|"))),
        source=row["source"],
    )


def _number(text: str) -> float | None:
    return float(text) if text else None
