"""Rows of measurement tables are read as the runs they were, and published rates come out within their range."""

import math

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


def trt_70b(**over: str) -> MeasuredRun:
    """TensorRT-LLM's own table of online serving (perf-overview 0.17): 500 requests on four H100."""
    return read_run(
        row(
            model="meta-llama/Llama-3.1-70B",
            engine="TensorRT-LLM",
            engine_version="0.14.0",
            gpu="H100-SXM-80GB",
            gpu_count="4",
            tp="4",
            input_tokens="467",
            output_tokens="256",
            ttft_ms="1",
            tpot_ms="1",
            source_date="2025-02",
            notes="500 requests only",
        )
        | over
    )


@pytest.mark.parametrize(
    ("load", "ttft_ms", "tokens_per_s"),
    [("inf", 9123, 4103), ("32 req/s", 1229, 4083), ("8 req/s", 92, 1860)],
)
def test_a_short_run_waits_for_the_prompts_that_its_window_could_not_read(
    load: str, ttft_ms: float, tokens_per_s: float
) -> None:
    run = trt_70b(concurrency_or_rate=load)
    prediction = predict_run(run, batch_bound(run))
    assert prediction.ttft_s * 1e3 == pytest.approx(ttft_ms, rel=0.6)
    assert prediction.output_tokens_per_s == pytest.approx(tokens_per_s, rel=0.2)


def test_the_first_wave_of_a_closed_loop_waits_for_its_own_prompts_and_later_ones_hardly() -> None:
    waits = []
    for requests in ("16", "160", "1600", "16000"):
        run = read_run(row(ttft_ms="1", tpot_ms="1", notes=f"{requests} prompts"))
        waits.append(predict_run(run, batch_bound(run)).ttft_s)
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > 4 * waits[-1]
    untold = read_run(row(ttft_ms="1", tpot_ms="1"))
    assert predict_run(untold, batch_bound(untold)).ttft_s == pytest.approx(waits[1])


def test_requests_that_find_no_room_wait_for_those_before_them() -> None:
    roomy, full = (trt_70b(concurrency_or_rate="inf", notes=f"{count} requests") for count in (500, 5000))
    bound = batch_bound(roomy)
    first, later = predict_run(roomy, bound), predict_run(full, bound)
    assert later.ttft_s > 3 * first.ttft_s
    assert later.output_tokens_per_s > 0.9 * first.output_tokens_per_s


def test_a_run_of_conversations_ends_with_its_longest_answer() -> None:
    fixed, varied = (
        trt_70b(concurrency_or_rate="32 req/s", notes=f"200 {what}") for what in ("prompts", "ShareGPT prompts")
    )
    slow, fast = predict_run(varied, batch_bound(varied)), predict_run(fixed, batch_bound(fixed))
    assert slow.output_tokens_per_s < 0.8 * fast.output_tokens_per_s
    assert slow.tpot_s == fast.tpot_s


@pytest.mark.parametrize(
    "over",
    [
        {"input_tokens": "0"},
        {"input_tokens": "0", "scenario": "offline_max_throughput", "concurrency_or_rate": "17.5"},
        {"notes": "1 prompts"},
        {"concurrency_or_rate": "0.001 req/s", "notes": "1 prompts"},
        {"concurrency_or_rate": "1e9 req/s", "notes": "100000000 prompts"},
        {"concurrency_or_rate": "inf", "scenario": "offline_max_throughput", "notes": "1 ShareGPT prompts"},
        {"concurrency_or_rate": "inf", "scenario": "offline_max_throughput", "notes": "0 prompts"},
    ],
)
def test_extreme_runs_have_finite_positive_times(over: dict[str, str]) -> None:
    run = read_run(row(ttft_ms="1", tpot_ms="1") | over)
    prediction = predict_run(run, batch_bound(run))
    for value in (prediction.ttft_s, prediction.tpot_s, prediction.latency_s, prediction.output_tokens_per_s):
        assert 0 < value < math.inf
