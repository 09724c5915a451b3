"""Turns the flags of `costopt plan` for serving into its plan, its sweep or a Melange problem's mix, and prints it."""

import time
from dataclasses import replace

from optimizer.cli import choices, market_view, plan_output, values, workloads
from optimizer.cli.plan_flags import PlanFlags
from optimizer.cli.settings import now, today
from optimizer.cli.streams import say, write_result
from optimizer.plans.planner import Request, plan
from optimizer.program.problem import Limits, Quota, SolverOptions
from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand


def run(flags: PlanFlags, started: float) -> int:
    """Plans, prints, and gives the exit code; `started` is when the command began, for --timing."""
    format_ = flags.checked_format
    view = flags.market
    given = _workloads(flags)
    solver_options = flags.solver_options
    if flags.gap is None:
        solver_options = replace(solver_options, gap=market_view.usual_gap(given.pairs))
    imported = time.perf_counter()
    flags.refresh_first()
    offers = market_view.load(view)
    loaded = time.perf_counter()
    request = _request(flags, view, given, offers, solver_options)
    if flags.sweep is not None:
        return _sweep(flags, request, format_)
    result = plan(request)
    stages = {"import_s": imported - started, "load_s": loaded - imported, **result.timing_s}
    result = replace(result, timing_s=stages if flags.timing else {})
    text = plan_output.render(result, format_, explained=flags.explain, everything=flags.show_all, trace=given.trace)
    write_result(text, flags.output)
    say(plan_output.remarks(result, format_), quiet=flags.quiet)
    if flags.export:
        from optimizer.cli.export_files import write_exports
        from optimizer.plans.document import plan_document

        say(write_exports(plan_document(result), flags.output, flags.export), quiet=flags.quiet)
    return flags.exit_code(result.status)


def run_melange(flags: PlanFlags, path: str) -> int:
    """Solves a Melange problem, prints the mix, and gives the exit code."""
    from optimizer.cli import melange

    problem, solution = melange.solved(path, flags.rate, flags.solver_options)
    write_result(melange.render(problem, solution, flags.checked_format), flags.output)
    return flags.exit_code(solution.status)


def _sweep(flags: PlanFlags, request: Request, format_: str) -> int:
    from optimizer.cli import sweep

    text, status = sweep.rendered(request, flags.sweep or "", format_, now())
    write_result(text, flags.output)
    return flags.exit_code(status)


def _workloads(flags: PlanFlags) -> workloads.Workloads:
    """The workloads of the file, of the request log, or of the flags."""
    shape = RequestShape(input_tokens=flags.input_tokens, output_tokens=flags.output_tokens)
    workload = InferenceWorkload(
        name="workload",
        model=flags.model or "",
        demands=(ShapeDemand(shape=shape, requests_per_s=values.rate("--rate", flags.rate)),),
        slo=SLO(ttft_ms=flags.ttft_ms, tpot_ms=flags.tpot_ms),
        precisions=choices.precisions(flags.precision),
        kv_precision=flags.kv_precision,
        context_tokens=flags.context,
        utilization=flags.max_utilization,
        same_region=flags.same_region,
    )
    return workloads.chosen(
        workload, flags.workload_file, flags.trace, trace_rate=flags.trace_rate, trace_shapes=flags.trace_shapes
    )


def _request(
    flags: PlanFlags,
    view: market_view.MarketView,
    given: workloads.Workloads,
    offers: market_view.Offers,
    solver_options: SolverOptions,
) -> Request:
    """Everything that the planner needs, with what was assumed."""
    quotas = market_view.quotas(flags.quota)
    return Request(
        workloads=given.pairs,
        budget_usd_per_month=flags.budget_usd,
        offers=offers.eligible,
        offers_on_file=len(offers.all_on_file),
        rejections=offers.rejections,
        today=today(),
        max_age_days=flags.max_age_days,
        limits=_limits(flags, quotas),
        terms=market_view.terms(
            boot_minutes=values.not_negative("--boot-minutes", flags.boot_minutes),
            spot_margin=flags.spot_margin,
            horizon=flags.horizon,
        ),
        holdings=market_view.holdings(flags.current, offers.all_on_file),
        every_alternative=flags.show_all,
        reasons=flags.explain or flags.show_all,
        solver_options=solver_options,
        pools=offers.pools,
        engine=flags.engine,
        gpu_memory_utilization=values.share("--gpu-memory-utilization", flags.gpu_memory_utilization),
        prefix_cache_hit=values.share("--prefix-cache-hit", flags.prefix_cache_hit, zero=True) or 0.0,
        confidence=choices.confidence(flags.confidence),
        measured=choices.measured(flags.measured),
        assumptions=(
            *plan_output.assumptions(given.pairs, flags.engine),
            *choices.sizing_assumptions(flags.prefix_cache_hit, flags.confidence, flags.measured),
            *given.assumptions,
            *market_view.assumed_terms(
                view,
                given.pairs,
                boot_minutes=flags.boot_minutes,
                spot_margin=flags.spot_margin,
                horizon=flags.horizon,
            ),
            *market_view.assumed_gap(solver_options.gap),
            *offers.remarks,
        ),
        warnings=(*given.warnings, *offers.warnings, *choices.quota_warnings(quotas, offers.all_on_file)),
    )


def _limits(flags: PlanFlags, quotas: tuple[Quota, ...]) -> Limits:
    return Limits(
        max_accelerators=flags.max_gpus,
        max_spot_share=values.share("--max-spot-share", flags.max_spot_share, zero=True),
        min_providers=flags.min_providers,
        max_provider_share=values.share("--max-provider-share", flags.max_provider_share),
        spare_replicas=flags.spare_replicas,
        minimum_hours_up=values.not_negative("--min-hours-up", flags.min_hours_up),
        quotas=quotas,
    )
