"""Fixtures of the provider tests: a local server, a context that asks it, recorded replies, and the count of traps."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pytest

from providers.base import Answer, FetchContext, Limits, Provider
from providers.tally import Tally
from tests.providers.server import LocalServer, Respond
from tests.providers.traps import TRAPS

RECORDINGS = Path(__file__).parent.parent / "recordings"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

Recorded = Callable[[str], Any]
Serve = Callable[[Respond], LocalServer]
ContextFor = Callable[..., FetchContext]
NewTally = Callable[[str], Tally]

_covered: set[str] = set()


class Fetch(Protocol):
    """Fetches from a local server that answers with the function, with more environment variables if given."""

    def __call__(self, adapter: Provider, respond: Respond, **environment: str) -> Answer: ...


@pytest.fixture
def recorded() -> Recorded:
    """Decodes a recorded JSON reply by its path under tests/recordings, as the client does."""

    def load(path: str) -> Any:
        return json.loads((RECORDINGS / path).read_text(encoding="utf-8"), parse_float=Decimal)

    return load


@pytest.fixture
def tally() -> NewTally:
    return lambda provider: Tally(provider, NOW)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a local server that answers with the given function; it stops with the test."""
    with ExitStack() as stack:
        yield lambda respond: stack.enter_context(LocalServer(respond).running())


class Waits:
    """A clock that moves only when somebody waits."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    def monotonic(self) -> float:
        return sum(self.waited)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def context(waits: Waits, tmp_path: Path) -> FetchContext:
    """A context without credentials and without a real clock; `replace` it for more."""
    return FetchContext(
        environment={"HOME": str(tmp_path)},
        now=NOW,
        limits=Limits(connect_s=2, read_s=5),
        monotonic=waits.monotonic,
        sleep=waits.sleep,
    )


@pytest.fixture
def context_for(context: FetchContext) -> ContextFor:
    """The context that sends one provider's requests to a server, with more environment variables if given."""

    def build(provider: str, server: LocalServer, **environment: str) -> FetchContext:
        mirror = {f"COSTOPT_{provider.upper()}_BASE_URL": server.url}
        return replace(context, environment={**context.environment, **mirror, **environment})

    return build


@pytest.fixture
def fetch(serve: Serve, context_for: ContextFor) -> Fetch:
    def ask(adapter: Provider, respond: Respond, **environment: str) -> Answer:
        return adapter.fetch(context_for(adapter.name, serve(respond), **environment))

    return ask


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "trap(*ids): the documented mistakes of price scrapers that a test rules out")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _covered.update(value for name, value in report.user_properties if name == "trap")


@pytest.fixture(autouse=True)
def _traps(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    for marker in request.node.iter_markers("trap"):
        for trap in marker.args:
            if trap not in TRAPS:
                pytest.fail(f"no trap {trap} in the list")
            record_property("trap", trap)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _covered:
        missing = sorted(TRAPS.keys() - _covered)
        terminalreporter.write_line(f"price traps covered: {len(_covered)} of {len(TRAPS)}")
        if missing and len(_covered) > 1:
            terminalreporter.write_line(f"  not covered in this run: {', '.join(missing)}")
