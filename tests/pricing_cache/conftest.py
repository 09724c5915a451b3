"""Fixtures of the cache's tests: a place for a cache on SQLite and on a real PostgreSQL server."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from pricing_cache import snapshot as snapshot_module
from pricing_cache.compiled import write_offers
from pricing_cache.location import CacheLocation, locate
from pricing_cache.store import Store, open_store

_PROGRAMS = ("initdb", "pg_ctl")
_UNPRIVILEGED = ("postgres", "nobody")
_numbers = count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "shipped_snapshot: the test needs the whole snapshot that ships")


@pytest.fixture(autouse=True)
def own_user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own cache, nor the one that the environment names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    monkeypatch.delenv("COSTOPT_CACHE_URL", raising=False)


@pytest.fixture(scope="session")
def few_shipped_offers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot with all of Lambda and RunPod and a part of the others: a tenth of the time to read and to write."""
    offers = [
        offer
        for number, offer in enumerate(snapshot_module.snapshot().offers)
        if offer.provider in ("lambda", "runpod") or number % 25 == 0
    ]
    path = tmp_path_factory.mktemp("shipped") / "snapshot.json"
    write_offers(path, offers, {"kind": "snapshot"})
    return path


@pytest.fixture(autouse=True)
def small_snapshot(
    request: pytest.FixtureRequest, few_shipped_offers: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The small snapshot stands in for the shipped one, except where a test also runs other processes."""
    if request.node.get_closest_marker("shipped_snapshot"):
        yield
        return
    monkeypatch.setattr(snapshot_module, "_FILE", few_shipped_offers)
    snapshot_module.snapshot.cache_clear()
    yield
    snapshot_module.snapshot.cache_clear()


@pytest.fixture
def sqlite_location(tmp_path: Path) -> CacheLocation:
    return locate({"COSTOPT_CACHE_URL": f"sqlite:///{tmp_path}/cache/prices.sqlite"})


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The socket folder of a server of our own. It refuses to run as root, so root starts it as somebody else."""
    programs = [_program(name) for name in _PROGRAMS]
    missing = [name for name, path in zip(_PROGRAMS, programs, strict=True) if path is None]
    if missing:
        reason = f"PostgreSQL is not tested: no {' and no '.join(missing)} (Debian: apt-get install postgresql)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    initdb, pg_ctl = programs
    user = _unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="costopt-pg-"))
    if user:
        shutil.chown(folder, user)

    def run(*command: str) -> None:
        subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, timeout=120)

    data = str(folder / "data")
    options = f"-c listen_addresses= -c fsync=off -k {folder}"
    try:
        run(str(initdb), "-D", data, "-U", "costopt", "-A", "trust", "-E", "UTF8", "--no-sync")
        run(str(pg_ctl), "-D", data, "-l", str(folder / "log"), "-o", options, "-w", "start")
        yield str(folder)
    finally:
        subprocess.run([str(pg_ctl), "-D", data, "-m", "immediate", "stop"], user=user, cwd=folder, check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgresql_location(postgresql_server: str) -> CacheLocation:
    """A schema of its own, empty: as good as a database of its own, and made at once."""
    import psycopg

    name = f"cache_{next(_numbers)}"
    url = f"postgresql://costopt@/postgres?host={postgresql_server}"
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return locate({"COSTOPT_CACHE_URL": f"{url}&options=-csearch_path%3D{name}"})


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest) -> CacheLocation:
    """The same tests on both databases."""
    found: CacheLocation = request.getfixturevalue(f"{request.param}_location")
    return found


@pytest.fixture
def store(location: CacheLocation) -> Iterator[Store]:
    with open_store(location) as opened:
        yield opened


def _program(name: str) -> str | None:
    """On the path, or where Debian keeps a server's programs."""
    found = shutil.which(name)
    if found:
        return found
    return next((str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None)


def _unprivileged_user() -> str | None:
    if os.geteuid() != 0:
        return None
    import pwd

    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in known)
