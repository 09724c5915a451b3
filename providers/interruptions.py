"""Turns a spot machine's name and region into how often it is taken back, where that is published."""

import csv
import math
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from providers.units import HOURS_PER_MONTH

_BANDS: Final = MappingProxyType({"<5%": 0.05, "5-10%": 0.10, "10-15%": 0.15, "15-20%": 0.20, ">20%": 0.30})
"""The upper end of each published band; the open one is taken as 30 %."""

ASSUMED_MONTHLY_RATE: Final = 0.20
"""Where nothing is published: the upper end of the last closed band, so that a plan errs on the safe side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionRate:
    """Part of the spot instances that were taken back within a month; `source` None = assumed, not published."""

    monthly_share: float
    observed_on: date | None
    source: str | None

    @property
    def per_hour(self) -> float:
        """Hazard of one instance: -ln(1 - share) / 730."""
        return -math.log(1 - self.monthly_share) / HOURS_PER_MONTH


@cache
def interruption_rate(provider: str, instance_type: str, region: str | None) -> InterruptionRate:
    """The published rate of that machine in that region, else of its worst region, else the assumed one."""
    published = _published()
    regional = published.get((provider, instance_type, region or ""))
    if regional is not None:
        return regional
    others = [rate for (seller, name, _), rate in published.items() if (seller, name) == (provider, instance_type)]
    if others:
        return max(others, key=lambda rate: rate.monthly_share)
    return InterruptionRate(monthly_share=ASSUMED_MONTHLY_RATE, observed_on=None, source=None)


@cache
def _published() -> MappingProxyType[tuple[str, str, str], InterruptionRate]:
    text = Path(__file__).with_name("data").joinpath("spot_interruptions.csv").read_text(encoding="utf-8")
    return MappingProxyType(
        {
            (row["provider"], row["instance_type"], row["region"]): InterruptionRate(
                monthly_share=_BANDS[row["monthly_rate"]],
                observed_on=date.fromisoformat(row["observed_on"]),
                source=row["source"],
            )
            for row in csv.DictReader(text.splitlines())
        }
    )
