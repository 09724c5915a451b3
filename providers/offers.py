"""Describes what a seller offers: an instance type, in a region, under a purchase option, at a dated price."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Final

from providers.units import HOURS_PER_MONTH

PROVIDERS: Final = ("aws", "gcp", "azure", "lambda", "runpod")
"""The sellers that costopt prices, in the order in which they are shown."""


class PurchaseOption(StrEnum):
    """How capacity is bought."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED_1Y = "reserved_1y"
    RESERVED_3Y = "reserved_3y"
    CAPACITY_BLOCK = "capacity_block"

    @property
    def is_reserved(self) -> bool:
        return self in _RESERVED

    @property
    def term_months(self) -> int | None:
        """Months that a reservation binds; None where nothing is committed by the month."""
        return {PurchaseOption.RESERVED_1Y: 12, PurchaseOption.RESERVED_3Y: 36}.get(self)


_RESERVED: Final = frozenset({PurchaseOption.RESERVED_1Y, PurchaseOption.RESERVED_3Y})


class CommitmentKind(StrEnum):
    """What is committed to: an instance (AWS, Azure), a spend per hour, or resources (GCP)."""

    RESERVED_INSTANCE = "reserved_instance"
    SAVINGS_PLAN = "savings_plan"
    COMMITTED_USE = "committed_use"


class Trait(StrEnum):
    """What a careful buyer wants to know before a machine is put in a plan; `--include` takes some of them."""

    COMMUNITY = "community"
    """On somebody else's machine: the provider does not answer for it (RunPod community cloud)."""
    PREVIEW = "preview"
    """Not generally available, or only for accounts that asked."""
    ARM64 = "arm64"
    """The host is arm64: images must be built for it."""
    RETIRED = "retired"
    """A previous generation that the provider retires."""
    CONFIDENTIAL = "confidential"
    """A confidential-computing size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """A machine shape by its seller's own name, with `accelerator_count` devices of one canonical accelerator.

    `accelerator_count` below 1 is a fraction of one device (a vGPU slice); it is whole otherwise.
    `link` says what joins the devices inside one machine: nvlink, nvlink_bridge, pcie, infinity_fabric, ici,
    neuronlink, roce, or none (one device). `network_gbit_per_s` is between machines; None = not known here.
    `memory_gib` is host RAM, `hosts` the machines that one unit spans (a multi-host TPU slice has several).
    Raises ValueError when a field breaks that.
    """

    provider: str
    name: str
    accelerator: str
    accelerator_count: float
    link: str
    vcpus: float | None = None
    memory_gib: float | None = None
    network_gbit_per_s: float | None = None
    hosts: int = 1
    traits: frozenset[Trait] = frozenset()

    def __post_init__(self) -> None:
        if not self.provider or not self.name or not self.accelerator:
            raise ValueError(f"an instance type needs provider, name and accelerator: {self}")
        count = self.accelerator_count
        if not 0 < count < 100_000 or (count > 1 and count != int(count)):
            raise ValueError(f"{self.name}: accelerator count {count} is neither whole nor a fraction of one device")
        if self.hosts < 1:
            raise ValueError(f"{self.name}: {self.hosts} hosts")

    @property
    def is_fractional(self) -> bool:
        return self.accelerator_count < 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """What a reserved offer binds to: kind, term, and what is paid at its start for one instance.

    `variant` tells commitments of one kind and term apart (`all upfront`, `compute`); empty = the plain one, which
    binds to the instance type and is paid by the hour.
    """

    kind: CommitmentKind
    term_months: int
    upfront_usd: Decimal = Decimal(0)
    variant: str = ""

    def __post_init__(self) -> None:
        if self.term_months < 1 or not self.upfront_usd >= 0:
            raise ValueError(f"a commitment needs a term of months and an upfront of 0 or more: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An instance type in a region under a purchase option, at the price quoted on a day by a source.

    `usd_per_hour` is the effective price of one whole instance: what is paid by the hour plus the commitment's
    upfront spread over its term. `region` is the seller's own id; None where the price is not regional.
    `observed_on` None = the source has no date: treat as stale. `effective_from` is the day from which the seller
    charges it, where the seller says so. `in_stock` is three-valued: None = not known.
    `row_ids` are the provider's own identifiers behind the price. Raises ValueError when a field breaks that.
    """

    instance_type: InstanceType
    region: str | None
    zone: str | None
    purchase_option: PurchaseOption
    usd_per_hour: Decimal
    observed_on: date | None
    source: str
    commitment: Commitment | None = None
    in_stock: bool | None = None
    effective_from: date | None = None
    row_ids: tuple[str, ...] = ()
    notes: str = ""

    def __post_init__(self) -> None:
        price = self.usd_per_hour
        if not price.is_finite() or price <= 0:
            raise ValueError(f"{self.instance_type.name}: price {price} USD/h is not a positive number")
        if self.purchase_option.is_reserved != (self.commitment is not None):
            raise ValueError(f"{self.instance_type.name}: {self.purchase_option} and commitment {self.commitment}")
        if self.region == "" or self.zone == "":
            raise ValueError(f"{self.instance_type.name}: an unknown region or zone is None, not empty")

    @property
    def provider(self) -> str:
        return self.instance_type.provider

    @property
    def usd_per_accelerator_hour(self) -> Decimal:
        return self.usd_per_hour / Decimal(str(self.instance_type.accelerator_count))

    @property
    def usd_per_month(self) -> Decimal:
        """Price of a planning month of 730 hours."""
        return self.usd_per_hour * HOURS_PER_MONTH

    @property
    def key(self) -> "OfferKey":
        return OfferKey(
            provider=self.provider,
            instance_type=self.instance_type.name,
            region=self.region or "",
            zone=self.zone or "",
            purchase_option=self.purchase_option,
            commitment_kind=self.commitment.kind if self.commitment else "",
            commitment_variant=self.commitment.variant if self.commitment else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OfferKey:
    """What stays the same of an offer while its price changes; sorts in the order in which offers are listed."""

    provider: str
    instance_type: str
    region: str
    zone: str
    purchase_option: str
    commitment_kind: str
    commitment_variant: str

    def __str__(self) -> str:
        place = self.zone or self.region or "-"
        commitment = "".join(f"/{part}" for part in (self.commitment_kind, self.commitment_variant) if part)
        return f"{self.provider}/{self.instance_type}/{place}/{self.purchase_option}{commitment}"
