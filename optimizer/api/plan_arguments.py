"""Holds what a plan is asked with, as the command line or a Python program gives it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Final

from optimizer.api import choices, market_view, values
from optimizer.api.clock import today
from optimizer.api.sources import Source
from optimizer.api.training_arguments import RunOptions, check_given, holds_jobs
from optimizer.program.problem import SolverOptions
from optimizer.workload.workload import DEFAULT_SHAPE, DEFAULT_SLO, DEFAULT_UTILIZATION, InferenceWorkload
from providers.errors import UsageError

_OF_ONE_WORKLOAD: Final = frozenset(
    {
        *("input_tokens", "output_tokens", "context", "ttft_ms", "tpot_ms", "precision", "kv_precision"),
        *("max_utilization", "same_region"),
    }
)
_OF_ONE_JOB: Final = frozenset({field.name for field in fields(RunOptions)} - {"tokens", "deadline"}) | {"precision"}
"""What each job of a file says for itself; a deadline is that of jobs without one."""

_OF_A_TRACE: Final = frozenset({"trace_rate", "trace_shapes"})
_IN_A_TRACE: Final = frozenset({"input_tokens", "output_tokens"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanArguments(RunOptions):
    """What is wanted: a field for each flag of `costopt plan` that says so, under its name.

    Several words of a repeatable flag are a list; None where nothing was said. `workload` may also be workloads as
    objects. `explain` and `show_all` ask for the runner-up fleets; `show_all` for every alternative.
    """

    model: str | None = None
    task: str = "infer"
    rate: float | None = None
    budget: str | None = None
    input_tokens: int = DEFAULT_SHAPE.input_tokens
    output_tokens: int = DEFAULT_SHAPE.output_tokens
    context: int | None = None
    workload: Source | tuple[InferenceWorkload, ...] | None = None
    trace: Source | None = None
    trace_rate: str = "peak"
    trace_shapes: int = 12
    ttft_ms: float = DEFAULT_SLO.ttft_ms
    tpot_ms: float = DEFAULT_SLO.tpot_ms
    precision: Sequence[str] | None = None
    kv_precision: str | None = None
    engine: str = "vllm"
    gpu_memory_utilization: float | None = None
    prefix_cache_hit: float = 0.0
    confidence: float | None = None
    measured: Source | None = None
    max_utilization: float = DEFAULT_UTILIZATION
    provider: Sequence[str] | None = None
    region: Sequence[str] | None = None
    gpu: Sequence[str] | None = None
    purchase: Sequence[str] | None = None
    include: Sequence[str] | None = None
    same_region: bool = False
    max_gpus: int | None = None
    max_spot_share: float | None = None
    min_providers: int = 0
    max_provider_share: float | None = None
    spare_replicas: int = 0
    quota: Source | None = None
    current: Source | None = None
    horizon: str | None = None
    boot_minutes: float = values.BOOT_MINUTES
    min_hours_up: float = 0.0
    spot_margin: float = values.SPOT_MARGIN
    as_of: str | None = None
    max_age: str = values.MAX_AGE
    offline: bool = False
    solver: str = "auto"
    gap: float | None = None
    max_nodes: int | None = None
    explain: bool = False
    show_all: bool = False

    def __post_init__(self) -> None:
        values.check_whole_numbers(self)

    def checked_task(self, given: Iterable[str]) -> str:
        """The task that is meant, after a look at the `given` parameters: that of a file of jobs is training.

        Raises UnknownName for a task that nobody knows, UsageError for a parameter that would have no effect.
        """
        task = choices.one_of("task", self.task, choices.TASKS)
        file = self.workload
        if task == "infer" and file is not None and not isinstance(file, tuple) and holds_jobs(file):
            task = "train"
        names = list(given)
        check_given(names, task)
        if file is not None:
            self._check_beside_a_file(names, task)
        for name in names:
            if self.trace is None and name in _OF_A_TRACE:
                raise UsageError(f"{values.flag_of(name)} is for --trace; give --trace FILE, or leave it out")
            if self.trace is not None and name in _IN_A_TRACE:
                raise UsageError(f"{values.flag_of(name)} has no effect on --trace: its rows say it; leave it out")
        return task

    def _check_beside_a_file(self, names: Iterable[str], task: str) -> None:
        """Raises UsageError for what each workload, or each job, of the file says for itself.

        Task `train` is any training.
        """
        each, its_own = ("workload", _OF_ONE_WORKLOAD) if task == "infer" else ("job", _OF_ONE_JOB)
        for name in names:
            if name in its_own or (name == "task" and task not in ("infer", "train")):
                raise UsageError(
                    f"{values.flag_of(name)} has no effect on --workload: give it in the file, to each {each}"
                )

    @property
    def budget_usd(self) -> Decimal | None:
        """Raises InvalidValue."""
        return values.money("--budget", self.budget)

    @property
    def max_age_days(self) -> int:
        """Raises InvalidValue."""
        return int(values.duration_hours("--max-age", self.max_age) / 24)

    @property
    def solver_options(self) -> SolverOptions:
        """Raises InvalidValue."""
        gap = values.share("--gap", self.gap, zero=True)
        return SolverOptions(solver=self.solver, gap=gap or 0.0, max_nodes=self.max_nodes)

    @property
    def market(self) -> market_view.MarketView:
        """Raises UnknownName, InvalidValue."""
        return market_view.MarketView(
            providers=choices.providers(self.provider),
            regions=frozenset(self.region or ()),
            gpus=tuple(self.gpu or ()),
            purchase_options=choices.purchase_options(self.purchase),
            include=tuple(self.include or ()),
            as_of=values.past_day("--as-of", self.as_of, today()),
            offline=self.offline,
        )
