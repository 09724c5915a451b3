"""Turns the command line into one command's run, and its failures into one message and an exit code.

`costopt --model 70B …` is short for `costopt plan --model 70B …`. Each command's module is imported when it is called.
"""

import gc
import sys
from collections.abc import Sequence
from typing import Final

from optimizer.cli.exits import ExitCode

_OBJECTS_BEFORE_GARBAGE_IS_SOUGHT: Final = 50_000
_ROOT_OPTIONS: Final = ("--help", "-h", "--version", "--install-completion", "--show-completion")


def main() -> None:
    """Entry point of the `costopt` script."""
    # Offers and modules live to the end: looking for garbage among them takes a tenth of a plan's time.
    gc.set_threshold(_OBJECTS_BEFORE_GARBAGE_IS_SOUGHT)
    _open_closed_streams()
    code = run(sys.argv[1:])
    # The interpreter looks once more for garbage at its end, for another tenth: there is nothing to be found.
    gc.freeze()
    sys.exit(code)


def _open_closed_streams() -> None:
    """A stream that the caller closed (`>&-`) is None: what is written to it goes nowhere."""
    import os
    from pathlib import Path

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; everything that goes wrong is said on stderr."""
    try:
        return _invoke(with_command(arguments))
    except KeyboardInterrupt:
        return _complain("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        return _close_quietly()
    except SystemExit as stop:
        # The command line library turns a closed pipe into an exit.
        if isinstance(stop.__context__, BrokenPipeError):
            return _close_quietly()
        raise
    except MemoryError:
        return _complain("out of memory: narrow the request with filters", ExitCode.FAILURE)
    except Exception as error:
        return _explain(error, arguments)


def with_command(arguments: Sequence[str]) -> list[str]:
    """The arguments with the `plan` that their short form leaves out."""
    short = arguments and arguments[0].startswith("-") and arguments[0].split("=")[0] not in _ROOT_OPTIONS
    return ["plan", *arguments] if short else list(arguments)


def _invoke(arguments: list[str]) -> int:
    from optimizer.cli.app import application

    result = application()(args=arguments, prog_name="costopt", standalone_mode=False)
    sys.stdout.flush()
    if result == ExitCode.INTERRUPTED:
        # The command line library turns an interrupt into this code and says nothing.
        raise KeyboardInterrupt
    return result if isinstance(result, int) else ExitCode.DONE


def _explain(error: Exception, arguments: Sequence[str]) -> int:
    """Says what went wrong: the user's mistakes in one line, ours with a traceback if asked for."""
    from optimizer.cli.exits import exit_code_of, is_abort, usage_message

    if is_abort(error):
        return _complain("interrupted", ExitCode.INTERRUPTED)
    usage = usage_message(error, arguments)
    if usage is not None:
        return _complain(usage, ExitCode.USAGE)
    code = exit_code_of(error)
    if code is not None:
        return _complain(str(error), code)
    if "-v" in arguments or "--verbose" in arguments:
        import traceback

        traceback.print_exc()
    message = f"unexpected failure: {type(error).__name__}: {error}; run again with -v for the traceback"
    return _complain(message, ExitCode.FAILURE)


def _complain(message: str, code: int) -> int:
    from optimizer.cli.printable import printable

    try:
        sys.stdout.flush()
        print(f"costopt: {printable(message)}", file=sys.stderr)
    except BrokenPipeError:
        return _close_quietly()
    return code


def _close_quietly() -> int:
    """The reader left: what is buffered goes nowhere, so that the interpreter does not complain at its end."""
    import os

    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(null, stream.fileno())
        except (OSError, ValueError):
            continue
    return ExitCode.DONE


if __name__ == "__main__":
    main()
