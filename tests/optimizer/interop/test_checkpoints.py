"""Machines have disks that hold the checkpoint which they load."""

import re

import pytest
import yaml

from optimizer.interop import targets
from optimizer.interop.checkpoints import disk_gb
from optimizer.interop.launch_plan import LaunchPlan
from tests.optimizer.interop.builders import make_plan
from tests.optimizer.interop.training_plans import make_training_plan

SMALL, LARGE = "meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3"


def written(plan: LaunchPlan, target: str) -> str:
    return "".join(targets.export(plan, target).files.values())


@pytest.mark.parametrize(
    ("model", "gigabytes"), [("meta-llama/Llama-3.1-70B", 141), ("deepseek-ai/DeepSeek-V3", 688), (SMALL, 16)]
)
def test_the_disk_holds_the_published_checkpoint_with_room_beside_it(model: str, gigabytes: float) -> None:
    assert gigabytes + 50 < disk_gb(model, 10) < gigabytes + 120


@pytest.mark.parametrize("model", ["somebody/unknown", SMALL])
def test_the_usual_disk_stays_where_it_is_enough_or_the_model_is_not_known(model: str) -> None:
    assert disk_gb(model, 256) == 256


@pytest.mark.parametrize("plan", [make_plan(model=LARGE), make_training_plan(model=LARGE)])
def test_orchestrators_ask_for_a_disk_that_is_large_enough(plan: LaunchPlan) -> None:
    needed = disk_gb(LARGE, 0)
    assert yaml.safe_load(written(plan, "skypilot"))["resources"]["disk_size"] == needed
    assert yaml.safe_load(written(plan, "dstack"))["resources"]["disk"] == f"{needed}GB.."
    assert re.search(rf"volume_size = {needed}\n", written(plan, "terraform"))
    assert any(f"{needed} GB are more" in warning for warning in targets.export(plan, "kubernetes").warnings)


def test_a_small_checkpoint_asks_for_no_disk_of_its_own() -> None:
    plan = make_plan(model=SMALL)
    assert "disk" not in written(plan, "skypilot") + written(plan, "dstack")
    assert "volume_size = 500\n" in written(plan, "terraform")
    assert not any("disk" in warning for warning in targets.export(plan, "kubernetes").warnings)
