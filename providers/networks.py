"""Turns a machine's name into the network between machines of its kind, where the seller documents one."""

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from providers.accelerators import Accelerator

_RACK_SCALE: Final = ("GB200", "GB300")
_RACK_DOMAIN: Final = 72
"""Accelerators that the NVLink of an NVL72 rack joins (NVIDIA GB200 NVL72 datasheet)."""

_POD_DOMAIN: Final = 256
"""Chips of the smallest full TPU pod (v5e): its links join all of them (Google Cloud TPU documentation)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What a machine can send to others of its kind at once, one direction, for accelerators: 10^9 bit/s."""

    gbit_per_s: float
    fabric: str
    source: str


@cache
def network_of(provider: str, instance_type: str) -> Network | None:
    """The network of that machine; None where none is documented: then no job should be spread over several."""
    for seller, pattern, network in _table():
        if seller == provider and pattern.fullmatch(instance_type):
            return network
    return None


def usual_network_gbit(accelerator: Accelerator) -> float:
    """What machines of 8 (4 in a rack-scale system) of that accelerator usually have between them.

    The vendors' reference machines: 400 Gbit/s a device from Hopper on, 200 of the A100; cards 100 a machine.
    """
    if accelerator.name in _RACK_SCALE:
        return 1600.0
    if accelerator.vendor == "Google":
        return 400.0
    if accelerator.form_factor not in ("SXM", "OAM"):
        return 100.0
    recent = accelerator.released >= "2022"
    return 3200.0 if recent and accelerator.name != "A800-SXM4-80GB" else 1600.0


def usual_domain(accelerator: Accelerator) -> int:
    """Accelerators that the fast link reaches: a machine's 8, an NVL72's 72, a TPU pod's chips."""
    if accelerator.name in _RACK_SCALE:
        return _RACK_DOMAIN
    return _POD_DOMAIN if accelerator.vendor == "Google" else 8


@cache
def _table() -> tuple[tuple[str, re.Pattern[str], Network], ...]:
    text = Path(__file__).with_name("data").joinpath("networks.csv").read_text(encoding="utf-8")
    return tuple(
        (
            row["provider"],
            re.compile(row["pattern"]),
            Network(gbit_per_s=float(row["gbit_per_s"]), fabric=row["fabric"], source=row["source"]),
        )
        for row in csv.DictReader(text.splitlines())
    )
