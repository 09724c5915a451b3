"""Times the parts of sizing and planning a training run, beside a loop of plain arithmetic.

python tests/benchmarks/bench_training.py
"""

import time
from collections.abc import Callable
from datetime import date

from optimizer.plans.training import plan_training
from optimizer.plans.training_plan import TrainingRequest
from optimizer.sizing.training.layouts import best_layout
from optimizer.sizing.training.measurements import calibration_rows
from optimizer.sizing.training.memory import training_memory
from optimizer.sizing.training.setup import Cluster
from optimizer.sizing.training.time import step_time
from optimizer.sizing.training.validation import validate_training
from optimizer.workload.architecture import resolve_model
from optimizer.workload.training import TrainingRun
from pricing_cache.query import Filters, select
from pricing_cache.snapshot import snapshot
from providers.accelerators import resolve


def best_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times) * 1e3


def reference() -> float:
    """A million multiplications and additions: what this machine's Python does in a plain loop."""
    total = 0.0
    for i in range(1_000_000):
        total += i * 0.5
    return total


def main() -> None:
    model = resolve_model("70B")
    run = TrainingRun(
        name="run",
        model="70B",
        task="train",
        tokens=1e12,
        seq_len=4096,
        global_batch_tokens=4_194_304,
        deadline_hours=60 * 24.0,
    )
    h100 = resolve("H100-SXM5-80GB")
    cluster = Cluster(accelerator=h100, nodes=32, node_accelerators=8, link="nvlink", network_gbit_per_s=3200.0)
    chosen = best_layout(run, model, cluster)
    assert chosen is not None
    offers = select(snapshot().offers, Filters()).offers
    request = TrainingRequest(
        jobs=[(run, model)], offers=offers, offers_on_file=len(offers), rejections={}, today=date(2026, 11, 30)
    )
    rows = calibration_rows()
    for name, work, repeats in (
        ("plain loop of 10^6", reference, 5),
        ("memory of one setup", lambda: training_memory(chosen.setup), 100),
        ("time of one setup", lambda: step_time(chosen.setup), 100),
        ("best layout of 256 accelerators", lambda: best_layout(run, model, cluster), 5),
        (f"plan over {len(offers)} offers", lambda: plan_training(request), 3),
        (f"{len(rows)} measurements predicted", lambda: validate_training(rows), 2),
    ):
        print(f"{name:36} {best_ms(work, repeats):9.3f} ms")


if __name__ == "__main__":
    main()
