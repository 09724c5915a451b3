"""Processes that are killed while they refresh, and processes that refresh and plan at once."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import func, select

from pricing_cache.location import CacheLocation
from pricing_cache.observations import Outcome, read_runs
from pricing_cache.schema import OBSERVATIONS
from pricing_cache.store import open_for_reading
from tests.pricing_cache.refreshing import prices_in_use

pytestmark = pytest.mark.shipped_snapshot  # the processes that are started read it too

ROOT = Path(__file__).parents[2]
OFFERS = 500
KILLS = 50


def start(location: CacheLocation, provider: str, times: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.pricing_cache.refreshing", location.url, provider, str(OFFERS), str(times)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def observations(location: CacheLocation) -> tuple[int, int]:
    """Rows, and runs that were stored."""
    with open_for_reading(location) as store, store.reading() as connection:
        rows = connection.execute(select(func.count()).select_from(OBSERVATIONS)).scalar_one()
        return rows, sum(run.outcome is Outcome.STORED for run in read_runs(connection))


def assert_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def one_refresh_s(location: CacheLocation) -> float:
    """How long a whole refresh takes here and now; it leaves good prices behind."""
    with start(location, "lambda", 1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        began = time.monotonic()
        assert process.stdout.readline() == "done\n"
        return time.monotonic() - began


def kill_at_a_random_moment(location: CacheLocation, longest_life_s: float, chance: random.Random) -> None:
    with start(location, "lambda", 1_000) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        Event().wait(chance.uniform(0, longest_life_s))  # the point of the test: a random moment
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_a_refresh_that_is_killed_at_any_point_loses_no_last_good_price(sqlite_location: CacheLocation) -> None:
    path = sqlite_location.database
    assert path is not None
    chance = random.Random(20261130)
    longest_life_s = 2 * one_refresh_s(sqlite_location)
    first = highest = max(prices_in_use(sqlite_location.url, "lambda").values())
    for _ in range(KILLS):
        kill_at_a_random_moment(sqlite_location, longest_life_s, chance)
        assert_sound(path)
        rows, runs = observations(sqlite_location)
        assert rows == runs * OFFERS
        prices = prices_in_use(sqlite_location.url, "lambda")
        assert len(prices) == OFFERS
        assert len(set(prices.values())) == 1, "offers of two runs in use at once"
        assert max(prices.values()) >= highest
        highest = max(prices.values())
    assert highest > first, "no refresh was ever stored: the kills come too early"


def test_a_killed_refresh_leaves_a_server_as_it_was(postgresql_location: CacheLocation) -> None:
    chance = random.Random(20261130)
    longest_life_s = 2 * one_refresh_s(postgresql_location)
    for _ in range(5):
        kill_at_a_random_moment(postgresql_location, longest_life_s, chance)
        rows, runs = observations(postgresql_location)
        assert rows == runs * OFFERS
        assert len(prices_in_use(postgresql_location.url, "lambda")) == OFFERS


def test_eight_processes_refresh_and_plan_at_once_and_no_row_is_lost(location: CacheLocation) -> None:
    times = 2
    sellers: Sequence[str] = ("aws", "gcp", "azure", "lambda", "runpod", "one", "two", "three")
    processes = [start(location, seller, times) for seller in sellers]
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert (process.returncode, output, errors) == (0, "begins\ndone\n", "")
    assert observations(location) == (len(sellers) * times * OFFERS, len(sellers) * times)
    if location.database:
        assert_sound(location.database)
