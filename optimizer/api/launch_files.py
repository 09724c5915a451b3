"""Writes the files that launch a plan into a folder, and says what was written and what could not be expressed."""

from collections.abc import Sequence
from pathlib import Path

from optimizer.api.files import write_file
from optimizer.interop.launch_plan import LaunchPlan
from optimizer.interop.targets import export
from providers.errors import UsageError


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
        raise UsageError(f"already in {folder}: {', '.join(there)}; --force replaces them")
    for name, text in files.items():
        path = Path(folder) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make the folder {str(path.parent)!r}: {error.strerror or error}") from None
        write_file(text.encode(), str(path))
        if name.endswith(".sh"):
            path.chmod(0o755)
    return [str(Path(folder) / name) for name in files], warnings
