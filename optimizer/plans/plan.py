"""Says what was chosen: fleets of instances and replicas, their cost re-added in Decimal, the proof and the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Literal

from optimizer.program.problem import Objective, Shortfall, Status
from optimizer.sizing.candidates import SizedCandidate
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.offers import Offer
from providers.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

AlternativeKind = Literal["provider", "accelerator", "purchase_option", "precision", "include"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInstances:
    """`count` instances of one offer."""

    offer: Offer
    count: int

    @property
    def usd_per_hour(self) -> Decimal:
        """Of all of them."""
        return self.offer.usd_per_hour * self.count

    @property
    def accelerators(self) -> int:
        return int(self.offer.instance_type.accelerator_count) * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReplicas:
    """`count` replicas of one candidate on instances of one offer, and the load that is routed to them together."""

    workload: str
    candidate: SizedCandidate
    offer: Offer
    count: int
    requests_per_s: float
    output_tokens_per_s: float
    utilization: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Instances and the replicas that run on them."""

    instances: tuple[PlannedInstances, ...]
    replicas: tuple[PlannedReplicas, ...]

    @property
    def usd_per_hour(self) -> Decimal:
        return sum((item.usd_per_hour for item in self.instances), Decimal(0))

    @property
    def usd_per_month(self) -> Decimal:
        """Over a planning month of 730 hours."""
        return self.usd_per_hour * HOURS_PER_MONTH

    @property
    def requests_per_s(self) -> float:
        return sum(item.requests_per_s for item in self.replicas)

    @property
    def output_tokens_per_s(self) -> float:
        return sum(item.output_tokens_per_s for item in self.replicas)

    @property
    def accelerators(self) -> int:
        return sum(item.accelerators for item in self.instances)

    @property
    def providers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(item.offer.provider for item in self.instances))

    @property
    def usd_per_million_output_tokens(self) -> Decimal | None:
        """USD/h / (output tokens/s x 3600) x 10^6, at the load planned; None without load."""
        if self.output_tokens_per_s <= 0:
            return None
        return self.usd_per_hour * 1_000_000 / (Decimal(self.output_tokens_per_s) * SECONDS_PER_HOUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the solver proved: `bound` is USD/month from below (min_cost) or requests/s from above (max_throughput)."""

    bound: float | None
    gap: float | None
    solver: str
    variables: int
    constraints: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The best plan under another choice; no `fleet` where nothing fits, not `within_budget` where it costs more."""

    kind: AlternativeKind
    name: str
    flag: str
    fleet: Fleet | None
    within_budget: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A flag that would make the request feasible, and what the plan would then cost."""

    flag: str
    usd_per_month: Decimal
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceDates:
    """How old the prices are: of the `offers_considered`, `offers_eligible` pass the filters; the rest is about those.

    `undated` have no date, `stale` are undated or older than `max_age_days`.
    """

    as_of_oldest: date | None
    as_of_newest: date | None
    offers_considered: int
    offers_eligible: int
    undated: int
    stale: int
    max_age_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer to a request.

    `fleet` is None when nothing fits; `cheapest` is the cheapest fleet that runs the model at all, given when the
    request fixed a budget. `runner_up` is the best plan without the accelerator that the chosen fleet relies on most.
    """

    status: Status
    objective: Objective
    workload: InferenceWorkload
    architecture: Architecture
    budget_usd_per_month: Decimal | None
    fleet: Fleet | None
    cheapest: Fleet | None
    runner_up: Alternative | None
    proof: Proof
    prices: PriceDates
    alternatives: tuple[Alternative, ...] = ()
    rejections: Mapping[str, int] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    timing_s: Mapping[str, float] = field(default_factory=dict)
