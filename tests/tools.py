"""Tools beside Python's packages that tests use: skipped where they are missing, unless REQUIRE_TEST_TOOLS is set."""

import os
import shutil
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / ".test-tools"
"""Where `.ci/run` puts what it installs for tests."""


def needed(name: str, found: object) -> None:
    """Skips without a tool, or fails where tools are required."""
    if not found:
        reason = f"{name} is not installed; `.ci/run` installs it"
        if os.environ.get("REQUIRE_TEST_TOOLS"):
            pytest.fail(reason)
        pytest.skip(reason)


def program(name: str) -> str:
    """The path of a program that a test needs."""
    found = shutil.which(name)
    needed(name, found)
    return str(found)
