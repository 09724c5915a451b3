"""Turns offers into one compact JSON file and back: the only thing that the planner reads.

The file holds the tables of what repeats (instance types, places, sources, commitments, notes) and one short row an
offer, sorted by offer key, so that equal offers give equal bytes. It has no row ids: those stay in the cache.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from providers.errors import CacheError
from providers.offers import Commitment, CommitmentKind, InstanceType, Offer, PurchaseOption, Trait

SCHEMA: Final = "costopt.offers"
SCHEMA_VERSION: Final = "1"
_READABLE_BY_ALL: Final = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferBook:
    """Offers as they stood, with where they came from.

    `origin` names the file for messages ("shipped snapshot", "cache"); `header` is what its writer noted (dates,
    rejections by provider and reason, the generation of the database).
    """

    origin: str
    offers: tuple[Offer, ...]
    header: Mapping[str, Any] = field(default_factory=dict)


def encode(offers: Iterable[Offer], header: Mapping[str, Any]) -> str:
    """The text of a compiled file; offers are sorted by key, tables in order of first use."""
    types, places, sources, commitments, notes = _Table(), _Table(), _Table(), _Table(), _Table()
    rows = [
        [
            types.index(_type_row(offer.instance_type)),
            places.index((offer.region, offer.zone)),
            offer.purchase_option.value,
            str(offer.usd_per_hour),
            offer.observed_on.isoformat() if offer.observed_on else None,
            sources.index(offer.source),
            commitments.index(_commitment_row(offer.commitment)),
            offer.in_stock,
            notes.index(offer.notes),
        ]
        for offer in sorted(offers, key=lambda offer: offer.key)
    ]
    head = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "header": header}
    tables = {
        "instance_types": types.values,
        "places": places.values,
        "sources": sources.values,
        "commitments": commitments.values,
        "notes": notes.values,
        "offers": rows,
    }
    parts = [f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in head.items()]
    for key, values in tables.items():
        lines = ",\n".join(json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values)
        parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def decode(text: str, origin: str) -> OfferBook:
    """The offers of a compiled file. Raises CacheError when it is not one, is cut off, or holds a broken offer."""
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA or data["schema_version"] != SCHEMA_VERSION:
            raise CacheError(
                f"{origin}: schema {data['schema']} {data['schema_version']}, not {SCHEMA} {SCHEMA_VERSION}"
            )
        return OfferBook(origin=origin, offers=_offers(data), header=data["header"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError) as error:
        raise CacheError(f"{origin} is not a file of offers: {error}") from error


def write_offers(path: Path, offers: Iterable[Offer], header: Mapping[str, Any]) -> None:
    """Writes a compiled file in one step: a reader sees the old file or the new one, never a part."""
    text = encode(offers, header)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_READABLE_BY_ALL)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_offers(path: Path, origin: str) -> OfferBook:
    """The offers of the file at `path`. Raises CacheError when it cannot be read or is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CacheError(f"{origin} cannot be read: {error}") from error
    return decode(text, origin)


class _Table:
    """Values in order of first use, and the index of each."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._indices: dict[Any, int] = {}

    def index(self, value: Any) -> int:
        found = self._indices.get(value)
        if found is None:
            found = self._indices[value] = len(self.values)
            self.values.append(value)
        return found


def _type_row(kind: InstanceType) -> tuple[Any, ...]:
    return (
        kind.provider,
        kind.name,
        kind.accelerator,
        kind.accelerator_count,
        kind.link,
        kind.vcpus,
        kind.memory_gib,
        kind.network_gbit_per_s,
        kind.hosts,
        tuple(sorted(kind.traits)),
    )


def _commitment_row(commitment: Commitment | None) -> tuple[Any, ...] | None:
    if commitment is None:
        return None
    return commitment.kind.value, commitment.term_months, str(commitment.upfront_usd), commitment.variant


def _offers(data: Mapping[str, Any]) -> tuple[Offer, ...]:
    types = [_instance_type(row) for row in data["instance_types"]]
    places = [(region, zone) for region, zone in data["places"]]
    commitments = [_commitment(row) for row in data["commitments"]]
    options = {option.value: option for option in PurchaseOption}
    dates: dict[str | None, date | None] = {None: None}
    offers = []
    for kind, place, option, price, day, source, commitment, in_stock, note in data["offers"]:
        if day not in dates:
            dates[day] = date.fromisoformat(day)
        region, zone = places[place]
        offers.append(
            Offer(
                instance_type=types[kind],
                region=region,
                zone=zone,
                purchase_option=options[option],
                usd_per_hour=Decimal(price),
                observed_on=dates[day],
                source=data["sources"][source],
                commitment=commitments[commitment],
                in_stock=in_stock,
                notes=data["notes"][note],
            )
        )
    return tuple(offers)


def _instance_type(row: list[Any]) -> InstanceType:
    provider, name, accelerator, count, link, vcpus, memory_gib, network, hosts, traits = row
    return InstanceType(
        provider=provider,
        name=name,
        accelerator=accelerator,
        accelerator_count=count,
        link=link,
        vcpus=vcpus,
        memory_gib=memory_gib,
        network_gbit_per_s=network,
        hosts=hosts,
        traits=frozenset(Trait(trait) for trait in traits),
    )


def _commitment(row: list[Any] | None) -> Commitment | None:
    if row is None:
        return None
    kind, term_months, upfront, variant = row
    return Commitment(kind=CommitmentKind(kind), term_months=term_months, upfront_usd=Decimal(upfront), variant=variant)
