"""Says what a plan is asked for: workloads with their models, money and limits, and the offers on the market."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from optimizer.plans.market import Holding, Terms
from optimizer.plans.plan import AlternativeKind
from optimizer.program.problem import Limits, Objective, SolverOptions
from optimizer.sizing.measured import MeasuredPoint
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.offers import Offer


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
    offers under other flags. `holdings` run today. `reasons` asks for the runner-up fleets, which take programs of
    their own.
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
    reasons: bool = False
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def objective(self) -> Objective:
        """Throughput is sought where there is a budget and no workload has a rate."""
        sought = all(workload.requests_per_s is None for workload, _ in self.workloads)
        return "max_throughput" if sought and self.budget_usd_per_month is not None else "min_cost"
