"""The parsers of the targets that exports are written for, each run as a process in a virtual environment of its own.

`.ci/run` makes `.test-tools/NAME` from each `NAME.txt` in this folder: these packages are large, and they do not agree
with each other or with the project's own requirements. A script here imports nothing of this project, reads the files
that its arguments name, writes what it found to standard output, and fails where a file is not what its parser takes.
"""

import os
import subprocess
from pathlib import Path

from tests.tools import FOLDER, needed, program

_TIMEOUT_S = 300


def run_parser(environment: str, script: str, *arguments: object, home: Path | None = None) -> str:
    """The output of `tests/parsers/SCRIPT.py` in that environment. Raises AssertionError with its output if it fails.

    `home` is the home folder that it sees, for packages that keep catalogues there.
    """
    python = FOLDER / environment / "bin/python"
    needed(f"the environment {environment}", python.exists())
    variables = {"PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": str(home or os.environ.get("HOME", "/"))}
    return _output([str(python), str(Path(__file__).with_name(f"{script}.py")), *map(str, arguments)], variables)


def run_node(package: str, script: str, *arguments: object) -> str:
    """The output of `tests/parsers/SCRIPT.mjs`, which takes that package of npm. Raises AssertionError if it fails."""
    modules = FOLDER / "node_modules"
    needed(package, (modules / package).exists())
    words = [program("node"), str(Path(__file__).with_name(f"{script}.mjs")), *map(str, arguments)]
    return _output(words, {"PATH": os.environ["PATH"], "NODE_PATH": str(modules)})


def _output(words: list[str], variables: dict[str, str]) -> str:
    ran = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert ran.returncode == 0, f"{' '.join(words)}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout
