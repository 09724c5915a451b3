"""The Python API: light to import, typed, silent, safe in threads and event loops; its examples run."""

import asyncio
import doctest
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import optimizer
from optimizer.api import functions
from providers.errors import CostoptError, InvalidValue, MissingCredentials, NoUsablePrices, UnknownName

ROOT = Path(__file__).parents[3]


def test_the_examples_of_the_documentation_run(clean_environment: Path) -> None:
    found = doctest.testmod(functions)
    assert found.attempted >= 5
    assert found.failed == 0


def test_importing_loads_nothing() -> None:
    code = "import sys, optimizer; print([m for m in sys.modules if m.startswith(('optimizer.', 'numpy', 'pulp'))])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_using_it_loads_no_command_line() -> None:
    code = (
        "import sys, optimizer; optimizer.plan('8B', rate=1, provider='aws'); optimizer.size('8B', gpu='L4');"
        "print([m for m in sys.modules if m.startswith(('optimizer.cli', 'typer', 'rich', 'boto3', 'sqlalchemy'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.strip() == "[]"


def test_every_name_is_there_and_listed() -> None:
    for name in optimizer.__all__:
        assert getattr(optimizer, name).__name__ == name
    assert set(optimizer.__all__) <= set(dir(optimizer))
    assert optimizer.__all__ == sorted(optimizer.__all__, key=lambda name: (not name.isupper(), name))


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = optimizer.nothing


@pytest.mark.parametrize("package", ["optimizer", "providers", "pricing_cache"])
def test_the_packages_say_that_they_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_nothing_is_printed(clean_environment: Path, capfd: pytest.CaptureFixture[str]) -> None:
    optimizer.plan("8B", rate=5, provider="aws", solver="highs")
    optimizer.plan("8B", rate=5, provider="aws", solver="cbc")
    optimizer.plan("405B", rate=1000, gpu="T4")
    optimizer.plan("1B", task="lora", tokens="10M", provider="aws")
    optimizer.compare(gpu="L4", count=4, provider="aws")
    optimizer.offers(gpu="L4", provider="gcp", as_of="2026-08-31")
    with pytest.raises(UnknownName):
        optimizer.size("70Bx", gpu="H100")
    assert capfd.readouterr() == ("", "")


def test_settings_of_the_command_line_do_not_count(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = optimizer.plan("8B", rate=5, provider="aws")
    Path("costopt.toml").write_text("[plan]\nregion = ['us-west-2']\n", encoding="utf-8")
    monkeypatch.setenv("COSTOPT_GPU", "T4")
    assert optimizer.plan("8B", rate=5, provider="aws") == before


def test_threads_get_what_one_after_the_other_gets(clean_environment: Path) -> None:
    rates = [1, 5, 20, 60] * 3
    alone = {rate: optimizer.plan("8B", rate=rate, provider=["aws", "gcp"]) for rate in set(rates)}
    here = os.fstat(1)
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda rate: optimizer.plan("8B", rate=rate, provider=["aws", "gcp"]), rates))
    assert together == [alone[rate] for rate in rates]
    assert os.path.samestat(os.fstat(1), here), "standard output is where it was"


def test_results_come_back_from_other_processes(clean_environment: Path) -> None:
    for result in (optimizer.plan("8B", rate=1, provider="aws"), optimizer.size("8B", gpu="L4")):
        assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301 - our own


@pytest.mark.parametrize(
    "error",
    [
        InvalidValue("rate", -1, "give a finite number above 0"),
        UnknownName("model", "70Bx", suggestions=("70B",), hint="a size or an alias"),
        NoUsablePrices("nothing on file"),
        MissingCredentials("runpod", "RUNPOD_API_KEY is not set"),
    ],
)
def test_errors_come_back_from_other_processes(error: CostoptError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_it_works_within_a_running_event_loop(clean_environment: Path) -> None:
    async def cell() -> tuple[str, str]:
        return optimizer.plan("8B", rate=1, provider="aws").status, optimizer.size("8B", gpu="L4").verdict

    assert asyncio.run(cell()) == ("optimal", "fits")


def test_users_code_is_checked_by_its_types(tmp_path: Path) -> None:
    good = tmp_path / "good.py"
    good.write_text(
        "from decimal import Decimal\n"
        "import optimizer\n"
        "from optimizer import PlanResult, RequestShape, UsageError\n"
        "made: PlanResult = optimizer.plan('8B', rate=5, provider=['aws'], budget=Decimal(5000))\n"
        "usd: Decimal | None = made.usd_per_month\n"
        "shape = RequestShape(input_tokens=1, output_tokens=1)\n"
        "fits: bool = optimizer.size('8B', gpu='L4').fits\n",
        encoding="utf-8",
    )
    bad = tmp_path / "bad.py"
    bad.write_text("import optimizer\noptimizer.plan('8B', speed=5)\noptimizer.size(8, gpu='L4')\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(good), str(bad)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout
    assert "good.py" not in checked
    assert 'Unexpected keyword argument "speed"' in checked
    assert 'Argument 1 to "size" has incompatible type "int"' in checked


def test_one_provider_may_be_given_without_a_list(clean_environment: Path) -> None:
    assert {one["provider"] for one in optimizer.plan("8B", rate=1, provider="aws").instances} == {"aws"}


def test_an_infeasible_plan_says_so(clean_environment: Path) -> None:
    made = optimizer.plan("405B", rate=1000, gpu="T4")
    assert made.status == "infeasible"
    assert made.usd_per_month is None


def test_an_unknown_model_is_an_error_with_suggestions(clean_environment: Path) -> None:
    with pytest.raises(UnknownName):
        optimizer.size("70Bx", gpu="H100")


def test_a_family_name_says_which_variant_was_sized() -> None:
    assumptions = optimizer.size("8B", gpu="H100").document["assumptions"]
    assert "H100 is taken as H100-SXM5-80GB, not H100-PCIe-80GB, H100-NVL-94GB" in assumptions
