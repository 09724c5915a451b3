"""`plan`, `size` and `validate` of training: promised keys, exit codes and one clear message for bad input."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

TRAIN = ("--model", "7B", "--task", "train", "--tokens", "100B")


def document_of(costopt: Command, *arguments: str, code: int = 0) -> dict[str, Any]:
    outcome = costopt(*arguments, "--format", "json", "--quiet")
    assert outcome.code == code, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def test_a_plan_has_the_promised_keys_and_adds_up(costopt: Command) -> None:
    document = document_of(costopt, *TRAIN, "--deadline", "14d")
    assert document["schema"] == "costopt.plan"
    assert document["status"] == "optimal"
    totals = document["totals"]
    assert totals.keys() >= {"usd_total", "hours", "tokens_per_s", "gpus", "usd_per_billion_tokens"}
    (job,), (instance,) = document["jobs"], document["instances"]
    assert totals["hours"] <= 14 * 24
    assert float(job["usd_compute"]) == pytest.approx(
        float(instance["usd_per_hour"]) * instance["count"] * job["billed_hours"], rel=1e-4
    )
    assert float(totals["usd_total"]) == pytest.approx(float(job["usd_compute"]) + float(job["usd_storage"]), abs=0.02)
    assert float(totals["usd_total_low"]) < float(totals["usd_total"]) < float(totals["usd_total_high"])
    assert float(document["proof"]["bound_usd_total"]) == pytest.approx(float(totals["usd_total"]), rel=1e-5)
    assert document["trade_off"]
    assert document["runner_up"]
    assert job["global_batch_tokens"] % (job["data_parallel"] * job["micro_batch"] * 4096) == 0


@pytest.mark.parametrize("format_", ["table", "md", "csv"])
def test_a_plan_is_printed_in_every_format(costopt: Command, format_: str) -> None:
    outcome = costopt(*TRAIN, "--deadline", "14d", "--format", format_, "--explain")
    assert outcome.code == 0
    assert "B200" in outcome.out or "H100" in outcome.out


def test_an_impossible_deadline_exits_with_3_and_the_shortest_possible_run(costopt: Command) -> None:
    document = document_of(costopt, "--model", "70B", "--task", "train", "--tokens", "15T", "--deadline", "24h", code=3)
    assert document["status"] == "infeasible"
    assert document["shortfalls"][0]["limit"] == "deadline"
    assert document["fastest"]["hours"] > 24
    assert float(document["fastest"]["usd_total"]) > 0
    assert document["fastest"]["instance_type"]
    assert document["suggestions"]


def test_where_the_time_went_is_shown_when_asked_for(costopt: Command) -> None:
    assert "timing" not in document_of(costopt, *TRAIN, "--gpu", "H100")
    assert document_of(costopt, *TRAIN, "--gpu", "H100", "--timing")["timing"]["sizing_s"] > 0


def test_a_budget_without_a_deadline_buys_the_fastest_run(costopt: Command) -> None:
    document = document_of(
        costopt, "--model", "8B", "--task", "finetune", "--tokens", "1B", "--budget", "500", "--provider", "aws"
    )
    assert document["objective"] == "min_time"
    assert float(document["totals"]["usd_total"]) <= 500


def test_adapters_need_less_than_full_fine_tuning(costopt: Command) -> None:
    costs = {
        task: float(document_of(costopt, "--model", "70B", "--task", task, "--tokens", "50M")["totals"]["usd_total"])
        for task in ("finetune", "lora")
    }
    assert costs["lora"] < costs["finetune"]


def test_accelerators_without_training_rates_are_only_taken_when_asked_for(costopt: Command) -> None:
    refused = costopt(*TRAIN, "--gpu", "MI300X")
    assert refused.code == 4
    assert "accelerator without calibration" in refused.err
    document = document_of(costopt, *TRAIN, "--gpu", "MI300X", "--include", "uncalibrated")
    assert document["jobs"][0]["accelerator"] == "MI300X"


def test_a_quota_bounds_what_a_job_takes(costopt: Command, tmp_path: Path) -> None:
    file = tmp_path / "quota.yaml"
    file.write_text("quotas:\n  - {provider: aws, maximum: 16}\n")
    arguments = (*TRAIN, "--deadline", "4d", "--provider", "aws", "--gpu", "H100")
    free = document_of(costopt, *arguments)
    assert free["totals"]["gpus"] > 16
    bound = document_of(costopt, *arguments, "--quota", str(file), code=3)
    assert bound["fastest"]["gpus"] <= 16


def test_a_quota_that_leaves_no_cluster_is_counted_among_the_reasons(costopt: Command, tmp_path: Path) -> None:
    file = tmp_path / "quota.yaml"
    file.write_text("quotas:\n  - {provider: aws, maximum: 0}\n")
    bound = document_of(costopt, *TRAIN, "--provider", "aws", "--gpu", "H100", "--quota", str(file), code=3)
    assert bound["rejections"]["hardware: every cluster that holds the job exceeds a quota"] > 0


@pytest.mark.parametrize("task", [(), ("--task", "train")])
def test_jobs_of_a_file_share_budget_and_calendar(costopt: Command, tmp_path: Path, task: tuple[str, ...]) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "# Each job names its own task.\n"
        "jobs:\n"
        "  - {name: base, model: 1.5B, task: train, tokens: 50B, deadline: 60d}\n"
        "  - {name: tune, model: 8B, task: lora, tokens: 100M, deadline: 60d, earliest: 2d}\n"
    )
    document = document_of(costopt, *task, "--workload", str(file), "--max-gpus", "16", "--provider", "aws")
    jobs = {job["workload"]: job for job in document["jobs"]}
    assert jobs.keys() == {"base", "tune"}
    assert jobs["tune"]["start_hours"] >= 48
    assert all(job["end_hours"] <= 60 * 24 for job in jobs.values())
    total = sum(float(job["usd_total"]) for job in jobs.values())
    assert float(document["totals"]["usd_total"]) == pytest.approx(total, abs=0.05)


def test_an_unknown_task_of_a_job_is_named_with_its_job(costopt: Command, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs:\n  - {name: base, model: 7B, task: pretrain, tokens: 1B}\n", encoding="utf-8")
    outcome = costopt("plan", "--workload", file)
    assert outcome.code == 2
    assert "job 'base': unknown task 'pretrain'; did you mean train?" in outcome.err


def test_the_case_of_a_task_does_not_matter(costopt: Command) -> None:
    flags = ("--model", "1B", "--tokens", "10M", "--provider", "aws", "-f", "json")
    assert costopt("plan", "--task", "LoRA", *flags) == costopt("plan", "--task", "lora", *flags)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "7B", "--task", "train"), "needs --tokens"),
        (("--model", "7B", "--task", "train", "--tokens", "many"), "number of tokens above 0"),
        ((*TRAIN, "--deadline", "0d"), "duration above 0"),
        ((*TRAIN, "--deadline", "2026-01-01"), "lies in the past"),
        ((*TRAIN, "--global-batch-tokens", "100"), "at least one sequence"),
        ((*TRAIN, "--optimizer", "adamv"), "did you mean adamw"),
        ((*TRAIN, "--stack", "megatrn"), "did you mean megatron"),
        ((*TRAIN, "--precision", "int8"), "unknown training precision"),
        ((*TRAIN, "--precision", "bf16", "--precision", "fp8"), "one precision"),
        ((*TRAIN, "--recompute", "half"), "unknown recomputation"),
        ((*TRAIN, "--offload", "disk"), "unknown offload"),
        ((*TRAIN, "--budget", "5k"), "plain number"),
        (("--task", "train", "--tokens", "1B"), "no model"),
        ((*TRAIN, "--rate", "5"), "--rate is for --task infer"),
        ((*TRAIN, "--same-region"), "--same-region is for --task infer"),
        ((*TRAIN, "--min-hours-up", "5"), "--min-hours-up is for --task infer"),
        (("--model", "7B", "--rate", "5", "--tokens", "1B"), "--tokens is for training"),
        (("--task", "train", "--workload", "missing.yaml"), "missing.yaml"),
    ],
)
def test_bad_input_gets_one_message_and_exit_code_2(costopt: Command, arguments: tuple[str, ...], message: str) -> None:
    outcome = costopt("plan", *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert not outcome.out


@pytest.mark.parametrize(
    "flags",
    [
        *(("--task", "qlora"), ("--zero-stage", "3"), ("--seq-len", "512"), ("--optimizer", "lion")),
        *(("--precision", "fp8"), ("--stack", "hf"), ("--no-master-weights",)),
    ],
)
def test_a_flag_without_effect_on_jobs_is_refused(costopt: Command, flags: tuple[str, ...]) -> None:
    Path("jobs.yaml").write_text("jobs: [{name: tune, model: 1B, task: lora, tokens: 10M}]\n", encoding="utf-8")
    outcome = costopt("plan", "--workload", "jobs.yaml", *flags)
    assert (outcome.code, outcome.out) == (2, "")
    flag = flags[0].replace("--no-", "--")
    assert f"{flag} has no effect on --workload: give it in the file, to each job" in outcome.err
    assert costopt("plan", "--workload", "jobs.yaml", "--task", "train", "--deadline", "9d").code == 0


def test_a_date_is_a_deadline_at_the_end_of_its_day(costopt: Command) -> None:
    document = document_of(costopt, *TRAIN, "--deadline", "2026-12-10")
    assert document["workloads"][0]["deadline_hours"] == 252


def test_a_sizing_has_the_promised_keys(costopt: Command) -> None:
    document = document_of(costopt, "size", *TRAIN, "--gpu", "H100", "--count", "16")
    assert document["verdict"] == "fits"
    memory = document["memory"]
    for key in (
        "usable_gib_per_gpu",
        "weights_gib",
        "gradients_gib",
        "optimizer_gib",
        "activations_gib",
        "overhead_gib",
    ):
        assert memory[key] > 0
    assert sum(
        memory["per_gpu"][key]
        for key in ("weights_gib", "gradients_gib", "optimizer_gib", "activations_gib", "overhead_gib")
    ) == pytest.approx(memory["per_gpu_gib"], rel=1e-4)
    performance = document["performance"]
    assert performance["hours"]["low"] < performance["hours"]["value"] < performance["hours"]["high"]
    assert 0.2 < performance["mfu"] < 0.8


@pytest.mark.parametrize(("deadline", "met", "word"), [("30d", True, ""), ("1h", False, "takes longer")])
def test_a_sizing_says_whether_it_meets_the_deadline(costopt: Command, deadline: str, met: bool, word: str) -> None:
    document = document_of(costopt, "size", *TRAIN, "--gpu", "H100", "--count", "64", "--deadline", deadline)
    assert document["performance"]["meets_deadline"] is met
    assert any(word in warning for warning in document["warnings"]) or met


def test_a_sizing_without_tokens_has_no_hours_and_says_so(costopt: Command) -> None:
    document = document_of(costopt, "size", "--model", "7B", "--task", "lora", "--gpu", "A100-80GB")
    assert document["performance"]["hours"] is None
    assert any("no --tokens" in warning for warning in document["warnings"])


def test_a_sequence_beyond_the_models_window_is_warned_of(costopt: Command) -> None:
    document = document_of(costopt, "size", "--model", "7B", "--task", "lora", "--gpu", "H100", "--seq-len", "16384")
    assert any("exceed the model's 4,096 positions" in warning for warning in document["warnings"])


def test_a_global_batch_below_the_data_parallel_degree_is_refused(costopt: Command) -> None:
    outcome = costopt(
        *("size", "--model", "7B", "--task", "finetune", "--gpu", "H100", "--count", "64"),
        *("--global-batch-tokens", "32k"),
    )
    assert outcome.code == 2
    assert "the 64 accelerators need at least 64" in outcome.err


@pytest.mark.parametrize("format_", ["table", "md", "csv"])
def test_a_sizing_is_printed_in_every_format(costopt: Command, format_: str) -> None:
    outcome = costopt("size", *TRAIN, "--gpu", "H100", "--count", "8", "--format", format_)
    assert outcome.code == 0
    assert "H100-SXM5-80GB" in outcome.out


def test_validate_without_a_file_repeats_the_calibration(costopt: Command) -> None:
    document = document_of(costopt, "validate", "training")
    assert document["metrics"].keys() == {"time", "peak_memory", "verdict"}
    assert document["metrics"]["time"]["median_abs_pct_error"] <= 12


def test_validate_reads_a_table_and_writes_its_predictions(costopt: Command, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "id,model,gpu,gpu_count,tp,pp,seq_len,method,framework,tokens_per_s_per_gpu\n"
        "one,Llama-3.1-8B,H100,8,1,1,8192,pretrain,NeMo,9000\n"
        "two,Llama-3.1-8B,Abacus,8,1,1,8192,pretrain,NeMo,9000\n"
    )
    predictions = tmp_path / "predictions.csv"
    document = document_of(costopt, "validate", "training", str(table), "--predictions", str(predictions))
    assert (document["rows"], document["skipped"]) == (2, {"unknown accelerator Abacus": 1})
    assert "two" in predictions.read_text()


def test_a_slice_of_a_tpu_pod_is_one_machine_that_needs_its_software(costopt: Command) -> None:
    document = document_of(costopt, *TRAIN, "--gpu", "v5e", "--deadline", "20d")
    (job,) = document["jobs"]
    assert (job["count"], job["stack"], job["recompute"]) == (1, "xla", "full")
    assert job["gpus"] >= 32
    assert any("software for XLA" in warning for warning in document["warnings"])
    refused = document_of(costopt, *TRAIN, "--gpu", "v5e", "--stack", "megatron", code=3)
    assert refused["shortfalls"][0]["limit"] == "clusters that hold run"
