"""`costopt plan --trace`: request logs, packed or not, and what is wrong with some of them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
MARKET = ("--provider", "aws", "--region", "us-east-1", "--gpu", "L4", "--gpu", "L40S")


def log(rows: int = 400, every_s: float = 0.5) -> str:
    lines = [f"{i * every_s},{200 + 37 * (i % 50)},{20 + 13 * (i % 20)}" for i in range(rows)]
    return "\n".join([HEADER, *lines]) + "\n"


def planned(costopt: Command, *arguments: object) -> dict[str, Any]:
    outcome = costopt("plan", "--model", "8B", *arguments, *MARKET, "--format", "json")
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def test_a_packed_log_is_planned_like_a_plain_one(costopt: Command) -> None:
    Path("t.csv").write_text(log(), encoding="utf-8")
    Path("t.csv.gz").write_bytes(gzip.compress(log().encode()))
    plain, packed = planned(costopt, "--trace", "t.csv"), planned(costopt, "--trace", "t.csv.gz")
    assert plain["instances"] == packed["instances"]
    assert plain["trace"] == packed["trace"]
    assert plain["totals"]["requests_per_s"] == pytest.approx(2.0, rel=0.02)


def test_the_log_is_summed_up_and_its_reduction_measured(costopt: Command) -> None:
    Path("t.csv").write_text(log(), encoding="utf-8")
    document = planned(costopt, "--trace", "t.csv", "--trace-shapes", "4")
    assert len(document["workloads"][0]["shapes"]) <= 4
    assert document["trace"]["requests"] == 400
    assert any("differ from the real ones by" in line for line in document["assumptions"])
    assert any("one period stands for all" in line for line in document["assumptions"])


def test_a_rate_scales_the_log(costopt: Command) -> None:
    Path("t.csv").write_text(log(), encoding="utf-8")
    document = planned(costopt, "--trace", "t.csv", "--rate", "12")
    assert document["totals"]["requests_per_s"] == pytest.approx(12)
    assert any("of --rate" in line for line in document["assumptions"])


def test_the_mean_may_be_planned_for_instead_of_the_peak(costopt: Command) -> None:
    burst = log() + "\n".join(f"{300 + i / 50},500,100" for i in range(500))
    Path("t.csv").write_text(burst, encoding="utf-8")
    peak, mean = planned(costopt, "--trace", "t.csv"), planned(costopt, "--trace", "t.csv", "--trace-rate", "mean")
    assert peak["totals"]["requests_per_s"] > 2 * mean["totals"]["requests_per_s"]


def test_requests_over_the_context_are_left_out_and_said(costopt: Command) -> None:
    Path("t.csv").write_text(log() + "200.1,30000,10\n" * 4, encoding="utf-8")
    document = planned(costopt, "--trace", "t.csv", "--context", "8192")
    assert any(line.startswith("1.0% of the requests are longer than 8,192") for line in document["warnings"])
    assert all(s["input_tokens"] + s["output_tokens"] <= 8192 for s in document["workloads"][0]["shapes"])


def test_short_requests_that_a_long_shape_takes_along_are_said_to_be_left_out(costopt: Command) -> None:
    lengths = [3000, 4500, *[500] * 20]
    rows = [f"{i},{lengths[i % 22]},50" for i in range(440)]
    Path("t.csv").write_text("\n".join([HEADER, *rows]), encoding="utf-8")
    document = planned(costopt, "--trace", "t.csv", "--context", "3600", "--trace-shapes", "4")
    assert [shape["input_tokens"] for shape in document["workloads"][0]["shapes"]] == [500]
    assert "9.1% of the requests are of shapes above 3,600 tokens: they are not planned for" in document["warnings"]
    assert "4.5% of the requests are longer than 3,600 tokens, which no replica will take" in document["warnings"]


def test_rows_left_out_are_counted(costopt: Command) -> None:
    Path("t.csv").write_text(log() + "oops,1,1\n300,1,x\n", encoding="utf-8")
    document = planned(costopt, "--trace", "t.csv")
    assert document["trace"]["rejected"] == {
        "time is neither seconds nor ISO 8601": 1,
        "tokens are not numbers": 1,
    }
    assert sum("rows left out" in line for line in document["warnings"]) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "t.csv is empty"),
        ("t.csv", b"a,b\n1,2\n", "no column for time"),
        ("t.csv", HEADER.encode() + b"\n1,2,3\n", "1 usable requests (no other rows)"),
        ("t.csv.gz", gzip.compress(log().encode())[:100], "damaged"),
        ("t.csv.gz", b"\x1f\x8bnonsense", "damaged"),
        ("t.csv", b"\xff\xfe\x00\x01" * 20, "not UTF-8 text"),
    ],
)
def test_a_log_that_cannot_be_used_is_one_clear_message(
    costopt: Command, name: str, content: bytes, message: str
) -> None:
    Path(name).write_bytes(content)
    outcome = costopt("plan", "--model", "8B", "--trace", name)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_a_log_needs_a_model_and_a_known_level(costopt: Command) -> None:
    Path("t.csv").write_text(log(), encoding="utf-8")
    assert "give --model" in costopt("plan", "--trace", "t.csv").err
    outcome = costopt("plan", "--model", "8B", "--trace", "t.csv", "--trace-rate", "median")
    assert outcome.code == 2
    assert "median" in outcome.err
