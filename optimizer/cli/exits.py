"""Turns an exception into the exit code and the message that scripts and people rely on."""

import errno
from collections.abc import Collection, Sequence
from enum import IntEnum
from itertools import pairwise


class ExitCode(IntEnum):
    """What scripts may test."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    INFEASIBLE = 3
    NO_PRICES = 4
    NOT_PROVEN = 5
    INTERRUPTED = 130


def exit_code_of(error: Exception) -> ExitCode | None:
    """The code of an exception that is raised on purpose; None for one that is not."""
    from providers import errors

    if isinstance(error, errors.NoUsablePrices):
        return ExitCode.NO_PRICES
    if isinstance(error, (errors.UsageError, errors.CacheError)):
        return ExitCode.USAGE
    if isinstance(error, errors.CostoptError):
        return ExitCode.FAILURE
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.ENOSPC, errno.EROFS, errno.ENOENT):
        return ExitCode.USAGE
    return None


def is_abort(error: Exception) -> bool:
    """Whether the command line library turned an interrupt into an exception of its own."""
    return type(error).__name__ == "Abort"


def usage_message(error: Exception, arguments: Sequence[str]) -> str | None:
    """The message of the command line library's usage errors; None for other exceptions.

    The library is told by what it offers (`format_message`, `exit_code`), since typer carries a click of its own.
    """
    format_message = getattr(error, "format_message", None)
    if format_message is None or not hasattr(error, "exit_code"):
        return None
    from optimizer.cli.app import COMMANDS

    message = str(format_message()).rstrip(".")
    command = _command_after_options(arguments, COMMANDS)
    if command and ("extra argument" in message or message.startswith("Missing option")):
        rest = " ".join(word for word in arguments if word != command)
        return f"options before the command {command!r} are not read; write: costopt {command} {rest}"
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "costopt"
    return f"{message}; `{path} --help` lists what there is"


def _command_after_options(arguments: Sequence[str], commands: Collection[str]) -> str | None:
    """The command that stands behind options of the short form; a word right behind an option is taken as its value."""
    if not arguments or not arguments[0].startswith("-"):
        return None
    for before, word in pairwise(arguments):
        takes_value = before.startswith("-") and "=" not in before
        if word in commands and not takes_value:
            return word
    return None
