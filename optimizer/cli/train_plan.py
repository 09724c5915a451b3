"""Turns the flags of `costopt plan` for a training task into the plan of the runs and its printed form."""

from dataclasses import replace

from optimizer.api.training_plan import plan_runs
from optimizer.cli import train_plan_output
from optimizer.cli.plan_flags import PlanFlags
from optimizer.cli.streams import say, write_result


def run(flags: PlanFlags, task: str) -> int:
    """Plans the run or the jobs of the flags, prints, and gives the exit code."""
    format_, wanted = flags.checked_format, flags.wanted
    runs = plan_runs(wanted, task, refresh=flags.refresh_first)
    runs = runs if flags.timing else replace(runs, timing_s={})
    text = train_plan_output.render(runs, format_, explained=wanted.explain, everything=wanted.show_all)
    write_result(text, flags.output)
    say(train_plan_output.remarks(runs, format_), quiet=flags.quiet)
    if flags.export:
        from optimizer.cli.export_files import write_exports
        from optimizer.plans.training_document import training_plan_document

        say(write_exports(training_plan_document(runs), flags.output, flags.export), quiet=flags.quiet)
    return flags.exit_code(runs.solution.status)
