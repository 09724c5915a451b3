"""Carries published tables of hosted-API and hardware prices over into the package, one compact row a price.

Run as `python optimizer/report/data/carry_over.py hosted_api_tokens.csv hardware_purchase.csv`.
"""

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
HOSTED = ("provider", "model", "input_usd", "output_usd", "cached_input_usd", "deprecated_on", "observed_on", "source")
HARDWARE = (
    "item",
    "kind",
    "accelerator",
    "accelerators",
    "usd",
    "usd_low",
    "usd_high",
    "price_kind",
    "power_w",
    "observed_on",
    "source",
)


def main(hosted: str, hardware: str) -> None:
    """Writes both tables beside this file, in the order of their keys."""
    _write("hosted_api_prices.csv", HOSTED, map(_hosted, _read(hosted)))
    _write("hardware_prices.csv", HARDWARE, map(_hardware, _read(hardware)))


def _read(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _hosted(row: Mapping[str, str]) -> tuple[str, ...]:
    return (
        row["provider"],
        row["model"],
        row["input_usd_per_mtok"],
        row["output_usd_per_mtok"],
        row["cached_input_usd_per_mtok"],
        row["deprecated_on"],
        row["observed_on"],
        row["source"].split(" model_prices")[0],
    )


def _hardware(row: Mapping[str, str]) -> tuple[str, ...]:
    return (
        row["item"],
        row["kind"],
        _named(row["accelerator"]),
        row["accelerator_count"],
        row["usd"],
        row["usd_low"],
        row["usd_high"],
        row["price_kind"],
        row["power_w"],
        row["observed_on"],
        row["source"].removeprefix("pages corpus: "),
    )


def _named(accelerator: str) -> str:
    """The canonical name, or the table's own for an accelerator that costopt does not know."""
    from providers.accelerators import is_known, resolve

    return resolve(accelerator).name if is_known(accelerator) else accelerator


def _write(name: str, columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
    with (HERE / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(sorted(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
