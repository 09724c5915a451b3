"""Streams: standard output carries the result and nothing else, pipes and interrupts end quietly, bytes repeat."""

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import Command

ROOT = Path(__file__).parents[3]
PLAN = ("plan", "--model", "8B", "--rate", "1")
SIZE = ("size", "--model", "8B", "--gpu", "L4")
OFFERS = ("offers", "--gpu", "L4")
COMMANDS = {"plan": PLAN, "size": SIZE, "offers": OFFERS}
ESCAPE = "\x1b"


def start(arguments: Sequence[str], **over: object) -> subprocess.Popen[bytes]:
    """The command as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "optimizer.cli.main", *arguments]
    return subprocess.Popen(
        command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment, **over}
    )


def on_a_terminal(arguments: Sequence[str], columns: int) -> str:
    """What the command writes to a terminal so wide."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": str(columns)}
    process = start(arguments, stdout=theirs, env=environment)
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return b"".join(chunks).decode()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_standard_output_carries_one_json_document(costopt: Command, command: tuple[str, ...]) -> None:
    outcome = costopt(*command, "--format", "json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["schema"] == f"costopt.{command[0]}"
    assert outcome.out.endswith("}\n")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_standard_output_carries_one_csv_table(costopt: Command, command: tuple[str, ...]) -> None:
    rows = list(csv.reader(io.StringIO(costopt(*command, "--format", "csv").out)))
    assert len(rows) >= 2
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len(set(rows[0])) == len(rows[0])


def test_a_process_writes_no_solver_banner(clean_environment: Path) -> None:
    process = start((*PLAN, "--format", "json"))
    out, err = process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["proof"]["solver"]
    assert all(line.startswith(("warning: ", "costopt: ")) for line in err.decode().splitlines())


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_piped_output_is_plain(costopt: Command, command: tuple[str, ...]) -> None:
    outcome = costopt(*command)
    assert outcome.out
    assert ESCAPE not in outcome.out + outcome.err
    assert all(line == line.rstrip() for line in outcome.out.splitlines())


def test_quiet_leaves_standard_error_empty(costopt: Command) -> None:
    assert costopt(*PLAN, "--format", "json").err
    for command in COMMANDS.values():
        assert costopt(*command, "--format", "json", "--quiet").err == ""


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("format_", ["table", "json", "csv", "md"])
def test_same_inputs_and_now_give_the_same_bytes(costopt: Command, command: tuple[str, ...], format_: str) -> None:
    first, second = (costopt(*command, "--format", format_) for _ in range(2))
    assert first == second


def test_another_process_with_another_hash_seed_gives_the_same_bytes(clean_environment: Path) -> None:
    def bytes_with(seed: str) -> bytes:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        return start((*PLAN, "-f", "json"), env=environment).communicate()[0]

    assert bytes_with("1") == bytes_with("2") != b""


def test_a_file_gets_the_bytes_that_standard_output_would(costopt: Command) -> None:
    printed = costopt(*PLAN, "--format", "json").out
    outcome = costopt(*PLAN, "--format", "json", "--output", "plan.json")
    assert (outcome.code, outcome.out) == (0, "")
    assert Path("plan.json").read_text(encoding="utf-8") == printed


def test_a_closed_pipe_ends_quietly(clean_environment: Path) -> None:
    process = start(("offers", "--all", "--format", "csv"))
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(9) == b"offer,pro"
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert errors == b""


def test_an_interrupt_is_one_line_and_its_exit_code(clean_environment: Path) -> None:
    # The interrupt comes while the command waits to write its result: the pipe is full and nobody reads it.
    process = start(("offers", "--all", "--format", "json"))
    assert process.stdout is not None
    assert process.stdout.read(1) == b"{"
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 130
    assert errors == b"costopt: interrupted\n"


def test_an_interrupt_inside_a_plan_loses_nothing_of_the_file_that_was_there(
    costopt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("plan.json").write_text("the last plan", encoding="utf-8")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("optimizer.cli.infer_plan.plan", interrupted)
    outcome = costopt(*PLAN, "--output", "plan.json")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "costopt: interrupted\n")
    assert Path("plan.json").read_text(encoding="utf-8") == "the last plan"
    assert [path.name for path in Path().iterdir()] == ["plan.json"]


def test_a_terminal_gets_styles_unless_no_color_is_set(
    clean_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ESCAPE in on_a_terminal(OFFERS, 200)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = on_a_terminal(OFFERS, 200)
    assert not any(f"{ESCAPE}[3{digit}" in plain for digit in range(10))


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_narrow_terminal_is_not_overrun_and_loses_no_figure(
    clean_environment: Path, command: tuple[str, ...]
) -> None:
    from rich.text import Text

    lines = [Text.from_ansi(line) for line in on_a_terminal(command, 40).splitlines()]
    assert max(line.cell_len for line in lines) <= 40
    assert "…" not in "".join(line.plain for line in lines)


def test_help_and_version_are_results(costopt: Command) -> None:
    for arguments in ((), ("--help",), ("-h",), ("plan", "--help"), ("size", "-h"), ("offers", "--help")):
        outcome = costopt(*arguments)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.startswith("Usage: costopt")
    assert costopt("--version").out.startswith("costopt ")


def test_completion_lists_the_commands(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_COSTOPT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "costopt of")
    monkeypatch.setenv("COMP_CWORD", "1")
    out, _ = start(()).communicate()
    assert out.decode().split() == ["offers"]


def test_a_usual_terminal_cuts_no_word(clean_environment: Path) -> None:
    from rich.text import Text

    lines = on_a_terminal(("plan", "--model", "70B", "--budget", "5000"), 80).splitlines()
    text = "\n".join(Text.from_ansi(line).plain for line in lines)
    names = [offer["instance_type"] for offer in json.loads(start(("offers", "-f", "json")).communicate()[0])["offers"]]
    assert any(name in text for name in names)
    assert "instance type:" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_closed_standard_output_is_no_failure(clean_environment: Path) -> None:
    process = start(SIZE, stdout=None, preexec_fn=lambda: os.close(1))
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is full")
def test_a_full_disk_behind_standard_output_is_said(clean_environment: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        process = start(SIZE, stdout=full)
        _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.decode().startswith("costopt: cannot write to standard output: No space left on device")
    assert len(errors.splitlines()) == 1


def test_an_encoding_without_the_signs_is_no_failure(clean_environment: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    process = start(OFFERS, env=environment)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert out.decode("ascii").startswith("Offers")
