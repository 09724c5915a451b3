"""`costopt plan`: the cheapest plan for a workload, or the most throughput for a budget."""

import time
from dataclasses import replace
from typing import Annotated

import typer

from optimizer.cli import options, train_options
from optimizer.cli.exits import ExitCode

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
        typer.Option("--max-spot-share", metavar="SHARE", help="Most of the accelerators that may be spot."),
    ] = None,
    min_providers: Annotated[
        int, typer.Option("--min-providers", metavar="N", min=0, max=5, help="Providers that must take part.")
    ] = 0,
    max_provider_share: Annotated[
        float | None,
        typer.Option("--max-provider-share", metavar="SHARE", help="Most of the spend that one provider may get."),
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
    ] = 10.0,
    min_hours_up: Annotated[
        float,
        typer.Option("--min-hours-up", metavar="HOURS", min=0.0, help="Least that an instance by the hour stays up."),
    ] = 0.0,
    spot_margin: Annotated[
        float,
        typer.Option("--spot-margin", metavar="SHARE", help="Part of spot capacity taken as lost to interruptions."),
    ] = 0.1,
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
    from optimizer.cli import choices, market_view, plan_output, values, workloads
    from optimizer.cli.settings import now, today
    from optimizer.cli.streams import say, write_result
    from optimizer.plans.planner import Request
    from optimizer.plans.planner import plan as make_plan
    from optimizer.program.problem import Limits, SolverOptions
    from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand

    choices.one_of("task", task, choices.TASKS)
    if task == "infer" and workload_file is not None and train_options.holds_jobs(workload_file):
        task = "train"
    train_options.check_flags(context_, task)
    format_ = choices.one_of("format", format_, choices.FORMATS if sweep is None else choices.PAGE_FORMATS)
    values.rate("--rate", rate)
    asked_gap = values.share("--gap", gap, zero=True)
    solver_options = SolverOptions(solver=solver, gap=asked_gap or 0.0, max_nodes=max_nodes)
    if melange is not None:
        from optimizer.cli import melange as melange_file

        problem, solution = melange_file.solved(melange, rate, solver_options)
        write_result(melange_file.render(problem, solution, format_), output)
        return _exit_code(solution.status, require_optimal=require_optimal)
    view = market_view.MarketView(
        providers=frozenset(name.lower() for name in provider or ()),
        regions=frozenset(region or ()),
        gpus=tuple(gpu or ()),
        purchase_options=choices.purchase_options(purchase),
        include=tuple(include or ()),
        as_of=values.past_day("--as-of", as_of, today()),
        offline=offline,
    )
    budget_usd = values.money("--budget", budget)
    max_age_days = values.duration_hours("--max-age", max_age) / 24
    if task != "infer":
        from optimizer.cli import train_plan, train_plan_output

        flags = train_options.TrainingFlags(
            model=model or "",
            task=task,
            tokens=tokens,
            seq_len=seq_len,
            deadline=deadline,
            global_batch_tokens=global_batch_tokens,
            optimizer=optimizer,
            master_weights=master_weights,
            zero_stage=zero_stage,
            lora_rank=lora_rank,
            micro_batch=micro_batch,
            recompute=recompute,
            offload=offload,
            stack=stack,
            precision=train_options.precision_of(precision),
        )
        question = train_plan.TrainingQuestion(
            flags=flags,
            jobs_file=workload_file,
            budget_usd=budget_usd,
            max_gpus=max_gpus,
            view=view,
            max_age_days=int(max_age_days),
            confidence=choices.confidence(confidence),
            quotas=market_view.quotas(quota),
            solver_options=solver_options,
            now=now(),
        )
        if refresh:
            market_view.refresh_first(provider or (), offline=offline, quiet=quiet)
        runs = train_plan.plan_jobs(question)
        runs = runs if timing else replace(runs, timing_s={})
        write_result(train_plan_output.render(runs, format_, explained=explain, everything=show_all), output)
        say(train_plan_output.remarks(runs, format_), quiet=quiet)
        return _exit_code(runs.solution.status, require_optimal=require_optimal)
    workload = InferenceWorkload(
        name="workload",
        model=model or "",
        demands=(
            ShapeDemand(
                shape=RequestShape(input_tokens=input_tokens, output_tokens=output_tokens), requests_per_s=rate
            ),
        ),
        slo=SLO(ttft_ms=ttft_ms, tpot_ms=tpot_ms),
        precisions=choices.precisions(precision),
        kv_precision=kv_precision,
        context_tokens=context,
        utilization=max_utilization,
        same_region=same_region,
    )
    given = workloads.chosen(workload, workload_file, trace, trace_rate=trace_rate, trace_shapes=trace_shapes)
    if asked_gap is None:
        solver_options = replace(solver_options, gap=market_view.usual_gap(given.pairs))
    imported = time.perf_counter()
    if refresh:
        market_view.refresh_first(provider or (), offline=offline, quiet=quiet)
    offers = market_view.load(view)
    quotas = market_view.quotas(quota)
    loaded = time.perf_counter()
    request = Request(
        workloads=given.pairs,
        budget_usd_per_month=budget_usd,
        offers=offers.eligible,
        offers_on_file=len(offers.all_on_file),
        rejections=offers.rejections,
        today=today(),
        max_age_days=int(max_age_days),
        limits=Limits(
            max_accelerators=max_gpus,
            max_spot_share=values.share("--max-spot-share", max_spot_share, zero=True),
            min_providers=min_providers,
            max_provider_share=values.share("--max-provider-share", max_provider_share),
            spare_replicas=spare_replicas,
            minimum_hours_up=min_hours_up,
            quotas=quotas,
        ),
        terms=market_view.terms(boot_minutes=boot_minutes, spot_margin=spot_margin, horizon=horizon),
        holdings=market_view.holdings(current, offers.all_on_file),
        every_alternative=show_all,
        reasons=explain or show_all,
        solver_options=solver_options,
        pools=offers.pools,
        engine=engine,
        gpu_memory_utilization=values.share("--gpu-memory-utilization", gpu_memory_utilization),
        prefix_cache_hit=values.share("--prefix-cache-hit", prefix_cache_hit, zero=True) or 0.0,
        confidence=choices.confidence(confidence),
        measured=choices.measured(measured),
        assumptions=(
            *plan_output.assumptions(given.pairs, engine),
            *choices.sizing_assumptions(prefix_cache_hit, confidence, measured),
            *given.assumptions,
            *market_view.assumed_terms(
                view, given.pairs, boot_minutes=boot_minutes, spot_margin=spot_margin, horizon=horizon
            ),
            *market_view.assumed_gap(solver_options.gap),
            *offers.remarks,
        ),
        warnings=(*given.warnings, *offers.warnings, *choices.quota_warnings(quotas, offers.all_on_file)),
    )
    if sweep is not None:
        from optimizer.cli import sweep as sweep_command

        text, feasible = sweep_command.rendered(request, sweep, format_, now())
        write_result(text, output)
        return ExitCode.DONE if feasible else ExitCode.INFEASIBLE
    result = make_plan(request)
    stages = {"import_s": imported - started, "load_s": loaded - imported, **result.timing_s}
    result = replace(result, timing_s=stages if timing else {})
    write_result(plan_output.render(result, format_, explained=explain, everything=show_all, trace=given.trace), output)
    say(plan_output.remarks(result, format_), quiet=quiet)
    return _exit_code(result.status, require_optimal=require_optimal)


def _exit_code(status: str, *, require_optimal: bool) -> int:
    if status == "infeasible":
        return ExitCode.INFEASIBLE
    if require_optimal and status not in ("optimal", "within_gap"):
        return ExitCode.NOT_PROVEN
    return ExitCode.DONE
