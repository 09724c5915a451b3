"""Flags of servers: what changes speed or memory is counted, or told with its line."""

from typing import Any

import pytest

from optimizer.interop.answers.serving import sized_service
from optimizer.interop.asks import Ask, Fault, Wish, wish
from optimizer.interop.recognise import recognise
from optimizer.workload.architecture import resolve_model
from optimizer.workload.workload import SLO, RequestShape

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def ask_of(flags: str, program: str = "vllm serve") -> Ask:
    (ask,) = recognise(f"{program} {MODEL} \\\n  {flags}\n", "start.sh").asks
    return ask


def notes(ask: Ask) -> list[str]:
    assert not any(fault.fatal for fault in ask.flag_faults)
    assert {fault.line for fault in ask.flag_faults} <= {2}
    return [fault.what for fault in ask.flag_faults]


def sized_on_h100(**over: Any) -> tuple[float, int, list[Fault]]:
    """Requests/s, the batch, and what is wrong, on one H100."""
    asked = wish("H100-SXM5-80GB", 1, None)
    assert isinstance(asked, Wish)
    ask = Ask(source="test", name="server", model=MODEL, engine="vllm", **over)
    sized, faults = sized_service(
        ask, asked, resolve_model(MODEL), RequestShape(input_tokens=1000, output_tokens=300), SLO()
    )
    assert sized is not None
    assert sized.performance is not None
    return sized.performance.requests_per_s.value, sized.performance.batch, faults


@pytest.mark.parametrize(
    "flags",
    [
        '--speculative-config \'{"method": "ngram"}\'',
        "--enable-lora",
        "--lora-modules sql=org/sql",
        "--cpu-offload-gb 10",
        "--cpu_offload_gb=10",
        "--enforce-eager",
        "--kv-cache-memory-bytes 8G",
        "--num-gpu-blocks-override 512",
        "--max-num-batched-tokens 8192",
        "--kv-transfer-config '{}'",
        "--decode-context-parallel-size 2",
        "--task embed",
        "--runner pooling",
        "--config engine.yaml",
    ],
)
def test_a_flag_that_no_estimate_counts_is_told(flags: str) -> None:
    name = flags.split("=")[0].split()[0].replace("_", "-")
    (note,) = notes(ask_of(flags))
    assert note.startswith(f"{name} is not counted: ")


@pytest.mark.parametrize("flags", ["--host 0.0.0.0", "--task generate", "--runner auto", "--max-num-seqs 256"])
def test_a_flag_that_changes_nothing_of_the_estimate_is_not_told(flags: str) -> None:
    assert notes(ask_of(flags)) == []


def test_settings_of_an_engine_are_told_as_its_flags_are() -> None:
    text = f"model: {MODEL}\nmax_model_len: 8192\nenforce_eager: true\nenable_lora: false\ncpu_offload_gb: 4\n"
    (ask,) = recognise(text, "engine.yaml").asks
    assert [(fault.line, fault.what.split()[0]) for fault in ask.flag_faults] == [
        (3, "--enforce-eager"),
        (5, "--cpu-offload-gb"),
    ]


@pytest.mark.parametrize(
    ("dtype", "precision", "told"),
    [("fp8_e5m2", "fp8", False), ("auto", None, False), ("bfloat16", None, False), ("turboquant_3bit", None, True)],
)
def test_a_cache_in_a_dtype_that_is_not_known_is_told(dtype: str, precision: str | None, told: bool) -> None:
    ask = ask_of(f"--kv-cache-dtype {dtype}")
    assert ask.kv_precision == precision
    assert bool(notes(ask)) is told


def test_ranks_of_attention_take_no_accelerators_of_their_own() -> None:
    ask = ask_of("--tp 8 --dp 8 --enable-dp-attention", "python -m sglang.launch_server --model-path")
    assert (ask.tensor_parallel, ask.data_parallel) == (8, 1)
    assert len(notes(ask)) == 1


def test_copies_on_other_machines_are_not_those_of_this_one() -> None:
    assert ask_of("--data-parallel-size 16 --data-parallel-size-local 8").data_parallel == 8


def test_a_limit_on_requests_holds_the_throughput_back_and_is_told() -> None:
    free, batch, none = sized_on_h100()
    held, limited, (note,) = sized_on_h100(max_sequences=8, lines={"sequences": 4})
    assert batch > limited == 8
    assert held < 0.5 * free
    assert none == []
    assert note.line == 4
    assert note.what.startswith("at most 8 requests at once")
    assert f"{free:.3g}" in note.fix


def test_a_limit_that_costs_little_is_not_told() -> None:
    _, batch, _ = sized_on_h100()
    assert sized_on_h100(max_sequences=batch)[2] == []


def test_a_limit_above_the_tokens_of_a_step_takes_no_more_memory() -> None:
    assert sized_on_h100(max_sequences=900_000)[1] >= sized_on_h100(max_sequences=8192)[1]
