"""`costopt export`: from a plan that the command line wrote to files in a folder."""

import json
import re
from pathlib import Path

import pytest

from optimizer.interop.targets import ORCHESTRATORS, ROUTERS, SERVING, TARGETS
from tests.conftest import Command


@pytest.fixture
def plan(costopt: Command) -> Path:
    outcome = costopt("plan", "--model", "8B", "--rate", "5", "--provider", "aws", "-f", "json", "-o", "plan.json")
    assert outcome.code == 0, outcome.err
    return Path("plan.json")


@pytest.mark.parametrize("target", [*SERVING, *ROUTERS, *ORCHESTRATORS])
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


@pytest.mark.parametrize(
    ("flags", "target"),
    [
        (("--model", "8B", "--rate", "1"), "kubernetes"),
        (("--model", "7B", "--task", "qlora", "--tokens", "10M", "--deadline", "5d"), "axolotl"),
    ],
)
def test_a_plan_writes_its_files_at_once(costopt: Command, flags: tuple[str, ...], target: str) -> None:
    outcome = costopt("plan", *flags, "-q", "--export", f"{target}:launch")
    assert outcome.code == 0, outcome.err
    assert list(Path("launch").iterdir())


def test_an_export_that_is_no_target_is_refused_before_planning(costopt: Command) -> None:
    outcome = costopt("plan", "--model", "8B", "--rate", "1", "--export", "kubernets:launch")
    assert outcome.code == 2
    assert "kubernetes" in outcome.err


def test_an_infeasible_plan_writes_nothing(costopt: Command) -> None:
    outcome = costopt("plan", "--model", "405B", "--rate", "1000", "--gpu", "T4", "--export", "vllm:launch")
    assert outcome.code == 3
    assert not Path("launch").exists()
    assert "nothing is written" in outcome.err


def test_a_sweep_has_no_one_plan_to_export(costopt: Command) -> None:
    outcome = costopt("plan", "--model", "8B", "--sweep", "rate=1:10:log3", "--export", "vllm:launch")
    assert outcome.code == 2
    assert "--sweep" in outcome.err


def test_the_help_names_every_target(costopt: Command) -> None:
    shown = re.sub(r"-\n\s+", "-", costopt("export", "--help").out)
    assert set(TARGETS) <= set(re.findall(r"[a-z][a-z-]*[a-z]", shown))


@pytest.mark.parametrize(
    ("flags", "target"),
    [
        (("--model", "8B", "--task", "lora", "--provider", "aws", "--gpu", "L40S"), "skypilot"),
        (("--model", "70B", "--task", "qlora", "--gpu", "H100", "--provider", "aws"), "axolotl"),
        (("--model", "8B", "--task", "finetune", "--stack", "hf", "--zero-stage", "2", "--gpu", "A100"), "kubernetes"),
        (("--model", "8x7B", "--task", "train", "--gpu", "H200", "--provider", "aws"), "slurm"),
    ],
)
def test_import_sizes_an_exported_run_as_the_plan_did(costopt: Command, flags: tuple[str, ...], target: str) -> None:
    assert costopt("plan", *flags, "--tokens", "100M", "-f", "json", "-o", "plan.json").code == 0
    (job,) = json.loads(Path("plan.json").read_text(encoding="utf-8"))["jobs"]
    written = costopt("export", "plan.json", "--to", target, "-o", "launch", "-q").out.split()
    (service,) = json.loads(costopt("import", written[0], "-f", "json").out)["services"]
    (option,) = service["options"]
    assert option["accelerator"] == job["accelerator"]
    assert (option["accelerator_count"] * service["nodes"], option["count"]) == (job["gpus"], job["count"])
    sized = option["training"]
    for key in ("micro_batch", "global_batch_tokens", "tensor_parallel", "pipeline_parallel", "expert_parallel"):
        assert sized[key] == job[key]
    assert sized["memory_gib_per_gpu"] == pytest.approx(job["memory_gib_per_gpu"], rel=0.01)
    assert sized["hours"] == pytest.approx(job["hours"], rel=0.01)
