"""Turns runs of the main command into its speed against an empty one: `python tests/benchmarks/bench_main_command.py`.

The base is a process that only imports what any such tool needs. Runs are interleaved, so that both meet the same
machine; medians are compared. Goals: at most 3 times the base, peak memory below 300 MB.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

BASE: Final = (sys.executable, "-c", "import pulp, highspy, typer, rich")
COMMAND: Final = (
    str(Path(sys.executable).with_name("costopt")),
    *("--model", "70B", "--task", "infer", "--budget", "5000"),
)
GOAL_RATIO: Final = 3.0
GOAL_MB: Final = 300.0
_KB_PER_MB: Final = 1000 / 1.024


def measure(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of the wall clock and peak resident MB of one run. Raises CalledProcessError when it fails."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds, usage.ru_maxrss / _KB_PER_MB


def stages() -> dict[str, float]:
    """Seconds by stage, medians of five runs, as the command itself reports them."""
    runs = []
    for _ in range(5):
        output = subprocess.run([*COMMAND, "--timing", "--format", "json"], capture_output=True, check=True).stdout
        runs.append(json.loads(output)["timing"])
    return {stage: statistics.median(run[stage] for run in runs) for stage in runs[0]}


def main(runs: int) -> None:
    measure(BASE), measure(COMMAND)
    base, command = [], []
    for _ in range(runs):
        base.append(measure(BASE))
        command.append(measure(COMMAND))
    base_s = statistics.median(seconds for seconds, _ in base)
    command_s = statistics.median(seconds for seconds, _ in command)
    peak_mb = max(megabytes for _, megabytes in command)
    print(f"base          {base_s:.3f} s   {' '.join(BASE[1:])}")
    print(f"main command  {command_s:.3f} s   costopt {' '.join(COMMAND[1:])}")
    print(f"ratio         {command_s / base_s:.2f}      goal: at most {GOAL_RATIO:g}")
    print(f"peak memory   {peak_mb:.0f} MB    goal: below {GOAL_MB:g} MB")
    print(f"{runs} interleaved runs each; medians. Where the time goes (seconds, within the process):")
    for stage, seconds in stages().items():
        print(f"  {stage:<16}{seconds:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 11)
