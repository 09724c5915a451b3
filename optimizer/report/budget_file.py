"""Turns a budget's YAML into a Budget: every mistake is named with its line, field path and value."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from optimizer.report.budget import (
    Budget,
    BudgetedWorkload,
    Dimension,
    Discount,
    ItemCategory,
    LineItem,
    MarketWishes,
    PrivatePrice,
)
from optimizer.report.commitments import HeldCommitment
from optimizer.report.focus import CONDITION_COLUMNS, Conditions
from optimizer.report.forecast import Method
from optimizer.report.months import Month, checked_zone
from optimizer.report.variance import Thresholds
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload_file import Lines, WorkloadEntry, faults, load_yaml, workload_of
from providers.errors import CostoptError, UnknownName, UsageError, nearest
from providers.offers import PROVIDERS, CommitmentKind, PurchaseOption

_MOST_WORKLOADS: Final = 1_000
_MOST_ENTRIES: Final = 10_000
_MOST_USD: Final = 10**12
Resolve = Callable[[str], Architecture]
Made = TypeVar("Made")


def _exact(value: object) -> object:
    """Numbers keep the digits that were written; true and false are no numbers."""
    if isinstance(value, bool):
        raise ValueError("write a number")
    return Decimal(repr(value)) if isinstance(value, float) else value


def _share(value: object) -> object:
    """`3%` and 0.03 are the same."""
    if isinstance(value, bool):
        raise ValueError("write a share like 0.03 or 3%")
    if isinstance(value, str) and value.strip().endswith("%"):
        return float(value.strip()[:-1]) / 100
    return value


Usd = Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, le=_MOST_USD, allow_inf_nan=False)]
Quantity = Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, le=10**15, allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1, allow_inf_nan=False)]
Growth = Annotated[float, BeforeValidator(_share), Field(gt=-1, le=10, allow_inf_nan=False)]
Alert = Annotated[float, BeforeValidator(_share), Field(gt=0, le=10, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Match(_Strict):
    provider: str | None = None
    service: str | None = None
    region: str | None = None
    sub_account: str | None = None
    resource: str | None = None
    instance_type: str | None = None
    tags: dict[Name, str] = {}

    @model_validator(mode="after")
    def _says_something(self) -> "_Match":
        if not self.conditions():
            raise ValueError("give at least one of " + ", ".join((*CONDITION_COLUMNS, "tags")))
        return self

    def conditions(self) -> Conditions:
        """All that a row must have."""
        columns = {name: getattr(self, name) for name in CONDITION_COLUMNS if getattr(self, name)}
        return columns | {f"tag:{key}": value for key, value in self.tags.items()}


class _Workload(WorkloadEntry):
    """An entry of a workload file, with its owner's budget, its growth and its rows of the bill."""

    budget_usd: Usd | None = None
    growth_per_month: Growth | None = None
    match: list[_Match] | _Match = Field(default_factory=list)

    @model_validator(mode="after")
    def _has_a_rate(self) -> "_Workload":
        if self.rate is None and not self.profile:
            raise ValueError("a budget needs the rate, or a profile in requests/s")
        return self


class _Alerts(_Strict):
    actual: list[Alert] = [0.5, 0.8, 1.0]
    forecast: list[Alert] = [1.0]


class _Limits(_Strict):
    total_usd: Usd | None = None
    owners: dict[Name, Usd] = {}
    providers: dict[Name, Usd] = {}
    accelerators: dict[Name, Usd] = {}
    purchase_options: dict[Name, Usd] = {}
    alerts: _Alerts = _Alerts()


class _Market(_Strict):
    providers: list[Name] = []
    regions: list[Name] = []
    gpus: list[Name] = []
    purchase: list[Name] = []
    include: list[Name] = []


class _Commitment(_Strict):
    name: Name
    provider: Name
    instance_type: Name
    region: Name | None = None
    owner: Name | None = None
    kind: CommitmentKind = CommitmentKind.RESERVED_INSTANCE
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    usd_per_hour: Usd = Decimal(0)
    upfront_usd: Usd = Decimal(0)
    start: date
    term_months: Annotated[int, Field(ge=1, le=120)]
    recovery_share: Share = 0.0

    @model_validator(mode="after")
    def _has_a_price(self) -> "_Commitment":
        if not self.usd_per_hour and not self.upfront_usd:
            raise ValueError("give usd_per_hour, upfront_usd or both")
        return self


class _PrivatePrice(_Strict):
    provider: Name
    instance_type: Name
    purchase_option: PurchaseOption = PurchaseOption.ON_DEMAND
    region: Name | None = None
    usd_per_hour: Annotated[Decimal, BeforeValidator(_exact), Field(gt=0, le=_MOST_USD, allow_inf_nan=False)]
    observed_on: date | None = None
    source: Name = "private price"


class _Discount(_Strict):
    provider: Name
    share: Annotated[float, BeforeValidator(_share), Field(gt=0, lt=1)]
    purchase_options: list[PurchaseOption] = []


class _Item(_Strict):
    name: Name
    category: ItemCategory
    owner: Name | None = None
    provider: Name | None = None
    workload: Name | None = None
    usd_per_month: Usd | None = None
    quantity: Quantity | None = None
    usd_per_unit: Usd | None = None
    unit: Name | None = None
    usd_per_hour: Usd | None = None
    count: Annotated[int, Field(ge=1)] = 1
    hours: Quantity | None = None
    share_of_compute: Share | None = None
    source: str = ""

    @model_validator(mode="after")
    def _has_one_price(self) -> "_Item":
        if (self.quantity is None) != (self.usd_per_unit is None):
            raise ValueError("quantity and usd_per_unit go together")
        ways = [self.usd_per_month, self.quantity, self.usd_per_hour, self.share_of_compute]
        if sum(way is not None for way in ways) != 1:
            raise ValueError("give one of usd_per_month, quantity with usd_per_unit, usd_per_hour, share_of_compute")
        return self


class _Budget(_Strict):
    name: Name
    time_zone: Name = "UTC"
    currency_note: Annotated[str, Field(max_length=1000)] = "All amounts are in USD."
    basis: Literal["amortised", "cash"] = "amortised"
    forecast: Method | None = None
    base_month: Annotated[str, Field(pattern=r"^\d{4}-\d{2}$")] | None = None
    growth_per_month: Growth = 0.0
    budgets: _Limits = _Limits()
    market: _Market = _Market()
    workloads: Annotated[list[_Workload], Field(max_length=_MOST_WORKLOADS)] = []
    commitments: Annotated[list[_Commitment], Field(max_length=_MOST_ENTRIES)] = []
    private_prices: Annotated[list[_PrivatePrice], Field(max_length=_MOST_ENTRIES)] = []
    discounts: Annotated[list[_Discount], Field(max_length=_MOST_ENTRIES)] = []
    items: Annotated[list[_Item], Field(max_length=_MOST_ENTRIES)] = []

    @model_validator(mode="after")
    def _has_something(self) -> "_Budget":
        if not (self.workloads or self.items or self.commitments or self.budgets.total_usd is not None):
            raise ValueError("the file has no workloads, items, commitments or total budget")
        return self


@dataclass(frozen=True, slots=True)
class _File:
    """The name of a file and the line of each of its values, for messages."""

    name: str
    lines: Lines

    def checked(self, path: tuple[str | int, ...], make: Callable[[], Made]) -> Made:
        """What `make` gives; its complaints get the line and the path of the value."""
        try:
            return make()
        except CostoptError as error:
            line = f"line {self.lines[path]}, " if path in self.lines else ""
            where = ".".join(str(part) for part in path)
            raise UsageError(f"{self.name}: {line}{where}: {error}") from None


def parse_budget(text: str, file_name: str, resolve: Resolve) -> Budget:
    """The budget of a YAML text; `resolve` turns a model's name into its architecture.

    Raises UsageError with line, field path and value of what is wrong.
    """
    content, lines = load_yaml(text, file_name)
    try:
        read = _Budget.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{file_name}: {faults(error, lines)}") from None
    file = _File(file_name, lines)
    zone = file.checked(("time_zone",), lambda: checked_zone(read.time_zone))
    for section in ("commitments", "private_prices", "discounts"):
        for number, entry in enumerate(getattr(read, section)):
            file.checked((section, number, "provider"), partial(_check_provider, entry.provider))
    return Budget(
        name=read.name,
        workloads=tuple(
            _workload(file, number, entry, read.growth_per_month, resolve)
            for number, entry in enumerate(read.workloads)
        ),
        time_zone=zone,
        total_usd=read.budgets.total_usd,
        limits=_limits(read.budgets),
        thresholds=Thresholds(
            actual=tuple(sorted(read.budgets.alerts.actual)), forecast=tuple(sorted(read.budgets.alerts.forecast))
        ),
        basis=read.basis,
        forecast=read.forecast,
        base_month=file.checked(("base_month",), lambda: _month(read.base_month, zone)),
        market=MarketWishes(**{name: tuple(words) for name, words in read.market.model_dump().items()}),
        commitments=tuple(_commitment(entry) for entry in read.commitments),
        private_prices=tuple(PrivatePrice(**entry.model_dump()) for entry in read.private_prices),
        discounts=tuple(
            Discount(provider=d.provider, share=d.share, purchase_options=frozenset(d.purchase_options))
            for d in read.discounts
        ),
        items=tuple(LineItem(**entry.model_dump()) for entry in read.items),
        currency_note=read.currency_note,
    )


def _workload(file: _File, number: int, entry: _Workload, growth: float, resolve: Resolve) -> BudgetedWorkload:
    path = ("workloads", number)
    matches = entry.match if isinstance(entry.match, list) else [entry.match]
    precisions = file.checked((*path, "precisions"), lambda: _precisions(entry.precisions))
    return BudgetedWorkload(
        workload=replace(file.checked(path, lambda: workload_of(entry)), precisions=precisions),
        architecture=file.checked((*path, "model"), lambda: resolve(entry.model)),
        budget_usd=entry.budget_usd,
        growth_per_month=growth if entry.growth_per_month is None else entry.growth_per_month,
        matches=tuple(match.conditions() for match in matches),
    )


def _month(text: str | None, zone: str) -> Month | None:
    return None if text is None else Month.parse("base_month", text, zone)


def _precisions(words: Iterable[str]) -> tuple[str, ...]:
    from optimizer.sizing.dtypes import weight_format

    return tuple(dict.fromkeys(weight_format(word).name for word in words if word != "auto"))


def _commitment(entry: _Commitment) -> HeldCommitment:
    fields = entry.model_dump() | {"kind": entry.kind.value}
    return HeldCommitment(**fields)


def _limits(read: _Limits) -> dict[Dimension, dict[str, Decimal]]:
    return {
        "owner": read.owners,
        "provider": read.providers,
        "accelerator": read.accelerators,
        "purchase_option": read.purchase_options,
    }


def _check_provider(provider: str) -> None:
    if provider not in PROVIDERS:
        raise UnknownName("provider", provider, nearest(provider, PROVIDERS), f"known: {', '.join(PROVIDERS)}")
