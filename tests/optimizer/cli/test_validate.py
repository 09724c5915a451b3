"""`costopt validate` in process: its documents, the predictions it writes, and bad tables."""

import csv
import json
from pathlib import Path

import pytest

from tests.conftest import Command

HEADER = "id,model,weight_dtype,engine,gpu,gpu_count,tp,input_tokens,output_tokens,concurrency_or_rate,scenario,tpot_ms"
GOOD = "a-1,meta-llama/Llama-3.1-8B,bf16,vLLM,H100-SXM-80GB,1,1,1024,256,8,online,8"


def table(folder: Path, *lines: str, header: str = HEADER) -> str:
    path = folder / "table.csv"
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return str(path)


def test_the_carried_reports_of_memory_are_validated_without_a_file(costopt: Command) -> None:
    outcome = costopt("validate", "memory", "-f", "json")
    document = json.loads(outcome.out)
    assert outcome.code == 0
    assert document["table"] == "memory"
    assert document["metrics"]["verdict"]["agreement"] >= 0.96


def test_a_table_of_ones_own_is_predicted_and_what_cannot_be_is_counted(costopt: Command, tmp_path: Path) -> None:
    lines = (GOOD, GOOD.replace("Llama-3.1-8B", "Nothing-9B"), GOOD.replace("H100-SXM-80GB", "GRID-K520"))
    document = json.loads(costopt("validate", "inference", table(tmp_path, *lines), "-f", "json").out)
    assert document["rows"] == 3
    assert document["skipped"] == {"unknown accelerator": 1, "unknown model": 1}
    assert document["metrics"]["tpot"]["predicted"] == 1


def test_predictions_are_written_row_by_row_with_the_reason_of_skipped_ones(costopt: Command, tmp_path: Path) -> None:
    written = tmp_path / "predictions.csv"
    file = table(tmp_path, GOOD, GOOD.replace("Llama-3.1-8B", "Nothing-9B"))
    assert costopt("validate", "inference", file, "--predictions", str(written)).code == 0
    rows = list(csv.DictReader(written.read_text(encoding="utf-8").splitlines()))
    assert [row["metric"] for row in rows] == ["tpot", "none"]
    assert float(rows[0]["low"]) < float(rows[0]["predicted"]) < float(rows[0]["high"])
    assert rows[1]["skipped"] == "unknown model"


@pytest.mark.parametrize("format_", ["table", "csv", "md"])
def test_every_format_names_the_metric_and_its_groups(costopt: Command, tmp_path: Path, format_: str) -> None:
    outcome = costopt("validate", "inference", table(tmp_path, GOOD), "-f", format_)
    assert outcome.code == 0
    assert "tpot" in outcome.out
    assert "H100-SXM5-80GB" in outcome.out


@pytest.mark.parametrize(
    ("lines", "header", "says"),
    [
        ((), "a,b", "lacks the columns gpu, model"),
        ((), HEADER, "lacks the columns"),
    ],
)
def test_a_file_without_the_columns_is_a_usage_error(
    costopt: Command, tmp_path: Path, lines: tuple[str, ...], header: str, says: str
) -> None:
    outcome = costopt("validate", "inference", table(tmp_path, *lines, header=header))
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize("arguments", [("everything",), ("inference", "/no/such/file.csv")])
def test_an_unknown_table_or_file_is_a_usage_error(costopt: Command, arguments: tuple[str, ...]) -> None:
    outcome = costopt("validate", *arguments)
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1


def test_a_line_with_cells_missing_or_numbers_that_are_none_is_counted_and_not_fatal(
    costopt: Command, tmp_path: Path
) -> None:
    lines = ("a-1,meta-llama/Llama-3.1-8B", GOOD.replace("1024", "many"), GOOD + ",extra")
    document = json.loads(costopt("validate", "inference", table(tmp_path, *lines), "-f", "json").out)
    assert document["metrics"]["tpot"]["predicted"] == 1
    assert sum(document["skipped"].values()) == 2
