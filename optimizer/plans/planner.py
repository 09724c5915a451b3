"""Turns a request and the offers on the market into a plan with its alternatives, reasons and remedies."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal

from optimizer.plans.changes import changes
from optimizer.plans.comparison import Undecided, compare, is_simple
from optimizer.plans.market import Choice, Holding, Market, Terms
from optimizer.plans.plan import (
    Alternative,
    AlternativeKind,
    BindingLimit,
    Fleet,
    Plan,
    PlannedWorkload,
    PriceDates,
    Proof,
    Suggestion,
)
from optimizer.plans.sizer import Sizer
from optimizer.program.diagnose import diagnose
from optimizer.program.problem import Limits, Objective, Shortfall, SolverOptions
from optimizer.program.reasons import marginal_values
from optimizer.sizing.measured import MeasuredPoint
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.errors import NoUsablePrices, UsageError
from providers.offers import Offer, PurchaseOption
from providers.units import HOURS_PER_MONTH

_MAX_SUGGESTIONS = 3
_COMPARISON_GAP = 0.01
LOSSY_PRECISIONS: Mapping[str, str] = {
    "int8": "8-bit integer weights lose some quality: evaluate before use",
    "int4": "4-bit weights lose quality: evaluate before use",
    "fp4": "4-bit floating point loses quality: evaluate before use",
}
"""Formats that are only taken when asked for, and what to say of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Offers that would be there under another flag, for the alternatives: `--purchase spot`, `--include arm64` …"""

    kind: AlternativeKind
    name: str
    flag: str
    offers: Sequence[Offer]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked: workloads with their models, money and limits, the offers that may be bought, and the others.

    `offers_on_file` counts all that were looked at; `rejections` says why the others may not be bought. `pools` are
    offers under other flags. `holdings` run today.
    """

    workloads: Sequence[tuple[InferenceWorkload, Architecture]]
    budget_usd_per_month: Decimal | None
    offers: Sequence[Offer]
    offers_on_file: int
    rejections: Mapping[str, int]
    today: date
    max_age_days: int = 30
    limits: Limits = field(default_factory=Limits)
    terms: Terms = field(default_factory=Terms)
    solver_options: SolverOptions = field(default_factory=SolverOptions)
    pools: Sequence[Pool] = ()
    holdings: Sequence[Holding] = ()
    engine: str = "vllm"
    gpu_memory_utilization: float | None = None
    prefix_cache_hit: float = 0.0
    confidence: float | None = None
    measured: Sequence[MeasuredPoint] = ()
    every_alternative: bool = False
    alternatives: bool = True
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def objective(self) -> Objective:
        """Throughput is sought where there is a budget and no workload has a rate."""
        sought = all(workload.requests_per_s is None for workload, _ in self.workloads)
        return "max_throughput" if sought and self.budget_usd_per_month is not None else "min_cost"


def plan(request: Request) -> Plan:
    """The cheapest plan for the workloads' rates, or the most requests/s for the budget where no rate is given.

    With neither rate nor budget: the cheapest fleet that runs everything at all. Raises NoUsablePrices when no offer
    passes the filters, UsageError when some workloads have a rate and others do not.
    """
    _check(request)
    started = time.perf_counter()
    desk = _desk(request)
    sizers = desk.market.sizers
    main = desk.choose(request.offers)
    fleet = main.fleet
    limited = request.limits != Limits()
    rejections = {**request.rejections, **_sizing_rejections(sizers)}
    chosen = time.perf_counter()
    cheapest = desk.cheapest(request.offers) if request.budget_usd_per_month is not None or fleet is None else None
    alternatives = tuple(_alternatives(desk)) if request.alternatives else ()
    compared = time.perf_counter()
    shortfalls, suggestions = ((), ()) if fleet else _remedies(request, main, cheapest, alternatives)
    return Plan(
        status=main.solution.status,
        objective=request.objective,
        workloads=tuple(
            PlannedWorkload(
                workload=workload, architecture=architecture, served=workload.name not in main.solution.unserved
            )
            for workload, architecture in request.workloads
        ),
        budget_usd_per_month=request.budget_usd_per_month,
        fleet=fleet,
        cheapest=cheapest,
        runner_up=_runner_up(alternatives, fleet, request.objective),
        proof=_proof(main, request),
        prices=_price_dates(request),
        alternatives=alternatives,
        binding_limits=_binding_limits(main, request) if fleet and limited else (),
        changes=changes(fleet, request.holdings) if fleet and request.holdings else (),
        rejections=rejections,
        assumptions=request.assumptions,
        warnings=(*request.warnings, *_warnings(fleet, request)),
        shortfalls=tuple(shortfalls),
        suggestions=tuple(suggestions),
        timing_s={
            "sizing_s": sum(sizer.seconds for sizer in sizers),
            "build_s": desk.market.build_s,
            "solve_s": desk.market.solve_s,
            "main_program_s": chosen - started,
            "alternatives_s": compared - chosen,
        },
    )


def rank_key(fleet: Fleet, objective: Objective) -> tuple[float, Decimal]:
    """Best first: by requests/s then cost when throughput is sought, by cost otherwise."""
    if objective == "max_throughput":
        return -fleet.requests_per_s, fleet.usd_per_hour
    return 0.0, fleet.usd_per_hour


def _check(request: Request) -> None:
    if not request.offers and not request.holdings:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in request.rejections.items())
        why = (f"no offer passes the filters ({reasons or 'none on file'})", *request.warnings)
        raise NoUsablePrices("; ".join((*why, "loosen one of them")))
    rated = [workload.name for workload, _ in request.workloads if workload.requests_per_s is not None]
    if rated and len(rated) < len(request.workloads):
        others = ", ".join(workload.name for workload, _ in request.workloads if workload.name not in rated)
        raise UsageError(f"workloads {others} have no rate while {', '.join(rated)} have one: give all or none")


@dataclass(frozen=True, slots=True)
class _Desk:
    """Answers one request's question for any offers and dtypes, by the program or by the exact search."""

    request: Request
    market: Market

    @property
    def limits(self) -> Limits:
        budget = self.request.budget_usd_per_month
        return replace(self.request.limits, budget_usd_per_month=None if budget is None else float(budget))

    @property
    def rough(self) -> Market:
        """The market for comparisons, which need no closer proof than a percent."""
        options = self.market.solver_options
        return replace(self.market, solver_options=replace(options, gap=max(options.gap, _COMPARISON_GAP)))

    @property
    def is_simple(self) -> bool:
        return is_simple(self.market, self.limits)

    def choose(self, offers: Iterable[Offer]) -> Choice:
        """The answer, from the program."""
        return self.market.choose(offers, self.request.objective, self.limits)

    def compare(self, offers: Sequence[Offer], precisions: tuple[str, ...] = ()) -> tuple[Fleet | None, bool]:
        """The answer with other offers or dtypes, and whether it is within the budget: the cheapest if nothing is."""
        budget = self.request.budget_usd_per_month
        fleet = self._best(offers, self.request.objective, self.limits, precisions)
        if fleet is None and budget is not None:
            fleet = self.cheapest(offers, precisions)
        return fleet, fleet is None or budget is None or fleet.usd_per_month <= budget

    def cheapest(self, offers: Sequence[Offer], precisions: tuple[str, ...] = ()) -> Fleet | None:
        """The cheapest fleet for the rates, or that runs everything at all, whatever the budget."""
        at_all = self.request.objective == "max_throughput"
        return self._best(offers, "min_cost", self.request.limits, precisions, at_all=at_all)

    def _best(
        self,
        offers: Sequence[Offer],
        objective: Objective,
        limits: Limits,
        precisions: tuple[str, ...],
        *,
        at_all: bool = False,
    ) -> Fleet | None:
        try:
            return compare(self.market, offers, objective, limits, precisions=precisions, at_all=at_all)
        except Undecided:
            return self.rough.choose(offers, objective, limits, precisions=precisions, at_all=at_all).fleet


def _desk(request: Request) -> _Desk:
    sizers = [
        Sizer(
            workload,
            architecture,
            request.engine,
            request.gpu_memory_utilization,
            request.prefix_cache_hit,
            request.confidence,
            request.measured,
        )
        for workload, architecture in request.workloads
    ]
    return _Desk(request, Market(sizers, request.terms, request.solver_options, request.holdings))


def _alternatives(desk: _Desk) -> Iterable[Alternative]:
    """The best plan of each provider and each accelerator alone, under each other flag, and in each lossy dtype.

    Where each takes a program of its own, accelerators and dtypes are only looked at when every alternative is wanted.
    """
    request = desk.request
    thorough = desk.is_simple or request.every_alternative
    for kind, name, flag, offers in _partitions(request.offers):
        if thorough or kind == "provider":
            yield _alternative(desk, Pool(kind=kind, name=name, flag=flag, offers=offers))
    for pool in request.pools:
        if pool.offers and (thorough or pool.kind == "purchase_option"):
            yield _alternative(desk, pool)
    if thorough and not any(workload.precisions for workload, _ in request.workloads):
        for precision, note in LOSSY_PRECISIONS.items():
            pool = Pool(
                kind="precision", name=precision, flag=f"--precision {precision}", offers=request.offers, note=note
            )
            yield _alternative(desk, pool, (precision,))


def _partitions(offers: Sequence[Offer]) -> Iterable[tuple[AlternativeKind, str, str, list[Offer]]]:
    by_provider: dict[str, list[Offer]] = {}
    by_accelerator: dict[str, list[Offer]] = {}
    for offer in offers:
        by_provider.setdefault(offer.provider, []).append(offer)
        by_accelerator.setdefault(offer.instance_type.accelerator, []).append(offer)
    for provider, found in by_provider.items():
        yield "provider", provider, f"--provider {provider}", found
    for accelerator, found in sorted(by_accelerator.items()):
        yield "accelerator", accelerator, f"--gpu '{accelerator}'", found


def _alternative(desk: _Desk, pool: Pool, precisions: tuple[str, ...] = ()) -> Alternative:
    fleet, within_budget = desk.compare(pool.offers, precisions)
    return Alternative(
        kind=pool.kind, name=pool.name, flag=pool.flag, fleet=fleet, within_budget=within_budget, note=pool.note
    )


def _runner_up(alternatives: Iterable[Alternative], fleet: Fleet | None, objective: Objective) -> Alternative | None:
    """The best plan on one other accelerator than those chosen."""
    if fleet is None:
        return None
    chosen = {item.offer.instance_type.accelerator for item in fleet.instances}
    others = [a for a in alternatives if a.kind == "accelerator" and a.name not in chosen and a.within_budget]
    ranked = [(rank_key(a.fleet, objective), a) for a in others if a.fleet is not None]
    return min(ranked, key=lambda pair: (*pair[0], pair[1].name))[1] if ranked else None


def _remedies(
    request: Request, main: Choice, cheapest: Fleet | None, alternatives: Iterable[Alternative]
) -> tuple[list[Shortfall], list[Suggestion]]:
    """Which limit is too tight by how much, and up to three flags that would fit, cheapest first."""
    budget = request.budget_usd_per_month
    found = main.solution.shortfalls or diagnose(main.problem, request.solver_options)
    shortfalls = [_in_words(shortfall) for shortfall in found]
    if not shortfalls and cheapest is not None and budget is not None and cheapest.usd_per_month > budget:
        shortfalls = [
            Shortfall(limit="budget", needed=float(cheapest.usd_per_month), available=float(budget), unit="USD/month")
        ]
    ways = [
        Suggestion(flag=a.flag, usd_per_month=a.fleet.usd_per_month, note=a.note)
        for a in alternatives
        if a.fleet is not None and a.within_budget and a.kind in ("purchase_option", "precision", "include")
    ]
    if cheapest is None:
        ways += _slower(request)
    ways.sort(key=lambda way: (way.usd_per_month, way.flag))
    if cheapest is not None and budget is not None:
        ways = ways[: _MAX_SUGGESTIONS - 1]
        needed = math.ceil(cheapest.usd_per_month)
        ways.append(Suggestion(flag=f"--budget {needed}", usd_per_month=cheapest.usd_per_month))
    return shortfalls, ways[:_MAX_SUGGESTIONS]


def _in_words(shortfall: Shortfall) -> Shortfall:
    """The shortfall with the program's ids replaced by what a user knows."""
    if shortfall.limit.startswith("no candidate serves "):
        return replace(shortfall, limit="hardware that serves the requests within memory and SLO")
    return shortfall


def _slower(request: Request) -> Iterable[Suggestion]:
    """For one workload that nothing on offer serves: the latency of what would, with one bound lifted at a time."""
    if len(request.workloads) > 1:
        return
    workload, architecture = request.workloads[0]
    for flag, slo in (
        ("--ttft-ms", replace(workload.slo, ttft_ms=math.inf)),
        ("--tpot-ms", replace(workload.slo, tpot_ms=math.inf)),
    ):
        lifted = replace(request, workloads=((replace(workload, slo=slo), architecture),))
        fleet, within_budget = _desk(lifted).compare(lifted.offers)
        if fleet is None or not within_budget:
            continue
        sized = [s for group in fleet.replicas for s in group.kind.by_shape if s is not None]
        latencies = [s.ttft_ms.value if flag == "--ttft-ms" else s.tpot_ms.value for s in sized]
        if latencies:
            note = "the latency that the cheapest hardware then has"
            yield Suggestion(flag=f"{flag} {math.ceil(max(latencies))}", usd_per_month=fleet.usd_per_month, note=note)


def _binding_limits(choice: Choice, request: Request) -> tuple[BindingLimit, ...]:
    """What one step more of each limit would save, or how many more requests/s it would bring."""
    share = sum(demand.share for workload, _ in request.workloads for demand in workload.demands)
    return tuple(
        BindingLimit(
            limit=value.limit,
            change=value.change,
            unit=value.unit,
            saving_usd_per_month=Decimal(value.usd_per_month),
            more_requests_per_s=value.scale * share,
        )
        for value in marginal_values(choice.problem, choice.solution, request.solver_options)
    )


def _proof(choice: Choice, request: Request) -> Proof:
    """The bound in the plan's unit: USD/month, or requests/s of all workloads."""
    solution = choice.solution
    bound = solution.bound
    if bound is not None:
        if request.objective == "min_cost":
            bound *= HOURS_PER_MONTH
        else:
            bound *= sum(demand.share for workload, _ in request.workloads for demand in workload.demands)
    return Proof(
        bound=bound,
        gap=solution.gap,
        solver=solution.solver,
        variables=solution.variables,
        constraints=solution.constraints,
    )


def _price_dates(request: Request) -> PriceDates:
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


def _sizing_rejections(sizers: Iterable[Sizer]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for sizer in sizers:
        for reason, count in sizer.rejections.items():
            counts[f"hardware: {reason}"] = counts.get(f"hardware: {reason}", 0) + count
    return dict(sorted(counts.items()))


def _warnings(fleet: Fleet | None, request: Request) -> Iterable[str]:
    """What a buyer must know of the chosen offers: age of the prices, doubtful spot prices, unknown stock."""
    if fleet is None:
        return
    limit = request.today - timedelta(days=request.max_age_days)
    for item in fleet.instances:
        offer = item.offer
        if offer.observed_on is None:
            yield f"{offer.key}: the price has no date; treat it as stale"
        elif offer.observed_on < limit:
            age = (request.today - offer.observed_on).days
            yield f"{offer.key}: the price is {age} days old (of {offer.observed_on}); `costopt refresh` updates it"
        if offer.purchase_option is PurchaseOption.SPOT:
            yield f"{offer.key}: spot can be taken away at short notice, and its price moves"
    if any(item.offer.in_stock is None for item in fleet.instances):
        yield "availability of the chosen instances is not known: a price is not a promise of capacity"
