"""Holds the flags of `costopt plan`: what is wanted, and what becomes of the plan."""

from dataclasses import dataclass, fields
from typing import Any

from optimizer.api import choices
from optimizer.api.plan_arguments import PlanArguments
from optimizer.cli.exits import ExitCode
from providers.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """What is wanted, and one field for each flag that says what becomes of the plan, under the flag's name."""

    wanted: PlanArguments
    melange: str | None
    sweep: str | None
    refresh: bool
    require_optimal: bool
    format_: str
    output: str
    export: list[str] | None
    timing: bool
    quiet: bool

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> "PlanFlags":
        """The flags among the arguments of the command."""
        arguments = {**arguments, "workload": arguments["workload_file"]}
        wanted = PlanArguments(**{field.name: arguments[field.name] for field in fields(PlanArguments)})
        names = {field.name for field in fields(cls)} - {"wanted"}
        return cls(wanted=wanted, **{name: arguments[name] for name in names})

    @property
    def checked_format(self) -> str:
        """The output format. Raises UnknownName."""
        return choices.one_of("format", self.format_, choices.FORMATS if self.sweep is None else choices.PAGE_FORMATS)

    def refresh_first(self) -> None:
        """Fetches live prices where that was asked for. Raises UsageError together with `--offline`."""
        if not self.refresh:
            return
        if self.wanted.offline:
            raise UsageError("--refresh goes online, --offline forbids it: give one of them")
        from optimizer.cli.refreshing import refresh_before_planning

        refresh_before_planning(sorted(choices.providers(self.wanted.provider)), quiet=self.quiet)

    def exit_code(self, status: str) -> ExitCode:
        """What a plan of that status ends with."""
        if status == "infeasible":
            return ExitCode.INFEASIBLE
        if self.require_optimal and status not in ("optimal", "within_gap"):
            return ExitCode.NOT_PROVEN
        return ExitCode.DONE
