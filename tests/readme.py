"""Turns the README into one whose blocks of help are the program's own: `python tests/readme.py` rewrites them.

A block is ```` ```text ```` with a first line `$ costopt … --help`; what follows it is the output at 100 columns.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from optimizer.cli.main import run

README: Final = Path(__file__).parent.parent / "README.md"
COLUMNS: Final = 100
_BLOCK: Final = re.compile(r"```text\n\$ costopt(?P<arguments>[^\n]*) --help\n(?P<output>.*?)```", re.DOTALL)


def help_blocks(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The arguments before `--help` and the output of each block of the README's text."""
    for block in _BLOCK.finditer(text):
        yield tuple(block["arguments"].split()), block["output"]


def help_of(arguments: tuple[str, ...]) -> str:
    """What `costopt ARGUMENTS --help` prints in a window of 100 columns. Raises ValueError when it fails."""
    printed = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(COLUMNS)
    try:
        with contextlib.redirect_stdout(printed):
            code = run([*arguments, "--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    if code != 0:
        raise ValueError(f"costopt {' '.join(arguments)} --help exits with {code}")
    return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().splitlines())


def with_current_help(text: str) -> str:
    """The README's text with its help blocks as the program prints them now."""

    def renewed(block: re.Match[str]) -> str:
        output = help_of(tuple(block["arguments"].split()))
        return f"```text\n$ costopt{block['arguments']} --help\n{output}```"

    return _BLOCK.sub(renewed, text)


if __name__ == "__main__":
    README.write_text(with_current_help(README.read_text(encoding="utf-8")), encoding="utf-8")
