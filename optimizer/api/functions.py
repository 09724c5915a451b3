"""Turns keyword arguments into plans, sizings, comparisons and listings, for notebooks and programs.

Arguments mean what the flags of the command of the same name mean; a flag that repeats takes one value or several. The
results are those of the command line, to the byte; what the command line reads of settings (`COSTOPT_…` for flags,
`costopt.toml`) does not count. Nothing is printed or fetched.

>>> import optimizer
>>> optimizer.size("8B", gpu="L4").verdict
'fits'

>>> plan = optimizer.plan("8B", rate=5, provider="aws")
>>> plan.status, plan.usd_per_month > 0
('optimal', True)

>>> found = optimizer.compare(gpu="H100-SXM", count=8, provider=["aws", "lambda"])
>>> found.cheapest["seller"] in ("aws", "lambda")
True
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from os import PathLike

from optimizer.api import market_view, serving_plan, serving_size, training_plan, training_size, values
from optimizer.api.comparison import CompareArguments, comparison_of, needed
from optimizer.api.listing import OffersArguments, listing_document, listing_of
from optimizer.api.plan_arguments import PlanArguments
from optimizer.api.python_words import (
    OF_COMPARE,
    ONE_OF_SIZE,
    Amount,
    Document,
    Table,
    Words,
    arguments_of,
    errors_in_python,
    given_names,
)
from optimizer.api.results import CompareResult, OffersResult, PlanResult, SizeResult
from optimizer.api.size_arguments import SizeArguments
from optimizer.plans import planner
from optimizer.report.comparison_document import comparison_document
from optimizer.sizing.training.document import training_size_document
from optimizer.workload.workload import DEFAULT_SHAPE, DEFAULT_SLO, DEFAULT_UTILIZATION, InferenceWorkload


def plan(
    model: str | PathLike[str] | None = None,
    *,
    task: str = "infer",
    rate: float | None = None,
    budget: Amount | None = None,
    input_tokens: int = DEFAULT_SHAPE.input_tokens,
    output_tokens: int = DEFAULT_SHAPE.output_tokens,
    context: int | None = None,
    workload: Document | InferenceWorkload | Iterable[InferenceWorkload] | None = None,
    trace: Table | None = None,
    trace_rate: str = "peak",
    trace_shapes: int = 12,
    ttft_ms: float = DEFAULT_SLO.ttft_ms,
    tpot_ms: float = DEFAULT_SLO.tpot_ms,
    precision: Words | None = None,
    kv_precision: str | None = None,
    engine: str = "vllm",
    gpu_memory_utilization: float | None = None,
    prefix_cache_hit: float = 0.0,
    confidence: float | None = None,
    measured: Document | Table | None = None,
    max_utilization: float = DEFAULT_UTILIZATION,
    tokens: Amount | None = None,
    seq_len: int | None = None,
    deadline: str | timedelta | date | None = None,
    global_batch_tokens: Amount | None = None,
    optimizer: str | None = None,
    master_weights: bool | None = None,
    zero_stage: int | None = None,
    lora_rank: int = 16,
    lora_experts: bool | None = None,
    micro_batch: int | None = None,
    recompute: str | None = None,
    offload: Words | None = None,
    stack: str | None = None,
    provider: Words | None = None,
    region: Words | None = None,
    gpu: Words | None = None,
    purchase: Words | None = None,
    include: Words | None = None,
    same_region: bool = False,
    max_gpus: int | None = None,
    max_spot_share: float | None = None,
    min_providers: int = 0,
    max_provider_share: float | None = None,
    spare_replicas: int = 0,
    quota: Document | None = None,
    current: Document | None = None,
    horizon: str | timedelta | None = None,
    boot_minutes: float = values.BOOT_MINUTES,
    min_hours_up: float = 0.0,
    spot_margin: float = values.SPOT_MARGIN,
    as_of: str | date | None = None,
    max_age: str | timedelta | float = values.MAX_AGE,
    offline: bool = False,
    solver: str = "auto",
    gap: float | None = None,
    max_nodes: int | None = None,
    explain: bool = False,
    show_all: bool = False,
) -> PlanResult:
    """The cheapest plan for a workload, or the most requests/s that a budget buys; with a training task, for its runs.

    task         "infer"; "train" (pre-training), "finetune", "lora" or "qlora", which need `tokens`
    rate         requests/s to serve; without it, `budget` (USD per month; USD per run in training) buys the most
    workload     instead of the model: a YAML file, its content as a mapping, or InferenceWorkload objects
    trace        a request log: a file, or rows with timestamp, input_tokens, output_tokens
    quota, current, measured    files, or their content
    tokens       to train on, epochs included: a number, "500M", "1B"
    deadline     "12h", "30d", a timedelta; a datetime with its time zone; or a day, at whose end (UTC) all must be done
    horizon, max_age    durations like those, and "6m" for a horizon in months; a number is one of days
    gap, confidence, …    shares of 1: 0.8 is 80 %
    explain      adds `explanation` to the document; show_all adds every alternative

    Prices are those on file. Raises UsageError (UnknownName, InvalidValue), NoUsablePrices, CacheError and SolverError;
    a plan that is not feasible is a result, which says what is short.
    """
    given = dict(locals())
    with errors_in_python():
        wanted = arguments_of(PlanArguments, given, {})
        meant = wanted.checked_task(given_names(wanted))
        return PlanResult(document=_serving(wanted) if meant == "infer" else _training(wanted, meant))


def size(
    model: str | PathLike[str],
    *,
    gpu: str,
    count: int = 1,
    task: str = "infer",
    input_tokens: int = DEFAULT_SHAPE.input_tokens,
    output_tokens: int = DEFAULT_SHAPE.output_tokens,
    context: int | None = None,
    concurrency: int | None = None,
    ttft_ms: float = DEFAULT_SLO.ttft_ms,
    tpot_ms: float = DEFAULT_SLO.tpot_ms,
    precision: str = "auto",
    kv_precision: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    engine: str | None = None,
    gpu_memory_utilization: float | None = None,
    prefix_cache_hit: float = 0.0,
    tokens: Amount | None = None,
    seq_len: int | None = None,
    deadline: str | timedelta | date | None = None,
    global_batch_tokens: Amount | None = None,
    optimizer: str | None = None,
    master_weights: bool | None = None,
    zero_stage: int | None = None,
    lora_rank: int = 16,
    lora_experts: bool | None = None,
    micro_batch: int | None = None,
    recompute: str | None = None,
    offload: Words | None = None,
    stack: str | None = None,
    host_memory: float | None = None,
) -> SizeResult:
    """Does a model fit on `count` accelerators, how much memory does it take, how fast does it serve or train.

    count          accelerators in all, of one kind; tp and pp pin how they are used
    concurrency    running requests; without it, as many as the SLO (ttft_ms, tpot_ms) allows
    tokens         to train on; without it a training task has no hours
    host_memory    GB of a machine's host memory, for offloading in training

    Raises UsageError (UnknownName, InvalidValue).
    """
    given = dict(locals())
    with errors_in_python():
        wanted = arguments_of(SizeArguments, given, ONE_OF_SIZE)
        if wanted.checked_task(given_names(wanted)) == "infer":
            return SizeResult(document=serving_size.size_of(wanted).document)
        return SizeResult(document=training_size_document(*training_size.size_of(wanted)))


def compare(
    model: str | PathLike[str] | None = None,
    *,
    rate: float | None = None,
    input_tokens: int = DEFAULT_SHAPE.input_tokens,
    output_tokens: int = DEFAULT_SHAPE.output_tokens,
    context: int | None = None,
    ttft_ms: float = DEFAULT_SLO.ttft_ms,
    tpot_ms: float = DEFAULT_SLO.tpot_ms,
    precision: Words | None = None,
    gpu: Words | None = None,
    count: int | None = None,
    hours: float | None = None,
    provider: Words | None = None,
    region: Words | None = None,
    purchase: Words | None = None,
    include: Words | None = None,
    quotes: Table | None = None,
    costs: Document | None = None,
    as_of: str | date | None = None,
    max_age: str | timedelta | float = values.MAX_AGE,
    offline: bool = False,
) -> CompareResult:
    """Ways to buy the same capacity: `count` accelerators of the kind `gpu`, or a model at `rate` requests/s.

    hours     of one job; without it, capacity that is always on
    quotes    private quotes: a CSV file, or a list with a mapping for each; costs: a YAML file, or its content

    Raises UsageError (UnknownName, InvalidValue), NoUsablePrices and CacheError.
    """
    given = dict(locals())
    with errors_in_python():
        wanted = arguments_of(CompareArguments, given, OF_COMPARE)
        return CompareResult(
            document=comparison_document(comparison_of(wanted, needed(wanted, given_names(wanted)))[0])
        )


def offers(
    *,
    provider: Words | None = None,
    region: Words | None = None,
    gpu: Words | None = None,
    purchase: Words | None = None,
    instance_type: Words | None = None,
    count: int | None = None,
    min_memory: float | None = None,
    arch: str | None = None,
    link: Words | None = None,
    max_price: Amount | None = None,
    sort: str = "price",
    as_of: str | date | None = None,
    max_age: str | timedelta | float = values.MAX_AGE,
    offline: bool = False,
) -> OffersResult:
    """The offers on file that pass the filters, with price, date and source; every way to buy unless `purchase` says.

    count         accelerators of an instance; min_memory GiB of each
    sort          "price", "gpu-price", "gib-price", "pflop-price" or "name"

    Raises UsageError (UnknownName, InvalidValue), NoUsablePrices and CacheError.
    """
    given = dict(locals())
    with errors_in_python():
        listing = listing_of(arguments_of(OffersArguments, given, {}))
        return OffersResult(document=listing_document(listing, listing.offers))


def _serving(wanted: PlanArguments) -> dict[str, object]:
    view, given = wanted.market, serving_plan.workloads_of(wanted)
    request = serving_plan.request_of(wanted, given, market_view.load(view))
    made = replace(planner.plan(request), timing_s={})
    return serving_plan.document_of(made, trace=given.trace, explained=wanted.explain)


def _training(wanted: PlanArguments, task: str) -> dict[str, object]:
    made = replace(training_plan.plan_runs(wanted, task), timing_s={})
    return training_plan.document_of(made, explained=wanted.explain)
