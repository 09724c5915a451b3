"""`costopt export`: from a plan that the command line wrote to files in a folder."""

from pathlib import Path

import pytest

from optimizer.interop.targets import SERVING
from tests.conftest import Command


@pytest.fixture
def plan(costopt: Command) -> Path:
    outcome = costopt("plan", "--model", "8B", "--rate", "5", "--provider", "aws", "-f", "json", "-o", "plan.json")
    assert outcome.code == 0, outcome.err
    return Path("plan.json")


@pytest.mark.parametrize("target", [*SERVING, "terraform"])
def test_a_plan_becomes_files_that_are_listed(costopt: Command, plan: Path, target: str) -> None:
    outcome = costopt("export", plan, "--to", target, "-o", "out")
    assert outcome.code == 0, outcome.err
    listed = [Path(line) for line in outcome.out.splitlines()]
    assert listed
    assert sorted(listed) == sorted(file for file in Path("out").rglob("*") if file.is_file())


def test_files_that_are_there_are_only_replaced_when_told(costopt: Command, plan: Path) -> None:
    assert costopt("export", plan, "--to", "vllm", "-o", "out").code == 0
    refused = costopt("export", plan, "--to", "vllm", "-o", "out")
    assert refused.code == 2
    assert "--force" in refused.err
    assert costopt("export", plan, "--to", "vllm", "-o", "out", "--force").code == 0


def test_a_file_that_is_no_plan_is_a_usage_error(costopt: Command) -> None:
    Path("other.json").write_text("{}")
    outcome = costopt("export", "other.json", "--to", "vllm")
    assert outcome.code == 2
    assert "costopt.plan" in outcome.err


def test_scripts_can_be_run(costopt: Command, plan: Path) -> None:
    costopt("export", plan, "--to", "vllm", "-o", "out")
    assert all(file.stat().st_mode & 0o111 for file in Path("out").glob("*.sh"))
