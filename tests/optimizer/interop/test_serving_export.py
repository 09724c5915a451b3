"""What exports say of the plan's memory, caches, experts and split of requests, and what they warn of."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from optimizer.interop import targets
from optimizer.interop.launch_plan import LaunchPlan, ReplicaGroup
from optimizer.interop.plan_file import parse_plan
from optimizer.interop.routers.weights import whole_weights
from optimizer.interop.serving import sglang, tensorrt_llm, vllm
from providers.errors import UsageError
from tests.conftest import Command
from tests.optimizer.interop.builders import PLANS, make_document, make_instances, make_memory, make_plan, make_replicas

ENGINES = {"vllm": vllm, "sglang": sglang, "tensorrt-llm": tensorrt_llm}
VLLM_TARGETS = ("vllm", "triton", "ray", "kubernetes", "skypilot", "dstack", "slurm")


def group_of(model: str = "meta-llama/Llama-3.1-70B", **over: Any) -> ReplicaGroup:
    (group,) = make_plan(None, [make_replicas(**over)], model=model).groups
    return group


def warnings_of(target: str, **over: Any) -> str:
    model = over.pop("model", "meta-llama/Llama-3.1-70B")
    return "\n".join(targets.export(make_plan(None, [make_replicas(**over)], model=model), target).warnings)


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_the_memory_share_of_the_plan_is_written_for_each_engine_as_it_counts() -> None:
    group = group_of(memory=make_memory())
    assert value(vllm.arguments(group), "--gpu-memory-utilization") == "0.85"
    assert value(sglang.arguments(group), "--mem-fraction-static") == "0.793"
    assert tensorrt_llm.options(group)["kv_cache_config"]["free_gpu_memory_fraction"] == 0.783


@pytest.mark.parametrize("target", VLLM_TARGETS)
def test_every_target_with_vllm_says_the_memory_share(target: str) -> None:
    plan = make_plan(None, [make_replicas(memory=make_memory(kv_room_gib=35.5))])
    texts = "\n".join(targets.export(plan, target).files.values())
    assert "0.75" in texts
    assert "memory share" not in "\n".join(targets.export(plan, target).warnings)


@pytest.mark.parametrize("target", VLLM_TARGETS)
def test_a_plan_that_does_not_say_the_memory_share_is_a_warning(target: str) -> None:
    assert "memory share" in warnings_of(target)


def test_plan_and_export_agree_on_the_memory_share(costopt: Command) -> None:
    demand = ("--model", "8B", "--rate", "5", "--gpu", "L40S", "--gpu-memory-utilization", "0.82", "--offline")
    assert costopt("plan", *demand, "-f", "json", "-o", "plan.json").code == 0
    assert costopt("export", "plan.json", "--to", "vllm", "-o", "out").code == 0
    (script,) = Path("out").glob("*.sh")
    assert "--gpu-memory-utilization 0.82 " in script.read_text()


@pytest.mark.parametrize("target", ["vllm", "triton", "kubernetes", "skypilot", "dstack", "ray", "slurm"])
def test_a_plan_for_another_engine_is_a_warning(target: str) -> None:
    assert "counted on sglang" in warnings_of(target, engine="sglang")
    assert "counted on" not in warnings_of(target, engine="vllm")


@pytest.mark.parametrize("target", ["sglang", "tensorrt-llm", "triton-tensorrt-llm"])
def test_engines_take_plans_that_were_made_for_them(target: str) -> None:
    own = "sglang" if target == "sglang" else "tensorrt-llm"
    assert "counted on vllm" in warnings_of(target, engine="vllm")
    assert "counted on" not in warnings_of(target, engine=own)


@pytest.mark.parametrize("target", [*ENGINES, "kubernetes"])
def test_a_cache_that_no_flag_makes_is_a_warning(target: str) -> None:
    assert "cache in int8" in warnings_of(target, kv_precision="int8")
    assert "cache in" not in warnings_of(target, kv_precision="fp8")
    assert "cache in" not in warnings_of(target, kv_precision="16-bit")


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", ["--tensor-parallel-size 2", "--data-parallel-size 4", "--enable-expert-parallel"]),
        ("sglang", ["--tp-size 8", "--attn-dp-size 4", "--ep-size 8"]),
        ("tensorrt-llm", ["--tp_size 8", "--ep_size 8"]),
    ],
)
def test_experts_and_ranks_of_attention_are_flags(engine: str, words: list[str]) -> None:
    group = group_of(model="deepseek-ai/DeepSeek-V3", tensor_parallel=2, data_parallel=4, expert_parallel=8)
    assert group.accelerators_per_replica == 8
    command = " ".join(ENGINES[engine].arguments(group))  # type: ignore[attr-defined]
    assert all(f" {word} " in f"{command} " for word in words)


def test_copies_of_a_mixture_of_experts_that_vllm_would_join_are_a_warning() -> None:
    copies = {"tensor_parallel": 4, "count": 2}
    assert "splits the experts" in warnings_of("vllm", model="mistralai/Mixtral-8x7B-v0.1", **copies)
    assert "splits the experts" not in warnings_of("vllm", **copies)
    assert "splits the experts" not in warnings_of("sglang", model="mistralai/Mixtral-8x7B-v0.1", **copies)


def test_a_cache_of_prefixes_that_the_plan_counted_on_is_turned_on() -> None:
    assert "--enable-prefix-caching" in vllm.arguments(group_of(prefix_cache_hit=0.3))
    assert "30% of each prompt" in warnings_of("vllm", prefix_cache_hit=0.3)
    assert "--enable-prefix-caching" not in vllm.arguments(group_of())


@pytest.mark.parametrize(
    ("target", "precision", "needed"),
    [
        ("vllm", "int4", True),
        ("vllm", "fp8", False),
        ("vllm", "bf16", False),
        ("sglang", "int4", True),
        ("triton", "int8", True),
        ("tensorrt-llm", "fp8", True),
        ("tensorrt-llm", "bf16", False),
        ("triton-tensorrt-llm", "fp8", True),
    ],
)
def test_a_file_that_wants_another_checkpoint_says_so_itself(target: str, precision: str, needed: bool) -> None:
    texts = targets.export(make_plan(None, [make_replicas(precision=precision)]), target).files.values()
    assert any(f"put a checkpoint in {precision} in place" in text for text in texts) == needed
    assert ("checkpoint in that format" in warnings_of(target, precision=precision)) == needed


@pytest.mark.parametrize("target", ["tensorrt-llm", "triton-tensorrt-llm"])
def test_no_file_for_accelerators_that_tensorrt_llm_does_not_run_on(target: str) -> None:
    amd = {"instance_type": "8x_MI300X", "accelerator": "MI300X"}
    exported = targets.export(make_plan([make_instances(**amd)], [make_replicas(**amd)]), target)
    assert not exported.files
    assert any("NVIDIA" in warning for warning in exported.warnings)


def test_each_replica_of_tensorrt_llm_starts_on_its_own_cards_and_port(tmp_path: Path) -> None:
    plan = make_plan(None, [make_replicas(tensor_parallel=4, count=2)])
    for name, text in targets.export(plan, "tensorrt-llm").files.items():
        (tmp_path / name).write_text(text)
    stand_in = tmp_path / "trtllm-serve"
    stand_in.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES $*"\nsleep 0.2\n')
    stand_in.chmod(0o755)
    ran = subprocess.run(
        ["bash", tmp_path / "tensorrt-llm-chat.sh"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = sorted(ran.stdout.splitlines())
    assert [line.split()[0] for line in lines] == ["0,1,2,3", "4,5,6,7"]
    assert [line.split()[-1] for line in lines] == ["8000", "8001"]
    assert all(f"--extra_llm_api_options {tmp_path}/tensorrt-llm-chat.yaml" in line for line in lines)


@pytest.mark.parametrize("field", ["usable_gib_per_gpu", "weights_gib", "kv_room_gib"])
@pytest.mark.parametrize("damage", [float("nan"), float("inf"), "x", None])
def test_damaged_memory_in_a_plan_is_refused(field: str, damage: Any) -> None:
    with pytest.raises(UsageError):
        group_of(memory=make_memory() | {field: damage})


def test_memory_that_a_measurement_contradicts_is_left_out_and_the_share_kept() -> None:
    measured = {"memory": make_memory(weights_gib=70.0, kv_room_gib=-8.0), "gpu_memory_utilization": 0.82}
    group = group_of(**measured, engine="vllm")
    assert group.memory is None
    assert value(vllm.arguments(group), "--gpu-memory-utilization") == "0.82"
    assert "memory share" not in warnings_of("vllm", **measured, engine="vllm")
    assert "memory share" in warnings_of("sglang", **measured, engine="sglang")
    group = group_of(**measured, engine="tensorrt-llm")
    assert tensorrt_llm.options(group)["kv_cache_config"]["free_gpu_memory_fraction"] == 0.82


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan"), "x"])
def test_a_memory_share_beyond_sense_is_refused(share: Any) -> None:
    with pytest.raises(UsageError):
        group_of(gpu_memory_utilization=share)


@pytest.mark.parametrize(
    ("rates", "weights"),
    [
        ([3.0, 1.0], [1000, 333]),
        ([2.0, 2.0], [1, 1]),
        ([0.0, 0.0], [1, 1]),
        ([5.0, 0.0], [1000, 0]),
        ([1e6, 1.0], [1000, 1]),
    ],
)
def test_weights_are_whole_and_in_proportion(rates: list[float], weights: list[int]) -> None:
    assert whole_weights(rates, 1000) == weights


def two_workloads(first: str, second: str) -> LaunchPlan:
    """Two groups of the first workload and one of the second, on machines of their own."""
    machines = [{"instance_type": f"machine-{number}"} for number in range(3)]
    document = make_document(
        [make_instances(**machine) for machine in machines],
        [
            make_replicas(**machine, workload=name)
            for machine, name in zip(machines, (first, first, second), strict=True)
        ],
        name=first,
    )
    document["workloads"].append(document["workloads"][0] | {"name": second})
    return parse_plan(json.dumps(document), "plan.json")


@pytest.mark.parametrize(
    ("first", "second"), [("Chat A", "chat-a"), ("a" * 90, "a" * 80 + "b"), ("é", "è"), ("x-0", "x")]
)
def test_names_that_look_alike_stay_apart(first: str, second: str) -> None:
    plan = two_workloads(first, second)
    assert len({group.name for group in plan.groups}) == 3
    assert all(len(group.name) <= 45 for group in plan.groups)
    assert len({route["metadata"]["name"] for route in documents(plan, "gateway-api", "HTTPRoute")}) == 2
    (text,) = targets.export(plan, "nginx").files.values()
    upstreams = re.findall(r"^upstream (\S+) ", text, re.MULTILINE)
    assert len(set(upstreams)) == 2


def documents(plan: LaunchPlan, target: str, kind: str) -> Iterator[dict[str, Any]]:
    for text in targets.export(plan, target).files.values():
        for document in yaml.safe_load_all(text):
            if document["kind"] == kind:
                yield document


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("target", ["gateway-api", "llm-d"])
def test_routes_carry_the_split_of_the_plan(name: str, target: str) -> None:
    plan = PLANS[name]()
    groups = {group.name: group for group in plan.groups}
    routes = list(documents(plan, target, "HTTPRoute"))
    assert len(routes) == len({group.workload for group in plan.groups})
    for route in routes:
        (rule,) = route["spec"]["rules"]
        weights = {backend["name"]: backend["weight"] for backend in rule["backendRefs"]}
        rate = sum(groups[name].requests_per_s for name in weights)
        for backend, weight in weights.items():
            share = groups[backend].requests_per_s / rate
            assert weight / sum(weights.values()) == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("name", PLANS)
def test_routes_and_pools_lead_to_what_the_manifests_make(name: str) -> None:
    plan = PLANS[name]()
    services = {document["metadata"]["name"]: document for document in documents(plan, "kubernetes", "Service")}
    for route in documents(plan, "gateway-api", "HTTPRoute"):
        for backend in route["spec"]["rules"][0]["backendRefs"]:
            assert backend["port"] in {port["port"] for port in services[backend["name"]]["spec"]["ports"]}
    pools = {document["metadata"]["name"]: document for document in documents(plan, "llm-d", "InferencePool")}
    for pool, document in pools.items():
        assert document["spec"]["selector"]["matchLabels"] == services[pool]["spec"]["selector"]
    for route in documents(plan, "llm-d", "HTTPRoute"):
        assert {backend["name"] for backend in route["spec"]["rules"][0]["backendRefs"]} <= pools.keys()


@pytest.mark.parametrize("target", targets.ROUTERS)
def test_what_weights_cannot_say_is_a_warning(target: str) -> None:
    assert any("long and short" in text for text in targets.export(PLANS["several models"](), target).warnings)
    by_hour = make_plan(None, [make_replicas(counts_by_period=[1, 0])])
    assert any("through the day" in text for text in targets.export(by_hour, target).warnings)
    assert not any("long and short" in text for text in targets.export(PLANS["two groups"](), target).warnings)


def test_a_folder_of_triton_is_imported_with_its_accelerators(costopt: Command) -> None:
    Path("plan.json").write_text(json.dumps(make_document()))
    assert costopt("export", "plan.json", "--to", "triton", "-o", "out").code == 0
    found = costopt("import", "out/triton-chat", "--offline", "-f", "json")
    assert found.code in (0, 3), found.err
    assert "H100-SXM5-80GB" in found.out
    assert '"tensor_parallel": 8' in found.out


def test_more_backends_than_a_route_takes_are_a_warning() -> None:
    machines = [{"instance_type": f"machine-{number}"} for number in range(17)]
    plan = make_plan([make_instances(**one) for one in machines], [make_replicas(**one) for one in machines])
    assert any("16 backends" in warning for warning in targets.export(plan, "gateway-api").warnings)
