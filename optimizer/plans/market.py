"""Turns offers and sized candidates into the numbers of the program, and its solution back into a fleet."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from optimizer.plans.plan import Fleet, PlannedInstances, PlannedReplicas
from optimizer.plans.sizer import Sizer
from optimizer.program.problem import (
    Limits,
    Objective,
    Problem,
    ProgramCandidate,
    ProgramOffer,
    ProgramWorkload,
    Solution,
    SolverOptions,
)
from optimizer.program.solve import solve
from optimizer.sizing.candidates import SizedCandidate
from providers.offers import InstanceType, Offer

_SHAPE = "requests"
Candidates = Mapping[str, tuple[str, SizedCandidate]]
"""By candidate id: the hardware, and what runs on it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A solved program, and its solution as a fleet; None where there is none within the limits."""

    solution: Solution
    fleet: Fleet | None


@dataclass(slots=True)
class Market:
    """One workload against offers, through the integer program."""

    sizer: Sizer
    solver_options: SolverOptions
    build_s: float = 0.0
    solve_s: float = 0.0
    _offers: dict[str, Offer] = field(default_factory=dict)

    def choose(
        self,
        offers: Iterable[Offer],
        objective: Objective,
        limits: Limits,
        *,
        requests_per_s: float,
        precisions: tuple[str, ...] = (),
    ) -> Choice:
        """The best fleet from `offers`: cheapest for the rate, or the most requests/s that the limits' budget buys.

        A rate of 0 asks for one replica. `requests_per_s` is ignored when throughput is sought. Empty `precisions`
        are the workload's own.
        """
        started, sizing_before = time.perf_counter(), self.sizer.seconds
        program_offers = [self._program_offer(offer) for offer in offers]
        candidates = self._candidates(program_offers, precisions)
        workload = self.sizer.workload
        problem = Problem(
            offers=program_offers,
            candidates=[self._program_candidate(key, *found) for key, found in candidates.items()],
            workloads=[
                ProgramWorkload(
                    id=workload.name,
                    shapes=(_SHAPE,),
                    demand=((requests_per_s if objective == "min_cost" else 1.0,),),
                    minimum_replicas=1,
                )
            ],
            limits=limits,
            objective=objective,
            utilisation=workload.utilization,
        )
        built = time.perf_counter()
        solution = solve(problem, self.solver_options)
        self.build_s += built - started - (self.sizer.seconds - sizing_before)
        self.solve_s += time.perf_counter() - built
        idle = objective == "min_cost" and requests_per_s == 0
        return Choice(solution, self._fleet(solution, candidates, idle=idle))

    def _program_offer(self, offer: Offer) -> ProgramOffer:
        key = str(offer.key)
        kind = offer.instance_type
        self._offers[key] = offer
        return ProgramOffer(
            id=key,
            hardware=self.sizer.hardware(kind),
            provider=kind.provider,
            accelerator=kind.accelerator,
            accelerators_per_unit=int(kind.accelerator_count),
            purchase_option=offer.purchase_option.value,
            usd_per_hour=float(offer.usd_per_hour),
            region=offer.region,
            zone=offer.zone,
            instance_type=kind.name,
        )

    def _candidates(self, offers: Sequence[ProgramOffer], precisions: tuple[str, ...]) -> Candidates:
        kinds: dict[str, InstanceType] = {o.hardware: self._offers[o.id].instance_type for o in offers}
        return {
            f"{hardware}|{candidate.precision}|{candidate.layout}": (hardware, candidate)
            for hardware, kind in kinds.items()
            for candidate in self.sizer.candidates(kind, precisions)
        }

    def _program_candidate(self, key: str, hardware: str, candidate: SizedCandidate) -> ProgramCandidate:
        return ProgramCandidate(
            id=key,
            workload=self.sizer.workload.name,
            hardware=hardware,
            accelerators_per_replica=candidate.accelerators_per_replica,
            requests_per_s={_SHAPE: candidate.requests_per_s.value},
        )

    def _fleet(self, solution: Solution, candidates: Candidates, *, idle: bool) -> Fleet | None:
        """The chosen counts as a fleet; each group of replicas carries its part of the candidate's load.

        Where no rate was asked for (`idle`), the load is what the replicas may serve.
        """
        if solution.status == "infeasible":
            return None
        kept = [PlannedInstances(offer=self._offers[key], count=count) for key, count in solution.kept.items()]
        bought = [PlannedInstances(offer=self._offers[o], count=count) for (o, _), count in solution.bought.items()]
        groups = []
        for placement in solution.placements:
            key = (placement.candidate, placement.period)
            candidate = candidates[placement.candidate][1]
            flow = solution.flows.get((placement.candidate, _SHAPE, placement.period), 0.0) / solution.replicas[key]
            if idle:
                flow = candidate.requests_per_s.value * self.sizer.workload.utilization
            rate = flow * placement.replicas
            offer = self._offers[placement.offer]
            groups.append(planned_replicas(self.sizer, candidate, offer, placement.replicas, requests_per_s=rate))
        return Fleet(instances=merged([*kept, *bought]), replicas=tuple(groups))


def planned_replicas(
    sizer: Sizer, candidate: SizedCandidate, offer: Offer, count: int, *, requests_per_s: float
) -> PlannedReplicas:
    """A group of `count` replicas that serve `requests_per_s` together."""
    return PlannedReplicas(
        workload=sizer.workload.name,
        candidate=candidate,
        offer=offer,
        count=count,
        requests_per_s=requests_per_s,
        output_tokens_per_s=requests_per_s * sizer.workload.demands[0].shape.output_tokens,
        utilization=requests_per_s / (count * candidate.requests_per_s.value),
    )


def merged(items: Iterable[PlannedInstances]) -> tuple[PlannedInstances, ...]:
    """One line an offer, dearest line first, then by offer key."""
    counts: dict[str, tuple[Offer, int]] = {}
    for item in items:
        key = str(item.offer.key)
        counts[key] = (item.offer, counts.get(key, (item.offer, 0))[1] + item.count)
    lines = [PlannedInstances(offer=offer, count=count) for offer, count in counts.values()]
    return tuple(sorted(lines, key=lambda line: (-line.usd_per_hour, line.offer.key)))
