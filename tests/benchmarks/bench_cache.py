"""Times the price cache: `python tests/benchmarks/bench_cache.py [--offers N] [--observations N] [--postgresql URL]`.

1. Parse and store one answer of 100,000 offers (Lambda's parser on a reply in the true shape, then the store).
2. Fill a cache with a million observations: the shipped snapshot's offers, refreshed until there are that many.
3. Answer the planner's query on it: from the compiled file, and from the database when that file is missing.
4. `costopt plan` as a process on that cache and on the snapshot alone; their ratio.
Each figure is printed with the peak memory of the process that did it.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

from pricing_cache.current import load_current, rebuild
from pricing_cache.location import CacheLocation, locate
from pricing_cache.refresh import keep_answer
from pricing_cache.snapshot import snapshot
from pricing_cache.store import open_store
from providers.base import Answer, Coverage
from providers.offers import PROVIDERS, PurchaseOption
from providers.tally import Tally

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EVERYTHING = tuple(Coverage(purchase_option=option) for option in PurchaseOption)
PLAN = ("plan", "--model", "70B", "--task", "infer", "--budget", "20000", "-f", "json", "-q")
RUNS = 15
MOST_TIMES_THE_SNAPSHOT = 1.3


@contextmanager
def timed(what: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what}: {time.perf_counter() - started:.2f} s, peak memory so far {peak_mib:.0f} MiB", flush=True)


def big_reply(offers: int) -> dict[str, Any]:
    """A reply of Lambda's API with so many types, each with capacity in nine regions: ten offers a type."""
    regions = [{"name": f"region-{number}", "description": ""} for number in range(9)]
    return {"data": {f"gpu_8x_h100_{number}": _type(number, regions) for number in range(offers // 10)}}


def _type(number: int, regions: list[dict[str, str]]) -> dict[str, Any]:
    row = {
        "name": f"gpu_8x_h100_{number}",
        "description": "8x H100 (80 GB SXM5)",
        "gpu_description": "H100 (80 GB SXM5)",
        "price_cents_per_hour": 3192 + number % 100,
        "specs": {"vcpus": 208, "memory_gib": 1800, "storage_gib": 24780, "gpus": 8},
    }
    return {"instance_type": row, "regions_with_capacity_available": regions}


def parse_and_store(location: CacheLocation, offers: int) -> None:
    from providers.lambda_cloud import parse_instance_types

    reply = big_reply(offers)
    tally = Tally("lambda", NOW)
    with timed(f"parse {offers:,} offers"):
        parse_instance_types(reply, tally)
        answer = tally.answer([Coverage(purchase_option=PurchaseOption.ON_DEMAND)], ["benchmark"])
    assert len(answer.offers) == offers
    with open_store(location) as store:
        with timed(f"store {offers:,} offers, the first time"):
            keep_answer(store, answer, at=NOW)
        with timed(f"store {offers:,} offers, again"):
            keep_answer(store, answer, at=NOW)
    with timed("compile them with the snapshot"):
        rebuild(location)


def fill(location: CacheLocation, observations: int) -> None:
    shipped = snapshot().offers
    rounds = -(-observations // len(shipped))
    what = f"append {rounds * len(shipped):,} observations in {rounds} refreshes of every provider"
    with open_store(location) as store, timed(what):
        for number in range(rounds):
            at = NOW - timedelta(days=rounds - number)
            for provider in PROVIDERS:
                keep_answer(store, _answer(provider, number, at), at=at)
    if location.database:
        size = sum(path.stat().st_size for path in location.database.parent.glob(f"{location.database.name}*"))
        print(f"on disk: {size / 2**20:.0f} MiB, {size / (rounds * len(shipped)):.0f} bytes an observation")


def _answer(provider: str, number: int, at: datetime) -> Answer:
    """The snapshot's offers of a provider as if seen at that time, with prices that move a little."""
    factor = Decimal(1) + Decimal(number % 10) / 1000
    offers = tuple(
        replace(
            offer,
            usd_per_hour=round(offer.usd_per_hour * factor, 6),
            observed_on=at.date(),
            source=f"benchmark of {provider}",
            row_ids=(f"row-of-{offer.instance_type.name}-{offer.region}",),
        )
        for offer in snapshot().offers
        if offer.provider == provider
    )
    types = len({offer.instance_type.name for offer in offers})
    return Answer(provider=provider, offers=offers, coverage=EVERYTHING, instance_types_seen=types)


def query(location: CacheLocation) -> None:
    with timed("the offers in use, from the database (the compiled file is made anew)"):
        book = rebuild(location)
    with timed(f"the {len(book.offers):,} offers in use, from the compiled file"):
        compiled = load_current(location)
    assert compiled.offers == tuple(replace(offer, row_ids=()) for offer in book.offers)


def plan_ratio(location: CacheLocation) -> float:
    """Median time of the plan command on the cache over that on the snapshot, run in turns."""
    with tempfile.TemporaryDirectory() as empty:
        environments = {
            "snapshot": {**os.environ, "COSTOPT_CACHE_URL": f"sqlite:///{empty}/none.sqlite"},
            "cache": {**os.environ, "COSTOPT_CACHE_URL": location.url},
        }
        times: dict[str, list[float]] = {name: [] for name in environments}
        for _ in range(RUNS):
            for name, environment in environments.items():
                started = time.perf_counter()
                _run_plan("from optimizer.cli.main import main; main()", environment)
                times[name].append(time.perf_counter() - started)
    medians = {name: median(found) for name, found in times.items()}
    print(f"costopt plan, median of {RUNS}: " + ", ".join(f"{name} {s:.3f} s" for name, s in medians.items()))
    print(f"peak memory of a plan on the cache: {_plan_memory_mib(environments['cache']):.0f} MiB")
    return medians["cache"] / medians["snapshot"]


def _plan_memory_mib(environment: dict[str, str]) -> float:
    """The process's own high-water mark: getrusage would count what it shared with this one when it began."""
    code = (
        "import sys; from pathlib import Path; from optimizer.cli.main import run; run(sys.argv[1:]);"
        "status = Path('/proc/self/status').read_text();"
        "print(status.split('VmHWM:')[1].split()[0], file=sys.stderr)"
    )
    return int(_run_plan(code, environment)) / 1024


def _run_plan(code: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-c", code, *PLAN]
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    return done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offers", type=int, default=100_000)
    parser.add_argument("--observations", type=int, default=1_000_000)
    parser.add_argument("--postgresql", metavar="URL", help="Use this empty database for the million observations.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # where the compiled file of a server's cache goes
        parse_and_store(locate({"COSTOPT_CACHE_URL": f"sqlite:///{folder}/offers.sqlite"}), arguments.offers)
        url = arguments.postgresql or f"sqlite:///{Path(folder)}/observations.sqlite"
        location = locate({"COSTOPT_CACHE_URL": url})
        fill(location, arguments.observations)
        query(location)
        ratio = plan_ratio(location)
    print(f"plan on the cache: {ratio:.2f} x the plan on the snapshot (at most {MOST_TIMES_THE_SNAPSHOT})")
    return 0 if ratio <= MOST_TIMES_THE_SNAPSHOT else 1


if __name__ == "__main__":
    sys.exit(main())
