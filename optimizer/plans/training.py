"""Turns training jobs and the offers on the market into the cluster for each job, its runner-ups and the trade-off."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Final

from optimizer.plans.plan import PriceDates
from optimizer.plans.planner import Pool
from optimizer.program.problem import ProgramOffer, Quota, Shortfall, SolverOptions
from optimizer.program.training import (
    Job,
    JobOption,
    TrainingObjective,
    TrainingProblem,
    TrainingSolution,
    solve_training,
)
from optimizer.sizing.training.calibration import TIME, TIME_SPREAD, optimizer_states
from optimizer.sizing.training.layouts import TrainingEstimate, best_layout, for_hardware
from optimizer.sizing.training.memory import adapter_parameters
from optimizer.sizing.training.setup import Cluster
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun
from providers.accelerators import catalogue
from providers.errors import NoUsablePrices
from providers.interruptions import InterruptionRate, interruption_rate
from providers.networks import network_of, usual_domain
from providers.offers import InstanceType, Offer, PurchaseOption
from providers.units import GB, GIB, HOURS_PER_DAY, HOURS_PER_MONTH, SECONDS_PER_HOUR

NODE_COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Clusters that are looked at, in instances: powers of two, and the half-way points."""

MOST_ACCELERATORS: Final = 4096
"""Clusters beyond this are not bought from a price list."""

_IDEAL_SHARE: Final = 0.8
"""No stack reaches more of the 16-bit peak than this: clusters that would be too slow even so are not sized."""

_IN_TIME: Final = 2
"""Clusters of one hardware that meet the deadline, and are looked at: larger ones cost more for the same tokens."""

_CURVE_HARDWARE: Final = 3
"""Kinds of hardware, cheapest first, whose larger clusters are sized for the trade-off of time against cost."""

_LADDER: Final = 6
"""Sizes of a cluster that are looked at where there is no deadline."""

_WORTH_MORE_NODES: Final = 0.97
"""A larger cluster must be at least 3 % faster than the one before."""

CHECKPOINT_BYTES_PER_S: Final = 1e9
"""Per instance, to network storage: what clouds' network file systems and object stores sustain for one writer."""

START_HOURS: Final = 0.25
"""Paid at the start and after each interruption: boot, image, loading of the checkpoint (assumed: 15 minutes)."""

CHECKPOINTS_KEPT: Final = 2
_BYTES_PER_STORED_TOKEN: Final = 4
"""Token ids of vocabularies above 65,536 are stored in 32 bits."""

STORAGE_USD_PER_GB_MONTH: Final[Mapping[str, Decimal]] = {
    "aws": Decimal("0.023"),  # S3 Standard, us-east-1, list price 2026
    "gcp": Decimal("0.020"),  # Cloud Storage Standard, us regions, list price 2026
    "azure": Decimal("0.018"),  # Blob Storage hot LRS, East US, list price 2026
    "lambda": Decimal("0.20"),  # persistent filesystem, list price 2026
    "runpod": Decimal("0.07"),  # network volume, list price 2026
}


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
    block, the whole term of a reservation. `precision` is set where it is another than the run's.
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
        billed = _billed_hours(self.offer, self.hours * hours_factor)
        return self.usd_per_hour * Decimal(repr(billed)) + self.usd_storage

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
    def usd_total(self) -> Decimal:
        return sum((job.choice.usd_total for job in self.jobs), Decimal(0))

    @property
    def hours(self) -> float:
        """From now to the end of the last job."""
        return max((job.start_hours + job.choice.hours for job in self.jobs), default=0.0)


def plan_training(request: TrainingRequest) -> TrainingPlan:
    """The cheapest cluster for each job within deadlines and budget, or the fastest within a budget alone.

    One kind of instance in one region a job; several only where the seller documents a network between them. Raises
    NoUsablePrices when no offer passes the filters.
    """
    if not request.offers:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in request.rejections.items())
        raise NoUsablePrices(f"no offer passes the filters ({reasons or 'none on file'}); loosen one of them")
    desk = Desk(most_accelerators=request.max_accelerators, margin=request.margin, quotas=request.quotas)
    started = time.perf_counter()
    choices = [
        choice
        for run, model in request.jobs
        for choice in desk.choices(run, model, request.offers, objective=request.objective, counted=True)
    ]
    sized = time.perf_counter()
    solution = _solve(request, choices)
    if solution.status == "infeasible":
        choices = _with_late_ones(desk, request, choices)
        solution = _solve(request, choices)
    by_id = {choice.id: choice for choice in choices}
    jobs = tuple(PlannedJob(choice=by_id[option.id], start_hours=start) for option, start in solution.chosen.values())
    solved = time.perf_counter()
    first = _with_curve(desk, request, [choice for choice in choices if _is_first(request, choice)])
    fastest = min(first, key=lambda c: (c.hours, c.usd_total, c.id), default=None)
    alternatives = tuple(_alternatives(desk, request, choices))
    chosen = jobs[0].choice if jobs else None
    return TrainingPlan(
        request=request,
        solution=solution,
        jobs=jobs,
        fastest=fastest,
        cheapest=min(first, key=_by_cost, default=None),
        runner_up=_runner_up(alternatives, chosen, request.objective),
        alternatives=alternatives,
        trade_off=trade_off(first),
        prices=_price_dates(request),
        rejections={**request.rejections, **desk.rejections},
        suggestions=() if jobs else tuple(_suggestions(request, first, alternatives, fastest)),
        warnings=(*request.warnings, *_warnings(request, jobs)),
        timing_s={
            "sizing_s": sized - started,
            "solve_s": solved - sized,
            "alternatives_s": time.perf_counter() - solved,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareKey:
    """Machines that are sized alike, whoever sells them."""

    accelerator: str
    count: int
    link: str
    network_gbit_per_s: float | None
    host_memory_gib: float | None


@dataclass(slots=True)
class Desk:
    """Sizes each kind of cluster once for each run, whoever sells it, and prices it with every offer."""

    most_accelerators: int | None = None
    margin: float = 1.0
    quotas: Sequence[Quota] = ()
    rejections: dict[str, int] = field(default_factory=dict)
    _sized: dict[tuple[object, ...], TrainingEstimate | None] = field(default_factory=dict)

    def choices(
        self,
        run: TrainingRun,
        model: Architecture,
        offers: Iterable[Offer],
        *,
        objective: TrainingObjective = "min_cost",
        counted: bool = False,
        even_if_late: bool = False,
    ) -> list[ClusterChoice]:
        """Every cluster of one offer that holds the job; `counted` notes the hardware that none of them is of."""
        found: list[ClusterChoice] = []
        for group in _by_hardware(offers, host_need_gib(run, model), all_regions=bool(self.quotas)).values():
            kind = group[0].instance_type
            sized = list(self._ladder(run, model, kind, objective, even_if_late=even_if_late))
            found.extend(
                replace(_priced(run, model, offer, nodes, one), margin=self.margin)
                for nodes, one in sized
                for offer in group
                if self._within_quotas(offer, nodes)
            )
            if counted and not sized:
                self._reject(run, model, kind)
        return found

    def _ladder(
        self,
        run: TrainingRun,
        model: Architecture,
        kind: InstanceType,
        objective: TrainingObjective,
        *,
        even_if_late: bool,
    ) -> Iterator[tuple[int, TrainingEstimate]]:
        """Instance counts with their sizing, from the first that can meet the deadline to where more bring little."""
        limit = min(self.most_accelerators or MOST_ACCELERATORS, MOST_ACCELERATORS)
        deadline = run.deadline_hours or math.inf
        best, yielded, in_time = math.inf, 0, 0
        for nodes in NODE_COUNTS if network_of(kind.provider, kind.name) else (1,):
            accelerators = nodes * int(kind.accelerator_count)
            if accelerators > limit or accelerators > run.sequences_per_step * _MOST_RANKS_A_SEQUENCE:
                return
            if not even_if_late and ideal_hours(run, model, kind, nodes) > deadline:
                continue
            sized = self.sized(run, model, kind, nodes)
            if sized is None:
                continue
            if sized.hours > best * _WORTH_MORE_NODES:
                return
            best, yielded = sized.hours, yielded + 1
            in_time += (sized.hours + START_HOURS) * self.margin <= deadline
            yield nodes, sized
            enough = in_time >= _IN_TIME if deadline < math.inf else yielded >= _LADDER
            if enough and objective == "min_cost" and not even_if_late:
                return

    def sized(self, run: TrainingRun, model: Architecture, kind: InstanceType, nodes: int) -> TrainingEstimate | None:
        """The best layout of the run on so many instances of that type; None where it does not fit."""
        key = (run, model, _hardware_key(kind, host_need_gib(run, model)), nodes)
        if key not in self._sized:
            accelerator = catalogue()[kind.accelerator]
            adapted, _ = for_hardware(run, accelerator)
            self._sized[key] = best_layout(adapted, model, cluster_of(kind, nodes))
        return self._sized[key]

    def _within_quotas(self, offer: Offer, nodes: int) -> bool:
        """Whether so many instances of the offer keep to every quota that covers it."""
        if not self.quotas:
            return True
        unit = program_offer(offer)
        return all(nodes * quota.weight(unit) <= quota.maximum for quota in self.quotas if quota.covers(unit))

    def _reject(self, run: TrainingRun, model: Architecture, kind: InstanceType) -> None:
        most = NODE_COUNTS[-1] if network_of(kind.provider, kind.name) else 1
        late = ideal_hours(run, model, kind, most) > (run.deadline_hours or math.inf)
        what = "too slow for the deadline" if late else "does not hold the job"
        alone = "" if most > 1 else " (one machine: no documented network)"
        reason = f"hardware: {what}{alone}"
        self.rejections[reason] = self.rejections.get(reason, 0) + 1


_MOST_RANKS_A_SEQUENCE: Final = 256
"""Ranks that can share one sequence: TP 8 x PP 32."""


def cluster_of(kind: InstanceType, nodes: int) -> Cluster:
    """`nodes` instances of that type as a cluster, with the network that the seller documents."""
    network = network_of(kind.provider, kind.name)
    accelerator = catalogue()[kind.accelerator]
    domain = usual_domain(accelerator)
    return Cluster(
        accelerator=accelerator,
        nodes=nodes,
        node_accelerators=int(kind.accelerator_count),
        link=kind.link,
        network_gbit_per_s=network.gbit_per_s if network else None,
        domain=domain if domain > 8 and nodes > 1 else None,
        host_memory_gib=kind.memory_gib,
    )


def ideal_hours(run: TrainingRun, model: Architecture, kind: InstanceType, nodes: int) -> float:
    """Hours that no software undercuts: FLOPs over 80 % of the peak, of which FP8 and FP4 reach two thirds."""
    rates = catalogue()[kind.accelerator].dense_tflops
    sixteen = rates.get("bf16") or rates["fp16"]
    peak = max(sixteen, rates.get(run.precision, 0.0) * 2 / 3) * 1e12 * kind.accelerator_count * nodes
    flops = (4.0 if run.is_adapter else 6.0) * model.params_active * 0.9 * run.tokens
    return flops / (peak * _IDEAL_SHARE * TIME.goodput) / SECONDS_PER_HOUR


def checkpoint_bytes(run: TrainingRun, model: Architecture) -> float:
    """A checkpoint: 16-bit weights, FP32 master and moments of what is trained."""
    trained = adapter_parameters(model, run.lora_rank) if run.is_adapter else model.params_total
    states = optimizer_states(run.optimizer)
    return trained * (2.0 + (4.0 + states.mixed_bytes if run.master_weights else states.pure_bytes))


def spot_overhead(
    checkpoint: float, nodes: int, hazard_per_hour: float, *, restart_hours: float = START_HOURS
) -> tuple[float, float]:
    """Extra time of a job on spot as a share, and interruptions per hour: any instance that goes stops the job.

    M = 1 / (nodes x hazard); checkpoints of d hours every t = sqrt(2 d M) (Young, 1974); lost per interruption t / 2
    and the restart: overhead = d / t + (t / 2 + R) / M.
    """
    rate = nodes * hazard_per_hour
    between = 1.0 / rate
    writing = checkpoint / (nodes * CHECKPOINT_BYTES_PER_S) / SECONDS_PER_HOUR
    interval = max(math.sqrt(2 * writing * between), 1 / 60)
    return writing / interval + (interval / 2 + restart_hours) / between, rate


def _priced(run: TrainingRun, model: Architecture, offer: Offer, nodes: int, sized: TrainingEstimate) -> ClusterChoice:
    hours, interruptions, rate = sized.hours + START_HOURS, 0.0, None
    if offer.purchase_option is PurchaseOption.SPOT:
        rate = interruption_rate(offer.provider, offer.instance_type.name, offer.region)
        overhead, per_hour = spot_overhead(checkpoint_bytes(run, model), nodes, rate.per_hour)
        hours *= 1 + overhead
        interruptions = per_hour * hours
    return ClusterChoice(
        run=run,
        model=model,
        offer=offer,
        nodes=nodes,
        estimate=sized,
        hours=hours,
        billed_hours=_billed_hours(offer, hours),
        interruptions=interruptions,
        interruption_rate=rate,
        usd_storage=_storage(run, model, offer.provider, hours),
    )


def _billed_hours(offer: Offer, hours: float) -> float:
    """What is paid for: the run, whole days of a capacity block, at least the whole term of a reservation."""
    if offer.purchase_option is PurchaseOption.CAPACITY_BLOCK:
        return math.ceil(hours / HOURS_PER_DAY) * float(HOURS_PER_DAY)
    if offer.commitment is not None:
        return max(hours, float(offer.commitment.term_months * HOURS_PER_MONTH))
    return hours


def stored_gb(run: TrainingRun, model: Architecture) -> float:
    """GB of training data and of the checkpoints that are kept."""
    return (run.tokens * _BYTES_PER_STORED_TOKEN + CHECKPOINTS_KEPT * checkpoint_bytes(run, model)) / GB


def _storage(run: TrainingRun, model: Architecture, provider: str, hours: float) -> Decimal:
    """Training data and the last checkpoints for the time of the run."""
    months = Decimal(repr(hours)) / HOURS_PER_MONTH
    return (STORAGE_USD_PER_GB_MONTH[provider] * Decimal(repr(stored_gb(run, model))) * months).quantize(
        Decimal("0.01")
    )


def host_need_gib(run: TrainingRun, model: Architecture) -> float:
    """The most host memory that any layout of the run can ask of a machine: loading, and offloaded states."""
    per_parameter = 18.0 if run.offload or optimizer_states(run.optimizer).paged else 2.0
    return per_parameter * model.params_total / GIB


def _hardware_key(kind: InstanceType, host_need: float) -> HardwareKey:
    """What sizing depends on; host memory only where there may be too little of it."""
    network = network_of(kind.provider, kind.name)
    short = kind.memory_gib is not None and kind.memory_gib < host_need
    return HardwareKey(
        accelerator=kind.accelerator,
        count=int(kind.accelerator_count),
        link=kind.link,
        network_gbit_per_s=network.gbit_per_s if network else None,
        host_memory_gib=kind.memory_gib if short else None,
    )


def program_offer(offer: Offer) -> ProgramOffer:
    """The offer as the program's quotas see it."""
    kind = offer.instance_type
    return ProgramOffer(
        id=str(offer.key),
        hardware=kind.accelerator,
        provider=kind.provider,
        accelerator=kind.accelerator,
        accelerators_per_unit=int(kind.accelerator_count),
        purchase_option=offer.purchase_option.value,
        usd_per_hour=float(offer.usd_per_hour),
        region=offer.region,
        zone=offer.zone,
        instance_type=kind.name,
    )


def _by_hardware(offers: Iterable[Offer], host_need: float, *, all_regions: bool) -> dict[HardwareKey, list[Offer]]:
    """Offers of the same hardware; of each, the cheapest of every provider and purchase option: no other can win.

    Where quotas differ by region, the cheapest of every region and machine is kept.
    """
    cheapest: dict[tuple[HardwareKey, str, PurchaseOption, int, str], Offer] = {}
    for offer in offers:
        if offer.instance_type.is_fractional or offer.instance_type.hosts > 1:
            continue
        term = offer.commitment.term_months if offer.commitment else 0
        place = f"{offer.region}/{offer.instance_type.name}" if all_regions else ""
        key = (_hardware_key(offer.instance_type, host_need), offer.provider, offer.purchase_option, term, place)
        known = cheapest.get(key)
        if known is None or (offer.usd_per_hour, offer.key) < (known.usd_per_hour, known.key):
            cheapest[key] = offer
    groups: dict[HardwareKey, list[Offer]] = {}
    for (hardware, *_), offer in cheapest.items():
        groups.setdefault(hardware, []).append(offer)
    return groups


def _solve(request: TrainingRequest, choices: Sequence[ClusterChoice]) -> TrainingSolution:
    jobs = [
        Job(
            id=run.name,
            deadline_hours=run.deadline_hours if run.deadline_hours is not None else math.inf,
            earliest_hours=request.earliest_hours.get(run.name, 0.0),
        )
        for run, _ in request.jobs
    ]
    options = [
        JobOption(
            id=choice.id,
            job=choice.run.name,
            hours=choice.planned_hours,
            usd=float(choice.planned_usd),
            accelerators=choice.accelerators,
        )
        for choice in choices
    ]
    problem = TrainingProblem(
        jobs=jobs,
        options=options,
        budget_usd=None if request.budget_usd is None else float(request.budget_usd),
        max_accelerators=request.max_accelerators,
        objective=request.objective,
    )
    return solve_training(problem, request.solver_options)


def _is_first(request: TrainingRequest, choice: ClusterChoice) -> bool:
    return choice.run.name == request.jobs[0][0].name


def _with_late_ones(desk: Desk, request: TrainingRequest, choices: list[ClusterChoice]) -> list[ClusterChoice]:
    """Also clusters that miss their deadline, of the quickest hardware: what the shortfall is measured by."""
    known = {choice.id for choice in choices}
    quick = _quickest_offers(request.offers)
    late = [c for run, model in request.jobs for c in desk.choices(run, model, quick, even_if_late=True)]
    return [*choices, *(choice for choice in late if choice.id not in known)]


def _with_curve(desk: Desk, request: TrainingRequest, choices: list[ClusterChoice]) -> list[ClusterChoice]:
    """Also the larger clusters of the cheapest hardware: where more money buys time."""
    run, model = request.jobs[0]
    kinds: dict[str, Offer] = {}
    for choice in sorted(choices, key=_by_cost):
        kinds.setdefault(choice.offer.instance_type.accelerator, choice.offer)
    offers = list(kinds.values())[:_CURVE_HARDWARE]
    known = {choice.id for choice in choices}
    more = desk.choices(run, model, offers, even_if_late=True)
    return [*choices, *(choice for choice in more if choice.id not in known)]


def _quickest_offers(offers: Sequence[Offer]) -> list[Offer]:
    """Offers of the hardware that can be fastest: machines with a network, by their 16-bit peak."""
    networked = [o for o in offers if network_of(o.provider, o.instance_type.name)] or list(offers)

    def peak(offer: Offer) -> float:
        rates = catalogue()[offer.instance_type.accelerator].dense_tflops
        return (rates.get("bf16") or rates["fp16"]) * offer.instance_type.accelerator_count

    best = max(map(peak, networked), default=0.0)
    return [offer for offer in networked if peak(offer) >= best / 4]


def _by_cost(choice: ClusterChoice) -> tuple[Decimal, float, str]:
    return choice.usd_total, choice.hours, choice.id


def best_choice(
    choices: Iterable[ClusterChoice], objective: TrainingObjective, budget_usd: Decimal | None
) -> ClusterChoice | None:
    """The cheapest choice within its run's deadline, or the fastest within the budget."""
    allowed = [
        choice
        for choice in choices
        if choice.planned_hours <= (choice.run.deadline_hours or math.inf)
        and (budget_usd is None or choice.planned_usd <= budget_usd)
    ]
    if objective == "min_time":
        return min(allowed, key=lambda c: (c.hours, c.usd_total, c.id), default=None)
    return min(allowed, key=_by_cost, default=None)


def _alternatives(
    desk: Desk, request: TrainingRequest, choices: Sequence[ClusterChoice]
) -> Iterator[TrainingAlternative]:
    """For the first job: the best of each provider and accelerator, under each other flag, and in FP8."""
    own = [choice for choice in choices if _is_first(request, choice)]
    run, model = request.jobs[0]
    objective = request.objective

    def best(found: Iterable[ClusterChoice]) -> ClusterChoice | None:
        return best_choice(found, objective, request.budget_usd)

    for provider in dict.fromkeys(offer.provider for offer in request.offers):
        found = best(choice for choice in own if choice.offer.provider == provider)
        yield TrainingAlternative(kind="provider", name=provider, flag=f"--provider {provider}", choice=found)
    for accelerator in sorted({offer.instance_type.accelerator for offer in request.offers}):
        found = best(choice for choice in own if choice.offer.instance_type.accelerator == accelerator)
        yield TrainingAlternative(kind="accelerator", name=accelerator, flag=f"--gpu '{accelerator}'", choice=found)
    for pool in request.pools:
        if pool.offers:
            found = best(desk.choices(run, model, pool.offers, objective=objective))
            yield TrainingAlternative(kind=pool.kind, name=pool.name, flag=pool.flag, choice=found, note=pool.note)
    if run.precision == "bf16" and not run.is_adapter:
        eighths = [o for o in request.offers if "fp8" in catalogue()[o.instance_type.accelerator].dense_tflops]
        found = best(desk.choices(replace(run, precision="fp8"), model, eighths, objective=objective))
        note = "FP8 products: needs software that supports it, and an eye on convergence"
        yield TrainingAlternative(kind="precision", name="fp8", flag="--precision fp8", choice=found, note=note)


def _runner_up(
    alternatives: Iterable[TrainingAlternative], chosen: ClusterChoice | None, objective: TrainingObjective
) -> TrainingAlternative | None:
    """The best choice on another accelerator."""
    if chosen is None:
        return None
    others = [
        a
        for a in alternatives
        if a.kind == "accelerator" and a.choice and a.name != chosen.offer.instance_type.accelerator
    ]
    if objective == "min_time":
        return min(others, key=lambda a: (a.choice.hours if a.choice else 0.0, a.name), default=None)
    return min(others, key=lambda a: (a.choice.usd_total if a.choice else 0, a.name), default=None)


def trade_off(choices: Iterable[ClusterChoice]) -> tuple[ClusterChoice, ...]:
    """The choices that no other beats in both time and cost, cheapest first."""
    front: list[ClusterChoice] = []
    for choice in sorted(choices, key=_by_cost):
        if not front or choice.hours < front[-1].hours * 0.98:
            front.append(choice)
    return tuple(front)


def _suggestions(
    request: TrainingRequest,
    choices: Sequence[ClusterChoice],
    alternatives: Iterable[TrainingAlternative],
    fastest: ClusterChoice | None,
) -> Iterator[TrainingSuggestion]:
    """Up to three flags that would make the first job feasible: another way to buy, a later deadline, more money."""
    ways = [
        TrainingSuggestion(flag=a.flag, usd_total=a.choice.usd_total, hours=a.choice.hours, note=a.note)
        for a in alternatives
        if a.choice and a.kind in ("purchase_option", "precision", "include")
    ]
    ways.sort(key=lambda way: (way.usd_total, way.flag))
    run = request.jobs[0][0]
    deadline, budget = run.deadline_hours, request.budget_usd
    affordable = [c for c in choices if budget is None or c.planned_usd <= budget]
    later = min(affordable, key=lambda c: (c.hours, c.usd_total, c.id), default=None)
    limits = []
    if deadline is not None and later is not None and later.planned_hours > deadline:
        flag = f"--deadline {math.ceil(later.planned_hours)}h"
        limits.append(TrainingSuggestion(flag=flag, usd_total=later.usd_total, hours=later.hours))
    in_time = [c for c in choices if c.planned_hours <= (deadline or math.inf)]
    cheapest = min(in_time, key=_by_cost, default=None)
    if budget is not None and cheapest is not None and cheapest.planned_usd > budget:
        flag = f"--budget {math.ceil(cheapest.planned_usd)}"
        limits.append(TrainingSuggestion(flag=flag, usd_total=cheapest.usd_total, hours=cheapest.hours))
    if not limits and fastest is not None and deadline is not None and fastest.planned_hours > deadline:
        flag = f"--deadline {math.ceil(fastest.planned_hours)}h"
        limits.append(TrainingSuggestion(flag=flag, usd_total=fastest.usd_total, hours=fastest.hours))
    yield from ways[: 3 - len(limits)]
    yield from limits


def _price_dates(request: TrainingRequest) -> PriceDates:
    days = [offer.observed_on for offer in request.offers if offer.observed_on]
    limit = request.today - timedelta(days=request.max_age_days)
    return PriceDates(
        as_of_oldest=min(days, default=None),
        as_of_newest=max(days, default=None),
        offers_considered=request.offers_on_file,
        offers_eligible=len(request.offers),
        undated=len(request.offers) - len(days),
        stale=sum(1 for offer in request.offers if offer.observed_on is None or offer.observed_on < limit),
        max_age_days=request.max_age_days,
    )


def _warnings(request: TrainingRequest, jobs: Iterable[PlannedJob]) -> Iterator[str]:
    """What a buyer must know: age of prices, capacity, an interval that passes the deadline, long sequences."""
    limit = request.today - timedelta(days=request.max_age_days)
    for run, model in request.jobs:
        if model.max_position and run.seq_len > model.max_position:
            yield (
                f"{run.name}: sequences of {run.seq_len:,} tokens exceed the model's {model.max_position:,} positions"
            )
    for job in jobs:
        choice, offer = job.choice, job.choice.offer
        if offer.observed_on is None:
            yield f"{offer.key}: the price has no date; treat it as stale"
        elif offer.observed_on < limit:
            age = (request.today - offer.observed_on).days
            yield f"{offer.key}: the price is {age} days old (of {offer.observed_on}); `costopt refresh` updates it"
        deadline = choice.run.deadline_hours
        if deadline is not None and job.start_hours + choice.hours_high > deadline:
            yield (
                f"{choice.run.name}: the upper end of the estimate, {choice.hours_high:,.0f} h, passes the deadline "
                f"of {deadline:,.0f} h; --confidence 0.8 plans for that"
            )
        if choice.estimate.memory.verdict == "tight":
            memory = choice.estimate.memory
            yield f"{choice.run.name}: memory is tight, {memory.needed_gib:.0f} of {memory.usable_gib:.0f} GiB"
        if choice.nodes > 8:
            yield f"{choice.nodes} x {offer.instance_type.name} at once need an agreement on capacity with the seller"
    if any(job.choice.offer.in_stock is None for job in jobs):
        yield "availability of the chosen instances is not known: a price is not a promise of capacity"
