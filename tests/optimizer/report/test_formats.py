"""Formats: the same numbers in all of them to the cent, formulas equal to values, nothing that a name could run."""

import csv
import io
import json
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from optimizer.report.comparison_document import comparison_csv, comparison_document
from optimizer.report.comparison_page import comparison_page
from optimizer.report.csv_rows import csv_text, defused
from optimizer.report.html import html_text
from optimizer.report.markdown import escaped, markdown_text
from optimizer.report.monthly_document import monthly_csv, monthly_document
from optimizer.report.monthly_page import monthly_page
from optimizer.report.page import Page, shown
from optimizer.report.xlsx import xlsx_bytes
from tests.optimizer.report.builders import NOW, sample_comparison, sample_report

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    return {"report": monthly_page(sample_report()), "compare": comparison_page(sample_comparison())}


@pytest.fixture(scope="module", params=["report", "compare"])
def page(request: pytest.FixtureRequest, pages: dict[str, Page]) -> Page:
    return pages[request.param]


def workbook(page: Page, *, values: bool = False) -> Any:
    return openpyxl.load_workbook(io.BytesIO(xlsx_bytes(page, NOW)), data_only=values)


def cells(book: Any) -> Iterator[Any]:
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            yield from (cell for cell in row if cell.value is not None)


def test_the_csv_adds_up_to_the_json_to_the_cent() -> None:
    report = sample_report()
    document = monthly_document(report)
    rows = list(csv.DictReader(io.StringIO(monthly_csv(report))))
    for column, key in (
        ("x_ForecastCost", "forecast_usd"),
        ("x_PlanCost", "plan_usd"),
        ("EffectiveCost", "actual_usd"),
        ("x_ForecastCashCost", "cash_usd"),
        ("x_ForecastTrendCost", "forecast_trend_usd"),
    ):
        total = sum((Decimal(row[column]) for row in rows if row[column]), Decimal(0))
        assert total == Decimal(document["totals"][key])


@pytest.mark.parametrize("dimension", ["workload", "owner", "provider", "accelerator", "purchase_option"])
def test_every_format_shows_the_totals_of_the_json(pages: dict[str, Page], dimension: str) -> None:
    document = monthly_document(sample_report())
    total = shown(Decimal(document["totals"]["forecast_usd"]), "usd")
    id_ = f"by-{dimension.replace('_', '-')}"
    (table,) = [t for section in pages["report"].sections for t in section.tables if t.id == id_]
    assert table.total is not None
    assert shown(table.total[3], "usd") == total
    sheet = workbook(pages["report"], values=True)[table.title]
    assert Decimal(str(sheet.cell(len(table.rows) + 2, 4).value)) == Decimal(document["totals"]["forecast_usd"])
    assert f"| Total | {'' if table.total[1] is None else shown(table.total[1], 'usd')} |" in markdown_text(
        pages["report"]
    )
    assert total in html_text(pages["report"])


def test_the_comparison_has_the_costs_of_the_json_in_every_format(pages: dict[str, Page]) -> None:
    found = sample_comparison()
    document = comparison_document(found)
    rows = {row["x_Way"].lstrip("'"): row for row in csv.DictReader(io.StringIO(comparison_csv(found)))}
    html, markdown = html_text(pages["compare"]), markdown_text(pages["compare"])
    sheet = workbook(pages["compare"], values=True)["Total cost"]
    in_sheet = {row[0]: row for row in sheet.iter_rows(min_row=2, values_only=True)}
    for way in document["ways"]:
        for cost in way["tco"]:
            months, total = cost["months"], Decimal(cost["usd"])
            assert Decimal(rows[way["name"]][f"x_Tco{months}Cost"]) == total
            assert Decimal(str(in_sheet[way["name"]][{12: 5, 36: 10}[months]])) == total
            assert shown(total, "usd") in html
            assert shown(total, "usd") in markdown


def test_json_has_money_as_text_and_null_for_what_is_not_known() -> None:
    for document in (monthly_document(sample_report()), comparison_document(sample_comparison())):
        text = json.dumps(document, allow_nan=False)
        assert json.loads(text) == document
        for key, value in walk(document):
            if key.endswith("_usd"):
                assert value is None or Decimal(value).is_finite()
            assert value not in ("None", "N/A", "NaN")


def test_equal_documents_give_equal_workbooks(page: Page) -> None:
    assert xlsx_bytes(page, NOW) == xlsx_bytes(page, NOW)


def test_a_workbook_has_native_charts_with_a_title(page: Page) -> None:
    charts = [chart for sheet in workbook(page).worksheets for chart in sheet._charts]
    assert len(charts) >= 3
    assert all(chart.title is not None and chart.series for chart in charts)


def test_numbers_in_a_workbook_are_numbers(page: Page) -> None:
    book = workbook(page)
    for section in page.sections:
        for table in section.tables:
            if not table.rows:
                continue
            sheet = book[table.title]
            for row, values in enumerate(table.rows, start=2):
                for column, value in enumerate(values, start=1):
                    cell = sheet.cell(row, column)
                    if value is None:
                        assert cell.value is None
                    elif isinstance(value, Decimal):
                        assert cell.data_type in ("n", "f")


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_formulas_recalculate_to_the_values(page: Page, tmp_path: Path) -> None:
    # Without the cached values, so that they have to be computed anew.
    workbook(page).save(tmp_path / "bare.xlsx")
    profile = f"-env:UserInstallation=file://{tmp_path}/profile"
    target = ("--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", str(tmp_path / "out"))
    command = ["soffice", profile, "--headless", *target, str(tmp_path / "bare.xlsx")]
    subprocess.run(command, check=True, capture_output=True, timeout=180)
    formulas, cached = workbook(page), workbook(page, values=True)
    recalculated = openpyxl.load_workbook(tmp_path / "out" / "bare.xlsx", data_only=True)
    compared = 0
    for sheet in formulas.worksheets:
        for cell in (cell for row in sheet.iter_rows() for cell in row if cell.data_type == "f"):
            ours = cached[sheet.title][cell.coordinate].value
            theirs = recalculated[sheet.title][cell.coordinate].value
            assert theirs == pytest.approx(ours, abs=0.005, rel=1e-4), f"{sheet.title}!{cell.coordinate} {cell.value}"
            compared += 1
    assert compared > 40


def test_hostile_names_are_text_in_html(page: Page) -> None:
    html = html_text(page)
    assert "<script>alert" not in html
    assert "<b>" not in html
    assert "&lt;b&gt;" in html


def test_the_page_may_load_and_run_nothing_else(page: Page) -> None:
    html = html_text(page)
    assert "default-src 'none'" in html
    assert html.count("<script") == 1
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")


def test_no_name_becomes_a_formula_in_a_workbook(page: Page) -> None:
    book = workbook(page)
    named = [cell for cell in cells(book) if isinstance(cell.value, str) and cell.value.startswith(FORMULA_STARTS)]
    texts = [cell for cell in named if cell.data_type != "f"]
    for cell in texts:
        assert cell.data_type == "s"
        assert cell.quotePrefix, f"{cell.parent.title}!{cell.coordinate} {cell.value!r}"
    formulas = [cell.value for cell in named if cell.data_type == "f"]
    assert not any("HYPERLINK" in formula or "1+1" in formula for formula in formulas)


def test_no_cell_of_a_csv_is_a_formula() -> None:
    for text in (monthly_csv(sample_report()), comparison_csv(sample_comparison())):
        for row in csv.reader(io.StringIO(text)):
            for cell in row:
                assert not cell.startswith(FORMULA_STARTS) or is_number(cell), cell


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\rx", " =1", "\nx"])
def test_a_formula_start_is_defused(text: str) -> None:
    assert defused(text) == f"'{text}"
    assert csv_text(("a",), [(text,)]).splitlines()[1].lstrip('"').startswith("'")


def test_plain_text_and_negative_numbers_are_left_alone() -> None:
    assert defused("p5.48xlarge") == "p5.48xlarge"
    assert csv_text(("a", "b"), [(Decimal("-1.50"), None)]) == "a,b\n-1.50,\n"


def test_no_name_becomes_markup_in_markdown() -> None:
    text = markdown_text(monthly_page(sample_report()))
    assert "<script>" not in text.replace("\\<", "")
    assert escaped("[a](http://x) <b> | `c`\nd") == "\\[a\\](http://x) \\<b\\> \\| \\`c\\` d"
    rows = [line for line in text.splitlines() if line.startswith("| ") and "=1+1" in line]
    assert rows
    assert all("\\|" in row for row in rows)


def walk(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from walk(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, key)
    else:
        yield key, value


def is_number(text: str) -> bool:
    try:
        Decimal(text)
    except ArithmeticError:
        return False
    return True
