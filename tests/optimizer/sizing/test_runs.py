"""Rows of measurement tables are read as the runs they were, and published rates come out within their range."""

import pytest

from optimizer.sizing.runs import MeasuredRun, SkippedRun, batch_bound, predict_run, read_run


def row(**over: str) -> dict[str, str]:
    return {
        "id": "test-1",
        "model": "meta-llama/Llama-3.1-8B",
        "weight_dtype": "bf16",
        "kv_dtype": "bf16",
        "engine": "vLLM",
        "engine_version": "0.22.1",
        "gpu": "H100-SXM-80GB",
        "gpu_count": "1",
        "tp": "1",
        "pp": "1",
        "dp": "1",
        "input_tokens": "1024",
        "output_tokens": "256",
        "concurrency_or_rate": "16",
        "scenario": "online",
        "output_tok_per_s_total": "1000",
        "notes": "",
        "source_date": "2026-07",
    } | over


def output_rate(run: MeasuredRun) -> float:
    return predict_run(run, batch_bound(run)).output_tokens_per_s


@pytest.mark.parametrize(
    ("over", "kind"),
    [
        ({}, "closed"),
        ({"concurrency_or_rate": "17.4"}, "open"),
        ({"concurrency_or_rate": "8 req/s"}, "rate"),
        ({"concurrency_or_rate": "inf", "scenario": "offline_max_throughput"}, "offline"),
        ({"concurrency_or_rate": "64", "scenario": "offline_max_throughput"}, "static"),
        ({"concurrency_or_rate": "1", "scenario": "single_stream"}, "single"),
        ({"input_tokens": "0", "concurrency_or_rate": "1", "scenario": "single_stream"}, "decode"),
        ({"output_tokens": "0", "concurrency_or_rate": "1", "scenario": "single_stream"}, "prompt"),
    ],
)
def test_a_row_tells_how_its_run_was_driven(over: dict[str, str], kind: str) -> None:
    assert read_run(row(**over)).kind == kind


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ({"model": "nobody/Nothing-9B"}, "unknown model"),
        ({"gpu": "GRID-K520"}, "unknown accelerator"),
        ({"concurrency_or_rate": "abacus"}, "unreadable number"),
        ({"weight_dtype": "fp7"}, "unknown dtype"),
        ({"input_tokens": ""}, "no lengths"),
        ({"output_tok_per_s_total": ""}, "nothing measured"),
    ],
)
def test_a_row_that_cannot_be_predicted_is_skipped_with_its_reason(over: dict[str, str], reason: str) -> None:
    with pytest.raises(SkippedRun, match=reason):
        read_run(row(**over))


def test_experts_of_an_attention_dp_table_are_spread_over_data_parallel_ranks() -> None:
    run = read_run(row(model="Qwen/Qwen3-30B-A3B", tp="4", dp="", notes="source config has enable_attention_dp"))
    assert (run.layout.tp, run.layout.dp, run.layout.ep) == (1, 4, 4)


@pytest.mark.parametrize(
    ("concurrency", "low", "high"), [(1, 30, 90), (8, 300, 900), (32, 900, 3000), (128, 2500, 9000)]
)
def test_a_32b_fp8_model_on_one_h100_nvl_at_each_concurrency(concurrency: int, low: float, high: float) -> None:
    # Measured 46, 595, 1,317 and 4,715 output tokens/s; the ranges allow a factor of about two.
    # The source does not state the lengths of its coding questions: short ones.
    run = read_run(
        row(
            model="Qwen/Qwen2.5-Coder-32B-Instruct",
            weight_dtype="fp8",
            gpu="H100-NVL-94GB",
            input_tokens="128",
            concurrency_or_rate=str(concurrency),
        )
    )
    assert low <= output_rate(run) <= high


def test_a_70b_on_four_a100_serves_short_chats_within_the_published_range() -> None:
    # vllm issue 12315 (2025-01): 714 to 756 output tokens/s at 3.3 requests/s; a dashboard claims 5.13 requests/s.
    run = read_run(
        row(
            model="meta-llama/Llama-3.3-70B-Instruct",
            gpu="A100-SXM-80GB",
            gpu_count="4",
            tp="4",
            engine_version="0.6",
            input_tokens="220",
            output_tokens="218",
            concurrency_or_rate="inf",
            scenario="offline_max_throughput",
            notes="200 prompts",
        )
    )
    prediction = predict_run(run, batch_bound(run))
    assert 500 <= prediction.output_tokens_per_s <= 2200
    assert 2.3 <= prediction.requests_per_s <= 10


def test_a_405b_at_32_streams_stays_below_what_reading_its_weights_allows() -> None:
    # 406 GB read once a step over 8 x 3.35 TB/s take 15 ms: 32 streams cannot exceed 2,113 tokens/s.
    run = read_run(
        row(
            model="meta-llama/Llama-3.1-405B-Instruct-FP8",
            weight_dtype="fp8",
            gpu_count="8",
            tp="8",
            input_tokens="128",
            output_tokens="512",
            concurrency_or_rate="32",
        )
    )
    assert 300 <= output_rate(run) <= 2113


def test_a_rate_below_capacity_is_what_comes_out_and_above_it_the_capacity() -> None:
    slow, fast = (read_run(row(concurrency_or_rate=f"{rate} req/s")) for rate in (1, 1000))
    assert predict_run(slow, batch_bound(slow)).requests_per_s == pytest.approx(1.0, rel=0.05)
    assert predict_run(fast, batch_bound(fast)).requests_per_s < 100
