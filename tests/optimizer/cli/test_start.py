"""Start-up: a plan needs no network, no credentials, and loads nothing that only other commands use."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Command

ROOT = Path(__file__).parents[3]
HEAVY = {"boto3", "botocore", "grpc", "google", "azure", "sqlalchemy", "pydantic", "requests", "scipy", "pandas"}

COMMANDS = [
    ("plan", "--model", "70B", "--task", "infer", "--budget", "20000"),
    ("size", "--model", "8B", "--gpu", "L4"),
    ("offers", "--gpu", "L4"),
    ("--help",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_loads_no_heavy_package(clean_environment: Path, command: tuple[str, ...]) -> None:
    script = (
        "import json, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "before = {name.partition('.')[0] for name in sys.modules}\n"
        "from optimizer.cli.main import run\n"
        "code = run(sys.argv[1:])\n"
        "after = {name.partition('.')[0] for name in sys.modules}\n"
        "json.dump({'code': code, 'loaded': sorted(after - before)}, sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-c", script, *command, "--quiet"]
        if command != ("--help",)
        else [sys.executable, "-I", "-c", script, *command],
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(result.stderr)
    assert report["code"] == 0
    assert "optimizer" in report["loaded"]
    assert not HEAVY & set(report["loaded"])


def test_the_main_command_needs_no_network_and_no_credentials(costopt: Command) -> None:
    # The network fixture fails the test when anything connects; the environment has no credentials and an empty home.
    outcome = costopt("--model", "70B", "--task", "infer", "--budget", "5000", "--format", "json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert float(document["totals"]["usd_per_month"]) <= 5000
    assert document["status"] in ("optimal", "within_gap")
    assert document["proof"]["gap"] is not None


def test_the_short_form_is_the_plan_command(costopt: Command) -> None:
    options = ("--model", "8B", "--budget", "2000", "--format", "json")
    assert costopt(*options) == costopt("plan", *options)
