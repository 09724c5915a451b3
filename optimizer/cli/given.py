"""Turns a command's context into the parameters that its user gave, not its settings or defaults."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Context


def given_parameters(command: "Context") -> Iterator[str]:
    """The names of the parameters that stand on the command line, in the order of the help."""
    return (name for name, _ in _given(command))


def given_flags(command: "Context") -> Iterator[str]:
    """Their flags, like `--max-age`."""
    return (flag for _, flag in _given(command))


def _given(command: "Context") -> Iterator[tuple[str, str]]:
    for parameter in command.command.params:
        source = command.get_parameter_source(parameter.name or "")
        if parameter.name and source is not None and source.name == "COMMANDLINE":
            yield parameter.name, max(parameter.opts, key=len)
