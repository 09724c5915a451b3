"""Turns the `--export TARGET:DIR` flags of a plan that was just made into written files and lines about them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optimizer.api.json_text import json_text
from optimizer.api.launch_files import written
from optimizer.interop.plan_file import parse_plan
from optimizer.interop.targets import TARGETS
from providers.errors import InvalidValue, UsageError


def check_exports(wanted: Sequence[str], *, one_plan: bool) -> None:
    """Raises UsageError for one that is no TARGET:DIR, or where no one plan is made, before anything is planned."""
    if not one_plan:
        raise UsageError("--export writes the files of one plan: leave out --sweep and --melange")
    for text in wanted:
        target_and_folder(text)


def write_exports(document: Mapping[str, Any], output: str, wanted: Sequence[str]) -> list[str]:
    """Writes the files of a plan that was just made; a line for each file and each warning."""
    return list(_write_exports(document, output, wanted))


def _write_exports(document: Mapping[str, Any], output: str, wanted: Sequence[str]) -> Iterator[str]:
    """A plan without anything to launch writes nothing, which is said."""
    if not document["instances"]:
        yield "warning: --export: nothing is feasible, so nothing is written"
        return
    plan = parse_plan(json_text(document), "costopt plan" if output == "-" else output)
    for text in wanted:
        target, folder = target_and_folder(text)
        paths, warnings = written(plan, [target], folder, replace=False)
        yield from (f"warning: {warning}" for warning in warnings)
        yield from (f"written: {path}" for path in paths)


def target_and_folder(text: str) -> tuple[str, str]:
    """The parts of `TARGET:DIR`. Raises InvalidValue, so that a plan is not made in vain."""
    target, colon, folder = text.partition(":")
    if not colon or not folder or target.strip().lower() not in TARGETS:
        raise InvalidValue("--export", text, f"write TARGET:DIR, like kubernetes:launch; targets: {', '.join(TARGETS)}")
    return target.strip().lower(), folder
