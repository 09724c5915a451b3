"""Turns made-up problems into timings and ratios of the integer program: `python tests/benchmarks/bench_program.py`.

    melange    Melange's kind of problem (arXiv 2404.14527): 4 GPU kinds, 10 x 10 buckets, three length mixes. The
               program against Melange's own form, every bucket in slices, by the same solver in the same run.
    scale      workloads x offers with stock per offer: 1 x 200, 5 x 200, 10 x 600
    snapshot   the shipped prices with every purchase option over 24 hours, 1, 5 and 50 workloads. What a replica serves
               is made up from list prices: sizes and structure are those of real problems, the answers are not.

    growth     time against offers, workloads and periods

Goals: never dearer than slices and never slower than slices of 4, 10 times faster than slices of 8 together; 5 x 200
proven in 3 s; 10 x 600 within 0.5 % in 10 s; 1 x snapshot x 24 within 0.1 % in 2 s; 50 x snapshot x 24 within 1 % in
60 s. Both the wall clock and the processor's time are printed: on a busy machine only the second says something.
"""

import argparse
import math
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import median
from typing import Final

from optimizer.program.linear import LinearProgram
from optimizer.program.melange import melange_problem
from optimizer.program.problem import Period, Problem, ProgramCandidate, ProgramOffer, ProgramWorkload, SolverOptions
from optimizer.program.solve import solve
from optimizer.program.solver import Session
from pricing_cache.snapshot import snapshot

EDGES: Final = (1, 25, 100, 250, 500, 1000, 2000, 4000, 8000, 16000, 32000)
MIDDLES: Final = tuple(math.sqrt(low * high) for low, high in pairwise(EDGES))

KINDS: Final = {
    "L4": (0.70, 3600, 520, 30_000, 4000),
    "A10G": (1.01, 5200, 900, 28_000, 4000),
    "A100-80GB": (3.67, 21000, 4300, 400_000, 32000),
    "H100-80GB": (7.516, 47000, 9400, 400_000, 32000),
}
"""USD/h, prefill tokens/s, decode tokens/s, tokens of KV cache, longest context: made up, in the range of such GPUs."""

MIXES: Final = {"mix": 0.8, "chat": 1.0, "doc": 0.0}
"""Part of chat (around 120 tokens in, 180 out) beside documents (around 3,000 in, 200 out)."""

TIMEOUT_S: Final = 60.0


def throughput(kind: str, tokens_in: float, tokens_out: float) -> float:
    """Requests/s of one bucket on one GPU: a batch limited by the KV cache, with a saturating gain; 0 if too long."""
    _, prefill, decode, kv_tokens, context = KINDS[kind]
    batch = min(256.0, kv_tokens / (tokens_in + tokens_out / 2))
    if tokens_in + tokens_out > 1.5 * context or batch < 1:
        return 0.0
    return 1 / (tokens_in / prefill + tokens_out / (decode * batch / (batch + 24) * 1.09))


def shares(median_tokens: float, spread: float) -> list[float]:
    """A lognormal distribution over the buckets of one length."""
    below = [0.5 * (1 + math.erf(math.log(edge / median_tokens) / (spread * math.sqrt(2)))) for edge in EDGES]
    parts = [high - low for low, high in pairwise(below)]
    return [part / sum(parts) for part in parts]


def document(mix: str, rate: float, speed: float = 1.0) -> dict[str, object]:
    """A Melange file with 4 kinds and 10 x 10 buckets."""
    chat = [[a * b for b in shares(180, 1.0)] for a in shares(120, 1.2)]
    docs = [[a * b for b in shares(200, 0.7)] for a in shares(3000, 0.9)]
    part = MIXES[mix]
    return {
        "gpu_info": {
            name: {
                "cost": KINDS[name][0],
                "tputs": [[speed * throughput(name, i, o) for o in MIDDLES] for i in MIDDLES],
            }
            for name in KINDS
        },
        "workload_distribution": [
            [part * a + (1 - part) * b for a, b in zip(x, y, strict=True)] for x, y in zip(chat, docs, strict=True)
        ],
        "total_request_rate": rate,
    }


def sliced(problem: Problem, slices: int) -> tuple[float, float]:
    """Melange's own form: cost, and seconds to build and solve it."""
    started = time.perf_counter()
    linear = LinearProgram()
    units = {offer.id: linear.column(cost=offer.usd_per_hour, integer=True) for offer in problem.offers}
    load = {name: [(column, -1.0)] for name, column in units.items()}
    (workload,) = problem.workloads
    for shape, rate in zip(workload.shapes, workload.demand[0], strict=True):
        for _ in range(slices):
            choice = []
            for candidate in problem.candidates:
                column = linear.column(upper=1, integer=True)
                choice.append((column, 1.0))
                serves = candidate.requests_per_s.get(shape, 1e-6)  # a cell that cannot be served, as Melange has it
                load[candidate.hardware].append((column, rate / slices / serves))
            linear.equal(choice, 1.0)
    for terms in load.values():
        linear.at_most(terms, 0.0)
    answer = Session(linear, SolverOptions(time_limit_s=TIMEOUT_S)).solve()
    return answer.objective, time.perf_counter() - started


def bench_melange(repeat: int) -> None:
    totals: dict[str, float] = defaultdict(float)
    print(f"{'case':12} {'program':>10} {'slices 4':>10} {'slices 8':>10}   USD/h: program, slices 4, slices 8")
    for mix in MIXES:
        for rate in (16.0, 64.0):
            problem = melange_problem(document(mix, rate))
            solve(problem)
            runs = []
            for _ in range(repeat):
                started = time.perf_counter()
                solution = solve(problem)
                runs.append(time.perf_counter() - started)
            seconds = {"program": median(runs)}
            costs = {"program": solution.usd_per_hour or math.nan}
            for slices in (4, 8):
                costs[f"slices {slices}"], seconds[f"slices {slices}"] = sliced(problem, slices)
            for name, value in seconds.items():
                totals[name] += value
            times = " ".join(f"{value * 1e3:7.1f} ms" for value in seconds.values())
            prices = ", ".join(f"{value:.3f}" for value in costs.values())
            print(f"{mix + f' {rate:g}/s':12} {times}   {prices}   {solution.status}", flush=True)
    for name in ("slices 4", "slices 8"):
        print(f"{name}: {totals[name] / totals['program']:.1f} times the program's time over all cases")


def limited_offers(kinds: int, quotes: int, workloads: int) -> Problem:
    """`kinds` of GPU x `quotes` offers with stock of 1 to 16 units, for workloads of 100 buckets."""
    rnd = Random(1)
    names = list(KINDS)
    speeds = [(names[k % 4], 1 + 0.25 * (k // 4) + rnd.uniform(-0.1, 0.1)) for k in range(kinds)]
    offers = []
    for k, (name, speed) in enumerate(speeds):
        for q in range(quotes):
            price = KINDS[name][0] * speed**0.8 * rnd.uniform(0.55, 1.6)
            offers.append(an_offer(f"{k}-{q}", f"kind {k}", name, 1, price, maximum=rnd.choice((1, 2, 4, 8, 16))))
    candidates, wanted = [], []
    for w in range(workloads):
        mix = ("mix", "chat", "doc")[w % 3]
        for k, (name, speed) in enumerate(speeds):
            base = melange_problem(document(mix, 1.0, speed))
            served = next(one.requests_per_s for one in base.candidates if one.id == name)
            candidates.append(a_candidate(f"{w}-{k}", f"w{w}", f"kind {k}", 1, served))
        (shape_mix,) = base.workloads
        demand = tuple(share * 16 * (1 + w % 4) for share in shape_mix.demand[0])
        wanted.append(ProgramWorkload(id=f"w{w}", shapes=shape_mix.shapes, demand=(demand,)))
    return Problem(offers=offers, candidates=candidates, workloads=wanted, utilisation=1.0)


def an_offer(name: str, hardware: str, accelerator: str, count: int, price: float, **more: object) -> ProgramOffer:
    fields: dict[str, object] = {"provider": "any", "purchase_option": "on_demand", **more}
    return ProgramOffer(
        id=name,
        hardware=hardware,
        accelerator=accelerator,
        accelerators_per_unit=count,
        usd_per_hour=price,
        **fields,  # type: ignore[arg-type]  # builder of a benchmark
    )


def a_candidate(name: str, workload: str, hardware: str, size: int, served: object) -> ProgramCandidate:
    return ProgramCandidate(
        id=name,
        workload=workload,
        hardware=hardware,
        accelerators_per_replica=size,
        requests_per_s=served,  # type: ignore[arg-type]  # builder of a benchmark
    )


def snapshot_offers() -> list[ProgramOffer]:
    """The shipped offers of whole accelerators, one hardware class for each accelerator and count."""
    found = []
    for index, offer in enumerate(snapshot().offers):
        kind = offer.instance_type
        count = int(kind.accelerator_count)
        if count == kind.accelerator_count and count >= 1:
            found.append(
                an_offer(
                    f"{index:05d}",
                    f"{kind.accelerator} x {count}",
                    kind.accelerator,
                    count,
                    float(offer.usd_per_hour),
                    provider=offer.provider,
                    region=offer.region,
                    instance_type=kind.name,
                    purchase_option=offer.purchase_option.value,
                )
            )
    return found


def day_of(offers: Sequence[ProgramOffer], workloads: int, rate: float) -> Problem:
    """`workloads` with a daily profile over 24 hours; a replica serves as its accelerators' list price suggests."""
    rnd = Random(0)
    prices: dict[str, list[float]] = defaultdict(list)
    for offer in offers:
        if offer.purchase_option == "on_demand":
            prices[offer.accelerator].append(offer.usd_per_hour / offer.accelerators_per_unit)
    speed = {name: median(found) for name, found in prices.items()}
    classes = sorted({(o.hardware, o.accelerator, o.accelerators_per_unit) for o in offers if o.accelerator in speed})
    candidates, wanted = [], []
    for w in range(workloads):
        smallest, mean, peak = rnd.choice((1, 2, 4, 8)), rate * rnd.uniform(0.2, 3), rnd.randint(8, 20)
        profile = [mean * (1 + 0.6 * math.cos(2 * math.pi * (hour - peak) / 24)) for hour in range(24)]
        wanted.append(ProgramWorkload(id=f"w{w}", shapes=("all",), demand=tuple((one,) for one in profile)))
        for hardware, accelerator, count in classes:
            for size in (1, 2, 4, 8):
                if smallest <= size <= count:
                    served = {"all": speed[accelerator] * size**0.92 * rnd.uniform(0.9, 1.1)}
                    candidates.append(a_candidate(f"{w} {hardware} {size}", f"w{w}", hardware, size, served))
    hours = tuple(Period(id=f"{hour:02d}", hours=1.0) for hour in range(24))
    return Problem(offers=offers, candidates=candidates, workloads=wanted, periods=hours)


def report(name: str, problem: Problem, gap: float, goal: str) -> None:
    started, processor = time.perf_counter(), time.process_time()
    solution = solve(problem, SolverOptions(gap=gap))
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:28} {seconds:6.2f} s ({processor:.2f} s processor)  {solution.status:10} gap {solution.gap:.3%}  "
        f"{solution.usd_per_hour:10.3f} USD/h  "
        f"{solution.offers_after_reduction} of {len(problem.offers)} offers, {solution.variables} columns, "
        f"{solution.constraints} rows, {peak_mb:.0f} MB   goal: {goal}",
        flush=True,
    )


def bench_scale() -> None:
    for kinds, quotes, workloads, gap, goal in (
        (8, 25, 1, 0.0, "-"),
        (8, 25, 5, 0.0, "optimal, 3 s"),
        (12, 50, 10, 0.005, "0.5 %, 10 s"),
    ):
        name = f"{workloads} workloads x {kinds * quotes} offers"
        report(name, limited_offers(kinds, quotes, workloads), gap, goal)


def bench_snapshot(largest: int) -> None:
    offers = snapshot_offers()
    for workloads, gap, goal in ((1, 0.001, "0.1 %, 2 s"), (5, 0.01, "-"), (50, 0.01, "1 %, 60 s, 1,500 MB")):
        if workloads <= largest:
            report(f"{workloads} x snapshot x 24 hours", day_of(offers, workloads, 100.0), gap, goal)


def bench_growth() -> None:
    """How time grows with offers, workloads and periods, one of them at a time."""
    offers = snapshot_offers()
    for step in (16, 4, 1):
        report(f"1 x {len(offers[::step])} offers x 24", day_of(offers[::step], 1, 100.0), 0.01, "-")
    for workloads in (1, 2, 4, 8):
        report(f"{workloads} x {len(offers)} offers x 24", day_of(offers, workloads, 100.0), 0.01, "-")
    day = day_of(offers, 2, 100.0)
    for hours in (1, 6, 24):
        part = [replace(one, demand=one.demand[:hours]) for one in day.workloads]
        fewer = replace(day, workloads=part, periods=day.periods[:hours])
        report(f"2 x {len(offers)} offers x {hours}", fewer, 0.01, "-")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["melange", "scale", "snapshot", "growth"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--largest", type=int, default=50, help="most workloads on the snapshot")
    asked = parser.parse_args(arguments)
    if "melange" in asked.what:
        bench_melange(asked.repeat)
    if "scale" in asked.what:
        bench_scale()
    if "snapshot" in asked.what:
        bench_snapshot(asked.largest)
    if "growth" in asked.what:
        bench_growth()


if __name__ == "__main__":
    main(sys.argv[1:])
