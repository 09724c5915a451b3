"""The integer program's input and output as plain numbers: what is for sale, what can serve, what was chosen.

Vocabulary of the program (per workload w, shape b, period t, offer o, hardware class k, candidate c):

    lambda_wbt  demand in requests/s             kappa_cb  requests/s of shape b that one replica of c serves alone
    g_c         accelerators that a replica uses  G_k       accelerators of one unit of hardware k
    n_o         units kept in every period        m_ot      units bought for period t only
    r_ct        replicas                          x_cbt     requests/s of shape b routed to candidate c

Money is in USD as float here and nowhere else; `usd_per_hour` figures are averages over the cycle of periods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from providers.errors import InvalidValue

PurchaseOption = Literal["on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block"]
Objective = Literal["min_cost", "max_throughput"]
Status = Literal["optimal", "within_gap", "feasible", "infeasible"]
QuotaUnit = Literal["instances", "accelerators"]

BY_PERIOD: frozenset[str] = frozenset({"on_demand", "spot"})
"""Purchase options that can be bought for single periods; all others are kept and paid in every hour."""


def _require(holds: bool, what: str, value: object, hint: str) -> None:
    if not holds:
        raise InvalidValue(what, value, hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOffer:
    """One offer: units of one hardware class at a price, bought one way in one place.

    A unit is `instances_per_unit` whole instances sold together: 1, or the number of instances over which one replica
    is spread. Such a bundle is an offer of its own with its own `hardware`. All figures are per unit.

    usd_per_hour       recurring price of a unit
    upfront_usd        paid once per unit when committing, spread over `term_hours`
    maximum            most units that can be had (known stock or quota of this very offer); None: no known limit
    minimum_order      fewest units if any are bought
    committed          units already bought that cannot be given back: they are kept and stay in the cost
    running            units running today, for the comparison with what was chosen
    """

    id: str
    hardware: str
    provider: str
    accelerator: str
    accelerators_per_unit: int
    purchase_option: PurchaseOption
    usd_per_hour: float
    region: str | None = None
    zone: str | None = None
    instance_type: str = ""
    instances_per_unit: int = 1
    upfront_usd: float = 0.0
    term_hours: float | None = None
    maximum: int | None = None
    minimum_order: int = 1
    committed: int = 0
    running: int = 0

    def __post_init__(self) -> None:
        _require(self.accelerators_per_unit >= 1, "accelerators per unit", self.accelerators_per_unit, "at least 1")
        _require(self.instances_per_unit >= 1, "instances per unit", self.instances_per_unit, "at least 1")
        _require(0 <= self.usd_per_hour < float("inf"), f"price of {self.id}", self.usd_per_hour, "finite, at least 0")
        _require(self.maximum is None or self.maximum >= 0, f"maximum of {self.id}", self.maximum, "at least 0 or None")
        _require(self.minimum_order >= 1, f"minimum order of {self.id}", self.minimum_order, "at least 1")
        _require(
            self.committed >= 0 and (self.maximum is None or self.committed <= self.maximum),
            f"committed units of {self.id}",
            self.committed,
            "between 0 and the maximum",
        )
        _require(
            self.upfront_usd == 0 or (self.term_hours is not None and self.term_hours > 0),
            f"upfront of {self.id}",
            self.upfront_usd,
            "needs a term to be spread over",
        )

    @property
    def by_period(self) -> bool:
        """Whether the offer can be bought for single periods."""
        return self.purchase_option in BY_PERIOD

    @property
    def is_spot(self) -> bool:
        return self.purchase_option == "spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCandidate:
    """A way to run one replica of a workload on one hardware class.

    `requests_per_s[b]` is what a replica serves of shape b alone within the SLO; a shape it cannot serve is absent.
    `boot_hours` is paid per start before the replica serves: machine boot and model load.
    """

    id: str
    workload: str
    hardware: str
    accelerators_per_replica: int
    requests_per_s: Mapping[str, float]
    boot_hours: float = 0.0

    def __post_init__(self) -> None:
        _require(
            self.accelerators_per_replica >= 1,
            f"accelerators of {self.id}",
            self.accelerators_per_replica,
            "at least 1",
        )
        for shape, capacity in self.requests_per_s.items():
            _require(0 < capacity < float("inf"), f"capacity of {self.id} for {shape}", capacity, "finite, above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramWorkload:
    """What must be served: `demand[t][b]` requests/s of shape b in period t, in the order of the problem's periods.

    minimum_replicas            replicas in every period, whatever the demand
    minimum_replicas_by_region  the same per region
    regions                     where replicas may be (data residency); None: anywhere, also where the region is unknown
    spot_allowed                whether replicas may be on spot units
    same_region                 all replicas with one provider in one region
    priority                    1 is served first when the budget does not cover all
    """

    id: str
    shapes: Sequence[str]
    demand: Sequence[Sequence[float]]
    minimum_replicas: int = 0
    minimum_replicas_by_region: Mapping[str, int] = field(default_factory=dict)
    regions: frozenset[str] | None = None
    spot_allowed: bool = True
    same_region: bool = False
    priority: int = 1

    def __post_init__(self) -> None:
        _require(
            len(set(self.shapes)) == len(self.shapes) > 0, f"shapes of {self.id}", self.shapes, "some, all different"
        )
        for row in self.demand:
            _require(len(row) == len(self.shapes), f"demand of {self.id}", row, f"one rate per shape {self.shapes}")
            for rate in row:
                _require(0 <= rate < float("inf"), f"demand of {self.id}", rate, "finite requests/s, at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A stretch of the cycle (a day, a week) that repeats; periods follow each other in the order given."""

    id: str
    hours: float

    def __post_init__(self) -> None:
        _require(0 < self.hours < float("inf"), f"hours of {self.id}", self.hours, "above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """At most `maximum` instances or accelerators at any time over the offers that match every field given."""

    id: str
    maximum: int
    unit: QuotaUnit = "accelerators"
    provider: str | None = None
    region: str | None = None
    accelerator: str | None = None
    instance_type: str | None = None
    purchase_option: PurchaseOption | None = None

    def __post_init__(self) -> None:
        _require(self.maximum >= 0, f"quota {self.id}", self.maximum, "at least 0")

    def covers(self, offer: ProgramOffer) -> bool:
        return all(
            wanted is None or wanted == actual
            for wanted, actual in (
                (self.provider, offer.provider),
                (self.region, offer.region),
                (self.accelerator, offer.accelerator),
                (self.instance_type, offer.instance_type),
                (self.purchase_option, offer.purchase_option),
            )
        )

    def weight(self, offer: ProgramOffer) -> int:
        """What one unit of the offer takes from the quota."""
        return offer.accelerators_per_unit if self.unit == "accelerators" else offer.instances_per_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the buyer may not exceed; None or empty: no limit.

    budget_usd_per_month   over a month of 730 hours
    max_accelerators       at any time, over all offers
    max_spot_share         in every period, spot's part of the accelerators and of each workload's load: without any
                           spot unit the rest still serves 1 - share of the demand
    max_provider_share     the same for each provider
    min_providers          providers that run at least one replica, in every period
    spare_replicas         in every period each workload's demand is still served after losing, on any one hardware
                           class, as many replicas of each candidate as this many units can hold (1: survives the
                           loss of the largest instance)
    minimum_hours_up       a unit bought by the period stays at least so long
    """

    budget_usd_per_month: float | None = None
    max_accelerators: int | None = None
    max_spot_share: float | None = None
    min_providers: int = 0
    max_provider_share: float | None = None
    spare_replicas: int = 0
    minimum_hours_up: float = 0.0
    quotas: tuple[Quota, ...] = ()

    def __post_init__(self) -> None:
        for what, share in (("spot share", self.max_spot_share), ("provider share", self.max_provider_share)):
            _require(share is None or 0 <= share <= 1, f"maximum {what}", share, "between 0 and 1")
        budget = self.budget_usd_per_month
        _require(budget is None or 0 <= budget < float("inf"), "budget per month", budget, "finite USD, at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything that the program needs to know.

    max_throughput scales all demand by one factor and finds the largest that the budget buys: the mix of shapes,
    periods and workloads stays as `demand` has it.

    utilisation    rho: the part of a replica's capacity that may be used (head-room for peaks)
    spot_margin    the part of a replica's capacity that is taken as lost to interruptions where it runs on spot
    horizon_hours  how long the need lasts: a longer commitment is paid to its end. None: at least as long as any term
    """

    offers: Sequence[ProgramOffer]
    candidates: Sequence[ProgramCandidate]
    workloads: Sequence[ProgramWorkload]
    periods: Sequence[Period] = (Period(id="always", hours=1.0),)
    limits: Limits = Limits()
    objective: Objective = "min_cost"
    utilisation: float = 0.8
    spot_margin: float = 0.0
    horizon_hours: float | None = None

    def __post_init__(self) -> None:
        _require(0 < self.utilisation <= 1, "utilisation", self.utilisation, "above 0, at most 1")
        _require(0 <= self.spot_margin < 1, "spot margin", self.spot_margin, "at least 0, below 1")
        _require(
            self.objective == "min_cost" or self.limits.budget_usd_per_month is not None,
            "objective",
            self.objective,
            "needs a budget",
        )
        _require(len(self.periods) > 0, "periods", self.periods, "at least one")
        for what, items in (("offer", self.offers), ("candidate", self.candidates), ("workload", self.workloads)):
            _require(len({item.id for item in items}) == len(items), f"{what} ids", what, "must be unique")
        for workload in self.workloads:
            _require(
                len(workload.demand) == len(self.periods),
                f"demand of {workload.id}",
                len(workload.demand),
                "one row per period",
            )

    @property
    def cycle_hours(self) -> float:
        return sum(period.hours for period in self.periods)

    def effective_usd_per_hour(self, offer: ProgramOffer) -> float:
        """Price of one kept unit per hour of need: terms x (hourly x term hours + upfront) / hours of need.

        Terms are whole: the need pays the last one to its end. Without a horizon one term is spread over its hours.
        """
        if offer.term_hours is None:
            return offer.usd_per_hour
        needed = offer.term_hours if self.horizon_hours is None else self.horizon_hours
        terms = ceil(needed / offer.term_hours * (1 - 1e-12))
        return terms * (offer.usd_per_hour * offer.term_hours + offer.upfront_usd) / needed


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOptions:
    """How to solve. `gap` is relative; stopping is by gap and node count, never by the clock, unless asked for."""

    solver: str = "auto"
    gap: float = 0.0
    max_nodes: int | None = None
    time_limit_s: float | None = None
    reduce: bool = True
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`replicas` of a candidate that run on units of one offer in one period."""

    candidate: str
    offer: str
    period: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A limit that is too tight: it needs `needed` where `available` is allowed, in `unit`.

    usd_per_hour  the cheapest plan once the limit allows `needed`; None where no such plan was looked for
    """

    limit: str
    needed: float
    available: float
    unit: str
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What was chosen and what was proven.

    status         optimal: proven within 1e-6; within_gap: proven within the gap asked for; feasible: a limit stopped
                   the solver first; infeasible: no plan exists
    kept           n_o by offer id, zeros left out
    bought         m_ot by (offer id, period id)
    replicas       r_ct by (candidate id, period id)
    flows          x_cbt in requests/s by (candidate id, shape, period id)
    utilisation    by (candidate id, period id): load / capacity, at most rho
    placements     which replicas run on which offer's units
    usd_per_hour   average over the cycle
    scale          factor on the demand that is served: 1 for min_cost, the objective for max_throughput
    bound          proven bound on the objective: USD/h from below, or scale from above
    gap            abs(objective - bound) / max(objective, bound)
    unserved       workloads left out by `solve_by_priority`
    """

    status: Status
    usd_per_hour: float | None = None
    scale: float | None = None
    kept: Mapping[str, int] = field(default_factory=dict)
    bought: Mapping[tuple[str, str], int] = field(default_factory=dict)
    replicas: Mapping[tuple[str, str], int] = field(default_factory=dict)
    flows: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    utilisation: Mapping[tuple[str, str], float] = field(default_factory=dict)
    placements: Sequence[Placement] = ()
    bound: float | None = None
    gap: float | None = None
    solver: str = ""
    variables: int = 0
    constraints: int = 0
    nodes: int = 0
    offers_after_reduction: int = 0
    shortfalls: Sequence[Shortfall] = ()
    unserved: Sequence[str] = ()

    def units(self, offer: str, period: str) -> int:
        """Units of an offer in a period, kept and bought."""
        return self.kept.get(offer, 0) + self.bought.get((offer, period), 0)
