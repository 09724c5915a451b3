"""Turns the names that sellers, tables and people write for an accelerator into one variant with its facts."""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from providers.errors import UnknownName, nearest

_VENDOR_WORDS: Final = frozenset(
    {
        *("nvidia", "amd", "intel", "aws", "google", "cloud", "habana", "instinct", "tesla", "geforce", "gpu"),
        *("generation", "nvl36", "nvl72"),
    }
)
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)(?:gib|gb|g)")
_MEMORY_TYPES: Final = frozenset(["hbm2", "hbm2e", "hbm3", "hbm3e", "hbm", "gddr6", "gddr6x", "gddr7"])
_FORM_FACTORS: Final = MappingProxyType(
    {"sxm": "SXM", "sxm2": "SXM", "sxm3": "SXM", "sxm4": "SXM", "sxm5": "SXM", "sxm6": "SXM", "nvlink": "SXM"}
    | {"hgx": "SXM", "dgx": "SXM"}
    | {"pcie": "PCIe", "pci": "PCIe", "nvl": "NVL", "oam": "OAM"}
)
_LABEL_TOLERANCE_GIB: Final = 0.75
"""Labels are rounded: 22.5 and 22.35 GiB are both an A10G."""

_PREFERENCE: Final = ("SXM", "OAM", "PCIe", "NVL")
"""Which form a bare family name means: sellers write `H100` and `H200` for SXM5, and name the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator variant, as its vendor specifies it (per device, dense rates).

    `memory_gib` is the label that names match on; `usable_memory_gib` is what an allocator sees, in GiB.
    `dense_tflops` has the dtypes that the hardware computes (`bf16`, `fp16`, `fp8`, `int8`, `fp4`), in 10^12/s;
    a dtype that is absent is not computed. `link_gb_per_s` sums both directions, per device, in 10^9 byte/s.
    """

    name: str
    vendor: str
    architecture: str
    form_factor: str
    families: tuple[str, ...]
    memory_gib: float
    memory_labels: tuple[float, ...]
    usable_memory_gib: float
    memory_type: str
    memory_bandwidth_gb_per_s: float
    dense_tflops: Mapping[str, float]
    link: str
    link_name: str
    link_gb_per_s: float
    pcie_gen: int | None
    tdp_w: float | None
    compute_capability: str | None
    released: str
    source: str
    notes: str

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class _Parsed:
    family: str
    form_factor: str | None
    memory: float | None


@cache
def catalogue() -> Mapping[str, Accelerator]:
    """Every known variant by canonical name, in the order of the facts table."""
    text = Path(__file__).with_name("data").joinpath("accelerators.csv").read_text(encoding="utf-8")
    return MappingProxyType({row["name"]: _accelerator(row) for row in csv.DictReader(text.splitlines())})


def resolve(name: str) -> Accelerator:
    """The variant that `name` means; a bare family name (`H100`) means its usual form (SXM before PCIe before NVL).

    Raises UnknownName, with suggestions, for a name or a memory size that no variant has.
    """
    return matches(name)[0]


@cache
def matches(name: str) -> tuple[Accelerator, ...]:
    """All variants that `name` can mean, the usual one first: `A100-80GB` is SXM4 and PCIe, `H100-NVL` is one.

    Raises UnknownName when there is none.
    """
    parsed = _parse(name)
    exact = _by_canonical_key().get(_canonical_key(name))
    if exact is not None:
        return (exact,)
    family = _by_family().get(parsed.family, ())
    found = [a for a in family if _agrees(a, parsed)]
    if not found:
        hint = ""
        if family:
            hint = f"known variants of that family: {', '.join(a.name for a in family)}"
        raise UnknownName("accelerator", name, _suggestions(name), hint or "`costopt offers` lists the names")
    return tuple(sorted(found, key=_preference))


def has_memory_label(accelerator: Accelerator, memory_gib: float) -> bool:
    """Whether sellers write `memory_gib` for that variant: its label, or what its driver reports."""
    return any(abs(memory_gib - label) < _LABEL_TOLERANCE_GIB for label in accelerator.memory_labels)


def is_known(name: str) -> bool:
    """Whether `name` resolves."""
    try:
        matches(name)
    except UnknownName:
        return False
    return True


def _accelerator(row: Mapping[str, str]) -> Accelerator:
    rates = {
        dtype: float(row[column])
        for dtype, column in (
            ("bf16", "bf16_tflops"),
            ("fp16", "fp16_tflops"),
            ("fp8", "fp8_tflops"),
            ("int8", "int8_tops"),
            ("fp4", "fp4_tflops"),
        )
        if row[column]
    }
    return Accelerator(
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        form_factor=row["form_factor"],
        families=tuple(row["families"].split("|")),
        memory_gib=float(row["memory_gib"]),
        memory_labels=tuple(float(label) for label in row["memory_labels"].split("|")),
        usable_memory_gib=float(row["usable_memory_gib"]),
        memory_type=row["memory_type"],
        memory_bandwidth_gb_per_s=float(row["memory_bandwidth_gb_per_s"]),
        dense_tflops=MappingProxyType(rates),
        link=row["link"],
        link_name=row["link_name"],
        link_gb_per_s=float(row["link_gb_per_s"]),
        pcie_gen=int(row["pcie_gen"]) if row["pcie_gen"] else None,
        tdp_w=float(row["tdp_w"]) if row["tdp_w"] else None,
        compute_capability=row["compute_capability"] or None,
        released=row["released"],
        source=row["source"],
        notes=row["notes"],
    )


def _parse(name: str) -> _Parsed:
    """Splits a name in family, form factor and memory label, whatever their order and separators."""
    form_factor: str | None = None
    memory: float | None = None
    family: list[str] = []
    for word in _words(name):
        size = _MEMORY.fullmatch(word)
        if size:
            memory = float(size[1])
        elif word in _FORM_FACTORS:
            form_factor = _FORM_FACTORS[word]
        elif word not in _VENDOR_WORDS and word not in _MEMORY_TYPES:
            family.append(word)
    return _Parsed("".join(family), form_factor, memory)


def _words(name: str) -> Iterable[str]:
    """Lower-case words; a form factor glued to a family (`H100SXM`) is cut off."""
    for raw in re.split(r"[^a-z0-9.]+", name.lower()):
        word = raw.strip(".")
        glued = re.fullmatch(r"([a-z]*\d+[a-z]?)(sxm\d?|pcie|nvl|oam)", word)
        if glued:
            yield from glued.groups()
        elif word:
            yield word


def _canonical_key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def _by_canonical_key() -> Mapping[str, Accelerator]:
    return {_canonical_key(name): accelerator for name, accelerator in catalogue().items()}


@cache
def _by_family() -> Mapping[str, tuple[Accelerator, ...]]:
    table: dict[str, tuple[Accelerator, ...]] = {}
    for accelerator in catalogue().values():
        for family in accelerator.families:
            table[family] = (*table.get(family, ()), accelerator)
    return table


def _agrees(accelerator: Accelerator, parsed: _Parsed) -> bool:
    if parsed.form_factor is not None and parsed.form_factor != accelerator.form_factor:
        return False
    return parsed.memory is None or has_memory_label(accelerator, parsed.memory)


def _preference(accelerator: Accelerator) -> tuple[int, float]:
    form = accelerator.form_factor
    rank = _PREFERENCE.index(form) if form in _PREFERENCE else len(_PREFERENCE)
    return rank, -accelerator.memory_gib


def _suggestions(name: str) -> tuple[str, ...]:
    """Near canonical names, found through families too: `h10` suggests the H100s, and `h1000` those before B100."""
    asked = _parse(name).family
    near_families = nearest(asked, _by_family())
    begun = sorted((family for family in _by_family() if asked.startswith(family)), key=len, reverse=True)
    first, others = (
        [a.name for family in found for a in sorted(_by_family()[family], key=_preference)]
        for found in (begun, near_families)
    )
    return tuple(dict.fromkeys([*first, *nearest(name, catalogue()), *others]))[:4]
