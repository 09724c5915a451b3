"""Turns the flags of `costopt plan` for serving into its plan, its sweep or a Melange problem's mix, and prints it."""

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from optimizer.api import market_view
from optimizer.api.clock import now
from optimizer.api.serving_plan import request_of, workloads_of
from optimizer.cli import plan_output
from optimizer.cli.plan_flags import PlanFlags
from optimizer.cli.streams import say, write_result
from optimizer.plans.planner import Request, plan
from providers.errors import UsageError

_BESIDE_MELANGE: Final = frozenset(
    {
        *("--melange", "--task", "--rate", "--solver", "--gap", "--max-nodes", "--require-optimal"),
        *("--format", "--output", "--offline", "--quiet", "--verbose"),
    }
)


def run(flags: PlanFlags, started: float) -> int:
    """Plans, prints, and gives the exit code; `started` is when the command began, for --timing."""
    format_, wanted = flags.checked_format, flags.wanted
    view = wanted.market
    given = workloads_of(wanted)
    imported = time.perf_counter()
    flags.refresh_first()
    offers = market_view.load(view)
    loaded = time.perf_counter()
    request = request_of(wanted, given, offers)
    if flags.sweep is not None:
        return _sweep(flags, request, format_)
    result = plan(request)
    stages = {"import_s": imported - started, "load_s": loaded - imported, **result.timing_s}
    result = replace(result, timing_s=stages if flags.timing else {})
    text = plan_output.render(result, format_, explained=wanted.explain, everything=wanted.show_all, trace=given.trace)
    write_result(text, flags.output)
    say(plan_output.remarks(result, format_), quiet=flags.quiet)
    if flags.export:
        from optimizer.cli.export_files import write_exports
        from optimizer.plans.document import plan_document

        say(write_exports(plan_document(result), flags.output, flags.export), quiet=flags.quiet)
    return flags.exit_code(result.status)


def run_melange(flags: PlanFlags, path: str, given: Iterable[str]) -> int:
    """Solves a Melange problem, prints the mix, and gives the exit code.

    Raises UsageError where one of the `given` flags would have no effect: the file holds prices, demand and speed.
    """
    from optimizer.cli import melange

    for flag in given:
        if flag not in _BESIDE_MELANGE:
            raise UsageError(f"{flag} has no effect on --melange; leave it out")
    problem, solution = melange.solved(path, flags.wanted.rate, flags.wanted.solver_options)
    write_result(melange.render(problem, solution, flags.checked_format), flags.output)
    return flags.exit_code(solution.status)


def _sweep(flags: PlanFlags, request: Request, format_: str) -> int:
    from optimizer.cli import sweep

    text, status = sweep.rendered(request, flags.sweep or "", format_, now())
    write_result(text, flags.output)
    return flags.exit_code(status)
