"""Golden documents: both reports and the requirement sheet in every format, from numbers that are fixed in the tests.

A workbook is kept as the text of its cells, formulas and formats, since packed bytes hang on the machine's zlib.
After a change that is meant to change them: `pytest tests/golden --update-golden`, then read the difference in git.
"""

import io
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import openpyxl
import pytest

from optimizer.cli.page_output import rendered_page
from optimizer.report.capacity import HeldAccelerators
from optimizer.report.comparison_document import comparison_csv, comparison_document
from optimizer.report.comparison_page import comparison_page
from optimizer.report.monthly_document import monthly_csv, monthly_document
from optimizer.report.monthly_page import monthly_page
from optimizer.report.rfq import rfq_csv, rfq_document, rfq_page
from providers.accelerators import resolve
from tests.optimizer.report.builders import NOW, sample_comparison, sample_extras, sample_report

GOLDEN = Path(__file__).parent / "report"
FORMATS = ("json", "csv", "md", "html", "xlsx", "txt")
NEED = HeldAccelerators(resolve("H100-SXM5-80GB"), 16)


def report(format_: str) -> str | bytes:
    found = sample_report()
    if format_ == "json":
        return json.dumps(monthly_document(found), indent=2) + "\n"
    return monthly_csv(found) if format_ == "csv" else rendered_page(monthly_page(found), format_, NOW, frozenset())


def compare(format_: str) -> str | bytes:
    found = sample_comparison()
    if format_ == "json":
        return json.dumps(comparison_document(found), indent=2) + "\n"
    return (
        comparison_csv(found) if format_ == "csv" else rendered_page(comparison_page(found), format_, NOW, frozenset())
    )


def rfq(format_: str) -> str | bytes:
    asked = ("16 x H100", NEED, sample_extras(), Decimal(600), NOW)
    if format_ == "json":
        return json.dumps(rfq_document(*asked), indent=2) + "\n"
    return rfq_csv() if format_ == "csv" else rendered_page(rfq_page(*asked), format_, NOW, frozenset())


DOCUMENTS: dict[str, Callable[[str], str | bytes]] = {"report": report, "compare": compare, "rfq": rfq}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_what_it_was(
    clean_environment: Path, request: pytest.FixtureRequest, name: str, format_: str
) -> None:
    made = DOCUMENTS[name]("table" if format_ == "txt" else format_)
    text = made if isinstance(made, str) else workbook_text(made)
    golden = GOLDEN / (f"{name}.{format_}.txt" if format_ == "xlsx" else f"{name}.{format_}")
    if request.config.getoption("--update-golden"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("format_", FORMATS[:-1])
def test_a_document_is_the_same_bytes_each_time(name: str, format_: str) -> None:
    assert DOCUMENTS[name](format_) == DOCUMENTS[name](format_)


def test_every_golden_file_belongs_to_a_document() -> None:
    expected = {f"{name}.{f}" + (".txt" if f == "xlsx" else "") for name in DOCUMENTS for f in FORMATS}
    assert {path.name for path in GOLDEN.iterdir()} == expected


def workbook_text(content: bytes) -> str:
    return "\n".join(_workbook_lines(content)) + "\n"


def _workbook_lines(content: bytes) -> Iterator[str]:
    book = openpyxl.load_workbook(io.BytesIO(content))
    values = openpyxl.load_workbook(io.BytesIO(content), data_only=True)
    yield f"created {book.properties.created}"
    yield from (f"name {name} = {defined.attr_text}" for name, defined in sorted(book.defined_names.items()))
    for sheet in book.worksheets:
        yield f"sheet {sheet.title}: {len(sheet._charts)} charts"
        for row in sheet.iter_rows():
            for cell in row:
                if cell.value is not None:
                    shown = values[sheet.title][cell.coordinate].value
                    formula = f" <- {cell.value}" if cell.data_type == "f" else ""
                    yield f"  {cell.coordinate} {shown!r} [{cell.number_format}]{formula}"
