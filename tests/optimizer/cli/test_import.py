"""`costopt import`: verdicts, costs, faults with lines, exit codes, and files that are refused."""

import json
import re
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

SERVICE = """\
envs: {MODEL_NAME: meta-llama/Llama-3.1-8B-Instruct}
service: {replicas: 2}
resources:
  accelerators: {L4: 1, A100-80GB: 1}
run: vllm serve $MODEL_NAME --max-model-len 4096
"""


def imported(costopt: Command, text: str, *flags: str, code: int = 0, name: str = "file.yaml") -> dict[str, Any]:
    Path(name).write_text(text)
    outcome = costopt("import", name, *flags, "-f", "json")
    assert outcome.code == code, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def faults(document: dict[str, Any]) -> list[tuple[int | None, str, str]]:
    (service,) = document["services"]
    every = [*service["faults"], *(fault for option in service["options"] for fault in option["faults"])]
    return [(fault["line"], fault["fault"], fault["fix"]) for fault in every if fault["fatal"]]


def test_a_service_works_costs_and_could_be_cheaper(costopt: Command) -> None:
    document = imported(costopt, SERVICE)
    (service,) = document["services"]
    assert document["works"]
    assert service["replicas"] == 2
    assert [option["accelerator"] for option in service["options"]] == ["L4", "A100-SXM4-80GB"]
    for option in service["options"]:
        assert option["verdict"] == "fits"
        assert option["count"] == 2
        assert float(option["usd_per_month"]) > 0
        assert option["instance"]["as_of"]
    best = service["options"][service["cheapest_option"]]
    assert float(service["cheaper"]["usd_per_month"]) <= float(best["usd_per_month"])


def test_weights_that_do_not_fit_are_told_with_the_line_and_the_least_that_does(costopt: Command) -> None:
    text = "num_nodes: 2\nresources:\n  accelerators: H100:8\n"
    text += "run: |\n  vllm serve moonshotai/Kimi-K2-Instruct -tp 8 -pp 2\n"
    document = imported(costopt, text, "--precision", "bf16", code=3)
    (line, what, fix), *_ = faults(document)
    assert line == 3
    assert "does not fit on 16 x H100" in what
    assert "smaller format" in fix


def test_a_context_that_the_cache_does_not_hold_is_told_with_the_longest_that_it_does(costopt: Command) -> None:
    text = (
        "resources: {{accelerators: 'L4:1', infra: gcp}}\nrun: vllm serve meta-llama/Llama-3.1-8B --max-model-len {}\n"
    )
    document = imported(costopt, text.format(131072), code=3)
    (line, _, fix) = faults(document)[0]
    assert line == 1
    longest = int(re.search(r"or let requests have at most (\d+) tokens", fix)[1])  # type: ignore[index]
    assert imported(costopt, text.format(longest))["works"]
    assert not imported(costopt, text.format(longest + 1000), code=3)["works"]


def test_machines_without_a_model_are_not_said_to_fail(costopt: Command) -> None:
    Path("fleet.dstack.yml").write_text("type: task\ncommands: [sleep 1]\nresources: {gpu: 'L4:1'}\n")
    outcome = costopt("import", "fleet.dstack.yml")
    assert outcome.code == 3
    assert "0 of 1 can work (estimate); of 1 it is not known" in outcome.out


def test_tensor_parallelism_that_does_not_divide_the_heads_is_told_with_what_does(costopt: Command) -> None:
    text = "vllm serve meta-llama/Llama-3.1-8B \\\n  --tensor-parallel-size 6\n"
    document = imported(costopt, text, "--gpu", "H100", "--count", "8", code=3, name="run.sh")
    (line, what, fix), *_ = faults(document)
    assert line == 2
    assert "32 attention heads do not divide by 6" in what
    assert "1, 2, 4, 8" in fix


def test_alternatives_are_bought_where_and_how_each_says(costopt: Command) -> None:
    text = (
        "resources:\n  ordered:\n    - {cloud: aws, region: us-east-1, accelerators: 'A100-80GB:8'}\n"
        "    - cloud: gcp\n      accelerators: L4:8\n      use_spot: true\n"
        "    - {infra: lambda, accelerators: 'A10G:1'}\n"
        "run: vllm serve meta-llama/Llama-3.1-8B-Instruct -tp $SKYPILOT_NUM_GPUS_PER_NODE\n"
    )
    document = imported(costopt, text)
    (service,) = document["services"]
    bought = [option["instance"] for option in service["options"]]
    first, second = bought[0], bought[1]
    assert (first["provider"], first["region"], first["purchase_option"]) == ("aws", "us-east-1", "on_demand")
    assert (second["provider"], second["purchase_option"]) == ("gcp", "spot")
    assert bought[2] is None
    assert [fault for fault in faults(document) if "A10G is not sold in lambda" in fault[1]]
    assert document["works"]


def test_accelerators_that_one_of_several_places_has_are_bought_there(costopt: Command) -> None:
    text = "resources: {accelerators: 'L4:1', any_of: [{infra: lambda}, {infra: gcp}]}\n"
    document = imported(costopt, text + "run: vllm serve meta-llama/Llama-3.2-3B\n")
    (option,) = document["services"][0]["options"]
    assert option["instance"]["provider"] == "gcp"
    assert not faults(document)
    (note,) = option["faults"]
    assert "L4 is not sold in lambda" in note["fault"]
    nowhere = text.replace("L4:1", "A10G:1")
    document = imported(costopt, nowhere + "run: vllm serve meta-llama/Llama-3.2-3B\n", code=3)
    assert {what for _, what, _ in faults(document)} == {"A10G is not sold in lambda", "A10G is not sold in gcp"}


def test_an_accelerator_that_the_region_does_not_sell_is_told_with_where_it_is(costopt: Command) -> None:
    text = "resources:\n  infra: aws/eu-west-3\n  accelerators: MI300X:8\nrun: vllm serve Qwen/Qwen2.5-7B\n"
    what = " ".join(fault for _, fault, _ in faults(imported(costopt, text, code=3)))
    assert "MI300X is not sold in aws/eu-west-3" in what


def test_one_alternative_that_does_not_exist_leaves_the_others(costopt: Command) -> None:
    text = "resources:\n  accelerators: {H1000: 1, A100-80GB: 1}\nrun: vllm serve meta-llama/Llama-3.1-8B\n"
    document = imported(costopt, text)
    assert [(line, "H1000" in what) for line, what, _ in faults(document)] == [(2, True)]
    assert not imported(costopt, text.replace(", A100-80GB: 1", ""), code=3)["works"]


def test_idle_accelerators_are_noted(costopt: Command) -> None:
    text = "resources:\n  accelerators: H100:8\nrun: vllm serve meta-llama/Llama-3.1-8B\n"
    (service,) = imported(costopt, text)["services"]
    notes = [fault["fault"] for fault in service["options"][0]["faults"]]
    assert any("1 of 8 accelerators are used" in note for note in notes)


def test_a_file_without_accelerators_asks_for_a_flag(costopt: Command) -> None:
    document = imported(costopt, "vllm serve meta-llama/Llama-3.1-8B\n", code=3, name="run.sh")
    assert any("--gpu" in fix for _, _, fix in faults(document))


def test_a_folder_of_a_model_is_answered_with_the_cheapest_that_runs_it(costopt: Command) -> None:
    folder = Path("model")
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336}
    config |= {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}
    config |= {"max_position_embeddings": 131072, "torch_dtype": "bfloat16", "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(config))
    outcome = costopt("import", folder, "-f", "json")
    assert outcome.code == 0, outcome.err
    (service,) = json.loads(outcome.out)["services"]
    assert service["cheaper"]["instances"]


def test_a_log_becomes_statistics_and_a_trace(costopt: Command) -> None:
    entries = [{"timestamp": float(t), "prompt_tokens": 100, "completion_tokens": 20} for t in range(100)]
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    document = imported(costopt, text, "--trace-out", "trace.csv", name="log.jsonl")
    assert document["trace"]["requests"] == 100
    planned = costopt("plan", "--model", "8B", "--trace", "trace.csv", "-f", "json")
    assert planned.code == 0, planned.err


def test_a_melange_problem_is_solved(costopt: Command) -> None:
    problem = {
        "gpu_info": {"A": {"cost": 1.0, "tputs": [[2.0]]}, "B": {"cost": 3.0, "tputs": [[10.0]]}},
        "workload_distribution": [[1.0]],
        "total_request_rate": 10,
    }
    document = imported(costopt, json.dumps(problem), name="melange.json")
    assert document["status"] == "optimal"


@pytest.mark.parametrize("command", [("import", "task.yaml"), ("guide", "--size", "7B")])
def test_flags_of_the_market_mean_what_they_mean_in_plan(costopt: Command, command: tuple[str, ...]) -> None:
    text = "resources: {accelerators: 'L4:1'}\nrun: vllm serve meta-llama/Llama-3.1-8B -tp 1\n"
    Path("task.yaml").write_text(text, encoding="utf-8")
    listed, apart = (
        costopt(*command, "--provider", "AWS,gcp"),
        costopt(*command, "--provider", "aws", "--provider", "gcp"),
    )
    assert (listed.code, listed.out) == (0, apart.out)
    outcome = costopt(*command, "--as-of", "3026-01-01")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--as-of '3026-01-01': what will be known then is not known yet" in outcome.err


def test_a_trace_is_only_written_of_a_log(costopt: Command) -> None:
    Path("task.yaml").write_text("resources: {accelerators: 'L4:1'}\nrun: vllm serve meta-llama/Llama-3.1-8B\n")
    outcome = costopt("import", "task.yaml", "--trace-out", "trace.csv")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--trace-out is for a request log, and 'task.yaml' is none" in outcome.err
    assert not Path("trace.csv").exists()


def test_a_melange_problem_is_set_against_one_kind_alone_and_prices_on_file(costopt: Command) -> None:
    problem = {
        "gpu_info": {"A10G": {"cost": 9.0, "tputs": [[2.0, 0.5]]}, "H100": {"cost": 90.0, "tputs": [[2.0, 20.0]]}},
        "workload_distribution": [[0.5, 0.5]],
        "total_request_rate": 10,
    }
    document = imported(costopt, json.dumps(problem), name="melange.json")
    alone = {one["instance_type"]: float(one["usd_per_hour"]) for one in document["one_kind"]}
    own = float(document["totals"]["usd_per_hour"])
    on_file = document["at_prices_on_file"]
    assert document["works"]
    assert own <= min(alone.values())
    assert alone == {"A10G": 9 * 13, "H100": 90 * 3}
    assert all(float(kind["usd_per_gpu_hour_on_file"]) < float(kind["usd_per_hour"]) for kind in document["kinds"])
    assert float(on_file["usd_per_hour"]) <= float(on_file["usd_per_hour_of_this_mix"]) < own
    assert "alone, USD/h" in costopt("import", "melange.json").out


def test_a_file_of_100_mb_is_refused_unread(costopt: Command) -> None:
    with Path("large.yaml").open("wb") as file:
        file.truncate(100_000_000)
    outcome = costopt("import", "large.yaml")
    assert outcome.code == 2
    assert "100,000,000 bytes" in outcome.err


@pytest.mark.parametrize("content", [b"\xff\xfe\x00\x01", b"a: &a b\nc: *a\n", b"\x00" * 100])
def test_hostile_files_are_refused(costopt: Command, content: bytes) -> None:
    Path("hostile").write_bytes(content)
    outcome = costopt("import", "hostile")
    assert outcome.code == 2
    assert outcome.err.count("\n") <= 2


def test_a_path_in_a_file_is_not_opened(costopt: Command) -> None:
    Path("config.json").write_text("{}")
    text = "resources: {accelerators: H100}\nrun: vllm serve ./config.json\n"
    (service,) = imported(costopt, text, code=3)["services"]
    assert any("unknown model" in fault["fault"] for fault in service["faults"])


@pytest.mark.parametrize("format_", ["table", "csv", "md"])
def test_every_format_has_the_verdict_and_the_cost(costopt: Command, format_: str) -> None:
    Path("file.yaml").write_text(SERVICE)
    outcome = costopt("import", "file.yaml", "-f", format_)
    assert outcome.code == 0
    assert "fits" in outcome.out
    assert "None" not in outcome.out


def test_a_model_is_read_from_standard_input(costopt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336}
    config |= {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}
    config |= {"max_position_embeddings": 131072, "torch_dtype": "bfloat16", "model_type": "llama"}
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(json.dumps(config).encode())))
    outcome = costopt("import", "-", "-f", "json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["services"][0]["cheaper"]["instances"]


def test_a_folder_whose_configuration_is_a_folder_is_no_model(costopt: Command) -> None:
    Path("model/config.json").mkdir(parents=True)
    outcome = costopt("import", "model")
    assert outcome.code == 2
    assert "has no config.json" in outcome.err


def test_accelerators_that_are_sold_only_with_a_trait_say_what_counts_them(costopt: Command) -> None:
    text = "resources: {accelerators: 'RTX3090:1'}\nrun: vllm serve meta-llama/Llama-3.2-3B\n"
    (option,) = imported(costopt, text)["services"][0]["options"]
    (fault,) = [fault for fault in option["faults"] if "left out" in fault["fault"]]
    assert fault["fix"] == "--include community counts them"
    (option,) = imported(costopt, text, "--include", "community")["services"][0]["options"]
    assert option["instance"]["provider"] == "runpod"


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-01 10:00:00 [api_server.py:1289] vLLM API server version 0.33.0",
        "(APIServer pid=7) INFO 11-01 10:00:00 [logger.py:42] Received request chatcmpl-1: params: SamplingParams(n=1)",
        "[2026-11-01 10:00:00 TP0] Decode batch. #running-req: 1, #token: 9, gen throughput (token/s): 40.1",
    ],
)
def test_what_an_engine_writes_while_it_serves_is_told_from_a_request_log(costopt: Command, line: str) -> None:
    Path("server.log").write_text(f"starting\n{line}\n" * 100)
    outcome = costopt("import", "server.log")
    assert outcome.code == 2
    assert "text log" in outcome.err
    assert "--otlp-traces-endpoint" in outcome.err
