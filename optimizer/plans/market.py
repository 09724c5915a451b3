"""Turns offers and sized candidates into the numbers of the program, and its solution back into a fleet."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from optimizer.plans.plan import Fleet, PlannedInstances, PlannedReplicas
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
from optimizer.sizing.candidates import Hardware, SizedCandidate, size_candidates
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.accelerators import catalogue
from providers.offers import InstanceType, Offer

_SHAPE = "requests"
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Choice:
    """A solved program with the objects that its ids stand for."""

    solution: Solution
    fleet: Fleet | None


@dataclass(slots=True)
class Market:
    """One workload against all offers that may come into question; sizes each hardware once, whoever sells it."""

    workload: InferenceWorkload
    architecture: Architecture
    limits: Limits
    solver_options: SolverOptions
    engine: str = "vllm"
    gpu_memory_utilization: float | None = None
    sized: dict[tuple[str, tuple[str, ...]], list[SizedCandidate]] = field(default_factory=dict)
    sizing_rejections: dict[str, int] = field(default_factory=dict)
    sizing_s: float = 0.0
    build_s: float = 0.0
    solve_s: float = 0.0
    _offers: dict[str, Offer] = field(default_factory=dict)
    _program_offers: dict[str, ProgramOffer] = field(default_factory=dict)

    def choose(
        self,
        offers: Iterable[Offer],
        objective: Objective,
        *,
        requests_per_s: float,
        precisions: tuple[str, ...] = (),
        limits: Limits | None = None,
        minimum_replicas: int = 0,
    ) -> Choice:
        """The best fleet from `offers`: cheapest for the rate, or the most requests/s that the limits' budget buys.

        `requests_per_s` is ignored when throughput is sought. Empty `precisions` are the workload's own.
        """
        started, sizing_before = time.perf_counter(), self.sizing_s
        program_offers = [self._program_offer(offer) for offer in offers]
        candidates = self._candidates(program_offers, precisions or self.workload.precisions)
        problem = Problem(
            offers=program_offers,
            candidates=[self._program_candidate(key, c) for key, c in candidates.items()],
            workloads=[
                ProgramWorkload(
                    id=self.workload.name,
                    shapes=(_SHAPE,),
                    demand=((requests_per_s if objective == "min_cost" else 1.0,),),
                    minimum_replicas=minimum_replicas,
                )
            ],
            limits=limits or self.limits,
            objective=objective,
            utilisation=self.workload.utilization,
        )
        built = time.perf_counter()
        solution = solve(problem, self.solver_options)
        self.build_s += built - started - (self.sizing_s - sizing_before)
        self.solve_s += time.perf_counter() - built
        return Choice(solution, self._fleet(solution, candidates))

    def hardware_candidates(self, kind: InstanceType, precisions: tuple[str, ...]) -> list[SizedCandidate]:
        """What runs on the accelerators of one instance of that type, sized once for each hardware."""
        key = (hardware_id(kind), precisions)
        found = self.sized.get(key)
        if found is None:
            started = time.perf_counter()
            found, rejections = self._size(kind, precisions)
            self.sizing_s += time.perf_counter() - started
            self.sized[key] = found
            if not found and rejections:
                reason = min(rejections)
                self.sizing_rejections[reason] = self.sizing_rejections.get(reason, 0) + 1
        return found

    def _size(self, kind: InstanceType, precisions: tuple[str, ...]) -> tuple[list[SizedCandidate], list[str]]:
        hardware = Hardware(
            accelerator=catalogue()[kind.accelerator], count=int(kind.accelerator_count), link=kind.link
        )
        candidates, rejections = size_candidates(
            self.architecture,
            hardware,
            shape=self.workload.demands[0].shape,
            slo=self.workload.slo,
            precisions=precisions or None,
            kv_precision=self.workload.kv_precision,
            context_tokens=self.workload.needed_context_tokens,
            engine=self.engine,
            gpu_memory_utilization=self.gpu_memory_utilization,
        )
        return candidates, [rejection.reason for rejection in rejections]

    def _program_offer(self, offer: Offer) -> ProgramOffer:
        key = str(offer.key)
        found = self._program_offers.get(key)
        if found is None:
            kind = offer.instance_type
            found = ProgramOffer(
                id=key,
                hardware=hardware_id(kind),
                provider=kind.provider,
                accelerator=kind.accelerator,
                accelerators_per_unit=int(kind.accelerator_count),
                purchase_option=offer.purchase_option.value,
                usd_per_hour=float(offer.usd_per_hour),
                region=offer.region,
                zone=offer.zone,
                instance_type=kind.name,
            )
            self._program_offers[key] = found
            self._offers[key] = offer
        return found

    def _candidates(
        self, offers: Sequence[ProgramOffer], precisions: tuple[str, ...]
    ) -> dict[str, tuple[str, SizedCandidate]]:
        """By candidate id: the hardware and what runs on it."""
        kinds = {offer.hardware: self._offers[offer.id].instance_type for offer in offers}
        return {
            f"{hardware}|{c.precision}|{c.layout}": (hardware, c)
            for hardware, kind in kinds.items()
            for c in self.hardware_candidates(kind, precisions)
        }

    def _program_candidate(self, key: str, found: tuple[str, SizedCandidate]) -> ProgramCandidate:
        hardware, candidate = found
        return ProgramCandidate(
            id=key,
            workload=self.workload.name,
            hardware=hardware,
            accelerators_per_replica=candidate.accelerators_per_replica,
            requests_per_s={_SHAPE: candidate.requests_per_s.value},
        )

    def _fleet(self, solution: Solution, candidates: Mapping[str, tuple[str, SizedCandidate]]) -> Fleet | None:
        """The chosen counts as a fleet; each group of replicas carries its part of the candidate's load."""
        if solution.status == "infeasible":
            return None
        instances = [PlannedInstances(offer=self._offers[key], count=count) for key, count in solution.kept.items()]
        bought = [PlannedInstances(offer=self._offers[o], count=count) for (o, _), count in solution.bought.items()]
        replicas = []
        for placement in solution.placements:
            candidate = candidates[placement.candidate][1]
            key = (placement.candidate, placement.period)
            share = placement.replicas / solution.replicas[key]
            rate = solution.flows.get((placement.candidate, _SHAPE, placement.period), 0.0) * share
            replicas.append(
                PlannedReplicas(
                    workload=self.workload.name,
                    candidate=candidate,
                    offer=self._offers[placement.offer],
                    count=placement.replicas,
                    requests_per_s=rate,
                    output_tokens_per_s=rate * self.workload.demands[0].shape.output_tokens,
                    utilization=min(1.0, rate / (placement.replicas * candidate.requests_per_s.value + _EPSILON)),
                )
            )
        return Fleet(instances=_merged([*instances, *bought]), replicas=tuple(replicas))


def hardware_id(kind: InstanceType) -> str:
    """What sizing depends on: accelerator, count and link. Equal for every seller of the same machine."""
    return f"{int(kind.accelerator_count)}x {kind.accelerator}/{kind.link}"


def _merged(items: Iterable[PlannedInstances]) -> tuple[PlannedInstances, ...]:
    """One line an offer, dearest line first, then by offer key."""
    counts: dict[str, tuple[Offer, int]] = {}
    for item in items:
        key = str(item.offer.key)
        counts[key] = (item.offer, counts.get(key, (item.offer, 0))[1] + item.count)
    lines = [PlannedInstances(offer=offer, count=count) for offer, count in counts.values()]
    return tuple(sorted(lines, key=lambda line: (-line.usd_per_hour, line.offer.key)))
