"""Settings of serving engines and their command lines, as people write them, and what they ask for."""

import json
from textwrap import dedent

import pytest

from optimizer.interop.asks import Ask
from optimizer.interop.recognise import recognise, repository
from providers.errors import UsageError


def ask_of(text: str) -> Ask:
    (ask,) = recognise(dedent(text).lstrip(), "file").asks
    return ask


@pytest.mark.parametrize(
    ("line", "engine", "model"),
    [
        ("vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2", "vllm", "Qwen/Qwen3-8B"),
        ("vllm serve --tensor-parallel-size 2 Qwen/Qwen3-8B", "vllm", "Qwen/Qwen3-8B"),
        ("vllm serve --host=0.0.0.0 --tensor-parallel-size=2 Qwen/Qwen3-8B", "vllm", "Qwen/Qwen3-8B"),
        ("sglang serve Qwen/Qwen3-8B --tp 2", "sglang", "Qwen/Qwen3-8B"),
        ("sglang serve --model-path Qwen/Qwen3-8B --tp-size 2", "sglang", "Qwen/Qwen3-8B"),
        ("python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2", "sglang", "Qwen/Qwen3-8B"),
        ("trtllm-serve Qwen/Qwen3-8B --tp_size 2 --port 8001", "tensorrt-llm", "Qwen/Qwen3-8B"),
        ("trtllm-serve serve Qwen/Qwen3-8B --tp_size=2", "tensorrt-llm", "Qwen/Qwen3-8B"),
        ("trtllm-serve --tp_size 2 Qwen/Qwen3-8B", "tensorrt-llm", "Qwen/Qwen3-8B"),
        (
            "mpirun -n 1 python3 -m tensorrt_llm.commands.serve Qwen/Qwen3-8B --tp_size 2",
            "tensorrt-llm",
            "Qwen/Qwen3-8B",
        ),
        ("vllm serve --uvicorn-log-level info --tensor-parallel-size 2", "vllm", None),
        ("python3 -m sglang.launch_server --tp 2 && echo done", "sglang", None),
    ],
)
def test_a_command_line_names_its_engine_and_model(line: str, engine: str, model: str | None) -> None:
    ask = ask_of(line)
    assert (ask.engine, ask.model, ask.tensor_parallel) == (engine, model, 2)


def test_options_of_tensorrt_llm_are_read() -> None:
    ask = ask_of(
        "trtllm-serve m --max_seq_len 8192 --kv_cache_free_gpu_memory_fraction 0.8 --pp_size 2 --kv_cache_dtype fp8"
    )
    assert (ask.context_tokens, ask.memory_share, ask.pipeline_parallel, ask.kv_precision) == (8192, 0.8, 2, "fp8")


def test_settings_of_vllm_are_read_with_their_lines() -> None:
    ask = ask_of(
        """
        model: meta-llama/Llama-3.1-70B-Instruct
        served-model-name: [a, b]
        tensor-parallel-size: 4
        max-model-len: 32k
        quantization: fp8
        """
    )
    assert (ask.model, ask.engine) == ("meta-llama/Llama-3.1-70B-Instruct", "vllm")
    assert (ask.tensor_parallel, ask.context_tokens, ask.precision) == (4, 32_000, "fp8")
    assert ask.accelerators_per_machine == 4
    assert ask.lines["tensor_parallel"] == 3


def test_settings_of_tensorrt_llm_are_read() -> None:
    ask = ask_of(
        """
        model: Qwen/Qwen3-8B
        backend: pytorch
        tensor_parallel_size: 2
        max_seq_len: 4096
        kv_cache_config:
          free_gpu_memory_fraction: 0.7
          dtype: fp8
        triton_config: {max_batch_size: 0, decoupled: false}
        """
    )
    assert (ask.engine, ask.tensor_parallel, ask.context_tokens) == ("tensorrt-llm", 2, 4096)
    assert (ask.memory_share, ask.kv_precision) == (0.7, "fp8")


def test_settings_of_triton_are_read() -> None:
    model = json.dumps({"model": "Qwen/Qwen3-8B", "gpu_memory_utilization": 0.5, "tensor_parallel_size": 2})
    assert ask_of(model).memory_share == 0.5
    (ask,) = repository('backend: "vllm"', model, "folder").asks
    assert (ask.tensor_parallel, ask.wishes) == (2, ())


RAY = """
applications:
- name: llms
  import_path: ray.serve.llm:build_openai_app
  args:
    llm_configs:
    - model_loading_config:
        model_id: qwen
        model_source: Qwen/Qwen2.5-7B-Instruct
      accelerator_type: L4
      deployment_config:
        autoscaling_config: {min_replicas: 2, max_replicas: 4}
      engine_kwargs: {tensor_parallel_size: 2, max_model_len: 8192}
    - model_loading_config: {model_id: meta-llama/Llama-3.1-8B}
      accelerator_type: TPU-V9
      engine_kwargs: {}
"""


def test_a_configuration_of_ray_serve_is_read_model_by_model() -> None:
    first, second = recognise(RAY, "serve.yaml").asks
    assert (first.model, first.replicas, first.tensor_parallel) == ("Qwen/Qwen2.5-7B-Instruct", 2, 2)
    assert [(wish.accelerator.name, wish.count, wish.line) for wish in first.wishes] == [("L4", 2, 10)]
    assert second.model == "meta-llama/Llama-3.1-8B"
    assert [fault.line for fault in second.faults] == [15]


def test_a_service_of_kuberay_is_read_with_the_lines_of_the_file() -> None:
    inside = "".join(f"    {line}\n" for line in RAY.strip().splitlines())
    head = "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: llm}\nspec:\n  serveConfigV2: |\n"
    first, _ = recognise(head + inside, "service.yaml").asks
    assert (first.model, first.wishes[0].line) == ("Qwen/Qwen2.5-7B-Instruct", 14)


@pytest.mark.parametrize(
    "text",
    [
        "model: x\nname: y\n",
        "applications: 3\n",
        "applications:\n- {import_path: 'ray.serve.llm:build_openai_app', args: 3}\n",
        "applications:\n- {import_path: 'ray.serve.llm:build_openai_app', args: {llm_configs: [3, null]}}\n",
        "apiVersion: ray.io/v1\nkind: RayService\nspec: {serveConfigV2: 3}\n",
        "apiVersion: ray.io/v1\nkind: RayService\nspec: []\n",
        '{"model": "x"}',
    ],
)
def test_what_says_nothing_of_a_server_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        recognise(text, "file")


@pytest.mark.parametrize("value", ["0", "-1", "2.5", "many", "[1]", "{a: 1}", "true", "99999999999999", ".nan"])
def test_degrees_that_are_no_whole_number_are_not_guessed(value: str) -> None:
    ask = ask_of(f"model: Qwen/Qwen3-8B\ntensor_parallel_size: {value}\nmax_model_len: 4096\n")
    assert ask.tensor_parallel is None
    assert ask.accelerators_per_machine == 1


def test_a_configuration_without_a_model_names_none() -> None:
    config = "{llm_engine: SGLang, engine_kwargs: 3}"
    ask = ask_of(f"applications:\n- import_path: ray.serve.llm:x\n  args: {{llm_configs: [{config}]}}\n")
    assert (ask.model, ask.engine, ask.tensor_parallel) == (None, "sglang", None)


@pytest.mark.parametrize("count", ["0", "9" * 5000])
def test_a_head_with_counts_beyond_sense_does_no_harm(count: str) -> None:
    head = f"# Instances: {count} x aws p5.48xlarge ({count} x H100-SXM5-80GB), us-east-1, on_demand: 1 USD/h\n"
    ask = ask_of(head + "model: Qwen/Qwen3-8B\ntensor_parallel_size: 8\n")
    assert ask.tensor_parallel == 8
    assert ask.replicas == 1
    assert not any(wish.count > 8 for wish in ask.wishes)
