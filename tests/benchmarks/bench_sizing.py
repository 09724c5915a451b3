"""Times one size call, and all candidates of the snapshot's hardware for one model, beside a loop of plain arithmetic.

python tests/benchmarks/bench_sizing.py
"""

import time
from collections.abc import Callable

from optimizer.sizing.candidates import size_candidates
from optimizer.sizing.layout import Hardware
from optimizer.sizing.serving import size_serving
from optimizer.workload.architecture import resolve_model
from optimizer.workload.workload import DEFAULT_SHAPE, DEFAULT_SLO
from pricing_cache.snapshot import snapshot
from providers.accelerators import catalogue, resolve


def best_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times) * 1e3


def hardware_of_snapshot() -> list[Hardware]:
    """Each hardware once, whoever sells it."""
    kinds = {
        (offer.instance_type.accelerator, int(offer.instance_type.accelerator_count), offer.instance_type.link)
        for offer in snapshot().offers
        if float(offer.instance_type.accelerator_count).is_integer()
    }
    return [Hardware(accelerator=catalogue()[name], count=count, link=link) for name, count, link in sorted(kinds)]


def reference() -> float:
    """A million multiplications and additions: what this machine's Python does in a plain loop."""
    total = 0.0
    for i in range(1_000_000):
        total += i * 0.5
    return total


def main() -> None:
    model = resolve_model("70B")
    one = Hardware(accelerator=resolve("H100-SXM5-80GB"), count=8, link="nvlink")
    hardware = hardware_of_snapshot()

    def all_candidates() -> int:
        return sum(len(size_candidates(model, h, shape=DEFAULT_SHAPE, slo=DEFAULT_SLO)[0]) for h in hardware)

    def one_call() -> object:
        return size_serving(model, one, shape=DEFAULT_SHAPE, slo=DEFAULT_SLO)

    found = all_candidates()
    print(f"one size call            {best_ms(one_call, 200):8.3f} ms")
    print(f"{found} candidates of {len(hardware)} hardware {best_ms(all_candidates, 10):8.1f} ms")
    print(f"reference loop           {best_ms(reference, 5):8.1f} ms")


if __name__ == "__main__":
    main()
