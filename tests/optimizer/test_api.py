"""The Python API: lazy, the same as the command line, with examples that run and tables for notebooks."""

import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest

import optimizer
from optimizer.api import functions, results
from providers.errors import UnknownName
from tests.conftest import Command


def test_the_examples_of_the_documentation_run(clean_environment: Path) -> None:
    found = doctest.testmod(functions)
    assert found.attempted >= 5
    assert found.failed == 0


def test_importing_loads_nothing() -> None:
    code = "import sys, optimizer; print('optimizer.api' in sys.modules, 'numpy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]


def test_a_plan_is_that_of_the_command_line(costopt: Command) -> None:
    made = optimizer.plan("8B", rate=5, provider=["aws", "gcp"])
    printed = costopt("plan", "--model", "8B", "--rate", "5", "--provider", "aws", "--provider", "gcp", "-f", "json")
    document = json.loads(printed.out)
    assert list(made.instances) == document["instances"]
    assert str(made.usd_per_month) == document["totals"]["usd_per_month"]


def test_a_sizing_is_that_of_the_command_line(costopt: Command) -> None:
    made = optimizer.size("70B", gpu="H100-SXM", count=4, precision="bf16")
    arguments = ("--model", "70B", "--gpu", "H100-SXM", "--count", "4", "--precision", "bf16", "-f", "json")
    assert made.document == json.loads(costopt("size", *arguments).out)


def test_one_provider_may_be_given_without_a_list(clean_environment: Path) -> None:
    assert {one["provider"] for one in optimizer.plan("8B", rate=1, provider="aws").instances} == {"aws"}


def test_results_are_tables_in_notebooks(clean_environment: Path) -> None:
    made = optimizer.plan("8B", rate=5)
    instances = made._repr_html_().partition("</table>")[0]
    assert instances.count("<tr>") == 1 + len(made.instances)
    sized = optimizer.size("8B", gpu="L4")
    assert "<td>weights gib</td>" in sized._repr_html_()


def test_a_table_escapes_what_it_shows() -> None:
    assert "<script>" not in results._html_table("<script>", ("a",), [("<script>",)])


def test_an_infeasible_plan_says_so(clean_environment: Path) -> None:
    made = optimizer.plan("405B", rate=1000, gpu="T4")
    assert made.status == "infeasible"
    assert made.usd_per_month is None


def test_an_unknown_model_is_an_error_with_suggestions(clean_environment: Path) -> None:
    with pytest.raises(UnknownName):
        optimizer.size("70Bx", gpu="H100")


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError):
        _ = optimizer.nothing


def test_a_family_name_says_which_variant_was_sized() -> None:
    assumptions = optimizer.size("8B", gpu="H100").document["assumptions"]
    assert "H100 is taken as H100-SXM5-80GB, not H100-PCIe-80GB, H100-NVL-94GB" in assumptions
