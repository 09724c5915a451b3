"""Results: totals and rows for programs, tables for notebooks, launch files."""

import csv
import io
import json
from dataclasses import FrozenInstanceError
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import optimizer
from optimizer import InferenceWorkload, RequestShape, ShapeDemand, UnknownName, UsageError
from optimizer.api.results import html_table
from tests.conftest import Command

HOSTILE = "<script>alert('1')</script> & \"more\"\x1b[31m\x00\u202e]]>"
QUOTE = {"vendor": HOSTILE, "gpu": "L4", "price": 0.5, "price_unit": "gpu_hour", "currency": "USD"}


@pytest.fixture(autouse=True)
def settings(clean_environment: Path) -> None:
    """No file, variable or clock of this machine counts."""


def tables(result: Any) -> list[ElementTree.Element]:
    """The tables of what a notebook shows, which must be well-formed and free of anything that runs."""
    page = ElementTree.fromstring(f"<div>{result._repr_html_()}</div>")  # noqa: S314 - our own
    assert {element.tag for element in page.iter()} <= {
        *("div", "table", "caption", "thead", "tbody", "tr", "th", "td"),
        *("p", "ul", "li", "details", "summary"),
    }
    assert all(not element.attrib for element in page.iter())
    found = page.findall("table")
    for table in found:
        width = len(table.findall("thead/tr/th"))
        assert all(len(row.findall("td")) == width for row in table.findall("tbody/tr"))
    return found


def titles(result: Any) -> list[str]:
    return [table.findtext("caption") or "" for table in tables(result)]


def cells(result: Any) -> set[str]:
    return {cell.text or "" for table in tables(result) for cell in table.iter("td")}


def hostile_workload() -> InferenceWorkload:
    shape = RequestShape(input_tokens=800, output_tokens=200)
    return InferenceWorkload(name=HOSTILE, model="8B", demands=(ShapeDemand(shape=shape, requests_per_s=40.0),))


@cache
def results() -> dict[str, Any]:
    """One of each kind."""
    return {
        "plan": optimizer.plan("8B", rate=40, provider=["aws", "gcp"]),
        "mixed": optimizer.plan("8B", rate=40, min_providers=2, provider=["aws", "gcp"]),
        "hostile": optimizer.plan(workload=hostile_workload(), min_providers=2, provider=["aws", "gcp"]),
        "impossible": optimizer.plan("405B", rate=1000, gpu="T4"),
        "training": optimizer.plan("1B", task="lora", tokens="10M", deadline="2d", provider="aws"),
        "late": optimizer.plan("7B", task="train", tokens="1T", deadline="1h", max_gpus=8, provider="aws"),
        "size": optimizer.size("8B", gpu="L4"),
        "too small": optimizer.size("70B", gpu="T4"),
        "training size": optimizer.size("8B", gpu="H100", count=8, task="finetune", tokens="1B"),
        "compare": optimizer.compare(gpu="L4", count=4, provider=["aws", "lambda"], quotes=[QUOTE], hours=100),
        "nothing to compare": optimizer.compare(gpu="L4", count=4, provider="lambda"),
        "offers": optimizer.offers(gpu="L4"),
    }


def test_every_result_is_a_well_formed_page_that_escapes_names() -> None:
    for name, result in results().items():
        assert tables(result), name
        assert "<script" not in result._repr_html_(), name
        assert not {"\x00", "\x1b", "\u202e"} & set(result._repr_html_()), name
        assert repr(result).startswith("<"), name
        assert "\x1b" not in repr(result), name


def test_results_are_tables_in_notebooks() -> None:
    made = optimizer.plan("8B", rate=5)
    instances = made._repr_html_().partition("</table>")[0]
    assert instances.count("<tr>") == 1 + len(made.instances)
    sized = optimizer.size("8B", gpu="L4")
    assert "<td>weights GiB</td>" in sized._repr_html_()
    assert "<td>KV bytes per token</td>" in sized._repr_html_()
    assert "None" not in cells(results()["training size"])


def test_a_table_escapes_what_it_shows() -> None:
    assert "<script>" not in html_table("<script>", ("a",), [("<script>",)])


def test_a_hostile_name_is_shown_as_text() -> None:
    shown = {text for text in cells(results()["hostile"]) if "script" in text}
    assert any(text.startswith("<script>alert('1')</script> & \"more\"") for text in shown)


def test_a_plan_shows_what_to_buy_what_runs_where_requests_go_and_what_else_there_is() -> None:
    found = results()
    assert titles(found["mixed"])[1:] == ["Replicas", "Routing", "Alternatives"]
    assert titles(found["plan"])[0].startswith("Plan: optimal, ")
    assert titles(found["impossible"]) == ["Plan: infeasible (estimate)", "Short of"]
    assert titles(found["training"])[1:] == ["Runs", "Alternatives"]
    assert "Short of" in titles(found["late"])


def test_a_plan_for_serving_has_totals() -> None:
    made = optimizer.plan("8B", rate=5, provider="aws")
    totals = made.document["totals"]
    assert made.feasible and not made.is_training
    assert made.usd_per_month == Decimal(totals["usd_per_month"])
    assert made.usd_per_hour == Decimal(totals["usd_per_hour"])
    assert made.requests_per_s == pytest.approx(5)
    assert made.gpus == totals["gpus"]
    assert made.gap == pytest.approx(0, abs=1e-9)
    assert (made.usd_total, made.hours, made.jobs) == (None, None, ())
    assert repr(made).startswith(f"<plan: optimal, {made.usd_per_month:,} USD per month for 5 requests/s: 1 x aws ")


def test_a_plan_for_training_has_totals() -> None:
    made = results()["training"]
    assert made.feasible and made.is_training
    assert made.usd_total == Decimal(made.document["totals"]["usd_total"])
    assert made.hours == made.document["totals"]["hours"]
    assert (made.usd_per_month, made.requests_per_s, made.replicas) == (None, None, ())
    assert [job["workload"] for job in made.jobs] == ["run"]


def test_a_plan_that_is_not_feasible_is_a_result() -> None:
    made = results()["impossible"]
    assert not made.feasible
    assert (made.usd_per_month, made.usd_per_hour, made.gpus, made.totals) == (None, None, None, {})
    assert repr(made) == "<plan: infeasible>"


def test_rows_are_those_of_the_csv(costopt: Command) -> None:
    flags = ("--model", "8B", "--rate", "40", "--min-providers", "2", "--provider", "aws,gcp")
    printed = list(csv.DictReader(io.StringIO(costopt("plan", *flags, "-f", "csv").out)))
    rows = optimizer.plan("8B", rate=40, min_providers=2, provider=["aws", "gcp"]).rows()
    assert len(rows) == len(printed) > 1
    for row, line in zip(rows, printed, strict=True):
        assert {str(row[key]) for key in ("provider", "instance_type", "count")} == {
            line[key] for key in ("provider", "instance_type", "count")
        }
        assert row["total_usd_per_month"] == Decimal(line["total_usd_per_month"])


def test_rows_are_flat_and_money_is_exact() -> None:
    for name, result in results().items():
        for row in result.rows():
            assert not any(isinstance(value, dict) for value in row.values()), name
            money = {key: value for key, value in row.items() if "usd" in key and not isinstance(value, list)}
            assert all(value is None or isinstance(value, Decimal) for value in money.values()), name
    reserved = optimizer.plan("8B", rate=40, purchase="reserved-1y", provider="aws")
    assert reserved.rows()[0]["commitment.term_months"] == 12
    assert isinstance(reserved.rows()[0]["commitment.upfront_usd"], Decimal)


def test_other_tables_have_rows_too() -> None:
    made = results()["mixed"]
    assert len(made.rows("replicas")) == len(made.replicas)
    assert len(made.rows("alternatives")) == len(made.alternatives)
    assert sum(row["requests_per_s"] for row in made.rows("routing")) == pytest.approx(40, rel=1e-4)
    with pytest.raises(UnknownName, match="unknown table 'replica'; did you mean replicas"):
        made.rows("replica")


def test_a_size_has_figures() -> None:
    found = results()
    served, small, trained = (found[name] for name in ("size", "too small", "training size"))
    assert served.fits and served.requests_per_s and served.tokens_per_s and served.hours is None
    assert not small.fits
    assert (small.requests_per_s, small.tokens_per_s, small.performance) == (None, None, {})
    assert small.min_gpus > 1
    assert trained.hours > 0 and trained.tokens_per_s > 0 and trained.requests_per_s is None
    assert served.memory["weights_gib"] == served.rows()[0]["memory.weights_gib"]


def test_the_cheapest_way_costs_least() -> None:
    found = optimizer.compare(gpu="L4", count=4, provider=["aws", "gcp"])
    assert found.cheapest is not None
    assert Decimal(found.cheapest["usd_per_month"]) == min(row["usd_per_month"] for row in found.rows())
    job = results()["compare"]
    assert Decimal(job.cheapest["job_usd"]) == min(row["job_usd"] for row in job.rows())
    assert results()["nothing to compare"].cheapest is None


def test_offers_have_a_length_and_rows() -> None:
    found = results()["offers"]
    assert len(found) == len(found.offers) == len(found.rows()) > 50
    assert "the first 50 of" in titles(found)[0]
    assert all(row["accelerator"].startswith("L4") for row in found.rows())
    prices = [row["usd_per_hour"] for row in found.rows()]
    assert prices == sorted(prices)


def test_results_are_frozen_and_copies_are_not() -> None:
    made = optimizer.size("8B", gpu="L4")
    with pytest.raises(FrozenInstanceError):
        made.document = {}  # type: ignore[misc]
    copy = made.to_dict()
    copy["memory"]["weights_gib"] = 0
    assert made.memory["weights_gib"] > 0
    assert json.loads(made.to_json()) == made.document
    assert made == optimizer.size("8B", gpu="L4")


def test_what_a_result_gives_is_a_copy_with_exact_money() -> None:
    found = results()
    plan, training, compared, listed = (found[name] for name in ("mixed", "training", "compare", "offers"))
    before = {name: result.to_json() for name, result in found.items()}
    for entry in (
        *(*plan.instances, *plan.replicas, *plan.alternatives, plan.totals, *training.jobs, training.totals),
        *(*compared.ways, *compared.set_apart, compared.cheapest, *list(listed)[:9], *plan.rows("alternatives")),
    ):
        for key, value in list(entry.items()):
            if "usd" in key and not isinstance(value, (dict, list)):
                assert value is None or isinstance(value, Decimal), key
            if isinstance(value, (dict, list)):
                value.clear()
            entry[key] = "changed"
    assert {name: result.to_json() for name, result in found.items()} == before
    assert sum(one["usd_per_hour"] * one["count"] for one in plan.instances) == pytest.approx(plan.usd_per_hour)


def test_a_listing_can_be_gone_through() -> None:
    listed = results()["offers"]
    assert [one["offer"] for one in listed] == [row["offer"] for row in listed.rows()]


def test_an_export_is_what_the_command_writes(costopt: Command, tmp_path: Path) -> None:
    made = optimizer.plan("8B", rate=5, provider="aws")
    Path("optimizer.plan").write_text(made.to_json(), encoding="utf-8")
    assert costopt("export", "optimizer.plan", "--to", "kubernetes", "--to", "vllm", "-o", "there").code == 0
    for target in ("kubernetes", "vllm"):
        exported = made.export(target, tmp_path / "here")
        assert exported.paths
        assert all(path.is_file() for path in exported.paths)
    here, there = (
        {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
        for folder in (tmp_path / "here", Path("there"))
    )
    assert here == there


def test_an_export_replaces_only_when_told(tmp_path: Path) -> None:
    made = optimizer.plan("8B", rate=5, provider="aws")
    made.export("vllm", tmp_path)
    with pytest.raises(UsageError, match="replace=True replaces them"):
        made.export("vllm", tmp_path)
    assert made.export("vllm", tmp_path, replace=True).paths


def test_an_export_of_nothing_or_to_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing is feasible"):
        optimizer.plan("405B", rate=1000, gpu="T4").export("vllm", tmp_path)
    with pytest.raises(UnknownName):
        optimizer.plan("8B", rate=5, provider="aws").export("nomad", tmp_path)
    assert list(tmp_path.glob("**/*.sh")) == []
