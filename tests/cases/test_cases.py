"""Users' cases: each command line of cases.yaml gives the answer that turned out to be right."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Command, Outcome

GIB, GB = 2**30, 10**9
CASES = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8"))
KINDS = {"fits", "how_many_gpus", "which_instance", "oom_report", "quantization", "wrong_recommendation"}


def checks() -> Iterator[Any]:
    for case in CASES:
        for number, check in enumerate(case["checks"], start=1):
            marks = [pytest.mark.xfail(reason=check["xfail"], strict=True)] if "xfail" in check else []
            yield pytest.param(check["command"], check["expect"], id=f"{case['id']}-{number}", marks=marks)


@pytest.mark.parametrize(("command", "expect"), list(checks()))
def test_a_users_case_is_answered_as_it_turned_out(costopt: Command, command: str, expect: dict[str, Any]) -> None:
    outcome = costopt(*shlex.split(command), "--format", "json")
    assert outcome.code == expect.get("exit_code", 0), outcome.err
    document = json.loads(outcome.out) if outcome.out else {}
    for key, wanted in expect.items():
        if key != "exit_code":
            EXPECTATIONS[key](document, outcome, wanted)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_case_says_what_it_is_and_where_it_comes_from(case: dict[str, Any]) -> None:
    assert set(case) == {"id", "kind", "situation", "source", "checks"}
    assert case["kind"] in KINDS
    assert case["source"].startswith("https://")
    assert all(check["expect"].keys() <= {*EXPECTATIONS, "exit_code"} for check in case["checks"])
    assert all(check["expect"] for check in case["checks"])


def _fits(document: dict[str, Any], outcome: Outcome, wanted: bool | str) -> None:
    """`true` takes a tight fit too: it runs; `tight` is just that."""
    verdicts = {True: ("fits", "tight"), False: ("does_not_fit",), "tight": ("tight",)}[wanted]
    assert document["verdict"] in verdicts


def _verdict(document: dict[str, Any], outcome: Outcome, wanted: list[str]) -> None:
    assert document["verdict"] in wanted


def _value(*path: str, unit: float = 1.0) -> Callable[[dict[str, Any], Outcome, Any], None]:
    """Compares the number at `path` with a number, or with an inclusive range."""

    def check(document: dict[str, Any], outcome: Outcome, wanted: Any) -> None:
        found: Any = document
        for key in path:
            found = found[key]
        low, high = wanted if isinstance(wanted, list) else (wanted, wanted)
        assert low <= found * unit <= high

    return check


def _includes(document: dict[str, Any], outcome: Outcome, wanted: list[int]) -> None:
    assert set(wanted) <= set(document["valid_tensor_parallel"])


def _excludes(document: dict[str, Any], outcome: Outcome, wanted: list[int]) -> None:
    assert not set(wanted) & set(document["valid_tensor_parallel"])
    assert document["tensor_parallel"] not in wanted


def _says(document: dict[str, Any], outcome: Outcome, wanted: list[str]) -> None:
    lines = [*document.get("warnings", ()), *document.get("assumptions", ()), *outcome.err.splitlines()]
    for pattern in wanted:
        assert any(re.search(pattern, line) for line in lines), f"nothing says {pattern!r}: {lines}"


def _machines(document: dict[str, Any], outcome: Outcome, wanted: dict[str, list[Any]]) -> None:
    for name, (accelerator, count, total_gb) in wanted.items():
        rows = [row for row in document["offers"] if row["instance_type"] == name]
        assert rows, f"{name} is not offered"
        for row in rows:
            assert (row["accelerator"], row["accelerator_count"]) == (accelerator, count)
            assert row["accelerator_count"] * row["accelerator_memory_gib"] == total_gb
            assert not row["fractional"]


def _fractions(document: dict[str, Any], outcome: Outcome, wanted: dict[str, list[Any]]) -> None:
    for name, (accelerator, count) in wanted.items():
        rows = [row for row in document["offers"] if row["instance_type"] == name]
        assert rows, f"{name} is not offered"
        assert all((row["accelerator"], row["accelerator_count"]) == (accelerator, count) for row in rows)
        assert all(row["fractional"] for row in rows)


def _usable(document: dict[str, Any], outcome: Outcome, wanted: dict[str, list[float]]) -> None:
    for accelerator, (low, high) in wanted.items():
        found = {r["accelerator_usable_memory_gib"] for r in document["offers"] if r["accelerator"] == accelerator}
        assert found
        assert all(low <= usable <= high for usable in found)


def _names(document: dict[str, Any]) -> set[str]:
    return {row["instance_type"] for row in document.get("offers", document.get("instances", ()))}


def _any_of(document: dict[str, Any], outcome: Outcome, wanted: list[str]) -> None:
    """A listing has all of them; a plan chose among them."""
    names = _names(document)
    assert set(wanted) <= names if "offers" in document else names <= set(wanted)
    assert names


def _none_of(document: dict[str, Any], outcome: Outcome, wanted: list[str]) -> None:
    assert not _names(document) & set(wanted)


EXPECTATIONS: dict[str, Callable[[dict[str, Any], Outcome, Any], None]] = {
    "fits": _fits,
    "verdict_any_of": _verdict,
    "min_gpus": _value("min_gpus"),
    "min_gpus_comfortable": _value("min_gpus_comfortable"),
    "replicas": _value("replicas"),
    "weights_gib": _value("memory", "weights_gib"),
    "weights_gb": _value("memory", "weights_gib", unit=GIB / GB),
    "kv_bytes_per_token": _value("memory", "kv_bytes_per_token"),
    "kv_cache_gib": _value("memory", "kv_cache_gib"),
    "max_context_tokens": _value("memory", "max_context_tokens"),
    "max_concurrency": _value("memory", "max_concurrency"),
    "tensor_parallel_includes": _includes,
    "tensor_parallel_excludes": _excludes,
    "says": _says,
    "machines": _machines,
    "fractions": _fractions,
    "usable_gib": _usable,
    "instance_types_any_of": _any_of,
    "instance_types_none_of": _none_of,
}
