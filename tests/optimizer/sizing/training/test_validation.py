"""The table that ships is predicted within the errors that the documentation states; odd tables are survived."""

from typing import Any

import pytest

from optimizer.sizing.accuracy import validation_document
from optimizer.sizing.training.measurements import Measurement, calibration_rows, measurement
from optimizer.sizing.training.validation import validate_training


@pytest.fixture(scope="module")
def shipped() -> dict[str, Any]:
    return validation_document(validate_training(calibration_rows()))


def make_row(**over: str) -> dict[str, str]:
    row = {"id": "r", "model": "Llama-2-7b-hf", "params_b": "6.738", "gpu": "A100-80GB", "gpu_count": "8", "tp": "1"}
    row |= {"pp": "1", "seq_len": "4096", "micro_batch": "1", "method": "pretrain", "framework": "Megatron-LM"}
    return row | {"tokens_per_s_per_gpu": "3500", "fits": "yes"} | over


def parsed(**over: str) -> Measurement:
    found = measurement(make_row(**over))
    assert isinstance(found, Measurement)
    return found


def test_the_shipped_rates_are_predicted_within_twelve_percent_in_the_median(shipped: dict[str, Any]) -> None:
    time = shipped["metrics"]["time"]
    assert time["rows"] > 800
    assert time["median_abs_pct_error"] <= 12
    assert time["p90_abs_pct_error"] <= 40
    assert 0.75 <= time["interval_coverage"] <= 0.95


def test_the_shipped_peaks_are_predicted_within_ten_percent_in_the_median(shipped: dict[str, Any]) -> None:
    memory = shipped["metrics"]["peak_memory"]
    assert memory["rows"] > 250
    assert memory["median_abs_pct_error"] <= 10
    assert memory["p90_abs_pct_error"] <= 28


def test_out_of_memory_is_called_right(shipped: dict[str, Any]) -> None:
    verdict = shipped["metrics"]["verdict"]
    assert verdict["false_fits"] <= 0.15 * verdict["out_of_memory"]
    assert verdict["false_rejections"] <= 0.05 * verdict["fitting"]


def test_every_skipped_row_has_a_reason(shipped: dict[str, Any]) -> None:
    assert shipped["rows"] == 937
    assert sum(shipped["skipped"].values()) == 5


def test_groups_cover_every_prediction(shipped: dict[str, Any]) -> None:
    time = shipped["metrics"]["time"]
    for key in ("accelerator", "model", "engine", "scenario", "source"):
        assert sum(group["rows"] for group in time["by"][key].values()) == time["rows"]


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ({"gpu": "Cerebras WSE-3"}, "unknown accelerator Cerebras WSE-3"),
        ({"model": "nobody/knows", "params_b": ""}, "model neither known nor described"),
        ({"quality": "suspect"}, "quality: suspect"),
        ({"optimizer": "shampoo"}, "unknown optimizer shampoo"),
        ({"precision": "tf32"}, "precision that is not modelled"),
        ({"quant_bits": "8"}, "precision that is not modelled"),
        ({"tokens_per_s_per_gpu": "", "fits": ""}, "nothing measured"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(over: dict[str, str], reason: str) -> None:
    assert measurement(make_row(**over)) == reason


def test_an_unknown_model_is_taken_from_its_dimensions_or_its_size() -> None:
    described = parsed(model="Own-7B", params_b="6.7", n_layers="32", hidden_size="4096", ffn_hidden="11008")
    assert described.setup.model.layers == 32
    sized = parsed(model="Own-70B", params_b="70")
    assert 60 <= sized.setup.model.layers <= 90


def test_a_name_with_other_parameters_is_not_believed() -> None:
    assert parsed(model="Llama-2-7b-hf", params_b="13").setup.model.params_total == 13e9


def test_whole_runs_are_slower_than_steady_state() -> None:
    run = {"tokens_per_s_per_gpu": "", "total_gpu_hours": "184320", "total_tokens_b": "2000"}
    found = parsed(**run, gpu_count="", seq_len="4096")
    assert found.whole_run
    assert found.tokens_per_s_per_accelerator == pytest.approx(3014, rel=0.01)


def test_a_bare_name_is_told_apart_by_the_stated_memory() -> None:
    assert parsed(gpu="A100", gpu_memory_gib="40").setup.cluster.accelerator.name == "A100-SXM4-40GB"
    assert parsed(gpu="A100").setup.cluster.accelerator.name == "A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("gpu", "name"), [("8xH100", "H100-SXM5-80GB"), ("GB200 NVL72", "GB200"), ("H100 NVL", "H100-NVL-94GB")]
)
def test_a_count_before_the_name_and_a_rack_behind_it_are_not_part_of_it(gpu: str, name: str) -> None:
    assert parsed(gpu=gpu).setup.cluster.accelerator.name == name


def test_a_rate_is_taken_from_flops_or_their_share_of_the_peak() -> None:
    by_flops = parsed(tokens_per_s_per_gpu="", tflops_per_gpu="156").tokens_per_s_per_accelerator
    by_share = parsed(tokens_per_s_per_gpu="", mfu_pct="50").tokens_per_s_per_accelerator
    hardware = {"tokens_per_s_per_gpu": "", "tflops_basis": "hardware", "activation_checkpointing": "full"}
    assert by_flops == pytest.approx(by_share)
    assert parsed(**hardware, tflops_per_gpu="208").tokens_per_s_per_accelerator == pytest.approx(by_flops)


@pytest.mark.parametrize(
    ("method", "task"),
    [("pretrain", "train"), ("full_ft", "finetune"), ("SFT", "finetune"), ("QLoRA", "qlora"), ("dpo-lora", "lora")],
)
def test_methods_are_known_by_their_words(method: str, task: str) -> None:
    assert parsed(method=method).setup.task == task


@pytest.mark.parametrize(
    ("framework", "stack"),
    [
        ("NeMo 25.02", "nemo"),
        ("Megatron-LM", "megatron"),
        ("torchtitan", "fsdp"),
        ("HF TRL", "hf"),
        ("MaxText", "xla"),
        ("Axolotl + DeepSpeed", "hf"),
        ("torchtune", "eager"),
        ("AnswerDotAI fsdp_qlora", "hf"),
        ("llama-recipes", "hf"),
        ("ms-swift", "hf"),
        ("Megatron-SWIFT", "megatron"),
        ("", "fsdp"),
    ],
)
def test_frameworks_are_known_by_their_words(framework: str, stack: str) -> None:
    assert parsed(framework=framework).setup.stack == stack


@pytest.mark.parametrize(
    ("over", "stage"),
    [
        ({"framework": "HF TRL"}, 0),
        ({"framework": "HF TRL", "zero_stage": "2"}, 2),
        ({"framework": "HF + DeepSpeed"}, 1),
        ({"framework": "HF Trainer", "dp_or_fsdp": "fsdp"}, 3),
        ({"framework": "AnswerDotAI fsdp_qlora"}, 3),
        ({"framework": "AnswerDotAI fsdp_qlora", "dp_or_fsdp": "ddp"}, 0),
        ({"framework": "Unsloth", "gpu_count": "1"}, 1),
    ],
)
def test_what_a_framework_shards_is_known_by_its_words(over: dict[str, str], stage: int) -> None:
    assert parsed(method="qlora", **over).setup.zero_stage == stage


def test_broken_numbers_and_unknown_columns_are_survived() -> None:
    row = {
        "id": "x",
        "gpu": "H100",
        "model": "Llama-3.1-8B",
        "tokens_per_s_per_gpu": "n/a",
        "mood": "",
        "gpu_count": "8?",
    }
    assert measurement(row) == "nothing measured"
    assert validate_training([row]).skipped == {"nothing measured": 1}


def test_an_empty_table_gives_empty_metrics() -> None:
    document = validation_document(validate_training([]))
    assert document["metrics"]["time"]["median_abs_pct_error"] is None
    assert document["metrics"]["verdict"]["agreement"] is None
