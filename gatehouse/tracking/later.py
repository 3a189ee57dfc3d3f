"""What a local run leaves to be shown when it has ended, and the process that shows it.

`tracking/left/<run>/run.json` says that a run has ended and is to be shown, and
`tracking/left/<run>/ledgers/<model>.json` that the ledger of a model is. They are removed when everything is shown:
what failed is tried again after the next run.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gatehouse.store.records import create_record, read_records, remove_record
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID, end_of, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import PARENT, RUN, every, tracking_of
from gatehouse.tracking.shipping import is_left
from gatehouse.tracking.shown import warning_on_failure
from gatehouse.tracking.stages import is_due

_FOLDER = "tracking/left"
_PROGRAM = "gatehouse.registry.run_projection"
"""Shows runs with the ledgers that they wrote to; nothing in this room knows ledgers."""
PATIENCE = 300.0
"""Seconds that anybody waits at most for the process that shows a run."""
_WARNED = re.compile(r":(tracking|projection)\.[0-9]+\.warned")


@dataclass(frozen=True)
class Left:
    """What the tasks of a run left to be shown, each once; some of it may be shown already.

    Attributes:
        models: References of trained models.
        experiments: References of experiments.
        ledgers: Names of models whose ledger changed.
    """

    models: tuple[str, ...]
    experiments: tuple[str, ...]
    ledgers: tuple[str, ...]


def leave_ledger(store: ArtifactStore, model_name: str) -> None:
    """Note that the ledger of a model is to be shown when the current run has ended."""
    create_record(store.objects, f"{_FOLDER}/{os.environ[RUN_ID]}/ledgers/{model_name}.json", {})


def left_by(store: ArtifactStore, run: str) -> Left:
    """What the tasks of a run left to be shown."""
    tracked = (event.body.get("tracked") for _, event in events(store, run) if ":" not in event.stage)
    made = [str(each) for each in dict.fromkeys(tracked) if each]
    models, experiments = (
        tuple(each for each in made if Reference.parse(each).kind == kind) for kind in ("models", "experiments")
    )
    ledgers = sorted(Path(key).stem for key in store.objects.list(f"{_FOLDER}/{run}/ledgers"))
    return Left(models, experiments, tuple(ledgers))


def runs_left(store: ArtifactStore) -> list[str]:
    """The runs that have ended and are to be shown, the newest first; one that is being shown now is among them."""
    runs = store.objects.folders(_FOLDER)
    return sorted((run for run in runs if store.objects.stat(f"{_FOLDER}/{run}/run.json")), reverse=True)


def why_left(store: ArtifactStore, run: str) -> str:
    """The newest warning of what shows a run, which says why something is left; empty if there is none."""
    keys = [key for key in store.objects.list(f"runs/{run}") if _WARNED.search(key)]
    said = sorted(read_records(store.objects, keys).values(), key=lambda body: float(body["at"]))
    return str(said[-1]["message"]) if said else ""


def all_is_shown(store: ArtifactStore, run: str) -> None:
    """Note that nothing of a run is left."""
    for key in list(store.objects.list(f"{_FOLDER}/{run}")):
        remove_record(store.objects, key)


def show_apart(store: ArtifactStore, run: str, log_file: Path) -> "subprocess.Popen[bytes] | None":
    """Show a run, and those that were left before, in a separate process, so that the caller need not wait.

    Args:
        store: The store that holds the runs' records.
        run: The pipeline run that has ended.
        log_file: Log file of the process.

    Returns:
        The process, which continues after this one has ended; None if there is nothing to show. The store says before
        it starts that the run is to be shown, so that one that is ended too early delays it until the next run.
    """
    if _is_left(store, run):
        create_record(store.objects, f"{_FOLDER}/{run}/run.json", {})
    runs = runs_left(store)
    if not runs:
        return None
    with open(log_file, "ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, store.address, *runs],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def _is_left(store: ArtifactStore, run: str) -> bool:
    tracking, left = tracking_of(store), left_by(store, run)
    if tracking is None:
        return bool(left.ledgers)
    unshown = not all(map(tracking.is_shown, left.models + left.experiments))
    return bool(left.ledgers) or unshown or is_due(store, run) or is_left(store) or was_stopped(store, run)


def was_stopped(store: ArtifactStore, run: str) -> bool:
    """Whether a signal, a user or the system ended a run, so that no task could end what MLflow shows of it."""
    end = end_of(store, run) or {}
    return end.get("state") == "stopped" or end.get("error") == "KilledError"


def close_run(store: ArtifactStore, run: str, killed: bool) -> None:
    """Show what a pipeline run left that did not show itself, then end its MLflow runs, child runs too.

    Args:
        store: The store that holds the run's record.
        run: The pipeline run.
        killed: Whether it was killed, and so is shown as such.
    """
    if apart := show_apart(store, run, Path(os.devnull)):
        try:
            apart.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            apart.kill()
    end_shown(store, run, killed)


def end_shown(store: ArtifactStore, run: str, killed: bool) -> bool:
    """End the MLflow runs of a pipeline run, child runs too, as killed.

    If the run was `killed`, also one that is shown as ended. An error becomes a warning in the run record.

    Returns:
        Whether nothing failed.
    """
    tracking = tracking_of(store)
    if tracking is None or (tracking.embedded and not (tracking.embedded / "mlflow.db").is_file()):
        return True
    with warning_on_failure(store, "run:tracking") as showing, tracking.client() as client:
        experiments = [str(each.experiment_id) for each in every(client.search_experiments)]
        for above in every(client.search_runs, experiments, f"tags.`{RUN}` = '{run}'"):
            below = every(client.search_runs, experiments, f"tags.`{PARENT}` = '{above.info.run_id}'")
            ending = [each for each in below if each.info.status == "RUNNING"]
            for each in [above, *ending] if killed or above.info.status == "RUNNING" else ending:
                client.set_terminated(each.info.run_id, "KILLED")
    return not showing.failed
