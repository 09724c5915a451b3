"""Says what the buyer adds to a comparison: what is stored and leaves and its prices, owning hardware, rates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from optimizer.report.quotes import Rate
from optimizer.workload.workload_file import faults, load_yaml
from providers.errors import UsageError
from providers.units import GB, HOURS_PER_MONTH

DEFAULT: Final = "default"
"""The entry of sellers that have none of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SellerPrices:
    """What one seller asks beside compute; None = not known."""

    storage_usd_per_gb_month: Decimal | None = None
    egress_usd_per_gb: Decimal | None = None
    support_share: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareInputs:
    """What owning hardware costs beside its price; None = not given.

    Power is of the accelerator x `pue`, with `server_power_w_per_gpu` for the rest of the machine.
    """

    amortization_months: int | None = None
    residual_share: Decimal = Decimal(0)
    server_usd_per_gpu: Decimal | None = None
    network_usd_per_gpu: Decimal | None = None
    server_power_w_per_gpu: Decimal | None = None
    usd_per_kwh: Decimal | None = None
    pue: Decimal | None = None
    colocation_usd_per_kw_month: Decimal | None = None
    staff_usd_per_month: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The buyer's inputs; all of it may be missing."""

    storage_gb: Decimal | None = None
    egress_gb_per_month: Decimal | None = None
    response_bytes: Decimal | None = None
    sellers: Mapping[str, SellerPrices] = field(default_factory=dict)
    hardware: HardwareInputs | None = None
    rates: Mapping[str, Rate] = field(default_factory=dict)

    def of(self, seller: str) -> SellerPrices:
        """The seller's own prices, else those of `default`."""
        return self.sellers.get(seller.lower(), self.sellers.get(DEFAULT, SellerPrices()))


def egress_gb(requests: Decimal, bytes_per_response: Decimal) -> Decimal:
    """GB that leave: requests x bytes of a response / 10^9."""
    return requests * bytes_per_response / GB


def usd_per_gb_hour(usd_per_gb_month: Decimal) -> Decimal:
    """A price per GB-month for an hour of a planning month: / 730."""
    return usd_per_gb_month / HOURS_PER_MONTH


def _exact(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("write a number")
    return Decimal(repr(value)) if isinstance(value, float) else value


def _share(value: object) -> object:
    """`10%` and 0.1 are the same."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return Decimal(value.strip()[:-1]) / 100
    return _exact(value)


Amount = Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, le=10**12, allow_inf_nan=False)]
Share = Annotated[Decimal, BeforeValidator(_share), Field(ge=0, le=1, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Seller(_Strict):
    storage_usd_per_gb_month: Amount | None = None
    egress_usd_per_gb: Amount | None = None
    support_share: Share | None = None


class _Hardware(_Strict):
    amortization_months: Annotated[int, Field(ge=1, le=120)] | None = None
    residual_share: Share = Decimal(0)
    server_usd_per_gpu: Amount | None = None
    network_usd_per_gpu: Amount | None = None
    server_power_w_per_gpu: Amount | None = None
    usd_per_kwh: Amount | None = None
    pue: Annotated[Decimal, BeforeValidator(_exact), Field(ge=1, le=5)] | None = None
    colocation_usd_per_kw_month: Amount | None = None
    staff_usd_per_month: Amount | None = None


class _Rate(_Strict):
    usd: Annotated[Decimal, BeforeValidator(_exact), Field(gt=0, le=10**6)]
    observed_on: date
    source: Annotated[str, Field(min_length=1, max_length=200)]


class _Extras(_Strict):
    storage_gb: Amount | None = None
    egress_gb_per_month: Amount | None = None
    response_bytes: Amount | None = None
    sellers: Annotated[dict[str, _Seller], Field(max_length=1000)] = {}
    hardware: _Hardware | None = None
    rates: Annotated[dict[str, _Rate], Field(max_length=200)] = {}


def parse_extras(text: str, file_name: str) -> Extras:
    """The inputs of a YAML text. Raises UsageError with line, field path and value of what is wrong."""
    content, lines = load_yaml(text, file_name)
    try:
        read = _Extras.model_validate(content or {})
    except ValidationError as error:
        raise UsageError(f"{file_name}: {faults(error, lines)}") from None
    return Extras(
        storage_gb=read.storage_gb,
        egress_gb_per_month=read.egress_gb_per_month,
        response_bytes=read.response_bytes,
        sellers={name.lower(): SellerPrices(**seller.model_dump()) for name, seller in read.sellers.items()},
        hardware=None if read.hardware is None else HardwareInputs(**read.hardware.model_dump()),
        rates={code.upper(): Rate(**rate.model_dump()) for code, rate in read.rates.items()},
    )
