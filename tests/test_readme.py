"""The README says what the program does: its help blocks are the program's, its commands work."""

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.readme import README, help_blocks, help_of, with_current_help

TEXT = README.read_text(encoding="utf-8")
HELP = dict(help_blocks(TEXT))
EXAMPLES = re.findall(r"^costopt [^\n|>]+", "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)), re.MULTILINE)


@pytest.mark.parametrize("arguments", HELP, ids=lambda arguments: " ".join(("costopt", *arguments)))
def test_a_help_block_is_what_the_program_prints(clean_environment: Path, arguments: tuple[str, ...]) -> None:
    assert HELP[arguments] == help_of(arguments), "`python tests/readme.py` rewrites the blocks"


def test_the_main_commands_have_a_help_block() -> None:
    assert {(), ("plan",), ("size",), ("offers",)} <= set(HELP)


def test_rewriting_a_current_readme_changes_nothing(clean_environment: Path) -> None:
    assert with_current_help(TEXT) == TEXT


def test_the_first_screen_is_two_commands() -> None:
    first_screen = "\n".join(TEXT.splitlines()[:24])
    commands = re.findall(r"```sh\n(.*?)\n```", first_screen, re.DOTALL)
    assert len(commands) == 2
    assert commands[0].endswith("costopt --model 70B --task infer --budget 5000")
    assert commands[1].endswith("pytest -q")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_readme_runs(costopt: Command, example: str) -> None:
    outcome = costopt(*shlex.split(example, comments=True)[1:])
    assert outcome.code == 0, outcome.err
    assert outcome.out
