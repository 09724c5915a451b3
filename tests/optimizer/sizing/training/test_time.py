"""Time of training: FLOPs by hand, and what each setting of a job changes."""

from dataclasses import replace
from typing import Any

import pytest

from optimizer.sizing.training.calibration import PRODUCT_TFLOPS, product_factor
from optimizer.sizing.training.setup import TrainingLayout, TrainingSetup
from optimizer.sizing.training.time import model_flops_per_token, multiplied_parameters, step_time
from optimizer.workload.architecture import resolve_model
from providers.accelerators import catalogue, resolve
from tests.optimizer.sizing.training.builders import make_setup


def rate(setup: TrainingSetup) -> float:
    return step_time(setup).tokens_per_s_per_accelerator


def changed(setup: TrainingSetup, **over: Any) -> float:
    return rate(replace(setup, **over)) / rate(setup)


def test_a_token_costs_six_flops_a_parameter_and_attention() -> None:
    model = resolve_model("meta-llama/Llama-2-7b-hf")
    parameters = 6.738e9 - 32000 * 4096
    attention = 3 * 2 * 2 * 32 * 4096 * 2048 / 2
    assert multiplied_parameters(model) == pytest.approx(parameters, rel=1e-3)
    assert model_flops_per_token(model, "train", 2048) == pytest.approx(6 * parameters + attention, rel=1e-3)


def test_a_frozen_base_costs_four_flops_a_parameter() -> None:
    model = resolve_model("meta-llama/Llama-2-7b-hf")
    saved = model_flops_per_token(model, "train", 2048) - model_flops_per_token(model, "lora", 2048)
    assert saved == pytest.approx(2 * multiplied_parameters(model))


def test_a_mixture_of_experts_costs_its_active_parameters() -> None:
    model = resolve_model("mistralai/Mixtral-8x7B-v0.1")
    assert model_flops_per_token(model, "train", 1024) == pytest.approx(6 * 12.9e9, rel=0.05)


def test_recomputation_costs_about_a_third() -> None:
    assert changed(make_setup(), recompute="full") == pytest.approx(0.75, abs=0.04)


def test_short_samples_leave_the_accelerator_waiting_for_the_host() -> None:
    setup = make_setup(count=1, task="lora", stack="hf", recompute="full", seq_len=256, global_batch_tokens=2048)
    assert step_time(setup).launch_s / step_time(setup).seconds > 0.3
    assert changed(setup, seq_len=2048, global_batch_tokens=16384) > 1.7


def test_fp8_is_faster_on_hopper_and_the_same_on_ampere() -> None:
    assert 1.2 < changed(make_setup(gpu="H100"), precision="fp8") < 2.0
    assert changed(make_setup(gpu="A100-80GB"), precision="fp8") == pytest.approx(1.0)


def test_more_stages_than_micro_batches_fill_make_bubbles() -> None:
    busy = make_setup(nodes=2, layout=TrainingLayout(pp=4, dp=4))
    assert step_time(busy).bubble_s / step_time(busy).seconds < 0.02
    assert changed(busy, global_batch_tokens=4 * 2048) < 0.65


def test_sharding_over_a_slow_network_costs_time() -> None:
    setup = make_setup(nodes=4, zero_stage=3, stack="fsdp", layout=TrainingLayout(dp=32))
    slow = make_setup(nodes=4, zero_stage=3, stack="fsdp", layout=TrainingLayout(dp=32), network_gbit_per_s=25.0)
    assert rate(slow) < 0.8 * rate(setup)


def test_pcie_cards_pay_for_tensor_parallelism() -> None:
    cards = make_setup(gpu="L40S", layout=TrainingLayout(tp=8))
    assert step_time(cards).communication_s > step_time(cards).products_s


def test_unpacking_a_4_bit_base_costs_time() -> None:
    setup = make_setup(count=1, task="lora", stack="eager", recompute="full")
    assert changed(setup, task="qlora") < 0.9


def test_the_parts_of_a_step_add_up_to_its_time() -> None:
    step = step_time(make_setup(nodes=2, layout=TrainingLayout(tp=2, pp=2, dp=4)))
    assert sum(seconds for _, seconds in step.parts) == pytest.approx(step.seconds)
    assert {name for name, _ in step.parts} >= {"products", "attention", "communication", "bubble", "waiting"}
    assert step.tokens == pytest.approx(2048 * 1024)


def test_llama_2_7b_pre_training_takes_the_published_gpu_hours() -> None:
    """184,320 A100-hours for 2 T tokens (Llama 2 model card)."""
    setup = make_setup(
        seq_len=4096,
        micro_batch=2,
        nodes=32,
        layout=TrainingLayout(dp=256),
        global_batch_tokens=4e6,
        software_year=2023.5,
    )
    hours = 2e12 / rate(setup) / 0.88 / 3600
    assert 165_000 <= hours <= 205_000
    assert 0.36 <= step_time(setup).mfu * 0.88 <= 0.45


def test_parts_under_a_low_power_limit_reach_less_of_their_peak() -> None:
    factors = {name: product_factor(resolve(name)) for name in ("A100-SXM4-80GB", "L4", "L40S", "RTX 4090")}
    assert factors["A100-SXM4-80GB"] == 1
    assert factors["L4"] < 0.6 < factors["L40S"] < 1 < factors["RTX 4090"]


def test_measured_products_are_of_known_parts_and_near_their_peaks() -> None:
    for name, tflops in PRODUCT_TFLOPS.items():
        peaks = catalogue()[name].dense_tflops
        assert 0.4 < tflops / (peaks.get("bf16") or peaks["fp16"]) < 1.15, name


def test_gathers_over_pcie_outlast_small_micro_batches() -> None:
    layout, few = TrainingLayout(dp=4), {"task": "finetune", "stack": "fsdp", "zero_stage": 3, "micro_batch": 1}
    ada = step_time(make_setup(gpu="RTX 6000 Ada", count=4, layout=layout, **few))
    assert ada.communication_s > ada.products_s
    large = step_time(make_setup(gpu="RTX 6000 Ada", count=4, layout=layout, **(few | {"micro_batch": 16})))
    assert large.communication_s < large.products_s / 10
    nvlink = step_time(make_setup(count=4, layout=layout, **few))
    assert nvlink.communication_s < nvlink.products_s / 3
