"""Times a monthly report of 50 workloads with 1,000,000 rows of actuals, as a whole process, with its peak memory.

    python tests/benchmarks/bench_report.py [ROWS] [WORKLOADS]

The goal is under 20 s and 1.5 GB. Rows are hourly, with tags that assign them to the workloads.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.optimizer.report.focus_rows import COLUMNS_1_3, focus_row  # noqa: E402  # the path comes first

MODELS = ("8B", "70B", "llama-3.1-8b", "Qwen/Qwen2.5-32B", "mistralai/Mistral-7B-v0.1")
MACHINES = ("p5.48xlarge", "g6e.xlarge", "g5.4xlarge", "p4d.24xlarge", "g6.12xlarge")
MOST_SECONDS, MOST_GB = 20.0, 1.5


def main(rows: int = 1_000_000, workloads: int = 50) -> None:
    """Writes budget and export, reports as JSON and HTML, prints seconds and memory against the goal."""
    with tempfile.TemporaryDirectory() as folder:
        budget, bill = Path(folder, "budget.yaml"), Path(folder, "bill.csv")
        budget.write_text(_budget(workloads), encoding="utf-8")
        write_bill(bill, rows, workloads)
        print(f"{rows:,} rows, {bill.stat().st_size / 1e6:,.0f} MB of CSV, {workloads} workloads")
        for format_ in ("json", "html"):
            out = Path(folder, f"report.{format_}")
            command = ["report", str(budget), "--month", "2026-12", "--actuals", str(bill), "-q", "-f", format_]
            seconds, gigabytes, busy = measured([*command, "-o", str(out)])
            good = seconds < MOST_SECONDS and gigabytes < MOST_GB
            print(
                f"{format_}: {seconds:.1f} s of {MOST_SECONDS:g} ({busy:.1f} s of processors), "
                f"{gigabytes:.2f} GB of {MOST_GB:g}: {_word(good)}"
            )
            if format_ == "json":
                bill_read = json.loads(out.read_text(encoding="utf-8"))["actuals"]
                print(f"rows read {bill_read['rows']:,}, used {bill_read['used']:,}, rejected {bill_read['rejected']}")


def _word(good: bool) -> str:
    return "within the goal" if good else "NOT within the goal"


def _budget(workloads: int) -> str:
    entries = [
        f"  - {{name: w{n}, owner: team{n % 7}, model: {MODELS[n % len(MODELS)]}, rate: {0.5 + n % 9},"
        f" input_tokens: {600 + 50 * n}, output_tokens: {100 + 5 * n}, match: {{tags: {{app: w{n}}}}}}}"
        for n in range(workloads)
    ]
    head = "name: benchmark\ngrowth_per_month: 3%\nbudgets: {total_usd: 900000}\nworkloads:\n"
    return head + "\n".join(entries) + "\n"


def write_bill(path: Path, rows: int, workloads: int) -> None:
    """Hours of November and December 2026, over and over, of all workloads and five machines; one row in 10,000 bad."""
    start = datetime(2026, 11, 1, tzinfo=UTC)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS_1_3)
        for number in range(rows):
            row = focus_row(
                start=start + timedelta(hours=number % (50 * 24)),
                usd=1.5 + number % 17,
                tags={"app": f"w{number % workloads}", "env": "prod"},
                ChargeDescription=f"$2.00 per On Demand Linux {MACHINES[number % 5]} Instance Hour",
            )
            if number % 10_000 == 0:
                row["BilledCost"] = "n/a"
            writer.writerow([row.get(column, "NULL") for column in COLUMNS_1_3])


def measured(arguments: list[str], *, silent: bool = False) -> tuple[float, float, float]:
    """Seconds, peak GB and processor seconds of one process of the command line."""
    environment = {**os.environ, "COSTOPT_NOW": "2026-12-21T00:00:00+00:00", "PYTHONPATH": str(ROOT)}
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "optimizer.cli.main", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL if silent else None,
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{arguments[0]} failed with {status}")
    return seconds, usage.ru_maxrss * 1024 / 1e9, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
