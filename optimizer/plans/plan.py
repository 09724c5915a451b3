"""Says what was chosen: fleets of instances and replicas, their cost re-added in Decimal, the proof and the rest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Literal

from optimizer.plans.sizer import ReplicaKind
from optimizer.program.problem import Objective, Shortfall, Status
from optimizer.sizing.candidates import SizedCandidate
from optimizer.sizing.intervals import Estimate
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.offers import Offer
from providers.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

AlternativeKind = Literal["provider", "accelerator", "purchase_option", "precision", "include", "without"]
ChangeKind = Literal["keep", "add", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInstances:
    """Instances of one offer: `kept` in every period, and `bought` more in single periods of `hours` each.

    `boot_hours` is paid for each start of an instance that is bought by the period. A commitment that is longer than
    `horizon_hours` is paid to its end, within the need. None: the need outlasts it. Of what is `held` already, nothing
    is paid upfront any more, and its term is nobody's choice.
    """

    offer: Offer
    kept: int
    bought: tuple[int, ...] = (0,)
    hours: tuple[float, ...] = (1.0,)
    boot_hours: float = 0.0
    horizon_hours: float | None = None
    held: bool = False

    @property
    def count(self) -> int:
        """The most that run at once."""
        return self.kept + max(self.bought)

    @property
    def starts(self) -> int:
        """Starts in one cycle of the periods, the first following the last."""
        return sum(max(0, self.bought[t] - self.bought[t - 1]) for t in range(len(self.bought)))

    @property
    def mean_count(self) -> Decimal:
        """Instances paid for in an average hour, starts included."""
        hours = [Decimal(repr(hour)) for hour in self.hours]
        paid = sum((count * hour for count, hour in zip(self.bought, hours, strict=True)), Decimal(0))
        paid += self.starts * Decimal(repr(self.boot_hours))
        return self.kept + paid / sum(hours)

    @property
    def usd_per_hour(self) -> Decimal:
        """Of all of them, in an average hour of need."""
        return self.offer.usd_per_hour * self.mean_count * self.paid_hours_per_needed_hour

    @property
    def paid_hours_per_needed_hour(self) -> Decimal:
        """Whole terms / need, where a commitment binds: the last term is paid to its end."""
        commitment = self.offer.commitment
        if commitment is None or self.horizon_hours is None or self.held:
            return Decimal(1)
        term = Decimal(commitment.term_months) * HOURS_PER_MONTH
        need = Decimal(repr(self.horizon_hours))
        terms = (need / term).to_integral_value(rounding=ROUND_CEILING)
        return terms * term / need

    @property
    def upfront_usd(self) -> Decimal:
        """Paid at once when the kept ones are committed to."""
        commitment = self.offer.commitment
        return Decimal(0) if commitment is None or self.held else commitment.upfront_usd * self.kept

    @property
    def accelerators(self) -> int:
        """At most at once."""
        return int(self.offer.instance_type.accelerator_count) * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReplicas:
    """Replicas of one kind on instances of one offer, and the requests that are routed to them.

    `counts[t]` replicas serve `flows[t][b]` requests/s of shape b together in period t of `hours[t]`.
    """

    workload: InferenceWorkload
    kind: ReplicaKind
    offer: Offer
    counts: tuple[int, ...]
    flows: tuple[tuple[float, ...], ...]
    hours: tuple[float, ...] = (1.0,)

    @property
    def count(self) -> int:
        """The most that run at once."""
        return max(self.counts)

    @property
    def mean_flows(self) -> tuple[float, ...]:
        """Requests/s by shape in an average hour."""
        total = sum(self.hours)
        shapes = range(len(self.workload.demands))
        return tuple(sum(flow[b] * h for flow, h in zip(self.flows, self.hours, strict=True)) / total for b in shapes)

    @property
    def requests_per_s(self) -> float:
        return sum(self.mean_flows)

    @property
    def output_tokens_per_s(self) -> float:
        pairs = zip(self.mean_flows, self.workload.demands, strict=True)
        return sum(flow * demand.shape.output_tokens for flow, demand in pairs)

    @property
    def sized(self) -> tuple[SizedCandidate, ...]:
        """The sizing for each shape that is routed here, or for one shape where none is."""
        pairs = zip(self.kind.by_shape, self.mean_flows, strict=True)
        return tuple(sized for sized, flow in pairs if sized and flow > 0) or (self.kind.any_shape,)

    @property
    def ttft_ms(self) -> Estimate:
        """The longest over the shapes that are routed here."""
        return max((sized.ttft_ms for sized in self.sized), key=lambda estimate: estimate.value)

    @property
    def tpot_ms(self) -> Estimate:
        """The longest over the shapes that are routed here."""
        return max((sized.tpot_ms for sized in self.sized), key=lambda estimate: estimate.value)

    @property
    def utilization(self) -> float:
        """The highest part of the replicas' capacity that is used in any period: sum_b flow_b / capacity_b."""
        return max(
            (
                sum(
                    flow / (count * capacity)
                    for b, flow in enumerate(flows)
                    if flow > 0 and (capacity := self.kind.requests_per_s(b))
                )
                for count, flows in zip(self.counts, self.flows, strict=True)
                if count
            ),
            default=0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Instances and the replicas that run on them."""

    instances: tuple[PlannedInstances, ...]
    replicas: tuple[PlannedReplicas, ...]

    @property
    def usd_per_hour(self) -> Decimal:
        """In an average hour."""
        return sum((item.usd_per_hour for item in self.instances), Decimal(0))

    @property
    def usd_per_month(self) -> Decimal:
        """Over a planning month of 730 hours."""
        return self.usd_per_hour * HOURS_PER_MONTH

    @property
    def served(self) -> frozenset[str]:
        """Names of the workloads that run here."""
        return frozenset(item.workload.name for item in self.replicas)

    @property
    def requests_per_s(self) -> float:
        return sum(item.requests_per_s for item in self.replicas)

    @property
    def output_tokens_per_s(self) -> float:
        return sum(item.output_tokens_per_s for item in self.replicas)

    @property
    def accelerators(self) -> int:
        """At most at once."""
        return sum(item.accelerators for item in self.instances)

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
class BindingLimit:
    """A limit that binds: what relaxing it by `change` would save per month, or how much more it would serve."""

    limit: str
    change: float
    unit: str
    saving_usd_per_month: Decimal
    more_requests_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseReason:
    """Why `count` instances of an offer are bought as they are, at `usd_per_hour` each in an hour of need.

    kind              committed, term, always_on, by_the_hour, spot
    used_share        share of hours in which the instance that is used least (kept) or most (by the hour) runs
    break_even_share  kept: price / price of `against` by the hour, the use from which the term pays; by the hour: the
                      use from which `against` would pay; spot: price per uninterrupted hour / price of `against`
    """

    kind: str
    provider: str
    instance_type: str
    region: str | None
    purchase_option: str
    count: int
    usd_per_hour: float
    used_share: float
    break_even_share: float | None
    against: str | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to do with instances, against those that run today; `usd_per_month` is what that adds (+) or saves (-)."""

    kind: ChangeKind
    offer: Offer
    count: int
    usd_per_month: Decimal


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


def price_dates(offers: Sequence[Offer], offers_on_file: int, today: date, max_age_days: int) -> PriceDates:
    """How old the prices of the eligible offers are; one without a date is stale."""
    days = [offer.observed_on for offer in offers if offer.observed_on]
    limit = today - timedelta(days=max_age_days)
    return PriceDates(
        as_of_oldest=min(days, default=None),
        as_of_newest=max(days, default=None),
        offers_considered=offers_on_file,
        offers_eligible=len(offers),
        undated=len(offers) - len(days),
        stale=len(offers) - sum(day >= limit for day in days),
        max_age_days=max_age_days,
    )


def age_warnings(offer: Offer, today: date, max_age_days: int) -> Iterator[str]:
    """What to say of a chosen offer whose price is stale."""
    if offer.observed_on is None:
        yield f"{offer.key}: the price has no date; treat it as stale"
    elif offer.observed_on < today - timedelta(days=max_age_days):
        age = (today - offer.observed_on).days
        yield f"{offer.key}: the price is {age} days old (of {offer.observed_on}); `costopt refresh` updates it"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWorkload:
    """A workload of the plan, the model that it runs, and whether the plan serves it."""

    workload: InferenceWorkload
    architecture: Architecture
    served: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer to a request.

    `fleet` is None when nothing fits; `cheapest` is the cheapest fleet that runs everything at all, given when the
    request fixed a budget. `runner_up` is the best plan on one other accelerator than those chosen, `runner_ups` are
    the best plans without each accelerator that was chosen, where they were asked for.
    """

    status: Status
    objective: Objective
    workloads: tuple[PlannedWorkload, ...]
    budget_usd_per_month: Decimal | None
    fleet: Fleet | None
    cheapest: Fleet | None
    runner_up: Alternative | None
    proof: Proof
    prices: PriceDates
    alternatives: tuple[Alternative, ...] = ()
    binding_limits: tuple[BindingLimit, ...] = ()
    reasons: tuple[PurchaseReason, ...] = ()
    runner_ups: tuple[Alternative, ...] = ()
    changes: tuple[Change, ...] = ()
    rejections: Mapping[str, int] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    timing_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The model of a single workload, or how many workloads there are and, where some are left out, are served."""
        if len(self.workloads) == 1:
            return self.workloads[0].architecture.hf_id
        left_out = len(self.unserved)
        return f"{len(self.workloads) - left_out} of " * bool(left_out) + f"{len(self.workloads)} workloads"

    @property
    def unserved(self) -> tuple[str, ...]:
        """Names of the workloads that the budget does not carry."""
        return tuple(planned.workload.name for planned in self.workloads if not planned.served)
