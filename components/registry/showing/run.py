"""Shows a run in MLflow, and in the Model Registry, when it has ended: what it trained, what it decided, what it did.

The tasks of a local run leave this to one process that nobody waits for, as importing MLflow takes about two seconds in
each process. Tasks in pods show what they made themselves.
"""

import os
import sys
from pathlib import Path

from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.registry.ledger import Ledger
from gatehouse.components.registry.projection import project
from gatehouse.components.tracking.shipping import deliver
from gatehouse.components.tracking.shown import LATER
from gatehouse.components.tracking.stages import left_by, track_run
from gatehouse.components.tracking.training import track_experiment, track_training


def show_run(store: ArtifactStore, run: str) -> None:
    """Show the models and experiments of a run, the ledgers that it wrote to, and its stages, each once.

    What goes wrong is a warning in the run record, never an error.

    Args:
        store: The store that holds the run's record.
        run: The pipeline run; the environment names it too.
    """
    left = left_by(store, run)
    for model in left.models:
        track_training(store, model)
    for experiment in left.experiments:
        track_experiment(store, experiment)
    deliver(store)  # Also what a training logged that failed.
    for name in left.ledgers:
        project(store, name, Ledger(store, name).state(), "run:projection")
    track_run(store, run)


if __name__ == "__main__":
    address, run = sys.argv[1:]
    # Nobody waits for this process: where the folder of a store is gone by now, opening it would make it again.
    if "://" in address or Path(address).is_dir():
        os.environ[RUN_ID] = run
        os.environ.pop(LATER, None)
        show_run(ArtifactStore.open(address), run)
