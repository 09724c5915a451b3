"""Users' cases of training: each command line of training_cases.yaml gives the answer that turned out to be right."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Command

GIB, GB = 2**30, 10**9
CASES = yaml.safe_load((Path(__file__).parent / "training_cases.yaml").read_text(encoding="utf-8"))
KINDS = {"fits", "oom_report", "training_time_cost", "wrong_recommendation"}


def checks() -> Iterator[Any]:
    for case in CASES:
        for number, check in enumerate(case["checks"], start=1):
            marks = [pytest.mark.xfail(reason=check["xfail"], strict=True)] if "xfail" in check else []
            yield pytest.param(check["command"], check["expect"], id=f"{case['id']}-{number}", marks=marks)


@pytest.mark.parametrize(("command", "expect"), list(checks()))
def test_a_users_case_of_training_is_answered_as_it_turned_out(
    costopt: Command, command: str, expect: dict[str, Any]
) -> None:
    outcome = costopt(*shlex.split(command), "--format", "json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    for key, wanted in expect.items():
        EXPECTATIONS[key](document, wanted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_training_case_says_what_it_is_and_where_it_comes_from(case: dict[str, Any]) -> None:
    assert set(case) == {"id", "kind", "situation", "source", "checks"}
    assert case["kind"] in KINDS
    assert case["source"].startswith("https://")
    assert all(check["expect"] and check["expect"].keys() <= EXPECTATIONS.keys() for check in case["checks"])


@pytest.mark.parametrize(
    ("cards", "hours", "low", "high"),
    [
        pytest.param(4, "16", 114, 115, id="13B in full, 4 cards for 16 hours"),
        pytest.param(1, "55.85", 99, 101, id="70B QLoRA, one card for 2 days 7 h 51 min"),
    ],
)
def test_a_reported_run_costs_its_accelerator_hours(cards: int, hours: str, low: int, high: int) -> None:
    """jondurbin/airoboros issue 14, at an example rate of 1.79 USD an accelerator-hour."""
    assert low <= cards * Decimal(hours) * Decimal("1.79") <= high


def _states(document: dict[str, Any]) -> float:
    return float(sum(document["memory"][key] for key in ("weights_gib", "gradients_gib", "optimizer_gib")))


def _between(found: Callable[[dict[str, Any]], float]) -> Callable[[dict[str, Any], Any], None]:
    def check(document: dict[str, Any], wanted: list[float]) -> None:
        low, high = wanted
        assert low <= found(document) <= high

    return check


def _fits(document: dict[str, Any], wanted: bool) -> None:
    assert (document["verdict"] != "does_not_fit") == wanted


def _min_gpus(document: dict[str, Any], wanted: int) -> None:
    assert document["min_gpus"] == wanted


def _limiting(document: dict[str, Any], wanted: str) -> None:
    assert document["memory"]["limiting"] == wanted


def _says(document: dict[str, Any], wanted: list[str]) -> None:
    lines = [*document["warnings"], *document["assumptions"]]
    for pattern in wanted:
        assert any(re.search(pattern, line) for line in lines), f"nothing says {pattern!r}: {lines}"


def _peak_tflops(document: dict[str, Any]) -> float:
    """The peak that the utilisation is of: rate x FLOPs of a token / MFU."""
    from optimizer.sizing.training.time import model_flops_per_token
    from optimizer.workload.architecture import resolve_model

    performance = document["performance"]
    flops = model_flops_per_token(resolve_model(document["model"]), document["task"], document["seq_len"])
    return float(performance["tokens_per_s_per_gpu"]["value"] * flops / performance["mfu"] / 1e12)


EXPECTATIONS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "fits": _fits,
    "min_gpus": _min_gpus,
    "limiting": _limiting,
    "says": _says,
    "states_gib": _between(_states),
    "states_gib_per_gpu": _between(lambda document: _states(document) / document["count"]),
    "per_gpu_gib": _between(lambda document: document["memory"]["per_gpu_gib"]),
    "per_gpu_gb": _between(lambda document: document["memory"]["per_gpu_gib"] * GIB / GB),
    "host_gib": _between(lambda document: document["memory"]["host_gib_per_node"]),
    "gpu_hours": _between(lambda document: document["performance"]["gpu_hours"]["value"]),
    "mfu": _between(lambda document: document["performance"]["mfu"]),
    "peak_tflops": _between(_peak_tflops),
}
