"""Turns a buyer's files into limits of the market: quotas and known stock, and instances that already run.

A quota file (YAML):

    quotas:
      - {accelerator: H100, region: us-east-1, maximum: 16}          # accelerators, over all that match
      - {instance_type: p5.48xlarge, maximum: 2, unit: instances}

A file of what runs today (YAML):

    running:
      - {provider: aws, instance_type: p5.48xlarge, region: us-east-1, purchase: reserved-1y, count: 2,
         usd_per_hour: 33.0}

What is reserved, or booked as a capacity block, cannot be given back unless `committed: false` says so.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from optimizer.plans.market import Holding
from optimizer.program.problem import PurchaseOption as ProgramOption
from optimizer.program.problem import Quota
from optimizer.workload.workload_file import faults, load_yaml
from providers.accelerators import matches
from providers.errors import UnknownName, UsageError, nearest
from providers.offers import PROVIDERS, Commitment, CommitmentKind, Offer, PurchaseOption

_Option = Literal["on-demand", "spot", "reserved-1y", "reserved-3y", "capacity-block"]
_BOUND: Final = frozenset({PurchaseOption.RESERVED_1Y, PurchaseOption.RESERVED_3Y, PurchaseOption.CAPACITY_BLOCK})
_SELLERS: Final = ", ".join(PROVIDERS)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Quota(_Strict):
    maximum: int = Field(ge=0)
    unit: Literal["instances", "accelerators"] = "accelerators"
    provider: str | None = None
    region: str | None = None
    accelerator: str | None = None
    instance_type: str | None = None
    purchase: _Option | None = None


class _Quotas(_Strict):
    quotas: list[_Quota] = Field(max_length=10_000)


class _Running(_Strict):
    provider: str
    instance_type: str
    region: str | None = None
    purchase: _Option = "on-demand"
    count: int = Field(ge=1, le=1_000_000)
    usd_per_hour: Annotated[Decimal, Field(gt=0, allow_inf_nan=False)] | None = None
    committed: bool | None = None


class _Current(_Strict):
    running: list[_Running] = Field(max_length=10_000)


def parse_quotas(text: str, name: str) -> tuple[Quota, ...]:
    """The limits of a quota file. Raises UsageError with field, value and line; UnknownName for an accelerator."""
    content, lines = load_yaml(text, name)
    try:
        file = _Quotas.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{name}: {faults(error, lines, _Quotas)}") from None
    return tuple(_quota(index, given) for index, given in enumerate(file.quotas))


def parse_current(text: str, name: str, offers: Sequence[Offer]) -> tuple[Holding, ...]:
    """What runs today. A price that is not given is that of the same offer on file.

    Raises UsageError with field, value and line, and for a line without a price that is not on file either.
    """
    content, lines = load_yaml(text, name)
    try:
        file = _Current.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{name}: {faults(error, lines, _Current)}") from None
    return tuple(
        _holding(given, offers, f"{name}, line {lines['running', index]}") for index, given in enumerate(file.running)
    )


def quotas_without_effect(quotas: Iterable[Quota], offers: Sequence[Offer]) -> Iterator[str]:
    """A warning for each quota of a region or an instance type that no offer on file has: it may be misspelt."""
    regions = {offer.region for offer in offers if offer.region}
    types = {offer.instance_type.name for offer in offers}
    for quota in quotas:
        for kind, value, known in (("region", quota.region, regions), ("instance type", quota.instance_type, types)):
            if value is not None and value not in known:
                yield f"{quota.id} limits nothing: {UnknownName(kind, value, nearest(value, known))}"


def _quota(index: int, given: _Quota) -> Quota:
    """One limit; a family name of several variants would pool them, so each variant must be named."""
    accelerator = None
    if given.accelerator is not None:
        found = matches(given.accelerator)
        if len(found) > 1:
            names = ", ".join(variant.name for variant in found)
            raise UsageError(f"quotas.{index}.accelerator {given.accelerator!r} means {names}: name one of them")
        accelerator = found[0].name
    if given.provider is not None and given.provider not in PROVIDERS:
        raise UnknownName("provider", given.provider, nearest(given.provider, PROVIDERS), f"known: {_SELLERS}")
    option: ProgramOption | None = None
    if given.purchase is not None:
        option = PurchaseOption(given.purchase.replace("-", "_")).value
    told = (given.provider, given.region, accelerator, given.instance_type, option)
    what = " ".join(part for part in told if part) or "everything"
    return Quota(
        id=f"quota of {what}",
        maximum=given.maximum,
        unit=given.unit,
        provider=given.provider,
        region=given.region,
        accelerator=accelerator,
        instance_type=given.instance_type,
        purchase_option=option,
    )


def _holding(given: _Running, offers: Sequence[Offer], where: str) -> Holding:
    option = PurchaseOption(given.purchase.replace("-", "_"))
    bound = option in _BOUND if given.committed is None else given.committed
    return Holding(
        offer=_held_offer(given, option, offers, where), running=given.count, committed=given.count if bound else 0
    )


def _held_offer(given: _Running, option: PurchaseOption, offers: Sequence[Offer], where: str) -> Offer:
    same = [o for o in offers if o.provider == given.provider and o.instance_type.name == given.instance_type]
    if not same:
        known = {o.instance_type.name for o in offers if o.provider == given.provider}
        raise UsageError(
            f"{where}: {UnknownName('instance type', given.instance_type, nearest(given.instance_type, known))}"
        )
    at = [o for o in same if given.region is None or o.region == given.region]
    priced = [o for o in at if o.purchase_option is option and o.zone is None]
    regions = sorted({o.region for o in at if o.region})
    if given.region is None and all(o.region for o in at):
        raise UsageError(f"{where}: {given.instance_type} is sold by region; name its region: {', '.join(regions[:8])}")
    if priced:
        return replace(priced[0], usd_per_hour=given.usd_per_hour or priced[0].usd_per_hour, source=where)
    if given.usd_per_hour is None:
        raise UsageError(
            f"{where}: no {given.purchase} price of {given.instance_type} in {given.region or 'any region'} on file; "
            "give usd_per_hour"
        )
    months = option.term_months
    return replace(
        (at or same)[0],
        region=given.region,
        zone=None,
        purchase_option=option,
        usd_per_hour=given.usd_per_hour,
        commitment=Commitment(kind=CommitmentKind.RESERVED_INSTANCE, term_months=months) if months else None,
        source=where,
        observed_on=None,
    )
