"""Holds the flags of `costopt plan` as they were given, and what all its forms make of them."""

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from optimizer.cli import choices, market_view, values
from optimizer.cli.exits import ExitCode
from optimizer.cli.settings import today
from optimizer.program.problem import SolverOptions
from providers.errors import UsageError

if TYPE_CHECKING:
    from typer import Context

_OF_ONE_WORKLOAD: Final = frozenset(
    {
        *("input_tokens", "output_tokens", "context", "ttft_ms", "tpot_ms", "precision", "kv_precision"),
        *("max_utilization", "same_region"),
    }
)
_OF_A_TRACE: Final = frozenset({"trace_rate", "trace_shapes"})
_NOT_FLAGS: Final = frozenset({"context_", "started"})


def check_serving_flags(command: "Context", *, file: str | None, trace: str | None) -> None:
    """Raises UsageError for a flag that would have no effect beside a workload file, or without a request log."""
    for parameter in command.command.params:
        source = command.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE":
            continue
        flag = max(parameter.opts, key=len)
        if file is not None and parameter.name in _OF_ONE_WORKLOAD:
            raise UsageError(f"{flag} has no effect on --workload: give it in the file, to each workload")
        if trace is None and parameter.name in _OF_A_TRACE:
            raise UsageError(f"{flag} is for --trace; give --trace FILE, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """One field a flag, under the flag's name."""

    model: str | None
    task: str
    rate: float | None
    budget: str | None
    input_tokens: int
    output_tokens: int
    context: int | None
    workload_file: str | None
    trace: str | None
    trace_rate: str
    trace_shapes: int
    ttft_ms: float
    tpot_ms: float
    precision: list[str] | None
    kv_precision: str | None
    engine: str
    gpu_memory_utilization: float | None
    prefix_cache_hit: float
    confidence: float | None
    measured: str | None
    max_utilization: float
    tokens: str | None
    seq_len: int | None
    deadline: str | None
    global_batch_tokens: str | None
    optimizer: str | None
    master_weights: bool | None
    zero_stage: int | None
    lora_rank: int
    micro_batch: int | None
    recompute: str | None
    offload: list[str] | None
    stack: str | None
    provider: list[str] | None
    region: list[str] | None
    gpu: list[str] | None
    purchase: list[str] | None
    include: list[str] | None
    same_region: bool
    max_gpus: int | None
    max_spot_share: float | None
    min_providers: int
    max_provider_share: float | None
    spare_replicas: int
    melange: str | None
    sweep: str | None
    quota: str | None
    current: str | None
    horizon: str | None
    boot_minutes: float
    min_hours_up: float
    spot_margin: float
    as_of: str | None
    max_age: str
    offline: bool
    refresh: bool
    solver: str
    gap: float | None
    max_nodes: int | None
    require_optimal: bool
    format_: str
    output: str
    export: list[str] | None
    explain: bool
    show_all: bool
    timing: bool
    quiet: bool
    verbose: bool

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> "PlanFlags":
        """The flags among the arguments of the command."""
        return cls(**{name: value for name, value in arguments.items() if name not in _NOT_FLAGS})

    @property
    def checked_format(self) -> str:
        """The output format. Raises UnknownName."""
        return choices.one_of("format", self.format_, choices.FORMATS if self.sweep is None else choices.PAGE_FORMATS)

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

    def refresh_first(self) -> None:
        """Fetches live prices where that was asked for."""
        if self.refresh:
            market_view.refresh_first(self.provider or (), offline=self.offline, quiet=self.quiet)

    def exit_code(self, status: str) -> ExitCode:
        """What a plan of that status ends with."""
        if status == "infeasible":
            return ExitCode.INFEASIBLE
        if self.require_optimal and status not in ("optimal", "within_gap"):
            return ExitCode.NOT_PROVEN
        return ExitCode.DONE
