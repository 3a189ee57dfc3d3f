"""The process of one submitted run: waits for the previous run, runs the pipeline, and records the end."""

import fcntl
import sys
from pathlib import Path

from gatehouse.kfp.local_run import run_pipeline
from gatehouse.server.runs import ENDED, SUBMITTED
from gatehouse.store.records import read_record
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.pipeline_runs import show_apart


def main(run: str, project: str, address: str) -> int:
    """Run what was submitted as `run`; returns the exit code of `gatehouse run`."""
    store = ArtifactStore.open(address)
    asked = read_record(store.objects, f"runs/{run}/{SUBMITTED}") or {}
    with open(store.local_folder / "server-runs.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = run_pipeline(
            Path(project),
            asked["pipeline"],
            store,
            asked["arguments"],
            watch=lambda _: None,
            until=asked["until"],
            run_id=run,
        )
    store.record(f"runs/{run}/{ENDED}", {"exit_code": outcome.exit_code, "failure": outcome.failure})
    if showing := show_apart(store, run, outcome.log):
        showing.wait()
    return outcome.exit_code or 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
