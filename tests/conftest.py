"""What every test gets: no network, no settings of the machine it runs on, and the `costopt` command in process."""

import ipaddress
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from optimizer.cli.main import run

NOW = "2026-11-30T12:00:00+00:00"
_CREDENTIALS = ("LAMBDA_API_KEY", "RUNPOD_API_KEY", "GCP_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS")
_PREFIXES = ("COSTOPT_", "AWS_", "AZURE_", "GOOGLE_")
_TERMINAL = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CLICOLOR", "CLICOLOR_FORCE", "TERM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run of the command: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="Rewrite tests/golden/ with what the commands print now."
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints how many of the users' cases cannot pass yet, and why."""
    waiting = [report for report in terminalreporter.getreports("xfailed") if "tests/cases/" in report.nodeid]
    terminalreporter.section("users' cases")
    terminalreporter.line(f"{len(waiting)} cannot pass yet")
    for report in waiting:
        terminalreporter.line(f"  {report.nodeid.rpartition('::')[2]}: {report.wasxfail}")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses connections that leave the machine."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and not _is_loopback(address[0]):
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty home and working directory, no credentials, no settings, a fixed now; returns the working directory."""
    for name in list(os.environ):
        if name in (*_CREDENTIALS, *_TERMINAL) or name.startswith(_PREFIXES):
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        folder = tmp_path / name.lower()
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("COSTOPT_NOW", NOW)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def costopt(clean_environment: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs one command line in process, as the `costopt` script does."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code=code, out=captured.out, err=captured.err)

    return call


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
