"""Turns a budget's workloads and the offers on the market into what each would run on in a month, at which cost.

Each workload is planned for itself and pays for whole instances. Commitments already bought are used first, at no
extra cost, by the workloads in the order of the budget; what they cost is carried all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Final

from optimizer.plans.comparison import Undecided, cheapest_of_each, compare
from optimizer.plans.market import Market, Terms
from optimizer.plans.plan import Fleet, PlannedInstances
from optimizer.plans.planner import LOSSY_PRECISIONS, Pool
from optimizer.plans.sizer import Sizer
from optimizer.program.problem import Limits, SolverOptions
from optimizer.report.budget import Budget, BudgetedWorkload
from optimizer.report.commitments import CommitmentMonth, HeldCommitment, commitment_month
from optimizer.report.money import ZERO, cents
from optimizer.report.months import Month
from optimizer.workload.workload import InferenceWorkload
from providers.offers import Commitment, CommitmentKind, InstanceType, Offer, PurchaseOption
from providers.units import SECONDS_PER_HOUR

COMMITTED: Final = "committed"
_NOT_COMMITTED: Final = ("on_demand", "spot")
_NEXT_TO_NOTHING: Final = Decimal("0.000001")
"""Price per hour at which the program sees capacity that is paid for already; an offer's price is above 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLine:
    """Instances of one offer, or of one commitment, that a workload runs on in a month.

    `instances` is an average over `hours`; `usd_per_hour` is of one instance, upfront spread over the term.
    """

    workload: str
    owner: str | None
    machine: InstanceType
    region: str | None
    purchase_option: str
    commitment: str | None
    instances: Decimal
    hours: Decimal
    usd_per_hour: Decimal
    observed_on: date | None
    source: str

    @property
    def instance_hours(self) -> Decimal:
        return self.instances * self.hours

    @property
    def accelerator_hours(self) -> Decimal:
        return self.instance_hours * Decimal(repr(self.machine.accelerator_count))

    @property
    def usd(self) -> Decimal:
        """Amortised cost of the month, to the cent."""
        return cents(self.instance_hours * self.usd_per_hour)

    @property
    def option(self) -> str:
        """on_demand, spot or committed: what a cost export tells apart."""
        return self.purchase_option if self.purchase_option in _NOT_COMMITTED else COMMITTED

    @property
    def thing(self) -> str:
        """What is bought: provider/instance type/region/option."""
        return _thing(self.machine, self.region, self.option)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLoad:
    """What a workload's planned fleet serves: averages over the month, and the highest part of capacity used."""

    workload: BudgetedWorkload
    requests_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    utilization: float
    lines: tuple[PlannedLine, ...]
    problem: str = ""
    """Why there is no fleet; empty where there is one."""

    @property
    def usd(self) -> Decimal:
        return sum((line.usd for line in self.lines), ZERO)

    @property
    def avoidable_usd(self) -> Decimal:
        """Cost that another choice would save: commitments are paid whatever is chosen."""
        return sum((line.usd for line in self.lines if line.commitment is None), ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMonth:
    """The plan of a month: what each workload runs on, and how the commitments are used."""

    month: Month
    loads: tuple[PlannedLoad, ...]
    commitments: tuple[CommitmentMonth, ...]
    warnings: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[PlannedLine, ...]:
        return tuple(line for load in self.loads for line in load.lines)

    @property
    def unused_usd(self) -> dict[str, Decimal]:
        """Cost of what no workload uses, by commitment: its cost less what workloads carry of it."""
        carried: dict[str, Decimal] = {}
        for line in self.lines:
            if line.commitment is not None:
                carried[line.commitment] = carried.get(line.commitment, ZERO) + line.usd
        return {c.commitment.name: c.amortised_usd - carried.get(c.commitment.name, ZERO) for c in self.commitments}


@dataclass(slots=True)
class Planner:
    """Plans the workloads of one budget for any month; sizes each workload on each hardware once."""

    budget: Budget
    offers: Sequence[Offer]
    machines: Mapping[tuple[str, str], InstanceType]
    """Every known instance type by provider and name: commitments may be of machines that are not bought any more."""
    pools: Sequence[Pool] = ()
    file_name: str = "BUDGET.yaml"
    _sizers: dict[str, Sizer] = field(default_factory=dict)
    _fleets: dict[tuple[object, ...], Fleet | None] = field(default_factory=dict)
    _reduced: dict[int, tuple[Sequence[Offer], list[Offer]]] = field(default_factory=dict)

    def month(self, month: Month, reported: Month) -> PlannedMonth:
        """The plan for the month's demand; growth counts from the budget's base month, else from the reported one."""
        active = [c for c in self.budget.commitments if c.hours_in(month) > 0]
        left = {commitment.name: commitment.count for commitment in active}
        loads, warnings = [], []
        for entry in self.budget.workloads:
            workload = grown(entry, month.minus(self.budget.base_month or reported))
            fleet = self._fleet(entry, workload, active, left)
            load = self._load(entry, workload, fleet, month, {c.name: c for c in active})
            for line in load.lines:
                if line.commitment is not None:
                    left[line.commitment] = max(0, left[line.commitment] - int(line.instances))
            loads.append(load)
            if load.problem:
                warnings.append(f"{entry.name}: {load.problem}")
        lines = [line for load in loads for line in load.lines]
        warnings += [
            f"commitment {c.name}: no machine {c.instance_type} of {c.provider} is known, so no workload can use it"
            for c in active
            if (c.provider, c.instance_type) not in self.machines
        ]
        return PlannedMonth(
            month=month,
            loads=tuple(loads),
            commitments=tuple(_used(commitment, month, lines) for commitment in active),
            warnings=tuple(warnings),
        )

    def other_ways(self, entry: BudgetedWorkload, months: int) -> list[tuple[str, str, Fleet]]:
        """Fleets under other flags, for the demand `months` after the base: flag, what to know of it, fleet."""
        workload = grown(entry, months)
        found = []
        for pool in self.pools:
            if pool.kind == "purchase_option" and pool.offers:
                fleet = self._solve(entry, workload, self._choosable(workload, pool.offers))
                found.append((pool.flag, pool.note, fleet))
        if not workload.precisions:
            for precision, note in LOSSY_PRECISIONS.items():
                offers = self._choosable(workload, self.offers)
                fleet = self._solve(entry, workload, offers, precisions=(precision,))
                found.append((f"--precision {precision}", note, fleet))
        return [(flag, note, fleet) for flag, note, fleet in found if fleet is not None]

    def _choosable(self, workload: InferenceWorkload, offers: Sequence[Offer]) -> Sequence[Offer]:
        """The offers that a best fleet can have; found once for each list of offers."""
        if workload.regions is not None or workload.same_region or workload.minimum_replicas_by_region:
            return offers
        if id(offers) not in self._reduced:
            self._reduced[id(offers)] = (offers, cheapest_of_each(offers))
        return self._reduced[id(offers)][1]

    def _fleet(
        self,
        entry: BudgetedWorkload,
        workload: InferenceWorkload,
        active: Sequence[HeldCommitment],
        left: Mapping[str, int],
    ) -> Fleet | None:
        """The cheapest fleet with what is left of the commitments; found once for each rate and what is left."""
        paid = [offer for c in active if left[c.name] for offer in self._as_offers(c)]
        stock = {str(offer.key): left[offer.commitment.variant] for offer in paid if offer.commitment is not None}
        key = (entry.name, workload.requests_per_s, tuple(sorted(stock.items())))
        if key not in self._fleets:
            self._fleets[key] = self._solve(entry, workload, self._choosable(workload, self.offers), paid, stock)
        return self._fleets[key]

    def _solve(
        self,
        entry: BudgetedWorkload,
        workload: InferenceWorkload,
        offers: Sequence[Offer],
        paid: Sequence[Offer] = (),
        stock: Mapping[str, int] | None = None,
        precisions: tuple[str, ...] = (),
    ) -> Fleet | None:
        """The cheapest fleet of the offers, with as many of those that are paid for as there are."""
        sizer = self._sizers.setdefault(entry.name, Sizer(entry.workload, entry.architecture))
        market = Market([replace(sizer, workload=workload)], Terms(), SolverOptions(), (), stock or {})
        try:
            return compare(market, (*offers, *paid), "min_cost", Limits(), precisions=precisions)
        except Undecided:
            return market.choose((*offers, *paid), "min_cost", Limits(), precisions=precisions).fleet

    def _as_offers(self, commitment: HeldCommitment) -> list[Offer]:
        """The commitment as capacity that costs next to nothing more; none for a machine that nobody knows."""
        machine = self.machines.get((commitment.provider, commitment.instance_type))
        if machine is None:
            return []
        kept_long = commitment.term_months > 12
        return [
            Offer(
                instance_type=machine,
                region=commitment.region,
                zone=None,
                purchase_option=PurchaseOption.RESERVED_3Y if kept_long else PurchaseOption.RESERVED_1Y,
                usd_per_hour=_NEXT_TO_NOTHING,
                observed_on=None,
                source=f"commitment {commitment.name}",
                commitment=Commitment(
                    kind=CommitmentKind(commitment.kind), term_months=commitment.term_months, variant=commitment.name
                ),
            )
        ]

    def _load(
        self,
        entry: BudgetedWorkload,
        workload: InferenceWorkload,
        fleet: Fleet | None,
        month: Month,
        commitments: Mapping[str, HeldCommitment],
    ) -> PlannedLoad:
        if fleet is None:
            problem = "no offer on file runs it within its service level: it is planned at no cost, which is too low"
            return PlannedLoad(
                workload=entry,
                requests_per_s=workload.requests_per_s or 0.0,
                input_tokens_per_s=0.0,
                output_tokens_per_s=0.0,
                utilization=0.0,
                lines=(),
                problem=problem,
            )
        inputs = sum(
            flow * demand.shape.input_tokens
            for group in fleet.replicas
            for flow, demand in zip(group.mean_flows, workload.demands, strict=True)
        )
        lines = [line for item in fleet.instances for line in self._lines(entry, item, month, commitments)]
        return PlannedLoad(
            workload=entry,
            requests_per_s=fleet.requests_per_s,
            input_tokens_per_s=inputs,
            output_tokens_per_s=fleet.output_tokens_per_s,
            utilization=max((group.utilization for group in fleet.replicas), default=0.0),
            lines=tuple(lines),
        )

    def _lines(
        self,
        entry: BudgetedWorkload,
        item: PlannedInstances,
        month: Month,
        commitments: Mapping[str, HeldCommitment],
    ) -> list[PlannedLine]:
        """One line an offer; of a commitment that runs for a part of the month, the rest is bought on the market."""
        offer = item.offer
        held = commitments.get(offer.commitment.variant) if offer.commitment is not None else None
        line = PlannedLine(
            workload=entry.name,
            owner=entry.owner,
            machine=offer.instance_type,
            region=offer.region,
            purchase_option=offer.purchase_option.value,
            commitment=None,
            instances=item.mean_count,
            hours=month.hours,
            usd_per_hour=offer.usd_per_hour,
            observed_on=offer.observed_on,
            source=offer.source,
        )
        if held is None:
            return [line]
        covered = replace(
            line,
            purchase_option=COMMITTED,
            commitment=held.name,
            hours=held.hours_in(month),
            usd_per_hour=held.effective_usd_per_hour,
            observed_on=None,
            source=f"commitment {held.name}",
        )
        rest = month.hours - covered.hours
        market = [o for o in self.offers if held.covers(o.provider, o.instance_type.name, o.region)]
        if rest <= 0 or not market:
            return [covered]
        cheapest = min(market, key=lambda o: (o.usd_per_hour, o.key))
        return [
            covered,
            replace(
                line,
                region=cheapest.region,
                purchase_option=cheapest.purchase_option.value,
                hours=rest,
                usd_per_hour=cheapest.usd_per_hour,
                observed_on=cheapest.observed_on,
                source=cheapest.source,
            ),
        ]


def lowest_by_thing(offers: Sequence[Offer]) -> dict[str, Decimal]:
    """The lowest price per accelerator-hour of each thing, named like `PlannedLine.thing`."""
    found: dict[str, Decimal] = {}
    for offer in offers:
        option = offer.purchase_option.value
        thing = _thing(offer.instance_type, offer.region, option if option in _NOT_COMMITTED else COMMITTED)
        usd = offer.usd_per_accelerator_hour
        found[thing] = min(found.get(thing, usd), usd)
    return found


def _thing(machine: InstanceType, region: str | None, option: str) -> str:
    return f"{machine.provider}/{machine.name}/{region or '-'}/{option}"


def grown(entry: BudgetedWorkload, months: int) -> InferenceWorkload:
    """The workload after so many months of growth: every rate x (1 + growth)^months."""
    factor = (1.0 + entry.growth_per_month) ** months
    demands = tuple(
        replace(demand, requests_per_s=(demand.requests_per_s or 0.0) * factor) for demand in entry.workload.demands
    )
    return replace(entry.workload, demands=demands)


def monthly(per_second: float, month: Month) -> Decimal:
    """A rate per second over the month's hours."""
    return Decimal(repr(per_second)) * SECONDS_PER_HOUR * month.hours


def _used(commitment: HeldCommitment, month: Month, lines: Sequence[PlannedLine]) -> CommitmentMonth:
    used = sum((line.instance_hours for line in lines if line.commitment == commitment.name), Decimal(0))
    eligible = sum(
        (
            line.instance_hours
            for line in lines
            if line.commitment == commitment.name
            or (line.commitment is None and commitment.covers(line.machine.provider, line.machine.name, line.region))
        ),
        Decimal(0),
    )
    return commitment_month(commitment, month, used, eligible)
