"""Says what is asked of a training plan and what was chosen: clusters, hours, money re-added in Decimal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from optimizer.plans.plan import PriceDates
from optimizer.plans.planner import Pool
from optimizer.plans.training_cost import billed_hours
from optimizer.program.problem import Quota, Shortfall, SolverOptions
from optimizer.program.training import TrainingObjective, TrainingSolution
from optimizer.sizing.training.calibration import TIME_SPREAD
from optimizer.sizing.training.layouts import TrainingEstimate, choices_made
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun
from providers.interruptions import InterruptionRate
from providers.offers import Offer
from providers.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """What is asked: jobs, money and limits, the offers that may be bought, and those under other flags.

    `earliest_hours` says per job name when it can start. `offers_on_file` counts all offers that were looked at.
    `margin` stretches the estimated hours that deadlines and budget are held against: 1 = the estimate itself.
    `quotas` bound what each job takes.
    """

    jobs: Sequence[tuple[TrainingRun, Architecture]]
    offers: Sequence[Offer]
    offers_on_file: int
    rejections: Mapping[str, int]
    today: date
    budget_usd: Decimal | None = None
    max_accelerators: int | None = None
    earliest_hours: Mapping[str, float] = field(default_factory=dict)
    max_age_days: int = 30
    margin: float = 1.0
    quotas: Sequence[Quota] = ()
    solver_options: SolverOptions = field(default_factory=SolverOptions)
    pools: Sequence[Pool] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def objective(self) -> TrainingObjective:
        """Fastest when only money is limited, cheapest otherwise."""
        has_deadline = any(run.deadline_hours is not None for run, _ in self.jobs)
        return "min_time" if self.budget_usd is not None and not has_deadline else "min_cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """`nodes` instances of one offer that run a job: hours and money of the whole run.

    `hours` include interruptions and checkpoints of spot; `billed_hours` is what is paid for: whole days of a capacity
    block, the whole term of a reservation.
    """

    run: TrainingRun
    model: Architecture
    offer: Offer
    nodes: int
    estimate: TrainingEstimate
    hours: float
    billed_hours: float
    interruptions: float
    interruption_rate: InterruptionRate | None
    usd_storage: Decimal
    margin: float = 1.0

    @property
    def planned_hours(self) -> float:
        """What is held against the deadline."""
        return self.hours * self.margin

    @property
    def planned_usd(self) -> Decimal:
        """What is held against the budget."""
        return self.usd_at(self.margin)

    @property
    def accelerators(self) -> int:
        return int(self.offer.instance_type.accelerator_count) * self.nodes

    @property
    def usd_per_hour(self) -> Decimal:
        return self.offer.usd_per_hour * self.nodes

    @property
    def usd_compute(self) -> Decimal:
        return self.usd_per_hour * Decimal(repr(self.billed_hours))

    @property
    def usd_total(self) -> Decimal:
        return self.usd_compute + self.usd_storage

    def usd_at(self, hours_factor: float) -> Decimal:
        """The run's cost if it takes so many times as long."""
        billed = billed_hours(self.offer, self.hours * hours_factor)
        return self.usd_per_hour * Decimal(repr(billed)) + self.usd_storage * Decimal(repr(hours_factor))

    @property
    def hours_low(self) -> float:
        return self.hours / TIME_SPREAD

    @property
    def hours_high(self) -> float:
        return self.hours * TIME_SPREAD

    @property
    def tokens_per_s(self) -> float:
        """Over the whole run, stops included."""
        return self.run.tokens / self.hours / SECONDS_PER_HOUR

    @property
    def usd_per_billion_tokens(self) -> Decimal:
        return self.usd_total / Decimal(repr(self.run.tokens)) * 10**9

    @property
    def id(self) -> str:
        return f"{self.run.name}|{self.nodes}x {self.offer.key}|{self.run.precision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job's cluster and when it starts, in hours from now."""

    choice: ClusterChoice
    start_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAlternative:
    """The best choice for one job under another restriction or flag; None where nothing fits."""

    kind: str
    name: str
    flag: str
    choice: ClusterChoice | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSuggestion:
    """A flag that would make the request feasible, what the run would then cost, and how long it would take."""

    flag: str
    usd_total: Decimal
    hours: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The answer: the jobs with their clusters, or what is short, the fastest cluster there is, and what would fit."""

    request: TrainingRequest
    solution: TrainingSolution
    jobs: tuple[PlannedJob, ...]
    fastest: ClusterChoice | None
    cheapest: ClusterChoice | None
    runner_up: TrainingAlternative | None
    alternatives: tuple[TrainingAlternative, ...]
    trade_off: tuple[ClusterChoice, ...]
    prices: PriceDates
    rejections: Mapping[str, int]
    suggestions: tuple[TrainingSuggestion, ...]
    warnings: tuple[str, ...]
    timing_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def shortfalls(self) -> tuple[Shortfall, ...]:
        return self.solution.shortfalls

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of the request, and what the sizing of each job takes for granted."""
        made = (
            f"{job.choice.run.name}: {line}"
            for job in self.jobs
            for line in choices_made(job.choice.run, job.choice.estimate)
        )
        return (*self.request.assumptions, *made)

    @property
    def usd_total(self) -> Decimal:
        return sum((job.choice.usd_total for job in self.jobs), Decimal(0))

    @property
    def hours(self) -> float:
        """From now to the end of the last job."""
        return max((job.start_hours + job.choice.hours for job in self.jobs), default=0.0)
