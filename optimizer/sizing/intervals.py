"""Turns a predicted value into its 80 % interval, from errors on sources that a calibration had not seen."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

LEVEL: Final = 0.8
"""Share of true values that an interval is meant to hold."""

_Z_AT_LEVEL: Final = 1.2816
"""Standard normal quantile of (1 + LEVEL) / 2: the factors are stretched by z / this for another confidence."""

_LOADS: Final = MappingProxyType(
    {"prompt": "alone", "decode": "alone", "single": "alone", "static": "static"}
    | {"closed": "loaded", "open": "loaded", "rate": "loaded", "offline": "loaded"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted value and the 80 % interval that published measurements give it."""

    value: float
    low: float
    high: float

    def at_confidence(self, confidence: float, *, worse_is_higher: bool = False) -> float:
        """The end of the interval of that confidence on the careful side: low for a rate, high for a latency.

        The ends at 80 % are stretched in logarithms by the ratio of the normal quantiles.
        """
        stretch = normal_quantile((1 + confidence) / 2) / _Z_AT_LEVEL
        end = self.high if worse_is_higher else self.low
        return float(self.value * (end / self.value) ** stretch)


def interval(value: float, metric: str, device_class: str, load: str) -> Estimate:
    """The interval of `metric` (throughput, tpot or ttft) on a device class under a kind of load.

    A class with few measurements of that kind takes the factors of all classes together.
    """
    low, high = factors(metric, device_class, load)
    return Estimate(value=value, low=value * low, high=value * high)


def factors(metric: str, device_class: str, load: str) -> tuple[float, float]:
    """Lower and upper factor on a prediction."""
    table = _table()
    group = _LOADS.get(load, load)
    for key in ((metric, device_class, group), (metric, "all", group), (metric, "all", "all")):
        if key in table:
            return table[key]
    raise KeyError(f"no interval for {metric}")


def load_group(kind: str) -> str:
    """The group of loads that share intervals: alone, static or loaded."""
    return _LOADS[kind]


@cache
def _table() -> Mapping[tuple[str, str, str], tuple[float, float]]:
    text = Path(__file__).with_name("data").joinpath("intervals.csv").read_text(encoding="utf-8")
    return MappingProxyType(
        {
            (row["metric"], row["device_class"], row["load"]): (float(row["low"]), float(row["high"]))
            for row in csv.DictReader(text.splitlines())
        }
    )


def normal_quantile(p: float) -> float:
    """Quantile of the standard normal distribution, by bisection of its error-function form."""
    low, high = -8.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if 0.5 * (1 + math.erf(middle / math.sqrt(2))) < p else (low, middle)
    return (low + high) / 2
