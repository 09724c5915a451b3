"""Turns a FOCUS cost export into what its accelerators cost by the hour, against the offers on file for the same."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from optimizer.report.focus import Actuals, SpendGroup, read_actuals
from optimizer.report.money import ZERO
from providers.accelerators import matches
from providers.errors import UnknownName
from providers.offers import InstanceType, Offer, PurchaseOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb import DuckDBPyConnection

_WORDS_OF_A_NAME: Final = 3
"""At most so many words of a charge's text make an accelerator's name: `A100 80GB`."""

_MEANT: Final = {"a100": "A100-SXM4-40GB", "v100": "V100-SXM2-16GB"}
"""What Google's charges mean by names without a size: the larger variants are charged by theirs."""

_OPTIONS: Final = {"on_demand": PurchaseOption.ON_DEMAND, "spot": PurchaseOption.SPOT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one kind of machine in one region, bought in one way, cost over the whole export.

    `sku` in place of `instance_type` = accelerators that are charged apart from their machine. `accelerators` are
    those of one machine, `hours` its hours; None where the export has no hours. Money that is charged once a month or
    less often is in `usd_once` and draws no rate.
    """

    provider: str
    instance_type: str | None
    sku: str | None
    accelerator: str
    accelerators: float
    region: str | None
    purchase_option: str | None
    rows: int
    hours: Decimal | None
    billed_usd: Decimal
    effective_usd: Decimal
    usd_once: Decimal
    same: Offer | None
    cheaper: tuple[Offer, ...]

    @property
    def accelerator_hours(self) -> Decimal | None:
        return None if self.hours is None else self.hours * Decimal(str(self.accelerators))

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Paid for one machine: effective cost over its hours."""
        return None if not self.hours else self.effective_usd / self.hours

    @property
    def usd_per_accelerator_hour(self) -> Decimal | None:
        hours = self.accelerator_hours
        return None if not hours else self.effective_usd / hours

    def saving_usd(self, offer: Offer) -> Decimal | None:
        """What the same accelerator-hours would have cost less at the offer."""
        hours = self.accelerator_hours
        return None if not hours else self.effective_usd - offer.usd_per_accelerator_hour * hours


@dataclass(frozen=True, slots=True, kw_only=True)
class CostExport:
    """The accelerators of an export, dearest first, and what the rest of it is."""

    uses: tuple[Use, ...]
    actuals: Actuals
    usd_without_accelerators: Decimal

    @property
    def rows(self) -> int:
        """Rows of accelerators."""
        return sum(use.rows for use in self.uses)

    @property
    def billed_usd(self) -> Decimal:
        return sum((use.billed_usd for use in self.uses), ZERO)

    @property
    def effective_usd(self) -> Decimal:
        return sum((use.effective_usd for use in self.uses), ZERO)

    @property
    def accelerator_hours(self) -> Decimal:
        return sum((use.accelerator_hours or ZERO for use in self.uses), ZERO)


def read_cost_export(
    connection: "DuckDBPyConnection",
    offers: Sequence[Offer],
    machines: Iterable[InstanceType],
    *,
    until: datetime,
    malformed: "Callable[[], int]",
) -> CostExport:
    """What the view `focus` says of accelerators, up to `until`. `offers` are those that may be bought, of any term.

    Raises UsageError for an export without the columns that are needed.
    """
    actuals = read_actuals(connection, (), {}, machines, until=until, malformed=malformed, skus=True)
    grouped: dict[tuple[object, ...], list[SpendGroup]] = {}
    accelerators: dict[str, str | None] = {}
    rest = ZERO
    for group in actuals.groups:
        if group.accelerator is None and group.sku is not None and group.sku not in accelerators:
            accelerators[group.sku] = accelerator_in(group.sku)
        accelerator = group.accelerator or accelerators.get(group.sku or "")
        if accelerator is None:
            rest += group.effective_usd
            continue
        key = (group.provider, group.instance_type, group.sku, accelerator, group.region, group.purchase_option)
        grouped.setdefault(key, []).append(group)
    uses = [_use(str(key[3]), groups, offers) for key, groups in grouped.items()]
    uses.sort(key=lambda use: (-use.effective_usd, use.provider, use.instance_type or use.sku or "", use.region or ""))
    return CostExport(uses=tuple(uses), actuals=actuals, usd_without_accelerators=rest)


def accelerator_in(text: str) -> str | None:
    """The accelerator that a charge's text names, by the longest runs of words that name one; else None.

    Runs that overlap (`A100 80GB`, `80GB PCIe`) narrow each other; one that leaves the form open means the usual one.
    """
    words = re.findall(r"[A-Za-z0-9]+", text)
    for length in range(_WORDS_OF_A_NAME, 0, -1):
        runs = [" ".join(words[i : i + length]) for i in range(len(words) - length + 1)]
        found = [names for run in runs if any(c.isdigit() for c in run) and (names := _named(run))]
        if found:
            common = [name for name in found[0] if all(name in names for names in found)]
            usual = next((name for word in words if (name := _MEANT.get(word.lower())) in common), None)
            return usual or next(iter(common), None)
    return None


def _named(run: str) -> tuple[str, ...]:
    """The variants that a run of words can mean, the usual one first."""
    try:
        return tuple(one.name for one in matches(run))
    except UnknownName:
        return ()


def _use(accelerator: str, groups: Sequence[SpendGroup], offers: Sequence[Offer]) -> Use:
    first = groups[0]
    regular = [group for group in groups if not group.once]
    known = [group.hours for group in regular if group.hours is not None]
    same = [
        offer
        for offer in offers
        if offer.provider == first.provider
        and offer.instance_type.name == first.instance_type
        and offer.purchase_option is _OPTIONS.get(first.purchase_option or "on_demand")
        and offer.region == first.region
    ]
    return Use(
        provider=first.provider,
        instance_type=first.instance_type,
        sku=first.sku if first.instance_type is None else None,
        accelerator=accelerator,
        accelerators=first.accelerators or 1.0,
        region=first.region,
        purchase_option=first.purchase_option,
        rows=sum(group.rows for group in groups),
        hours=sum(known, ZERO) if known else None,
        billed_usd=sum((group.billed_usd for group in regular), ZERO),
        effective_usd=sum((group.effective_usd for group in regular), ZERO),
        usd_once=sum((group.effective_usd for group in groups if group.once), ZERO),
        same=min(same, key=lambda offer: (offer.usd_per_hour, offer.key), default=None),
        cheaper=tuple(_cheapest(accelerator, first, offers)),
    )


def _cheapest(accelerator: str, use: SpendGroup, offers: Sequence[Offer]) -> Iterator[Offer]:
    """The same accelerators at the least: where they run now, anywhere, as spot, for one year and for three."""
    own = [offer for offer in offers if offer.instance_type.accelerator == accelerator]
    here = [offer for offer in own if offer.provider == use.provider and offer.region == use.region]
    pools = [(here, PurchaseOption.ON_DEMAND)]
    pools += [(here, option) for option in PurchaseOption if option is not PurchaseOption.ON_DEMAND]
    pools += [(own, option) for option in PurchaseOption]
    seen = set()
    for pool, option in pools:
        found = [offer for offer in pool if offer.purchase_option is option]
        best = min(found, key=lambda offer: (offer.usd_per_accelerator_hour, offer.key), default=None)
        if best is not None and best.key not in seen:
            seen.add(best.key)
            yield best
