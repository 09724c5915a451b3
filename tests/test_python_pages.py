"""The Python examples of the README and of docs/python.md run, and print what the pages say; nothing is left out."""

import re
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest

import optimizer
from tests.python_examples import PAGES, examples, with_current_output

REFERENCE = PAGES[1].read_text(encoding="utf-8")
RESULTS = (optimizer.PlanResult, optimizer.SizeResult, optimizer.CompareResult, optimizer.OffersResult)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_print_what_the_page_says(clean_environment: Path, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_current_output(text) == text, "`python tests/python_examples.py` rewrites the examples"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("function", ["plan", "size", "compare"])
def test_each_function_has_an_example(page: Path, function: str) -> None:
    sources = [example.source for example in examples(page.read_text(encoding="utf-8"))]
    assert any(f"optimizer.{function}(" in source for source in sources)


def test_an_example_that_prints_something_else_is_noticed() -> None:
    page = "```pycon\n>>> 1 + 1\n3\n```\n"
    assert with_current_output(page) == "```pycon\n>>> 1 + 1\n2\n```\n"


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.__name__)
def test_the_page_lists_what_a_result_has(result: type) -> None:
    (row,) = re.findall(rf"^\| `{result.__name__}` \| (.*) \|$", REFERENCE, re.MULTILINE)
    listed = {name.partition("(")[0] for name in re.findall(r"`([^`]+)`", row)}
    own = {name for name in vars(result) if not name.startswith("_")} - {field.name for field in fields(result)}
    assert listed - {"len"} == own


def test_the_page_names_every_flag_that_has_no_argument() -> None:
    from optimizer.cli.plan import plan as command

    of_output = {"context_", "format_", "output", "export", "require_optimal", "quiet", "verbose"}
    flags = set(signature(command).parameters) - of_output
    renamed = {"workload_file": "workload"}
    missing = {renamed.get(name, name) for name in flags} - set(signature(optimizer.plan).parameters)
    assert missing == {"refresh", "sweep", "melange", "timing"}
    assert all(f"`--{name}`" in REFERENCE for name in missing)
