"""What an unchanged run costs beyond KFP's own local runner: all stages from the memo, against as many empty tasks.

What a run leaves to a process in the background, such as showing it in MLflow, is waited for before the next is timed.
Prints the medians of several rounds and their ratio; fails above the limit.
"""

import argparse
import contextlib
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gatehouse

LIMIT = 1.5

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"
EMPTY_TASKS = Path(__file__).with_name("_empty_tasks.py")
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Measure both in turn; 0 where the ratio keeps the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", type=Path, default=Path(".gatehouse/store"), help="where the example ran before")
    options = parser.parse_args()
    gatehouse = [sys.executable, "-m", "gatehouse.cli.main", "run", str(EXAMPLE), "--store", str(options.store)]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    first = _seconds(gatehouse)
    print(f"first run (what is not in the memo runs now): {first:.1f} s")
    tasks = _tasks()
    seconds, empty = [], []
    for _ in range(options.rounds):
        empty.append(_seconds([sys.executable, str(EMPTY_TASKS), str(tasks)]))
        seconds.append(_seconds(gatehouse))
    ratio = statistics.median(a / b for a, b in zip(seconds, empty, strict=True))
    print(f"{tasks} empty tasks through kfp.local: median {statistics.median(empty):.2f} s")
    print(f"unchanged training pipeline, all memo: median {statistics.median(seconds):.2f} s")
    print(f"ratio {ratio:.2f}, limit {LIMIT}")
    return 0 if ratio <= LIMIT else 1


def _tasks() -> int:
    from gatehouse.pipelines.catalog import build
    from gatehouse.project.project import load_project

    return len(build("training", load_project(EXAMPLE)).plan)


def _seconds(command: list[str]) -> float:
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        ended = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=os.environ, check=False)
        took = time.perf_counter() - began
        if ended.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(command[:4])} failed:\n{output.read().decode()[-2000:]}")
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return took


if __name__ == "__main__":
    sys.exit(main())
