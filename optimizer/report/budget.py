"""Says what a budget holds: workloads with owners, limits in USD, what is already bought, and what is not GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Literal

from optimizer.report.commitments import HeldCommitment
from optimizer.report.focus import Conditions
from optimizer.report.forecast import Method
from optimizer.report.months import Month
from optimizer.report.variance import Thresholds
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.errors import UnknownName, nearest
from providers.offers import Offer, PurchaseOption

Dimension = Literal["workload", "owner", "provider", "accelerator", "purchase_option"]
DIMENSIONS: tuple[Dimension, ...] = ("workload", "owner", "provider", "accelerator", "purchase_option")
ItemCategory = Literal["storage", "egress", "support", "tax", "service", "staff", "other"]
Basis = Literal["amortised", "cash"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedWorkload:
    """A workload with its owner's budget, growth per month as a share, and the rows of the bill that are its own."""

    workload: InferenceWorkload
    architecture: Architecture
    budget_usd: Decimal | None = None
    growth_per_month: float = 0.0
    matches: tuple[Conditions, ...] = ()

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def owner(self) -> str | None:
        return self.workload.owner


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivatePrice:
    """A price that a seller gave this buyer: it stands in for the list price of one machine, bought one way."""

    provider: str
    instance_type: str
    purchase_option: PurchaseOption
    usd_per_hour: Decimal
    region: str | None = None
    observed_on: date | None = None
    source: str = "private price"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """A share off the list prices of a provider, of all ways to buy or of some."""

    provider: str
    share: float
    purchase_options: frozenset[PurchaseOption] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineItem:
    """Something that is not a planned GPU: USD per month, a quantity at a price, per hour, or a share of the compute.

    `usd_per_month` x 1;  `quantity` x `usd_per_unit`;  `count` x `usd_per_hour` x the month's hours (or `hours`);
    `share_of_compute` x the compute forecast.
    """

    name: str
    category: ItemCategory
    owner: str | None = None
    provider: str | None = None
    workload: str | None = None
    usd_per_month: Decimal | None = None
    quantity: Decimal | None = None
    usd_per_unit: Decimal | None = None
    unit: str | None = None
    usd_per_hour: Decimal | None = None
    count: int = 1
    hours: Decimal | None = None
    share_of_compute: float | None = None
    source: str = ""

    def usd(self, month: Month, compute_usd: Decimal) -> Decimal:
        """Cost in a month."""
        if self.usd_per_month is not None:
            return self.usd_per_month
        if self.quantity is not None and self.usd_per_unit is not None:
            return self.quantity * self.usd_per_unit
        if self.usd_per_hour is not None:
            return self.usd_per_hour * self.count * (month.hours if self.hours is None else self.hours)
        return compute_usd * Decimal(repr(self.share_of_compute or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketWishes:
    """What may be bought, in the words of plan's flags; empty = as plan does without the flag."""

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    purchase: tuple[str, ...] = ()
    include: tuple[str, ...] = ()

    def flags(self) -> str:
        """The same as flags of plan."""
        groups = (
            ("--provider", self.providers),
            ("--region", self.regions),
            ("--gpu", self.gpus),
            ("--purchase", self.purchase),
            ("--include", self.include),
        )
        return "".join(f" {flag} {_quoted(value)}" for flag, values in groups for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A portfolio and its money. `limits` are USD per month by dimension and name; `total_usd` is of everything.

    `base_month` is the month whose demand the workloads state; growth counts from there. None: the month reported.
    """

    name: str
    workloads: tuple[BudgetedWorkload, ...]
    time_zone: str = "UTC"
    total_usd: Decimal | None = None
    limits: Mapping[Dimension, Mapping[str, Decimal]] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    basis: Basis = "amortised"
    forecast: Method | None = None
    base_month: Month | None = None
    market: MarketWishes = field(default_factory=MarketWishes)
    commitments: tuple[HeldCommitment, ...] = ()
    private_prices: tuple[PrivatePrice, ...] = ()
    discounts: tuple[Discount, ...] = ()
    items: tuple[LineItem, ...] = ()
    currency_note: str = "All amounts are in USD."


def narrowed(budget: Budget, names: Sequence[str], purchase: Sequence[str], precisions: tuple[str, ...]) -> Budget:
    """The budget with some workloads alone, bought or run otherwise; each part is left as it is where none is given.

    Workloads alone keep their own budgets; commitments, items and other limits are those of all, and are left out.
    Raises UnknownName for a name that no workload has.
    """
    known = [entry.name for entry in budget.workloads]
    for name in names:
        if name not in known:
            raise UnknownName("workload", name, nearest(name, known), f"known: {', '.join(known)}")
    if names:
        kept = tuple(entry for entry in budget.workloads if entry.name in names)
        budget = replace(budget, workloads=kept, total_usd=None, limits={}, commitments=(), items=())
    if purchase:
        budget = replace(budget, market=replace(budget.market, purchase=tuple(purchase)))
    if precisions:
        entries = (replace(e, workload=replace(e.workload, precisions=precisions)) for e in budget.workloads)
        budget = replace(budget, workloads=tuple(entries))
    return budget


def privately_priced(budget: Budget, offers: Sequence[Offer]) -> tuple[list[Offer], tuple[str, ...]]:
    """The offers at what this buyer pays, and a line on each private price that no offer on file has.

    A private price replaces the list price; a discount is taken off list prices only.
    """
    unused = set(budget.private_prices)
    priced = []
    for offer in offers:
        private = next((p for p in budget.private_prices if _is_for(p, offer)), None)
        if private is not None:
            unused.discard(private)
            offer = replace(
                offer, usd_per_hour=private.usd_per_hour, observed_on=private.observed_on, source=private.source
            )
        else:
            off = _discount(budget.discounts, offer)
            if off:
                source = f"{offer.source}; less {off:.2%} private discount"
                factor = 1 - Decimal(repr(off))
                offer = replace(offer, usd_per_hour=offer.usd_per_hour * factor, source=source)
        priced.append(offer)
    remarks = tuple(
        f"private price of {p.provider} {p.instance_type} {p.purchase_option} in {p.region or 'any region'}: no offer "
        "that may be bought is like that, so it is not used"
        for p in sorted(unused, key=lambda p: (p.provider, p.instance_type, p.region or ""))
    )
    return priced, remarks


def _is_for(private: PrivatePrice, offer: Offer) -> bool:
    return (private.provider, private.instance_type, private.purchase_option) == (
        offer.provider,
        offer.instance_type.name,
        offer.purchase_option,
    ) and private.region in (None, offer.region)


def _discount(discounts: Sequence[Discount], offer: Offer) -> float:
    """The largest discount that applies: discounts of one seller do not add up unless its contract says so."""
    return max(
        (
            d.share
            for d in discounts
            if d.provider == offer.provider and (not d.purchase_options or offer.purchase_option in d.purchase_options)
        ),
        default=0.0,
    )


def _quoted(value: str) -> str:
    from shlex import quote

    return quote(value)
