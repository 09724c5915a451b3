"""Services that may grow, or take other machines, are priced as their fewest replicas, and that is told."""

import pytest

from optimizer.interop.asks import Ask
from optimizer.interop.recognise import recognise

SERVE = "vllm serve org/model --tensor-parallel-size 8"
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 7
  template:
    spec:
      containers:
        - image: vllm/vllm-openai:v0.33.0
          args: [--model, org/model, --tensor-parallel-size, "8"]
          resources: {limits: {nvidia.com/gpu: 8}}
---
"""


def notes(text: str) -> tuple[Ask, list[tuple[int | None, str]]]:
    (ask,) = recognise(text, "file").asks
    assert not any(fault.fatal for fault in ask.faults)
    return ask, [(fault.line, fault.what.partition(" replicas may run")[0]) for fault in ask.faults]


def test_a_skypilot_service_that_grows_is_priced_at_its_fewest_replicas() -> None:
    text = "resources: {accelerators: H100:8}\nservice:\n  replica_policy:\n    min_replicas: 2\n    max_replicas: 9\n"
    ask, told = notes(f"{text}run: {SERVE}\n")
    assert ask.replicas == 2
    assert told == [(5, "up to 9")]


@pytest.mark.parametrize("key", ["dynamic_ondemand_fallback: true", "base_ondemand_fallback_replicas: 1"])
def test_spot_of_skypilot_that_falls_back_to_on_demand_is_told(key: str) -> None:
    text = "resources: {accelerators: H100:8, use_spot: true}\nservice:\n  replica_policy:\n    min_replicas: 1\n"
    ask, told = notes(f"{text}    {key}\nrun: {SERVE}\n")
    assert ask.spot
    assert told == [(5, "machines may be spot or on demand: they are priced as spot")]


@pytest.mark.parametrize("replicas", ["2..8", "{min: 2, max: 8}"])
def test_a_range_of_dstack_is_priced_at_its_lower_end(replicas: str) -> None:
    text = f"type: service\nresources: {{gpu: H100:8}}\nreplicas: {replicas}\ncommands: ['{SERVE}']\n"
    ask, told = notes(text)
    assert ask.replicas == 2
    assert told == [(3, "up to 8")]


def test_a_policy_of_dstack_that_leaves_spot_open_is_told() -> None:
    ask, told = notes(f"type: service\nresources: {{gpu: H100:8}}\nspot_policy: auto\ncommands: ['{SERVE}']\n")
    assert not ask.spot
    assert told == [(3, "machines may be spot or on demand: they are priced as on demand")]


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        ("HorizontalPodAutoscaler", "minReplicas", "maxReplicas"),
        ("ScaledObject", "minReplicaCount", "maxReplicaCount"),
    ],
)
def test_an_autoscaler_overrules_the_replicas_of_its_target(kind: str, least: str, most: str) -> None:
    scaler = f"apiVersion: a/v1\nkind: {kind}\nmetadata: {{name: s}}\nspec:\n  scaleTargetRef: {{name: chat}}\n"
    ask, told = notes(f"{DEPLOYMENT}{scaler}  {least}: 2\n  {most}: 12\n")
    assert ask.replicas == 2
    assert told == [(19, "up to 12")]


def test_an_autoscaler_of_another_object_says_nothing() -> None:
    scaler = "apiVersion: a/v1\nkind: ScaledObject\nmetadata: {name: s}\nspec:\n  scaleTargetRef: {name: other}\n"
    ask, told = notes(f"{DEPLOYMENT}{scaler}  maxReplicaCount: 12\n")
    assert (ask.replicas, told) == (7, [])


@pytest.mark.parametrize("spec", ["", "spec: 3", "spec: {scaleTargetRef: [chat]}", "spec: {maxReplicas: {}}"])
def test_an_autoscaler_that_says_nothing_useful_changes_nothing(spec: str) -> None:
    ask, told = notes(f"{DEPLOYMENT}apiVersion: a/v1\nkind: HorizontalPodAutoscaler\n{spec}\n")
    assert (ask.replicas, told) == (7, [])


def test_a_range_of_kserve_is_priced_at_its_lower_end() -> None:
    text = (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: chat}\nspec:\n  predictor:\n"
    )
    text += "    minReplicas: 2\n    maxReplicas: 5\n    model:\n      args: [--model_id=org/model]\n"
    ask, told = notes(text + "      resources: {limits: {nvidia.com/gpu: 8}}\n")
    assert ask.replicas == 2
    assert told == [(7, "up to 5")]


def test_several_servers_of_a_script_are_priced_apart_and_that_is_told() -> None:
    text = "".join(f"CUDA_VISIBLE_DEVICES={card} {SERVE} --port 800{card} &\n" for card in (0, 1))
    asks = recognise(text, "start.sh").asks
    assert len(asks) == 2
    assert all(any("priced on machines of its own" in fault.what for fault in ask.faults) for ask in asks)
