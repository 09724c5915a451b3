"""`costopt report` and `costopt compare`: from the example that --init writes to every format, and bad input."""

import json
import os
import pty
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.optimizer.report.focus_rows import focus_row, write_focus

ROOT = Path(__file__).parents[3]
FORMATS = ("table", "json", "csv", "md", "html", "xlsx")
SMALL = """name: small
budgets: {total_usd: 3000}
workloads:
  - {name: chat, owner: a, model: 8B, rate: 1, match: {tags: {app: chat}}}
"""


@pytest.fixture
def budget(clean_environment: Path) -> str:
    (clean_environment / "b.yaml").write_text(SMALL, encoding="utf-8")
    return "b.yaml"


def test_the_example_runs_as_it_is_written(costopt: Command) -> None:
    assert costopt("report", "--init", "--output", "B.yaml").code == 0
    outcome = costopt("report", "B.yaml", "--month", "2026-12", "--format", "json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert (document["schema"], document["month"], document["hours"]) == ("costopt.report", "2026-12", 744.0)
    assert [row["name"] for row in document["by_owner"]][:2] == ["search", "support"]
    assert document["actuals"] is None


@pytest.mark.parametrize("format_", FORMATS)
def test_both_commands_write_every_format(costopt: Command, budget: str, format_: str) -> None:
    need = ("--gpu", "H100-SXM5-80GB", "--count", "8")
    for command in (("report", budget), ("compare", *need), ("compare", "--rfq", *need)):
        outcome = costopt(*command, "--format", format_, "--output", "out")
        assert outcome.code == 0, outcome.err
        assert outcome.out == ""
        assert len(Path("out").read_bytes()) > 100


def test_the_month_is_this_month_in_the_time_zone_of_the_budget(
    costopt: Command, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(budget).write_text(SMALL + "time_zone: America/New_York\n", encoding="utf-8")
    monkeypatch.setenv("COSTOPT_NOW", "2026-12-01T03:00:00+00:00")
    document = json.loads(costopt("report", budget, "--format", "json").out)
    assert document["month"] == "2026-11"
    assert document["hours"] == 721.0


def test_a_bill_is_read_and_what_cannot_be_used_is_said(
    costopt: Command, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTOPT_NOW", "2026-12-11T00:00:00+00:00")
    start = datetime(2026, 12, 1, tzinfo=UTC)
    rows = [focus_row(start=start + timedelta(hours=h), usd=2, tags={"app": "chat"}) for h in range(240)]
    write_focus(Path("bill.csv"), [*rows, focus_row(BilledCost="?")])
    outcome = costopt("report", budget, "--actuals", "bill.csv", "--format", "json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert document["totals"]["actual_usd"] == "480.00"
    assert document["totals"]["forecast_usd"] == "1488.00"
    assert document["actuals"]["rejected"] == {"BilledCost is not a number": 1}
    assert "warning: 1 rows of the cost export cannot be used" in outcome.err


def test_every_next_step_is_a_command_that_shows_its_saving(costopt: Command) -> None:
    assert costopt("report", "--init", "--output", "B.yaml").code == 0
    document = json.loads(costopt("report", "B.yaml", "--month", "2026-12", "--format", "json").out)
    carried = {row["name"]: float(row["plan_usd"]) for row in document["by_workload"]}
    steps = [action for action in document["actions"] if action["command"].startswith("costopt report")]
    assert steps
    for action in steps:
        outcome = costopt(*shlex.split(action["command"])[1:], "--format", "json")
        assert outcome.code == 0, outcome.err
        after = float(json.loads(outcome.out)["totals"]["forecast_usd"])
        name = action["what"].partition(":")[0]
        assert carried[name] - after == pytest.approx(float(action["saving_usd"]), abs=0.02)
    for action in document["actions"]:
        if action["command"].startswith("costopt plan"):
            assert costopt(*shlex.split(action["command"])[1:], "--format", "json").code == 0


def test_one_workload_alone_must_be_known(costopt: Command, budget: str) -> None:
    outcome = costopt("report", budget, "--only", "chatt")
    assert outcome.code == 2
    assert "unknown workload 'chatt'; did you mean chat?" in outcome.err


def test_a_workbook_does_not_go_to_a_terminal(budget: str, clean_environment: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.run(
        [sys.executable, "-m", "optimizer.cli.main", "report", budget, "--format", "xlsx"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    os.close(theirs)
    os.close(ours)
    assert process.returncode == 2
    assert b"name a file with --output" in process.stderr


def test_a_workbook_goes_down_a_pipe(budget: str, clean_environment: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "optimizer.cli.main", "report", budget, "--format", "xlsx", "--quiet"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert process.stdout.startswith(b"PK")


def test_quotes_and_costs_come_into_the_comparison(costopt: Command) -> None:
    assert costopt("compare", "--init", "--output", "costs.yaml").code == 0
    Path("q.csv").write_text(
        "vendor,gpu,price,price_unit,currency,term_months\n"
        "Acme,H100 SXM,1900,gpu_month,EUR,12\nBeta,H100,2,gpu_hour,USD,0\n",
        encoding="utf-8",
    )
    outcome = costopt(
        "compare",
        "--gpu",
        "H100-SXM5-80GB",
        "--count",
        "16",
        "--costs",
        "costs.yaml",
        "--quotes",
        "q.csv",
        "-f",
        "json",
    )
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    kinds = {way["kind"] for way in document["ways"]}
    assert {"mixed plan", "provider", "quote", "hardware"} <= kinds
    assert [way["name"] for way in document["set_apart"]] == ["quote Beta"]
    assert "vendor Beta: variant not stated" in outcome.err


def test_a_served_model_is_compared_with_hosts_of_its_tokens(costopt: Command) -> None:
    outcome = costopt("compare", "--model", "llama-3.1-70b", "--rate", "1", "--provider", "lambda", "-f", "json")
    document = json.loads(outcome.out)
    hosted = [way for way in document["ways"] if way["kind"] == "hosted API"]
    assert hosted
    assert all(way["usd_per_million_tokens"] for way in document["ways"])
    assert {way["seller"] for way in document["ways"] if way["kind"] == "provider"} == {"lambda"}


def test_the_answer_sheet_of_a_request_is_a_quotes_file(costopt: Command) -> None:
    need = ("--gpu", "H100-SXM5-80GB", "--count", "8")
    header = costopt("compare", "--rfq", *need, "--format", "csv").out
    Path("q.csv").write_text(header + "Acme,H100 SXM,8,2,gpu_hour,USD" + "," * (header.count(",") - 5) + "\n")
    outcome = costopt("compare", *need, "--quotes", "q.csv", "--format", "json")
    assert "quote Acme" in {way["name"] for way in json.loads(outcome.out)["ways"]}


def test_the_columns_of_a_quotes_file_are_written_without_a_need(costopt: Command) -> None:
    outcome = costopt("compare", "--rfq", "--format", "csv")
    assert outcome.code == 0, outcome.err
    need = ("--gpu", "H100-SXM5-80GB", "--count", "8")
    assert outcome.out == costopt("compare", "--rfq", *need, "--format", "csv").out


def test_a_request_names_no_seller(costopt: Command) -> None:
    text = costopt("compare", "--rfq", "--model", "8B", "--rate", "5", "--format", "md").out.lower()
    assert "requests" in text
    assert not [name for name in ("aws", "azure", "runpod", "lambda", "gcp") if name in text.split()]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("report",), "no budget: give BUDGET.yaml"),
        (("report", "missing.yaml"), "budget 'missing.yaml' cannot be read"),
        (("report", "b.yaml", "--month", "2026-13"), "write a month like 2026-12"),
        (("report", "b.yaml", "--actuals", "none.csv"), "cost export 'none.csv' cannot be read"),
        (("report", "b.yaml", "--actuals", "b.yaml"), "the cost export has no column BilledCost"),
        (("report", "b.yaml", "--format", "pdf"), "unknown format 'pdf'"),
        (("compare",), "nothing to compare: give --model with --rate"),
        (("compare", "--model", "8B"), "nothing to compare: give --model with --rate"),
        (("compare", "--gpu", "H100", "--count", "8"), "--gpu H100 means H100-SXM5-80GB"),
        (("compare", "--count", "8"), "--count needs one --gpu"),
        (("compare", "--model", "8B", "--rate", "1", "--count", "8"), "give one of them"),
        (("compare", "--gpu", "H100-SXM5-80GB", "--count", "8", "--hours", "-1"), "--hours"),
        (("compare", "--model", "8B", "--rate", "1", "--quotes", "b.yaml"), "unknown column 'name: small'"),
        (("compare", "--model", "8B", "--rate", "1", "--costs", "b.yaml"), "Extra inputs are not permitted"),
    ],
)
def test_bad_input_gets_one_line_and_the_code_of_usage(
    costopt: Command, budget: str, command: tuple[str, ...], message: str
) -> None:
    outcome = costopt(*command)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == ""
    assert "Traceback" not in outcome.err


def test_a_need_that_nothing_meets_is_said_with_its_own_code(costopt: Command) -> None:
    outcome = costopt("compare", "--gpu", "RTX 3090", "--count", "8", "--provider", "aws", "--format", "json")
    assert outcome.code == 3
    assert json.loads(outcome.out)["ways"] == []
    assert "nothing meets the need, of 0 offers" in outcome.err


def test_names_cannot_move_the_cursor(costopt: Command, budget: str) -> None:
    Path(budget).write_text('name: "x\\e[31mred"\nbudgets: {total_usd: 1}\n', encoding="utf-8")
    for format_ in ("table", "md", "html"):
        outcome = costopt("report", budget, "--format", format_)
        assert outcome.code == 0, outcome.err
        assert "\x1b" not in outcome.out
