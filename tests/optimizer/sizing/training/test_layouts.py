"""The search for layouts keeps to what model, machines and global batch allow, and takes the fastest."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.sizing.layout import tensor_parallel_problem
from optimizer.sizing.training.layouts import (
    TrainingEstimate,
    best_layout,
    check_run,
    choices_made,
    closest_layout,
    fitting_setups,
    for_hardware,
    remedies,
    smallest_counts,
)
from optimizer.workload.architecture import resolve_model
from optimizer.workload.training import TrainingRun
from providers.accelerators import resolve
from providers.errors import InvalidValue
from tests.optimizer.sizing.training.builders import make_cluster


def make_run(model: str = "7B", **over: Any) -> TrainingRun:
    facts: dict[str, Any] = {"name": "run", "model": model, "task": "train", "tokens": 1e9, "seq_len": 4096}
    return TrainingRun(**(facts | {"global_batch_tokens": 4_194_304} | over))


def best(run: TrainingRun, gpu: str = "H100", **cluster: Any) -> TrainingEstimate | None:
    return best_layout(run, resolve_model(run.model), make_cluster(gpu, **cluster))


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(["7B", "70B", "8x7B"]),
    nodes=st.sampled_from([1, 2, 3, 8, 32]),
    batch=st.sampled_from([65_536, 524_288, 4_194_304]),
    task=st.sampled_from(["train", "finetune", "qlora"]),
)
def test_every_layout_uses_all_accelerators_and_stays_inside_the_global_batch(
    model: str, nodes: int, batch: int, task: str
) -> None:
    run = make_run(model, global_batch_tokens=batch, task=task)
    cluster = make_cluster("H100", nodes=nodes)
    architecture = resolve_model(model)
    for setup in fitting_setups(run, architecture, cluster):
        layout = setup.layout
        assert layout.accelerators == cluster.accelerators
        assert tensor_parallel_problem(architecture, layout.tp) is None
        assert layout.tp <= cluster.node_accelerators
        assert layout.dp * setup.micro_batch * setup.seq_len <= batch
        assert setup.global_batch_tokens <= batch
        assert not architecture.is_moe or architecture.experts % layout.ep == 0


def test_the_best_layout_is_within_three_percent_of_the_fastest_comfortable_one() -> None:
    from optimizer.sizing.training.layouts import estimate

    run, cluster = make_run("70B"), make_cluster("H100", nodes=16)
    found = [estimate(run, setup) for setup in fitting_setups(run, resolve_model("70B"), cluster)]
    fastest = min(one.hours for one in found if one.memory.verdict == "fits")
    chosen = best_layout(run, resolve_model("70B"), cluster)
    assert chosen is not None
    assert chosen.hours <= fastest * 1.03


def test_large_models_are_cut_and_small_ones_are_not() -> None:
    small, large = best(make_run("1.5B")), best(make_run("405B"), nodes=64)
    assert small is not None
    assert large is not None
    assert small.setup.layout.dp == 8
    assert large.setup.layout.tp * large.setup.layout.pp >= 8


def test_what_does_not_fit_has_no_best_layout_but_a_closest_one() -> None:
    run = make_run("70B")
    assert best(run, count=1) is None
    closest = closest_layout(run, resolve_model("70B"), make_cluster("H100", count=1))
    assert closest is not None
    assert closest.memory.verdict == "does_not_fit"
    assert any("more accelerators" in way for way in remedies(closest))


def test_more_accelerators_take_less_time() -> None:
    hours = [found.hours for nodes in (1, 2, 4, 8, 16) if (found := best(make_run(), nodes=nodes))]
    assert hours == sorted(hours, reverse=True)
    assert len(hours) == 5


def test_what_gathers_over_a_slow_network_computes_again_to_gather_less_often() -> None:
    run = TrainingRun(name="run", model="8B", task="finetune", tokens=1e9, seq_len=2048, global_batch_tokens=262_144)
    cluster = make_cluster("A100-SXM4-40GB", nodes=2, network_gbit_per_s=400.0)
    best = best_layout(run, resolve_model("8B"), cluster)
    assert best is not None
    assert (best.setup.recompute, best.setup.micro_batch) == ("full", 8)


def test_fsdp_shards_and_megatron_cuts() -> None:
    sharded = best(make_run("70B", stack="fsdp"), nodes=8)
    cut = best(make_run("70B", stack="megatron"), nodes=8)
    assert sharded is not None
    assert cut is not None
    assert sharded.setup.zero_stage == 3
    assert sharded.setup.layout.dp == 64
    assert cut.setup.layout.tp * cut.setup.layout.pp > 1


def test_pinned_degrees_are_kept() -> None:
    found = best(make_run("70B", tp=4, pp=4, micro_batch=1, recompute="full"), nodes=4)
    assert found is not None
    assert (found.setup.layout.tp, found.setup.layout.pp) == (4, 4)
    assert (found.setup.micro_batch, found.setup.recompute) == (1, "full")


@pytest.mark.parametrize(
    ("over", "accelerators", "message"),
    [
        ({"tp": 3}, 24, "attention heads do not divide by 3"),
        ({"tp": 8, "pp": 3}, 16, "must divide 16"),
        ({"pp": 100}, 100, "has 32 layers"),
        ({"stack": "fsdp", "global_batch_tokens": 16_384}, 8, "at least 8"),
    ],
)
def test_degrees_that_cannot_be_are_refused(over: dict[str, Any], accelerators: int, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        check_run(make_run(**over), resolve_model("7B"), accelerators)


def test_long_sequences_are_split_over_context_parallel_ranks() -> None:
    run = make_run("8B", seq_len=131_072, global_batch_tokens=1_048_576)
    found = best(run, nodes=4)
    assert found is not None
    assert found.setup.layout.cp > 1 or found.setup.layout.tp == 8


def test_the_smallest_counts_grow_with_the_model() -> None:
    cluster = make_cluster("A100-80GB", count=1)
    small = smallest_counts(make_run("7B", task="finetune"), resolve_model("7B"), cluster)
    large = smallest_counts(make_run("70B", task="finetune"), resolve_model("70B"), cluster)
    assert small == (2, 2)
    assert large[0] is not None
    assert large[0] >= 16


def test_a_dtype_that_the_hardware_lacks_is_replaced_and_said() -> None:
    run, notes = for_hardware(make_run(precision="fp8"), resolve("A100-80GB"))
    assert run.precision == "bf16"
    assert "does not compute fp8" in notes[0]
    old, _ = for_hardware(make_run(), resolve("V100"))
    assert old.precision == "fp16"


def test_tpus_are_trained_with_xla() -> None:
    run, _ = for_hardware(make_run(), resolve("TPU v5p"))
    assert run.stack == "xla"


V2_LITE = "deepseek-ai/DeepSeek-V2-Lite"


def adapters(model: str = V2_LITE, **over: Any) -> TrainingRun:
    return make_run(model, **({"task": "qlora", "seq_len": 512, "global_batch_tokens": 32_768} | over))


def test_a_given_micro_batch_of_adapters_is_computed_again_as_their_software_does_by_default() -> None:
    searched, scripted = best(adapters(), "H200", count=1), best(adapters(micro_batch=8), "H200", count=1)
    asked = best(adapters(micro_batch=8, recompute="none"), "H200", count=1)
    full = best(adapters(micro_batch=8, task="finetune"), "B300", count=8)
    assert searched is not None
    assert scripted is not None
    assert asked is not None
    assert full is not None
    assert [one.setup.recompute for one in (searched, scripted, asked, full)] == ["none", "full", "none", "none"]


@pytest.mark.parametrize(
    ("over", "patterns"),
    [
        (
            {"micro_batch": 8},
            ["recomputation full, .* --recompute none: 38", "--stack hf", "290 M parameters", "16 bit"],
        ),
        ({}, ["recomputation none, .* --recompute full", "--stack hf", "290 M parameters", "16 bit"]),
        ({"recompute": "full", "micro_batch": 8, "stack": "hf"}, ["290 M parameters", "16 bit"]),
        ({"recompute": "full", "micro_batch": 8, "stack": "hf", "task": "lora"}, ["290 M .* --no-lora-experts"]),
        ({"recompute": "full", "micro_batch": 8, "stack": "hf", "lora_experts": False}, ["16 bit"]),
        ({"model": "8B", "micro_batch": 1}, ["recomputation full", "--stack hf"]),
        ({"task": "finetune"}, []),
    ],
)
def test_what_a_sizing_of_adapters_takes_for_granted_is_said_with_the_other_figure(
    over: dict[str, Any], patterns: list[str]
) -> None:
    run = adapters(**over)
    found = best(run, "B300", count=1)
    assert found is not None
    lines = list(choices_made(run, found))
    assert len(lines) == len(patterns)
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.search(pattern, line), line


def test_a_sharded_base_that_does_not_fit_may_move_to_the_host() -> None:
    run = adapters("70B", zero_stage=3, micro_batch=1)
    closest = closest_layout(run, resolve_model("70B"), make_cluster("RTX 4090", count=2))
    assert closest is not None
    assert any(
        re.search(r"--offload params: \d+ GiB an accelerator, \d+ GiB of each", way) for way in remedies(closest)
    )


def test_adapters_on_many_experts_can_be_made_smaller() -> None:
    closest = closest_layout(adapters(micro_batch=8), resolve_model(V2_LITE), make_cluster("T4", count=1))
    assert closest is not None
    assert closest.memory.verdict == "does_not_fit"
    assert any("--lora-rank" in way for way in remedies(closest))
