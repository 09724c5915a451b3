"""Times `costopt import` on the largest files that it reads, each as a whole process, with its peak memory.

    python tests/benchmarks/bench_import.py [THOUSANDS OF ROWS]

Seconds of a machine mean little: a loop that only reads the lines of the same cost export stands beside them.
"""

import csv
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.bench_report import measured, write_bill  # noqa: E402  # the path comes first


def main(thousands: int = 1000) -> None:
    """Writes each file, imports it, prints its size, seconds and memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bill = folder / "bill.csv"
        write_bill(bill, thousands * 1000, 50)
        started = time.perf_counter()
        with bill.open(newline="", encoding="utf-8") as file:
            rows = sum(1 for _ in csv.reader(file))
        print(
            f"reference: csv.reader alone over {rows:,} rows of the cost export: {time.perf_counter() - started:.1f} s"
        )
        _told("cost export", bill)
        for kind, write in WRITERS.items():
            path = folder / kind.replace(" ", "-")
            write(path, thousands)
            _told(kind, path)


def _told(kind: str, path: Path) -> None:
    on = ["--gpu", "L4"] if kind == "shell script" else []
    seconds, gigabytes, _ = measured(["import", str(path), *on, "-q", "-f", "json"], silent=True)
    print(f"{kind}: {path.stat().st_size / 1e6:,.1f} MB in {seconds:.1f} s, {gigabytes * 1000:,.0f} MB of memory")


def _csv_log(path: Path, thousands: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("timestamp,input_tokens,output_tokens\n")
        file.writelines(f"{n * 0.01:.2f},{200 + n % 900},{20 + n % 300}\n" for n in range(thousands * 1000))


def _json_log(path: Path, thousands: int) -> None:
    def line(number: int) -> str:
        usage: Mapping[str, int] = {"prompt_tokens": 200 + number % 900, "completion_tokens": 20 + number % 300}
        return json.dumps({"created": 1_700_000_000 + number * 0.01, "usage": usage}) + "\n"

    with path.open("w", encoding="utf-8") as file:
        file.writelines(line(number) for number in range(thousands * 1000))


def _script(path: Path, _: int) -> None:
    line = "echo step --of 'a long' script $STEP\n"
    path.write_text(
        "#!/bin/bash\n" + line * (1_900_000 // len(line)) + "vllm serve meta-llama/Llama-3.1-8B -tp 1\n",
        encoding="utf-8",
    )


def _settings(path: Path, _: int) -> None:
    """As many values as are read: a task whose variables fill the file."""
    head = "resources: {accelerators: L4:1}\nrun: vllm serve meta-llama/Llama-3.1-8B -tp 1\nenvs:\n"
    lines = "".join(f"  V{number}: {number}\n" for number in range(95_000))
    path.write_text(head + lines, encoding="utf-8")


def _quotes(path: Path, _: int) -> None:
    head = "vendor,accelerator,price,price_unit,currency,term_months,gpus_per_node\n"
    rows = "".join(
        f"Vendor {number},H100-SXM5-80GB,{2 + number % 90 / 100},gpu_hour,USD,12,8\n" for number in range(4999)
    )
    path.write_text(head + rows, encoding="utf-8")


WRITERS: Mapping[str, Callable[[Path, int], None]] = {
    "request log in CSV": _csv_log,
    "request log in JSON lines": _json_log,
    "shell script": _script,
    "YAML of a task": _settings,
    "table of quotes": _quotes,
}

if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
