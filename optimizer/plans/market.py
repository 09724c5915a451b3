"""Turns offers and sized candidates into the numbers of the program, and its solution back into a fleet."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from providers.offers import InstanceType, Offer
from providers.units import HOURS_PER_MONTH


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


@dataclass(frozen=True, slots=True)
class _Runs:
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
        program_offers = self._program_offers(offers)
        candidates = self._candidates(program_offers, precisions)
        problem = Problem(
            offers=program_offers,
            candidates=[self._program_candidate(key, runs) for key, runs in candidates.items()],
            workloads=[self._program_workload(sizer.workload, objective, at_all=at_all) for sizer in self.sizers],
            periods=self.periods,
            limits=limits,
            objective=objective,
            utilisation=self.sizers[0].workload.utilization,
            spot_margin=self.terms.spot_margin,
            horizon_hours=self.terms.horizon_hours,
        )
        built = time.perf_counter()
        solution = self._solve(problem)
        self.build_s += built - started - (self._sizing_s() - sizing_before)
        self.solve_s += time.perf_counter() - built
        idle = objective == "min_cost" and not any(
            rate for workload in problem.workloads for row in workload.demand for rate in row
        )
        return Choice(problem, solution, self._fleet(problem, solution, candidates, idle=idle))

    def _solve(self, problem: Problem) -> Solution:
        """The solution; of a portfolio that its budget cannot carry, for the workloads that come first."""
        portfolio = len(problem.workloads) > 1 and problem.objective == "min_cost"
        if portfolio and problem.limits.budget_usd_per_month is not None:
            return solve_by_priority(problem, self.solver_options)
        return solve(problem, self.solver_options)

    def _sizing_s(self) -> float:
        return sum(sizer.seconds for sizer in self.sizers)

    def _program_offers(self, offers: Iterable[Offer]) -> list[ProgramOffer]:
        """What is for sale, and what is held: an offer of its own, at its own price, that cannot grow."""
        wanted = {str(offer.key): offer for offer in offers}
        self._offers |= wanted
        bought = [self._program_offer(key, offer, self.stock.get(key)) for key, offer in wanted.items()]
        for index, holding in enumerate(self.holdings):
            key = f"held {index}: {holding.offer.key}"
            self._offers[key] = holding.offer
            held = self._program_offer(key, holding.offer, holding.running)
            bought.append(replace(held, committed=holding.committed, running=holding.running))
        return bought

    def _program_offer(self, key: str, offer: Offer, maximum: int | None) -> ProgramOffer:
        kind = offer.instance_type
        commitment = offer.commitment
        term_hours = upfront = 0.0
        if commitment is not None:
            term_hours = commitment.term_months * float(HOURS_PER_MONTH)
            upfront = float(commitment.upfront_usd)
        return ProgramOffer(
            id=key,
            hardware=hardware_of(kind),
            provider=kind.provider,
            accelerator=kind.accelerator,
            accelerators_per_unit=int(kind.accelerator_count),
            purchase_option=offer.purchase_option.value,
            usd_per_hour=float(offer.usd_per_hour) - (upfront / term_hours if upfront else 0.0),
            region=offer.region,
            zone=offer.zone,
            instance_type=kind.name,
            upfront_usd=upfront,
            term_hours=term_hours or None,
            maximum=maximum,
        )

    def _candidates(self, offers: Sequence[ProgramOffer], precisions: tuple[str, ...]) -> dict[str, _Runs]:
        kinds: dict[str, InstanceType] = {o.hardware: self._offers[o.id].instance_type for o in offers}
        return {
            f"{sizer.workload.name}|{hardware}|{kind.precision}|{kind.layout}": _Runs(sizer, hardware, kind)
            for sizer in self.sizers
            for hardware, instance_type in kinds.items()
            for kind in sizer.replica_kinds(instance_type, precisions)
        }

    def _program_candidate(self, key: str, runs: _Runs) -> ProgramCandidate:
        capacities = {
            shape_id(b): capacity
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

    def _fleet(
        self, problem: Problem, solution: Solution, candidates: Mapping[str, _Runs], *, idle: bool
    ) -> Fleet | None:
        """The chosen counts as a fleet; each group of replicas carries its part of its candidate's load.

        Where no rate was asked for at all (`idle`), the load is what the replicas may serve of the mix.
        """
        if solution.status == "infeasible":
            return None
        names = [period.id for period in problem.periods]
        hours = tuple(period.hours for period in problem.periods)
        keys = dict.fromkeys([*solution.kept, *(offer for offer, _ in solution.bought)])
        instances = [
            PlannedInstances(
                offer=self._offers[key],
                kept=solution.kept.get(key, 0),
                bought=tuple(solution.bought.get((key, name), 0) for name in names),
                hours=hours,
                boot_hours=self.terms.boot_hours,
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
        runs: _Runs,
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
