"""Writes a plan's launch files into folders, and says what was written and what could not be expressed."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from optimizer.cli.choices import json_text
from optimizer.cli.streams import write_result
from optimizer.interop.launch_plan import LaunchPlan, parse_plan
from optimizer.interop.targets import TARGETS, export
from providers.errors import InvalidValue, UsageError


def written(plan: LaunchPlan, targets: Sequence[str], folder: str, *, replace: bool) -> tuple[list[str], list[str]]:
    """The paths of the targets' files, now written into the folder, and the warnings.

    Raises UsageError where nothing can be written, or files are there that may not be replaced: none is written then.
    """
    exported = [export(plan, target) for target in dict.fromkeys(targets)]
    files = {name: text for one in exported for name, text in one.files.items()}
    warnings = list(dict.fromkeys(warning for one in exported for warning in one.warnings))
    if not files:
        raise UsageError("; ".join([f"nothing of this plan can be written for {', '.join(targets)}", *warnings]))
    there = [name for name in files if (Path(folder) / name).exists()]
    if there and not replace:
        raise UsageError(f"already in {folder}: {', '.join(there)}; `costopt export --force` replaces them")
    for name, text in files.items():
        path = Path(folder) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make the folder {str(path.parent)!r}: {error.strerror or error}") from None
        write_result(text, str(path))
        if name.endswith(".sh"):
            path.chmod(0o755)
    return [str(Path(folder) / name) for name in files], warnings


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
