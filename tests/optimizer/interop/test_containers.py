"""`docker run`, Compose, KServe and the production stack's values: what their servers ask for, by line."""

from typing import Any

import pytest
import yaml

from optimizer.interop.asks import Ask
from optimizer.interop.recognise import recognise
from providers.errors import UsageError

DOCKER = """\
docker run --runtime nvidia --gpus '"device=0,1"' \\
    -v ~/.cache/huggingface:/root/.cache/huggingface \\
    --env "HF_TOKEN=secret" -p 8000:8000 --ipc=host \\
    vllm/vllm-openai:v0.33.0 \\
    --model meta-llama/Llama-3.1-8B --tensor-parallel-size 2 \\
    --max-model-len 8192
"""
COMPOSE = """\
services:
  web: {image: nginx}
  vllm:
    image: vllm/vllm-openai:latest
    command: >
      --model ${MODEL:-meta-llama/Llama-3.1-8B}
      --tensor-parallel-size ${TP:-2}
      --max-model-len 8192
    deploy:
      replicas: 3
      resources:
        reservations:
          devices:
            - {driver: nvidia, device_ids: ['0,1'], capabilities: [gpu]}
"""
STACK = """\
servingEngineSpec:
  modelSpec:
  - name: llama
    repository: vllm/vllm-openai
    modelURL: meta-llama/Llama-3.1-8B
    replicaCount: 3
    requestGPU: 2
    vllmConfig:
      tensorParallelSize: 2
      maxModelLen: 8192
      dtype: half
      extraArgs: ["--gpu-memory-utilization", "0.8"]
    nodeSelectorTerms:
    - matchExpressions:
      - {key: nvidia.com/gpu.product, operator: In, values: [Tesla-V100-SXM2-16GB]}
"""
KSERVE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llama}
spec:
  predictor:
    minReplicas: 3
    nodeSelector: {node.kubernetes.io/instance-type: g5.12xlarge}
    model:
      modelFormat: {name: huggingface}
      storageUri: hf://meta-llama/Llama-3.1-8B
      args:
      - --tensor-parallel-size=2
      - --max-model-len=8192
      resources: {limits: {nvidia.com/gpu: "2"}}
"""
LLM_SERVICE = """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: llama}
spec:
  model: {uri: "hf://meta-llama/Llama-3.1-8B"}
  replicas: 3
  parallelism: {tensor: 2}
  template:
    containers:
    - name: main
      args: [--max-model-len, "8192"]
      resources: {limits: {nvidia.com/gpu: "2"}}
"""


def only(text: str) -> Ask:
    (ask,) = recognise(text, "file").asks
    return ask


@pytest.mark.parametrize(
    ("text", "source", "replicas", "lines"),
    [
        (DOCKER, "docker run", 1, {"model": 5, "tensor_parallel": 5, "context": 6, "accelerators": 1, "command": 1}),
        (COMPOSE, "Docker Compose", 3, {"accelerators": 13}),
        (STACK, "vLLM production stack", 3, {"model": 5, "accelerators": 7, "tensor_parallel": 9, "context": 10}),
        (KSERVE, "KServe", 3, {"model": 10, "tensor_parallel": 12, "context": 13, "accelerators": 14, "place": 7}),
        (LLM_SERVICE, "KServe", 3, {"model": 5, "tensor_parallel": 7, "context": 11, "accelerators": 12}),
    ],
)
def test_a_server_in_a_container_is_read_with_its_lines(
    text: str, source: str, replicas: int, lines: dict[str, int]
) -> None:
    ask = only(text)
    assert (ask.source, ask.engine) == (source, "vllm")
    assert ask.model == "meta-llama/Llama-3.1-8B"
    assert (ask.tensor_parallel, ask.context_tokens, ask.replicas) == (2, 8192, replicas)
    assert ask.accelerators_per_machine == 2
    assert lines.items() <= ask.lines.items()


def test_labels_of_nodes_name_the_accelerators_or_the_machine() -> None:
    (wish,) = only(STACK).wishes
    assert (wish.accelerator.name, wish.count) == ("V100-SXM2-16GB", 2)
    assert only(KSERVE).instance_type == "g5.12xlarge"
    assert only(STACK).precision == "fp16"
    assert only(STACK).memory_share == 0.8


@pytest.mark.parametrize(
    ("flag", "count"),
    [("--gpus all", None), ("--gpus 4", 4), ("--gpus=2", 2), ("--gpus '\"device=0\"'", 1), ("", None)],
)
def test_the_accelerators_of_docker_are_a_number_a_list_or_all(flag: str, count: int | None) -> None:
    assert only(f"docker run {flag} vllm/vllm-openai --model a/b\n").accelerators_per_machine == count


@pytest.mark.parametrize(
    ("devices", "count"),
    [("{count: 4}", 4), ("{count: all}", None), ("{device_ids: ['0', '3']}", 2), ("{driver: nvidia}", None)],
)
def test_the_accelerators_of_compose_are_a_number_a_list_or_all(devices: str, count: int | None) -> None:
    text = "services:\n  llm:\n    image: vllm/vllm-openai\n    command: [--model, a/b]\n"
    text += f"    deploy: {{resources: {{reservations: {{devices: [{devices}]}}}}}}\n"
    assert only(text).accelerators_per_machine == count


def test_text_generation_inference_is_read_in_its_own_words() -> None:
    image = "ghcr.io/huggingface/text-generation-inference:3.3"
    ask = only(f"docker run --gpus 2 {image} --model-id a/b --num-shard 2 --max-total-tokens=4096 --quantize awq\n")
    assert (ask.engine, ask.model, ask.tensor_parallel) == ("tgi", "a/b", 2)
    assert (ask.context_tokens, ask.precision) == (4096, "int4")


def test_a_server_that_a_container_starts_by_its_own_words_is_read_once() -> None:
    ask = only("docker run --gpus all lmsysorg/sglang python3 -m sglang.launch_server --model-path a/b --tp 2\n")
    assert (ask.engine, ask.model, ask.tensor_parallel) == ("sglang", "a/b", 2)


@pytest.mark.parametrize(
    "content",
    [
        {"servingEngineSpec": {"modelSpec": 3}},
        {"servingEngineSpec": {"modelSpec": [None, "x", {"vllmConfig": [], "nodeSelectorTerms": {"a": 1}}]}},
        {"servingEngineSpec": {"modelSpec": [{"nodeSelectorTerms": [{"matchExpressions": 3.5}]}]}},
        {"services": {"a": None, "b": {"image": 3, "command": {"x": 1}, "deploy": []}}},
        {"kind": "InferenceService", "spec": {"predictor": {"model": "x", "containers": [3]}}},
        {"kind": "LLMInferenceService", "spec": {"template": {"containers": {}}, "parallelism": [1]}},
    ],
)
def test_other_values_than_expected_ask_for_nothing(content: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="asks for nothing"):
        recognise(yaml.safe_dump(content), "file")
