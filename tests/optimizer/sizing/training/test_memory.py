"""Memory of training: published tables and users' figures, and what each setting changes."""

from dataclasses import replace

import pytest

from optimizer.sizing.training.calibration import optimizer_states
from optimizer.sizing.training.memory import (
    activation_bytes,
    layer_activation_bytes,
    local_parameters,
    training_memory,
    zero3_states_gib,
)
from optimizer.sizing.training.setup import TrainingLayout
from providers.errors import UnknownName
from providers.units import GIB
from tests.optimizer.sizing.training.builders import gpt_shape, make_cluster, make_setup


@pytest.mark.parametrize(
    ("offload", "accelerator_gib", "host_gib"),
    [({"params", "optimizer"}, 0.25, 71.66), ({"optimizer"}, 5.55, 63.70), (set(), 48.02, None)],
)
def test_the_zero3_estimator_of_deepspeed_is_reproduced(
    offload: set[str], accelerator_gib: float, host_gib: float | None
) -> None:
    """The table that DeepSpeed prints for a 2849 M model on one accelerator (deepspeedai/DeepSpeed issue 2797)."""
    device, host = zero3_states_gib(2849e6, 65e6, offload=frozenset(offload))
    assert device == pytest.approx(accelerator_gib, abs=0.02)
    if host_gib is not None:
        assert host == pytest.approx(host_gib, abs=0.03)


def test_a_gpt_layer_keeps_34_h_bytes_a_token_without_unfused_attention() -> None:
    """arXiv 2205.05198, table 2: 34 s b h, less its three dropout masks of one byte: 1 h each."""
    setup = make_setup(gpt_shape(hidden=4096))
    assert layer_activation_bytes(setup) / 4096 == pytest.approx(34 - 3 + 3, rel=0.1)


def test_tensor_and_sequence_parallelism_split_a_layers_activations() -> None:
    model = gpt_shape(hidden=4096)
    alone = layer_activation_bytes(make_setup(model))
    split = make_setup(model, layout=TrainingLayout(tp=8))
    assert layer_activation_bytes(split) == pytest.approx(alone / 8)
    without = replace(split, sequence_parallel=False)
    assert layer_activation_bytes(without) == pytest.approx(10 * 4096 + (alone - 10 * 4096) / 8)


def test_full_recomputation_keeps_two_bytes_a_token_layer_and_width() -> None:
    model = gpt_shape(layers=24, hidden=2048)
    setup = make_setup(model, recompute="full")
    one_layer = layer_activation_bytes(setup) * 2048
    assert activation_bytes(setup) == pytest.approx(24 * 2 * 2048 * 2048 + one_layer)


def test_the_first_pipeline_stage_keeps_every_micro_batch_in_flight() -> None:
    model = gpt_shape(layers=24)
    whole = activation_bytes(make_setup(model, layout=TrainingLayout(dp=8)))
    assert activation_bytes(make_setup(model, layout=TrainingLayout(pp=4, dp=2))) == pytest.approx(whole)
    few = make_setup(model, layout=TrainingLayout(pp=4, dp=2), global_batch_tokens=2 * 2 * 2048)
    assert activation_bytes(few) == pytest.approx(whole / 2)


def test_mixed_precision_adamw_holds_18_bytes_a_parameter_in_megatron_and_16_in_fsdp() -> None:
    for stack, expected in (("megatron", 18), ("fsdp", 16)):
        memory = training_memory(make_setup(count=1, stack=stack, zero_stage=0))
        assert memory.states_gib * GIB / 6.738e9 == pytest.approx(expected, rel=1e-3)


def test_each_zero_stage_shards_one_more_kind_of_state() -> None:
    held = [training_memory(make_setup(zero_stage=stage)) for stage in (0, 1, 2, 3)]
    assert held[1].optimizer_gib == pytest.approx(held[0].optimizer_gib / 8)
    assert held[1].gradients_gib == held[0].gradients_gib
    assert held[2].gradients_gib == pytest.approx(held[0].gradients_gib / 8)
    assert held[2].weights_gib == held[0].weights_gib
    assert held[3].weights_gib == pytest.approx(held[0].weights_gib / 8)


def test_experts_are_split_over_expert_parallel_ranks() -> None:
    mixtral = "mistralai/Mixtral-8x7B-v0.1"
    alone = local_parameters(make_setup(mixtral))
    spread = local_parameters(make_setup(mixtral, layout=TrainingLayout(dp=8, ep=8)))
    assert spread.experts == pytest.approx(alone.experts / 8)
    assert spread.dense == pytest.approx(alone.dense)


def test_large_vocabularies_rule_small_models_unless_the_loss_is_chunked() -> None:
    setup = make_setup("meta-llama/Llama-3.2-1B", count=1, stack="eager", micro_batch=8, recompute="full")
    memory = training_memory(setup)
    assert memory.dominant == "logits"
    assert training_memory(replace(setup, chunked_loss=True)).logits_gib == pytest.approx(memory.logits_gib / 8)


def test_a_4_bit_base_is_far_from_one_eighth_because_embeddings_stay_in_16_bit() -> None:
    qlora = training_memory(make_setup("meta-llama/Meta-Llama-3-70B", count=1, task="qlora", stack="eager"))
    assert qlora.weights_gib == pytest.approx(36.8, rel=0.05)


def test_offloading_the_optimizer_moves_states_and_gradients_to_the_host() -> None:
    setup = make_setup(stack="hf", task="finetune", zero_stage=3, offload=frozenset({"optimizer"}))
    memory = training_memory(setup)
    assert memory.optimizer_gib == memory.gradients_gib == 0
    assert memory.host_gib * GIB == pytest.approx(14 * 6.738e9, rel=0.01)


def test_host_memory_can_be_what_is_short() -> None:
    cluster = make_cluster("RTX 4090", count=8, host_memory_gib=465.0)
    setup = make_setup(
        "meta-llama/Llama-3.1-70B",
        cluster=cluster,
        stack="hf",
        task="finetune",
        zero_stage=3,
        offload=frozenset({"optimizer", "params"}),
        recompute="full",
    )
    memory = training_memory(setup)
    assert (memory.verdict, memory.limiting) == ("does_not_fit", "host_ram")
    assert 520 <= memory.host_gib <= 1300


def test_a_peak_close_to_the_limit_is_tight() -> None:
    setup = make_setup(count=1, stack="eager", task="finetune", mixed=False, recompute="full", micro_batch=8)
    memory = training_memory(setup)
    edge = replace(memory, usable_gib=memory.needed_gib * 1.03)
    assert edge.verdict == "tight"
    assert replace(memory, usable_gib=memory.needed_gib * 1.2).verdict == "fits"
    assert replace(memory, usable_gib=memory.needed_gib * 0.99).verdict == "does_not_fit"


@pytest.mark.parametrize(
    ("name", "mixed_bytes"), [("AdamW", 8.0), ("paged_adamw_8bit", 2.03), ("adafactor", 0.01), ("muon", 4.0)]
)
def test_optimizers_are_known_by_their_usual_spellings(name: str, mixed_bytes: float) -> None:
    assert optimizer_states(name).mixed_bytes == mixed_bytes


def test_an_unknown_optimizer_is_refused_with_suggestions() -> None:
    with pytest.raises(UnknownName, match="adamw"):
        optimizer_states("adamv")
