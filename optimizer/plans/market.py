"""Turns offers and sized candidates into the numbers of the program, and its solution back into a fleet."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from optimizer.plans.plan import Fleet, PlannedInstances, PlannedReplicas
from optimizer.plans.sizer import ReplicaKind, Sizer, hardware_of
from optimizer.program.priority import solve_by_priority
from optimizer.program.problem import (
    Limits,
    Objective,
    Period,
    Placement,
    Problem,
    ProgramCandidate,
    ProgramOffer,
    ProgramWorkload,
    Solution,
    SolverOptions,
)
from optimizer.program.solve import solve
from optimizer.workload.workload import InferenceWorkload, ShapeDemand
from providers.offers import InstanceType, Offer, PurchaseOption
from providers.units import HOURS_PER_MONTH

_NO_BUNDLE: Final = "one replica takes several instances, not taken as spot or without a region"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How capacity is bought and lost, beside prices.

    boot_hours        paid for each start of an instance bought by the hour, before it serves
    spot_margin       part of spot capacity that is taken as lost to interruptions
    horizon_hours     how long the need lasts; a longer commitment is paid to its end. None: as long as any term
    """

    boot_hours: float = 0.0
    spot_margin: float = 0.0
    horizon_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """Instances of an offer that run today; `committed` ones cannot be given back."""

    offer: Offer
    running: int
    committed: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A solved program, and its solution as a fleet; None where there is none within the limits."""

    problem: Problem
    solution: Solution
    fleet: Fleet | None
    runs: Mapping[str, "Runs"]


@dataclass(frozen=True, slots=True)
class Runs:
    """What a candidate of the program stands for."""

    sizer: Sizer
    hardware: str
    kind: ReplicaKind


@dataclass(slots=True)
class Market:
    """Workloads against offers, through the integer program. `stock` bounds offers by key, where it is known."""

    sizers: Sequence[Sizer]
    terms: Terms
    solver_options: SolverOptions
    holdings: Sequence[Holding] = ()
    stock: Mapping[str, int] = field(default_factory=dict)
    build_s: float = 0.0
    solve_s: float = 0.0
    _offers: dict[str, Offer] = field(default_factory=dict)

    @property
    def periods(self) -> tuple[Period, ...]:
        """Hourly periods of the longest profile, or one that stands for always."""
        longest = max(len(sizer.workload.profile) for sizer in self.sizers)
        return tuple(Period(id=f"h{t:03}", hours=1.0) for t in range(longest)) or (Period(id="always", hours=1.0),)

    def choose(
        self,
        offers: Iterable[Offer],
        objective: Objective,
        limits: Limits,
        *,
        precisions: tuple[str, ...] = (),
        at_all: bool = False,
    ) -> Choice:
        """The best fleet from `offers`: cheapest for the rates, or the most requests/s that the limits' budget buys.

        Empty `precisions` are each workload's own. `at_all` asks for the cheapest that runs every workload, whatever
        its rate.
        """
        started, sizing_before = time.perf_counter(), self._sizing_s()
        program_offers = self._program_offers(offers, precisions)
        candidates = self._candidates(program_offers, precisions)
        problem = Problem(
            offers=program_offers,
            candidates=[self._program_candidate(key, runs) for key, runs in candidates.items()],
            workloads=[self._program_workload(sizer.workload, objective, at_all=at_all) for sizer in self.sizers],
            periods=self.periods,
            limits=limits,
            objective=objective,
            utilisation=self._utilization,
            spot_margin=self.terms.spot_margin,
            horizon_hours=self.terms.horizon_hours,
        )
        built = time.perf_counter()
        solution = self._solve(problem)
        self.build_s += built - started - (self._sizing_s() - sizing_before)
        self.solve_s += time.perf_counter() - built
        return Choice(problem, solution, self.fleet(problem, solution, candidates), candidates)

    def rivals(self, choice: Choice, offers: Iterable[Offer]) -> list[ProgramOffer]:
        """What of `offers` could stand in the place of what was chosen: all of the same hardware, chosen or not."""
        solution = choice.solution
        used = {*solution.kept, *(key for key, _ in solution.bought)}
        in_use = {o.hardware: o.instances_per_unit for o in choice.problem.offers if o.id in used}
        known = {offer.id: offer for offer in choice.problem.offers if offer.hardware in in_use}
        for key, offer in {str(offer.key): offer for offer in offers}.items():
            for hardware, machines in in_use.items():
                alone = hardware_of(offer.instance_type) == hardware
                if alone or (machines > 1 and self._is_bundle(offer, hardware, machines)):
                    unit = self._program_offer(key, offer, self.stock.get(key), machines)
                    known.setdefault(unit.id, unit)
        return list(known.values())

    def _is_bundle(self, offer: Offer, hardware: str, machines: int) -> bool:
        kind = offer.instance_type
        return machines in self.bundles(offer, ()) and hardware_of(kind, machines) == hardware

    def _solve(self, problem: Problem) -> Solution:
        """The solution; of a portfolio that its budget cannot carry, for the workloads that come first."""
        portfolio = len(problem.workloads) > 1 and problem.objective == "min_cost"
        if portfolio and problem.limits.budget_usd_per_month is not None:
            return solve_by_priority(problem, self.solver_options)
        return solve(problem, self.solver_options)

    def _sizing_s(self) -> float:
        return sum(sizer.seconds for sizer in self.sizers)

    def _program_offers(self, offers: Iterable[Offer], precisions: tuple[str, ...]) -> list[ProgramOffer]:
        """What is for sale, and what is held: an offer of its own, at its own price, that cannot grow.

        Where a replica takes several instances, they are sold together, as an offer of their own.
        """
        found = [
            self._program_offer(key, offer, self.stock.get(key), machines)
            for key, offer in {str(offer.key): offer for offer in offers}.items()
            for machines in self.bundles(offer, precisions)
        ]
        for index, holding in enumerate(self.holdings):
            found += self._held(f"held {index}: {holding.offer.key}", holding, precisions)
        return found

    def _held(self, key: str, holding: Holding, precisions: tuple[str, ...]) -> Iterator[ProgramOffer]:
        """Instances that run today, in the bundles that a replica takes where it takes several, and what remains."""
        left = Holding(holding.offer, holding.running, holding.committed)
        sizes = self.bundles(holding.offer, precisions)
        if 1 not in sizes:
            machines = sizes[0]
            together = holding.running // machines
            bound = min(together, holding.committed // machines)
            bundle = self._program_offer(key, holding.offer, together * machines, machines)
            yield _as_held(bundle, holding.offer, committed=bound, running=together)
            left = Holding(holding.offer, holding.running - together * machines, holding.committed - bound * machines)
            left = replace(left, committed=min(left.committed, left.running))
        if left.running or 1 in sizes:
            single = self._program_offer(key, holding.offer, left.running)
            yield _as_held(single, holding.offer, committed=left.committed, running=left.running)

    def bundles(self, offer: Offer, precisions: tuple[str, ...]) -> tuple[int, ...]:
        """In which numbers instances of the offer are bought: as the workloads' replicas take them, else one by one.

        Several belong into one region, and are not taken as spot: the loss of one ends the replica.
        """
        sizes: set[int] = set()
        for sizer in self.sizers:
            sizes |= set(sizer.bundle_sizes(offer.instance_type, precisions))
        if offer.region is None or offer.purchase_option is PurchaseOption.SPOT:
            if sizes - {1}:
                self.sizers[0].reject(_NO_BUNDLE, offer.instance_type)
            sizes &= {1}
        return tuple(sorted(sizes)) or (1,)

    def _program_offer(self, key: str, offer: Offer, maximum: int | None, machines: int = 1) -> ProgramOffer:
        kind = offer.instance_type
        if machines > 1:
            key = f"{machines} together: {key}"
            maximum = None if maximum is None else maximum // machines
        self._offers[key] = offer
        commitment = offer.commitment
        term_hours = upfront = 0.0
        if commitment is not None:
            term_hours = commitment.term_months * float(HOURS_PER_MONTH)
            upfront = float(commitment.upfront_usd)
        return ProgramOffer(
            id=key,
            hardware=hardware_of(kind, machines),
            provider=kind.provider,
            accelerator=kind.accelerator,
            accelerators_per_unit=int(kind.accelerator_count) * machines,
            instances_per_unit=machines,
            purchase_option=offer.purchase_option.value,
            usd_per_hour=machines * (float(offer.usd_per_hour) - (upfront / term_hours if upfront else 0.0)),
            region=offer.region,
            zone=offer.zone,
            instance_type=kind.name,
            upfront_usd=machines * upfront,
            term_hours=term_hours or None,
            maximum=maximum,
        )

    def _candidates(self, offers: Sequence[ProgramOffer], precisions: tuple[str, ...]) -> dict[str, Runs]:
        kinds: dict[str, tuple[InstanceType, int]] = {
            o.hardware: (self._offers[o.id].instance_type, o.instances_per_unit) for o in offers
        }
        return {
            f"{sizer.workload.name}|{hardware}|{kind.precision}|{kind.layout}": Runs(sizer, hardware, kind)
            for sizer in self.sizers
            for hardware, (instance_type, machines) in kinds.items()
            if machines == 1 or machines in sizer.bundle_sizes(instance_type, precisions)
            for kind in sizer.replica_kinds(instance_type, precisions, machines=machines)
        }

    def _program_candidate(self, key: str, runs: Runs) -> ProgramCandidate:
        capacities = {
            shape_id(b): capacity * self._head_room(runs.sizer.workload)
            for b in range(len(runs.kind.by_shape))
            if (capacity := runs.kind.requests_per_s(b)) is not None
        }
        return ProgramCandidate(
            id=key,
            workload=runs.sizer.workload.name,
            hardware=runs.hardware,
            accelerators_per_replica=runs.kind.accelerators_per_replica,
            requests_per_s=capacities,
            boot_hours=self.terms.boot_hours,
        )

    @property
    def _utilization(self) -> float:
        """The program's one bound on utilisation: the largest that a workload allows."""
        return max(sizer.workload.utilization for sizer in self.sizers)

    def _head_room(self, workload: InferenceWorkload) -> float:
        """What scales a workload's capacities, so that the program's bound is the workload's own."""
        return workload.utilization / self._utilization

    def _program_workload(self, workload: InferenceWorkload, objective: Objective, *, at_all: bool) -> ProgramWorkload:
        factors = workload.factors(len(self.periods))
        rates = [0.0 if at_all else _rate(demand, objective) for demand in workload.demands]
        return ProgramWorkload(
            id=workload.name,
            shapes=tuple(shape_id(b) for b in range(len(rates))),
            demand=tuple(tuple(rate * factor for rate in rates) for factor in factors),
            minimum_replicas=workload.minimum_replicas,
            minimum_replicas_by_region=workload.minimum_replicas_by_region,
            regions=workload.regions,
            spot_allowed=workload.spot_allowed,
            same_region=workload.same_region,
            priority=workload.priority,
        )

    def fleet(self, problem: Problem, solution: Solution, candidates: Mapping[str, Runs]) -> Fleet | None:
        """The chosen counts as a fleet; each group of replicas carries its part of its candidate's load.

        Where no rate was asked for at all, the load is what the replicas may serve of the mix.
        """
        if solution.status == "infeasible":
            return None
        idle = problem.objective == "min_cost" and not any(
            rate for workload in problem.workloads for row in workload.demand for rate in row
        )
        names = [period.id for period in problem.periods]
        hours = tuple(period.hours for period in problem.periods)
        keys = dict.fromkeys([*solution.kept, *(offer for offer, _ in solution.bought)])
        units = {offer.id: offer.instances_per_unit for offer in problem.offers}
        held = {offer.id for offer in problem.offers if offer.running}
        instances = [
            PlannedInstances(
                offer=self._offers[key],
                kept=units[key] * solution.kept.get(key, 0),
                bought=tuple(units[key] * solution.bought.get((key, name), 0) for name in names),
                hours=hours,
                boot_hours=self.terms.boot_hours,
                horizon_hours=self.terms.horizon_hours,
                held=key in held,
            )
            for key in keys
        ]
        groups: dict[tuple[str, str], dict[int, Placement]] = {}
        for placement in solution.placements:
            at = names.index(placement.period)
            groups.setdefault((placement.candidate, placement.offer), {})[at] = placement
        replicas = [
            self._group(candidates[candidate], self._offers[offer], placed, solution, hours, idle=idle)
            for (candidate, offer), placed in groups.items()
        ]
        return Fleet(instances=in_order(instances), replicas=tuple(replicas))

    def _group(
        self,
        runs: Runs,
        offer: Offer,
        placed: Mapping[int, Placement],
        solution: Solution,
        hours: tuple[float, ...],
        *,
        idle: bool,
    ) -> PlannedReplicas:
        workload = runs.sizer.workload
        counts = tuple(placed[t].replicas if t in placed else 0 for t in range(len(hours)))
        if idle:
            flows = tuple(_possible(workload, runs.kind, count) for count in counts)
        else:
            flows = tuple(self._flows(placed.get(t), len(workload.demands), solution) for t in range(len(hours)))
        return PlannedReplicas(workload=workload, kind=runs.kind, offer=offer, counts=counts, flows=flows, hours=hours)

    def _flows(self, placement: Placement | None, shapes: int, solution: Solution) -> tuple[float, ...]:
        """Requests/s by shape that the placed replicas serve of what is routed to their candidate."""
        if placement is None:
            return (0.0,) * shapes
        part = placement.replicas / solution.replicas[placement.candidate, placement.period]
        keys = ((placement.candidate, shape_id(b), placement.period) for b in range(shapes))
        return tuple(solution.flows.get(key, 0.0) * part for key in keys)


def _as_held(unit: ProgramOffer, offer: Offer, *, committed: int, running: int) -> ProgramOffer:
    """The unit at the price it has today, its upfront spread: that is paid, and the term began before the need."""
    price = float(offer.usd_per_hour) * unit.instances_per_unit
    return replace(unit, usd_per_hour=price, upfront_usd=0.0, term_hours=None, committed=committed, running=running)


def shape_id(index: int) -> str:
    """The program's name of a workload's shape."""
    return f"b{index}"


def in_order(items: Iterable[PlannedInstances]) -> tuple[PlannedInstances, ...]:
    """Dearest line first, then by offer key."""
    return tuple(sorted(items, key=lambda line: (-line.usd_per_hour, line.offer.key)))


def _possible(workload: InferenceWorkload, kind: ReplicaKind, count: int) -> tuple[float, ...]:
    """Requests/s by shape that `count` replicas serve of the workload's mix at its highest utilisation."""
    shares = [demand.share for demand in workload.demands]
    load = 0.0
    for b, share in enumerate(shares):
        capacity = kind.requests_per_s(b)
        if capacity is None:
            return (0.0,) * len(shares)
        load += share / capacity
    return tuple(workload.utilization * count * share / load for share in shares)


def _rate(demand: ShapeDemand, objective: Objective) -> float:
    """The demand for one shape: its share where the total is sought, its rate, or nothing where none was given."""
    return demand.share if objective == "max_throughput" else demand.requests_per_s or 0.0
