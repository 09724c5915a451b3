"""`costopt plan`: the cheapest plan for a workload, or the most throughput for a budget."""

import time
from typing import Annotated

import typer

from optimizer.api import values
from optimizer.cli import options, train_options

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def plan(
    context_: typer.Context,
    model: options.OptionalModel = None,
    task: options.Task = "infer",
    rate: options.Rate = None,
    budget: options.Budget = None,
    input_tokens: options.InputTokens = 1000,
    output_tokens: options.OutputTokens = 300,
    context: options.Context = None,
    workload_file: Annotated[
        str | None,
        typer.Option("--workload", metavar="FILE", help="YAML of one or many workloads, instead of --model and rates."),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="FILE", help="Request log (CSV, gz): timestamp, input tokens, output tokens."),
    ] = None,
    trace_rate: Annotated[
        str, typer.Option("--trace-rate", metavar="LEVEL", help="Plan for the busiest minute (peak) or the mean.")
    ] = "peak",
    trace_shapes: Annotated[
        int, typer.Option("--trace-shapes", metavar="N", min=1, max=100, help="Most shapes that a log is reduced to.")
    ] = 12,
    ttft_ms: options.TtftMs = 2000.0,
    tpot_ms: options.TpotMs = 100.0,
    precision: options.Precision = None,
    kv_precision: options.KvPrecision = None,
    engine: options.Engine = "vllm",
    gpu_memory_utilization: options.GpuMemoryUtilization = None,
    prefix_cache_hit: options.PrefixCacheHit = 0.0,
    confidence: options.Confidence = None,
    measured: options.Measured = None,
    max_utilization: Annotated[
        float,
        typer.Option("--max-utilization", metavar="SHARE", help="Load replicas to at most this part of capacity."),
    ] = 0.8,
    tokens: train_options.Tokens = None,
    seq_len: train_options.SeqLen = None,
    deadline: train_options.Deadline = None,
    global_batch_tokens: train_options.GlobalBatch = None,
    optimizer: train_options.Optimizer = None,
    master_weights: train_options.MasterWeights = None,
    zero_stage: train_options.ZeroStage = None,
    lora_rank: train_options.LoraRank = 16,
    lora_experts: train_options.LoraExperts = None,
    micro_batch: train_options.MicroBatch = None,
    recompute: train_options.Recompute = None,
    offload: train_options.Offload = None,
    stack: train_options.StackName = None,
    provider: options.Provider = None,
    region: options.Region = None,
    gpu: options.Gpu = None,
    purchase: options.Purchase = None,
    include: options.Include = None,
    same_region: Annotated[
        bool, typer.Option("--same-region", help="All replicas of the workload with one provider in one region.")
    ] = False,
    max_gpus: Annotated[
        int | None, typer.Option("--max-gpus", metavar="N", min=1, help="Most accelerators in all.")
    ] = None,
    max_spot_share: Annotated[
        float | None,
        typer.Option("--max-spot-share", metavar="SHARE", help="Most of accelerators and load on spot."),
    ] = None,
    min_providers: Annotated[
        int, typer.Option("--min-providers", metavar="N", min=0, max=5, help="Providers that must take part.")
    ] = 0,
    max_provider_share: Annotated[
        float | None,
        typer.Option("--max-provider-share", metavar="SHARE", help="Most of accelerators and load of one provider."),
    ] = None,
    spare_replicas: Annotated[
        int,
        typer.Option(
            "--spare-replicas", metavar="N", min=0, help="Instances of one kind whose loss the plan survives."
        ),
    ] = 0,
    melange: Annotated[
        str | None, typer.Option("--melange", metavar="FILE", help="Solve a Melange problem (JSON) instead of a model.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep", metavar="RANGE", help="A plan per value: rate=1:100:log10, budget, context, spot-share."
        ),
    ] = None,
    quota: Annotated[
        str | None,
        typer.Option("--quota", metavar="FILE", help="YAML of quotas by region, accelerator, instance type."),
    ] = None,
    current: Annotated[
        str | None, typer.Option("--current", metavar="FILE", help="YAML of what runs or is committed today.")
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            "--horizon", metavar="TIME", help="How long the need lasts (6m, 90d): terms are paid to their end."
        ),
    ] = None,
    boot_minutes: Annotated[
        float,
        typer.Option("--boot-minutes", metavar="MIN", min=0.0, help="Paid per start by the hour: boot, model load."),
    ] = values.BOOT_MINUTES,
    min_hours_up: Annotated[
        float,
        typer.Option("--min-hours-up", metavar="HOURS", min=0.0, help="Least that an instance by the hour stays up."),
    ] = 0.0,
    spot_margin: Annotated[
        float,
        typer.Option("--spot-margin", metavar="SHARE", help="Part of spot capacity taken as lost to interruptions."),
    ] = values.SPOT_MARGIN,
    as_of: options.AsOf = None,
    max_age: options.MaxAge = "30d",
    offline: options.Offline = False,
    refresh: options.Refresh = False,
    solver: Annotated[
        str, typer.Option("--solver", metavar="NAME", help="auto, highs, cbc, or another that PuLP finds.")
    ] = "auto",
    gap: Annotated[
        float | None,
        typer.Option(
            "--gap", metavar="SHARE", help="Relative gap at which the solver may stop; 0, more for hourly profiles."
        ),
    ] = None,
    max_nodes: Annotated[
        int | None, typer.Option("--max-nodes", metavar="N", min=1, help="Most nodes that the solver explores.")
    ] = None,
    require_optimal: Annotated[
        bool, typer.Option("--require-optimal", help="Exit with 5 if the plan is not proven optimal or within the gap.")
    ] = False,
    format_: options.Format = "table",
    output: options.Output = "-",
    export: Annotated[
        list[str] | None,
        typer.Option("--export", metavar="TARGET:DIR", help="Also write launch files, as `export`; repeatable."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the arithmetic and why the plan beat the runner-up.")
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every alternative, also those that do not fit.")
    ] = False,
    timing: Annotated[bool, typer.Option("--timing", help="Show where the time went.")] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> int:
    """The cheapest plan for a workload (--rate), or the most requests/s that a budget buys (--budget).

    Prices are those on file: nothing is fetched. Every figure of speed or memory is an estimate.
    """
    started = time.perf_counter()
    arguments = dict(locals())
    from optimizer.cli.given import given_flags, given_parameters
    from optimizer.cli.plan_flags import PlanFlags

    flags = PlanFlags.of(arguments)
    task = flags.wanted.checked_task(given_parameters(context_))
    if export:
        from optimizer.cli.export_files import check_exports

        check_exports(export, one_plan=sweep is None and melange is None)
    if melange is not None:
        from optimizer.cli.infer_plan import run_melange

        return run_melange(flags, melange, given_flags(context_))
    if task != "infer":
        from optimizer.cli import train_plan

        return train_plan.run(flags, task)
    from optimizer.cli import infer_plan

    return infer_plan.run(flags, started)
