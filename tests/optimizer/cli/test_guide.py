"""`costopt guide`: formats, and the page that it writes."""

import csv
import io
import json
from pathlib import Path

from tests.conftest import Command

PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "guide.md"


def test_the_page_is_what_the_command_writes_from_the_snapshot(costopt: Command) -> None:
    outcome = costopt("guide", "--offline", "-f", "md")
    assert outcome.code == 0, outcome.err
    assert PAGE.read_text(encoding="utf-8") == outcome.out, "run: costopt guide --offline -f md -o docs/guide.md"


def test_a_row_has_its_price_and_the_day_of_it(costopt: Command) -> None:
    outcome = costopt("guide", "--size", "1b", "-f", "json")
    document = json.loads(outcome.out)
    assert {row["size"] for row in document["rows"]} == {"1B"}
    for row in document["rows"]:
        assert float(row["usd_per_hour"]) > 0
        assert row["instance"]["as_of"]


def test_the_table_and_the_rows_of_csv_are_the_same(costopt: Command) -> None:
    rows = list(csv.DictReader(io.StringIO(costopt("guide", "--size", "1B", "-f", "csv").out)))
    table = costopt("guide", "--size", "1B").out
    assert len(rows) == 7
    assert all(row["use"] in table for row in rows)


def test_an_unknown_size_is_told_with_what_there_is(costopt: Command) -> None:
    outcome = costopt("guide", "--size", "2B")
    assert outcome.code == 2
    assert "known:" in outcome.err
