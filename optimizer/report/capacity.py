"""Turns a need, a workload or a number of accelerators, and some offers into the cheapest machines that meet it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from optimizer.plans.comparison import Undecided, compare
from optimizer.plans.market import Market, Terms
from optimizer.plans.sizer import Sizer
from optimizer.program.covering import Kind, cheapest_cover
from optimizer.program.problem import Limits, SolverOptions
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.accelerators import Accelerator, catalogue
from providers.instance_types import usual_link
from providers.offers import InstanceType, Offer, PurchaseOption
from providers.units import HOURS_PER_MONTH, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Machines:
    """`count` instances of one offer; an average where their number follows the load."""

    offer: Offer
    count: Decimal

    @property
    def gpus(self) -> int:
        return int(self.offer.instance_type.accelerator_count * float(self.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """Machines that meet a need, and how they do: `how` names precision and layout where a model is served."""

    machines: tuple[Machines, ...]
    how: str = ""

    @property
    def gpus(self) -> int:
        return sum(item.gpus for item in self.machines)

    @property
    def usd_per_hour(self) -> Decimal:
        """Effective: upfronts spread over their terms."""
        return sum((item.offer.usd_per_hour * item.count for item in self.machines), Decimal(0))

    @property
    def upfront_usd(self) -> Decimal:
        return sum(
            (i.offer.commitment.upfront_usd * i.count for i in self.machines if i.offer.commitment is not None),
            Decimal(0),
        )


class Need(Protocol):
    """What is to be had, whoever sells it."""

    def meet(self, offers: Sequence[Offer]) -> Met | None:
        """The cheapest machines of those offers that meet it; None where none do."""

    @property
    def tokens_per_month(self) -> tuple[Decimal, Decimal] | None:
        """Input and output tokens of a month at the full load; None where the need is not a workload."""

    @property
    def requests_per_month(self) -> Decimal | None:
        """Requests of a month; None where the need is not a workload."""


@dataclass(frozen=True, slots=True)
class ServedWorkload:
    """A workload to serve at its rate, within its SLO."""

    workload: InferenceWorkload
    architecture: Architecture
    _sizer: list[Sizer] = field(default_factory=list)

    def meet(self, offers: Sequence[Offer]) -> Met | None:
        """By the exact search, or by the program where the workload has several shapes or a profile."""
        if not self._sizer:
            self._sizer.append(Sizer(self.workload, self.architecture))
        market = Market(self._sizer, Terms(), SolverOptions())
        try:
            fleet = compare(market, offers, "min_cost", Limits())
        except Undecided:
            fleet = market.choose(offers, "min_cost", Limits()).fleet
        if fleet is None:
            return None
        ways = dict.fromkeys(f"{group.kind.precision} {group.kind.layout}" for group in fleet.replicas)
        machines = tuple(Machines(item.offer, item.mean_count) for item in fleet.instances)
        return Met(machines=machines, how=", ".join(ways))

    @property
    def requests_per_month(self) -> Decimal | None:
        return _monthly(self.workload.requests_per_s or 0.0)

    @property
    def tokens_per_month(self) -> tuple[Decimal, Decimal] | None:
        demands = [(demand.shape, demand.requests_per_s or 0.0) for demand in self.workload.demands]
        inputs = sum(shape.input_tokens * rate for shape, rate in demands)
        return _monthly(inputs), _monthly(sum(shape.output_tokens * rate for shape, rate in demands))


@dataclass(frozen=True, slots=True)
class HeldAccelerators:
    """A number of accelerators of one variant, whatever they do."""

    accelerator: Accelerator
    count: int

    def meet(self, offers: Sequence[Offer]) -> Met | None:
        """The cheapest whole machines with at least so many accelerators."""
        fitting = _cheapest_by_size(o for o in offers if o.instance_type.accelerator == self.accelerator.name)
        if not fitting:
            return None
        kinds = [Kind(float(o.usd_per_hour), float(o.instance_type.accelerator_count)) for o in fitting]
        counts = cheapest_cover(kinds, float(self.count))
        if counts is None:
            best = min(fitting, key=lambda o: (o.usd_per_accelerator_hour, o.key))
            whole = -(-self.count // int(best.instance_type.accelerator_count))
            return Met(machines=(Machines(best, Decimal(whole)),))
        pairs = zip(fitting, counts, strict=True)
        return Met(machines=tuple(Machines(offer, Decimal(count)) for offer, count in pairs if count))

    @property
    def requests_per_month(self) -> Decimal | None:
        return None

    @property
    def tokens_per_month(self) -> tuple[Decimal, Decimal] | None:
        return None


def made_offer(
    *,
    seller: str,
    name: str,
    accelerator: Accelerator,
    gpus: int,
    usd_per_hour: Decimal,
    region: str | None = None,
    source: str = "",
) -> Offer:
    """A machine of another seller than those on file, as an offer that is paid by the hour."""
    return Offer(
        instance_type=InstanceType(
            provider=seller,
            name=name,
            accelerator=accelerator.name,
            accelerator_count=gpus,
            link=usual_link(accelerator, gpus),
        ),
        region=region,
        zone=None,
        purchase_option=PurchaseOption.ON_DEMAND,
        usd_per_hour=usd_per_hour,
        observed_on=None,
        source=source,
    )


def neutral_sizes(need: ServedWorkload, sizes: Sequence[int] = (1, 2, 4, 8)) -> list[tuple[Accelerator, Met]]:
    """For each accelerator that can serve the workload: machines of the size that needs fewest accelerators."""
    found = []
    for accelerator in catalogue().values():
        met = [answer for gpus in sizes if (answer := need.meet([_unpriced(accelerator, gpus)])) is not None]
        if met:
            found.append((accelerator, min(met, key=lambda answer: (answer.gpus, len(answer.machines)))))
    return found


def _unpriced(accelerator: Accelerator, gpus: int) -> Offer:
    """A machine whose price plays no part: one USD per accelerator-hour."""
    name = f"{gpus} x {accelerator.name}"
    return made_offer(seller="any", name=name, accelerator=accelerator, gpus=gpus, usd_per_hour=Decimal(gpus))


def _cheapest_by_size(offers: Iterable[Offer]) -> list[Offer]:
    best: dict[float, Offer] = {}
    for offer in offers:
        size = offer.instance_type.accelerator_count
        other = best.get(size)
        if other is None or (offer.usd_per_hour, offer.key) < (other.usd_per_hour, other.key):
            best[size] = offer
    return [best[size] for size in sorted(best)]


def _monthly(per_second: float) -> Decimal:
    """A rate per second over a planning month of 730 hours."""
    return Decimal(repr(float(per_second))) * SECONDS_PER_HOUR * HOURS_PER_MONTH
