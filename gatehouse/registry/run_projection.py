"""Shows runs in MLflow, and in the Model Registry, when they have ended: their models, ledgers and stages.

The tasks of a local run leave this to one process, because importing MLflow takes about two seconds in each process.
Tasks in pods show what they made themselves.
"""

import fcntl
import json
import os
import sys
from pathlib import Path

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.projection import project
from gatehouse.store.records import read_record
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.pipeline_runs import all_is_shown, end_shown, left_by, runs_left, track_run, was_stopped
from gatehouse.tracking.place import LATER, warning_on_failure
from gatehouse.tracking.provenance import PRICES
from gatehouse.tracking.shipping import deliver
from gatehouse.tracking.training import track_experiment, track_training


def show_run(store: ArtifactStore, run: str) -> bool:
    """Show models, experiments, ledgers and stages of a run, each once; returns whether nothing of the run is left."""
    left = left_by(store, run)
    shown = [track_training(store, model) for model in left.models]
    shown += [track_experiment(store, experiment) for experiment in left.experiments]
    deliver(store)  # Also what a training logged that failed.
    for name in left.ledgers:
        with warning_on_failure(store, "run:projection", f"The ledger of {name}") as showing:
            shown.append(project(store, name, Ledger(store, name).state(), "run:projection"))
        shown.append(not showing.failed)
    shown.append(track_run(store, run))
    if was_stopped(store, run):
        shown.append(end_shown(store, run, killed=True))
    return all(shown)


def main(address: str, *runs: str) -> None:
    """Show runs that are left, each with the prices that its project had; one that cannot be shown blocks no other.

    A run may end while the one before it is being shown. Two processes at once would show that one twice, so the second
    waits.
    """
    store = ArtifactStore.open(address)
    os.environ.pop(LATER, None)
    prices = os.environ.get(PRICES, "")
    with open(store.local_folder / "showing.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        left = runs_left(store)
        for run in runs:
            if run not in left:
                continue
            os.environ[RUN_ID], done = run, False
            with warning_on_failure(store, "run:tracking"):
                plan = read_record(store.objects, f"runs/{run}/plan.json") or {}
                os.environ[PRICES] = prices or json.dumps(plan.get("prices", {}))
                done = show_run(store, run)
            if done:
                all_is_shown(store, run)


if __name__ == "__main__":
    # Nobody may wait for this process: if the folder of a store is gone by now, opening it would make it again.
    if "://" in sys.argv[1] or Path(sys.argv[1]).is_dir():
        main(*sys.argv[1:])
