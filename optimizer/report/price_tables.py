"""Published prices that are not offers of a cloud: tokens of hosted models, and hardware to buy, each with its date."""

import csv
import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Final

_SERVING_WORDS: Final = frozenset(
    ["instruct", "chat", "it", "hf", "turbo", "lite", "maas", "fast", "versatile", "instant", "latest", "tput"]
)
"""Parts of a served model's name that say how it is tuned or served, not which network it is."""
_PRECISIONS: Final = ("fp8", "bf16", "fp16", "fp4", "awq", "int4", "int8", "nvfp4", "mxfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPrice:
    """USD per million tokens that a host asks for a model. `precision` None = the name does not say."""

    provider: str
    model: str
    precision: str | None
    input_usd: Decimal
    output_usd: Decimal
    deprecated_on: date | None
    observed_on: date | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwarePrice:
    """What an accelerator, or a server of several, costs to buy; a range where no single price was published."""

    item: str
    kind: str
    accelerator: str
    accelerators: int
    usd_low: Decimal
    usd_high: Decimal
    price_kind: str
    power_w: float | None
    observed_on: date | None
    source: str


def hosted_prices(model: str) -> tuple[HostedPrice, ...]:
    """Prices of hosts that serve that very model, cheapest output first; empty for a model that nobody lists."""
    return _hosted().get(model_key(model), ())


@cache
def hardware_prices() -> tuple[HardwarePrice, ...]:
    """All hardware prices, newest first."""
    found = []
    for row in _rows("hardware_prices.csv"):
        ends = [Decimal(row[column]) for column in ("usd", "usd_low", "usd_high") if row[column]]
        found.append(
            HardwarePrice(
                item=row["item"],
                kind=row["kind"],
                accelerator=row["accelerator"],
                accelerators=int(row["accelerators"]),
                usd_low=min(ends),
                usd_high=max(ends),
                price_kind=row["price_kind"],
                power_w=float(row["power_w"]) if row["power_w"] else None,
                observed_on=_day(row["observed_on"]),
                source=row["source"],
            )
        )
    return tuple(sorted(found, key=lambda p: (p.observed_on or date.min, p.item, p.usd_high), reverse=True))


def model_key(name: str) -> str:
    """What is left of a model's name without its owner, tuning and serving: `llama-3.1-70b`.

    Versions, sizes and dates stay: a near model is another model.
    """
    text = name.lower().rpartition("/")[2].replace("_", "-").removeprefix("meta-").removeprefix("fw-")
    text = re.sub(r"v?(\d+)p(\d+)", r"\1.\2", text)
    text = re.sub(r"^(llama|qwen|gemma)-?v?(\d)", r"\1-\2", text)
    text = re.sub(r"^(llama|qwen|gemma)-(\d)-(\d)-(\d+b)", r"\1-\2.\3-\4", text)
    return "-".join(part for part in text.split("-") if part not in _SERVING_WORDS and part not in _PRECISIONS)


@cache
def _hosted() -> dict[str, tuple[HostedPrice, ...]]:
    found: dict[str, list[HostedPrice]] = {}
    for row in _rows("hosted_api_prices.csv"):
        words = re.split(r"[-/]", row["model"].lower())
        price = HostedPrice(
            provider=row["provider"],
            model=row["model"],
            precision=next((p for p in _PRECISIONS if p in words), None),
            input_usd=Decimal(row["input_usd"]),
            output_usd=Decimal(row["output_usd"]),
            deprecated_on=_day(row["deprecated_on"]),
            observed_on=_day(row["observed_on"]),
            source=row["source"],
        )
        found.setdefault(model_key(row["model"]), []).append(price)
    return {
        key: tuple(sorted(prices, key=lambda p: (p.output_usd, p.input_usd, p.provider, p.model)))
        for key, prices in found.items()
    }


def _rows(name: str) -> list[dict[str, str]]:
    text = files("optimizer.report").joinpath("data", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _day(text: str) -> date | None:
    return date.fromisoformat(text) if text else None
