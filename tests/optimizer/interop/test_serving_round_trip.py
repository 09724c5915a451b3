"""What export wrote for serving, import reads: the plan's accelerators, counts and layout, by target and plan."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimizer.interop import targets
from optimizer.interop.asks import Ask
from optimizer.interop.launch_plan import LaunchPlan, ReplicaGroup
from optimizer.interop.recognise import recognise, repository
from providers.errors import UsageError
from tests.optimizer.interop.builders import PLANS, on_cards_of_one_name

SHARED = ("kubernetes", "ray")
"""Targets whose scheduler shares machines out: a file counts the accelerators of one replica."""

ONE_MACHINE = ("tensorrt-llm", "triton-tensorrt-llm", "dstack")
"""Targets that write no file for a replica over several machines."""

COMING_BACK = (
    "vllm",
    "sglang",
    "tensorrt-llm",
    "triton",
    "triton-tensorrt-llm",
    "ray",
    "kubernetes",
    "skypilot",
    "dstack",
)
NOT_COMING_BACK = ("nginx", "gateway-api", "llm-d")
COMING = {**PLANS, "on cards of one name": on_cards_of_one_name}
LAUNCHING = Path(__file__).parents[3] / "docs/launching.md"


def asks_of(plan: LaunchPlan, target: str) -> Iterator[Ask]:
    """What the export asks for, in the order of the groups."""
    files = targets.export(plan, target).files
    if target == "triton":
        for name, text in files.items():
            if name.endswith("config.pbtxt"):
                yield from repository(text, files[name.replace("config.pbtxt", "1/model.json")], name).asks
        return
    for name, text in files.items():
        if target != "tensorrt-llm" or name.endswith(".sh"):
            yield from recognise(text, name).asks


def groups_of(plan: LaunchPlan, target: str) -> list[ReplicaGroup]:
    return [group for group in plan.groups if group.instances_per_replica == 1 or target not in ONE_MACHINE]


def pairs(name: str, target: str) -> list[tuple[Ask, ReplicaGroup]]:
    plan = COMING[name]()
    return list(zip(asks_of(plan, target), groups_of(plan, target), strict=True))


each = pytest.mark.parametrize("name", COMING)
every = pytest.mark.parametrize("target", COMING_BACK)


@each
@every
def test_the_layout_comes_back(name: str, target: str) -> None:
    for ask, group in pairs(name, target):
        assert ask.model == group.model
        assert (ask.tensor_parallel, ask.pipeline_parallel) == (group.tensor_parallel, group.pipeline_parallel)
        assert ask.context_tokens == group.context_tokens
        assert ask.kv_precision == (group.kv_precision if target != "tensorrt-llm" else None)
        if group.precision in ("bf16", "fp16") and target != "tensorrt-llm":
            assert ask.precision == group.precision
        if group.memory is not None and target not in ("sglang", "tensorrt-llm", "triton-tensorrt-llm"):
            assert ask.memory_share == pytest.approx(group.memory.of_card, abs=0.001)


@each
@every
def test_accelerators_and_counts_come_back(name: str, target: str) -> None:
    for ask, group in pairs(name, target):
        assert group.purchase.accelerator in {
            one.name for wish in ask.wishes for one in (wish.accelerator, *wish.variants)
        }
        counts = {wish.count for wish in ask.wishes}
        if target in SHARED:
            assert {count * ask.nodes for count in counts} == {group.accelerators_per_replica}
            assert ask.replicas * ask.data_parallel == group.replicas
        else:
            bought = sum(item.accelerators * item.count for item in group.purchases)
            assert {count * ask.nodes * ask.replicas for count in counts} == {bought}
            spread = group.per_instance * group.instances if group.instances_per_replica == 1 else group.replicas
            assert (ask.nodes, ask.replicas * ask.data_parallel) == (group.instances_per_replica, spread)
        if target != "ray":
            assert ask.region == group.purchase.region
            assert ask.spot == group.is_spot


def test_the_page_lists_what_cannot_come_back() -> None:
    assert sorted((*COMING_BACK, *NOT_COMING_BACK)) == sorted(
        {*targets.SERVING, *targets.ROUTERS, *targets.ORCHESTRATORS} - {"slurm", "terraform"}
    )
    for target in NOT_COMING_BACK:
        for name, text in targets.export(PLANS["two groups"](), target).files.items():
            with pytest.raises(UsageError):
                recognise(text, name)
    listed = re.search(r"Not read back: (.+?)\.", LAUNCHING.read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    assert sorted(re.findall(r"`([a-z-]+)`", listed[1])) == sorted(NOT_COMING_BACK)
