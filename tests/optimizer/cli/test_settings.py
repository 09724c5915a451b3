"""Configuration: flag before COSTOPT_* before ./costopt.toml before the user's config.toml before the default."""

import json
import os
from pathlib import Path

import pytest

from tests.conftest import Command

SIZE = ("size", "--model", "8B", "--gpu", "L4", "--format", "json")


@pytest.fixture
def user_config(clean_environment: Path) -> Path:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "costopt"
    folder.mkdir()
    return folder / "config.toml"


def context_of(costopt: Command, *flags: str) -> int:
    outcome = costopt(*SIZE, *flags)
    assert outcome.code == 0, outcome.err
    context: int = json.loads(outcome.out)["context_tokens"]
    return context


def test_the_nearest_source_wins(costopt: Command, user_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert context_of(costopt) == 1300
    user_config.write_text("[size]\ncontext = 2001\n", encoding="utf-8")
    assert context_of(costopt) == 2001
    Path("costopt.toml").write_text("[size]\ncontext = 2002\n", encoding="utf-8")
    assert context_of(costopt) == 2002
    monkeypatch.setenv("COSTOPT_CONTEXT", "2003")
    assert context_of(costopt) == 2003
    assert context_of(costopt, "--context", "2004") == 2004


def test_a_key_on_the_top_level_is_for_every_command_that_has_it(costopt: Command) -> None:
    Path("costopt.toml").write_text("context = 2500\nlimit = 3\n", encoding="utf-8")
    assert context_of(costopt) == 2500
    assert costopt("offers", "--gpu", "L4").err.startswith("3 of ")


def test_a_command_reads_only_its_own_table(costopt: Command) -> None:
    Path("costopt.toml").write_text("[plan]\ncontext = 2500\n", encoding="utf-8")
    assert context_of(costopt) == 1300


def test_a_group_of_commands_reads_one_table_for_those_of_its_members_that_have_the_option(costopt: Command) -> None:
    Path("costopt.toml").write_text('[prices]\nformat = "json"\nmax-age = "7d"\n', encoding="utf-8")
    assert json.loads(costopt("prices", "status").out)["cache"]["max_age_days"] == 7
    assert json.loads(costopt("prices", "history", "H100").out)["schema"] == "costopt.prices.history"
    Path("costopt.toml").write_text("[prices]\nmax-agee = 7\n", encoding="utf-8")
    assert "did you mean max-age?" in costopt("prices", "history", "H100").err


@pytest.mark.parametrize("value", ['"lambda,gcp"', '["lambda", "gcp"]'])
def test_a_text_fills_a_repeatable_option_as_a_variable_does(costopt: Command, value: str) -> None:
    Path("costopt.toml").write_text(f"provider = {value}\n", encoding="utf-8")
    outcome = costopt("offers", "--gpu", "H100", "-f", "json")
    assert outcome.code == 0, outcome.err
    assert {offer["provider"] for offer in json.loads(outcome.out)["offers"]} == {"lambda", "gcp"}


def test_a_list_fills_a_repeatable_option(costopt: Command) -> None:
    Path("costopt.toml").write_text('provider = ["lambda", "gcp"]\n', encoding="utf-8")
    outcome = costopt("offers", "--gpu", "H100", "-f", "json")
    assert {offer["provider"] for offer in json.loads(outcome.out)["offers"]} == {"lambda", "gcp"}


def test_commas_separate_the_values_of_a_repeatable_option_in_the_environment(
    costopt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTOPT_PROVIDER", "lambda,gcp")
    outcome = costopt("offers", "--gpu", "H100", "-f", "json")
    assert {offer["provider"] for offer in json.loads(outcome.out)["offers"]} == {"lambda", "gcp"}


def test_an_empty_variable_counts_as_unset(costopt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTOPT_CONTEXT", "")
    assert context_of(costopt) == 1300


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[size\n", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"[size]\ncontxt = 1\n", "unknown option in [size] of costopt.toml 'contxt'; did you mean context"),
        (b"[sise]\ncontext = 1\n", "unknown table or option in costopt.toml 'sise'; did you mean size?"),
        (b"contxt = 1\n", "unknown table or option in costopt.toml 'contxt'; did you mean context"),
        (b"[size]\ncontext = 'long'\n", "'long' is not a valid int"),
        (b"size = 3\n", "size is a command, so write its options as a table [size]"),
        (b"[size.context]\na = 1\n", "context is an option, so give it a value and not a table"),
    ],
)
def test_a_broken_configuration_is_refused(costopt: Command, content: bytes, says: str) -> None:
    Path("costopt.toml").write_bytes(content)
    outcome = costopt(*SIZE)
    assert (outcome.code, outcome.out) == (2, "")
    assert len(outcome.err.splitlines()) == 1
    assert says in outcome.err


def test_a_bad_value_in_the_environment_is_refused(costopt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTOPT_BUDGET", "5k")
    outcome = costopt("plan", "--model", "8B")
    assert (outcome.code, outcome.out) == (2, "")
    assert "--budget '5k': write USD as a plain number" in outcome.err


def test_a_misspelt_variable_is_named_with_the_nearest(costopt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTOPT_BUGET", "50")
    done = costopt("plan", "--model", "8B", "--rate", "1")
    assert done.code == 2
    assert "COSTOPT_BUGET" in done.err
    assert "COSTOPT_BUDGET" in done.err


@pytest.mark.parametrize("name", ["COSTOPT_MAX_AGE", "COSTOPT_AWS_REGIONS", "COSTOPT_LAMBDA_BASE_URL"])
def test_a_variable_of_another_command_is_no_mistake(
    costopt: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "7d")
    assert costopt("validate", "--help").code == 0


@pytest.mark.parametrize(
    "name",
    [
        *("COSTOPT_SERVICE_HOST", "COSTOPT_SERVICE_PORT", "COSTOPT_SERVICE_PORT_HTTP", "COSTOPT_PORT"),
        *("COSTOPT_PORT_80_TCP", "COSTOPT_PORT_80_TCP_ADDR", "COSTOPT_MCP_PORT_8080_TCP_PROTO"),
    ],
)
def test_what_kubernetes_tells_of_a_service_is_no_mistake(
    costopt: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "tcp://10.0.0.1:80")
    assert costopt("size", "--model", "8B", "--gpu", "L4").code == 0


def test_help_works_with_a_broken_configuration_of_another_command(costopt: Command) -> None:
    Path("costopt.toml").write_text("[plan]\nmodel = '8B'\n", encoding="utf-8")
    assert costopt("size", "--help").code == 0


def test_a_configured_model_makes_the_short_form_shorter(costopt: Command) -> None:
    Path("costopt.toml").write_text("[plan]\nmodel = '8B'\nrate = 1\n", encoding="utf-8")
    outcome = costopt("--format", "json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["workloads"][0]["model"] == "meta-llama/Llama-3.1-8B"
