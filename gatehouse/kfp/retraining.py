"""Executes monitoring's orders to retrain on this machine, once each, if Kubeflow Pipelines does not."""

import fcntl
from collections.abc import Callable
from pathlib import Path

from gatehouse.kfp.local_run import LocalRun
from gatehouse.monitoring.orders import Orders
from gatehouse.project.project import load_project
from gatehouse.store.store import ArtifactStore

_KILLED = 128
MOST_ATTEMPTS = 3
"""Number of attempts at one order after which a failure ends it."""


def train_ordered(store: ArtifactStore, project: Path, cause: str, train: Callable[..., LocalRun]) -> LocalRun | None:
    """Train for an order, unless another process did so while this one waited.

    A killed training has not ended; nor has one with a temporary failure, such as a full disk. The next call starts
    another attempt, which continues from the memo. A failure ends the order if the error is permanent, or after
    `MOST_ATTEMPTS`. `train` runs the training pipeline with `arguments`, under a `run_id`. Returns None if another
    process has trained for the order.
    """
    orders = Orders(store, load_project(project).file.model)
    order = next(candidate for candidate in orders.all() if candidate.cause == cause)
    lock = store.local_folder / "logs" / f"retraining-{cause}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not orders.is_open(order):
            return None
        run_id = f"{order.run}.{len(orders.attempts(cause)) + 1}"
        outcome = train(arguments=order.parameters, run_id=run_id)
        code, failure = outcome.exit_code or 0, outcome.failure or {}
        final = failure.get("permanent") or len(orders.attempts(cause)) >= MOST_ATTEMPTS
        if code == 0 or (code < _KILLED and final):
            orders.record(cause, "ended", run=outcome.run, exit_code=outcome.exit_code)
    return outcome
