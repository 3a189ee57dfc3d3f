"""Trains on this machine for an order that monitoring gave, where no Kubeflow Pipelines takes it: once for each."""

import fcntl
from collections.abc import Callable
from pathlib import Path

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.control.causes import Orders
from gatehouse.local_run import LocalRun
from gatehouse.project import load_project

_KILLED = 128
MOST_ATTEMPTS = 3
"""Attempts at one order, after which a failure ends it."""


def train_ordered(store: ArtifactStore, project: Path, cause: str, train: Callable[..., LocalRun]) -> LocalRun | None:
    """Train for an order, unless it was trained for while this process waited for another one that did.

    A training that was killed has not ended, nor one that failed by what may be otherwise next time, such as a full
    disk: the next call begins another attempt, which goes on from the memo. A failure ends the order where it would
    come again (the error is permanent), or after `MOST_ATTEMPTS`.

    Args:
        store: Where the order is.
        project: Folder of the project.
        cause: Of the order.
        train: Runs the training pipeline with `arguments`, under a `run_id`.

    Returns:
        The run; None where the order was trained for.
    """
    orders = Orders(store, load_project(project).file.model)
    order = next(each for each in orders.all() if each.cause == cause)
    lock = store.local_folder / "logs" / f"retraining-{cause}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not orders.is_open(order):
            return None
        run_id = f"{order.run}.{len(orders.attempts(cause)) + 1}"
        outcome = train(arguments=order.parameters, run_id=run_id)
        code, failure = outcome.exit_code or 0, outcome.failure or {}
        final = failure.get("permanent") or len(orders.attempts(cause)) >= MOST_ATTEMPTS
        if code == 0 or (code < _KILLED and final):
            orders.note(cause, "ended", run=outcome.run, exit_code=outcome.exit_code)
    return outcome
