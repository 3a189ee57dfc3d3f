"""Shows pipeline runs in MLflow, now or when they have ended: one run each, with a child run for each stage that ran.

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
from typing import TYPE_CHECKING, Any

from gatehouse.store.records import create_record, read_record, read_records, remove_record
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import RUN_ID, Event, end_of, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import (
    PARENT,
    REFERENCE,
    RUN,
    Point,
    Tracking,
    end_above,
    ensure_run,
    every,
    find_run,
    is_number,
    log,
    pipeline_run,
    tracking_of,
)
from gatehouse.tracking.place import warning_on_failure
from gatehouse.tracking.provenance import cost_here
from gatehouse.tracking.sending import is_left

if TYPE_CHECKING:
    from mlflow import MlflowClient

STAGE = "gatehouse.stage"
PATIENCE = 300.0
"""Seconds that anybody waits at most for the process that shows a run."""
_PROGRAM = "gatehouse.registry.projection"
"""Shows runs with the ledgers that they wrote to; nothing in this room knows ledgers."""
_FAILED = ("failed", "stopped")
_FOLDER = "tracking/left"
_WARNING = re.compile(r":(tracking|projection)\.[0-9]+\.warned")


@dataclass(frozen=True)
class Backlog:
    """References and names of models whose ledger changed that a run left to be shown; some may be shown already."""

    models: tuple[str, ...]
    experiments: tuple[str, ...]
    ledgers: tuple[str, ...]


def track_run(store: ArtifactStore, run: str) -> bool:
    """Show the stages of a pipeline run: durations, cost, results and errors; stages from the memo are only named.

    A stage is shown once. A stage that made a model or an experiment is shown by the run of that artifact. The MLflow
    experiment has the name of the model, or of the project if the run has no model. If all results came from the memo,
    this only reads the run's record and does not import MLflow. An error becomes a warning in the run record. Returns
    whether nothing of it is left.
    """
    tracking, ended = tracking_of(store), _ended(store, run)
    if tracking is None or not _is_due(tracking, run, ended):
        return True
    # Everything about a model is in one place.
    name = next((Reference.parse(event.body["tracked"]).name for event in ended if event.body.get("tracked")), "")
    if not name:
        plan = read_record(store.objects, f"runs/{run}/plan.json") or {}
        name = str(plan.get("project", "pipelines"))
    with warning_on_failure(store, "run:tracking") as showing:
        with tracking.client() as client:
            experiment = tracking.experiment(client, name)
            above = pipeline_run(tracking, client, experiment, run)
            for event in ended:
                tracked = event.body.get("tracked", "")
                by_artifact = tracked and find_run(client, experiment, REFERENCE, str(Reference.parse(tracked)))
                if event.event != "hit" and not by_artifact:
                    _show_stage(client, experiment, above, run, event)
            failed = [event.stage for event in ended if event.event in _FAILED]
            recalled = [event.stage for event in ended if event.event == "hit"]
            costs = cost_here(sum(float(event.body["seconds"]) for event in ended))
            points: list[Point] = [(name, cost, 0) for name, cost in costs.items()]
            tags = {"gatehouse.from_memo": " ".join(recalled), "gatehouse.error": ", ".join(failed)}
            log(client, client.get_run(above), points=points, tags={name: tag for name, tag in tags.items() if tag})
            status, at = "FAILED" if failed else "FINISHED", int(float(ended[-1].body["at"]) * 1000)
            end_above(tracking, client, above, status, at)
        tracking.mark_shown(f"runs/{run}/{len(ended)}")
    return not showing.failed


def _show_stage(client: "MlflowClient", experiment: str, above: str, run: str, event: Event) -> None:
    at, seconds = float(event.body["at"]), float(event.body["seconds"])
    shown = ensure_run(client, experiment, STAGE, f"{run}/{event.stage}", event.stage, {}, above, at - seconds)
    result: dict[str, Any] = event.body.get("result", {})
    points: list[Point] = [("duration_seconds", seconds, 0)]
    points += [(name, cost, 0) for name, cost in cost_here(seconds).items()]
    for field, value in result.items():
        # Values of `metrics` keep their names; those of other fields get the name of the field as a prefix.
        prefix = "" if field == "metrics" else f"{field.removesuffix('_metrics')}."
        named = {f"{prefix}{name}": item for name, item in value.items()} if isinstance(value, dict) else {field: value}
        points += [(name, float(number), 0) for name, number in named.items() if is_number(number)]
    tags = {f"gatehouse.result.{name}": str(value) for name, value in result.items() if references_in(value)}
    if event.event in _FAILED:
        # Not the error's message, which may quote rows: they could not be erased from MLflow.
        tags["gatehouse.error"] = str(event.body.get("error", ""))
    log(client, shown, points=points, tags=tags)
    status = {"failed": "FAILED", "stopped": "KILLED"}.get(event.event, "FINISHED")
    client.set_terminated(shown.info.run_id, status, int(at * 1000))


def _is_due(tracking: Tracking, run: str, ended: list[Event]) -> bool:
    """Whether a stage failed, or did work that the memo could have saved, and MLflow does not show it yet."""
    worked = any(event.event in _FAILED or (event.event == "finished" and event.body.get("memo")) for event in ended)
    return worked and not tracking.is_shown(f"runs/{run}/{len(ended)}")


def _ended(store: ArtifactStore, run: str) -> list[Event]:
    """How the newest attempt at each stage of a run ended, in order of time; sub-stages are left out."""
    latest: dict[str, Event] = {}
    for _, event in events(store, run):
        if ":" in event.stage or event.event not in ("finished", "hit", *_FAILED):
            continue
        if event.stage not in latest or event.attempt >= latest[event.stage].attempt:
            latest[event.stage] = event
    return sorted(latest.values(), key=lambda event: float(event.body["at"]))


def leave_ledger(store: ArtifactStore, model_name: str) -> None:
    """Note that the ledger of a model is to be shown when the current run has ended."""
    create_record(store.objects, f"{_FOLDER}/{os.environ[RUN_ID]}/ledgers/{model_name}.json", {})


def left_by(store: ArtifactStore, run: str) -> Backlog:
    """What the tasks of a run left to be shown."""
    tracked = (event.body.get("tracked") for _, event in events(store, run) if ":" not in event.stage)
    made = [str(reference) for reference in dict.fromkeys(tracked) if reference]
    models, experiments = (
        tuple(reference for reference in made if Reference.parse(reference).kind == kind)
        for kind in ("models", "experiments")
    )
    ledgers = sorted(Path(key).stem for key in store.objects.list(f"{_FOLDER}/{run}/ledgers"))
    return Backlog(models, experiments, tuple(ledgers))


def runs_left(store: ArtifactStore) -> list[str]:
    """The runs that have ended and are to be shown, the newest first; one that is being shown now is among them."""
    runs = store.objects.folders(_FOLDER)
    return sorted((run for run in runs if store.objects.stat(f"{_FOLDER}/{run}/run.json")), reverse=True)


def backlog_reason(store: ArtifactStore, run: str) -> str:
    """The newest warning of the process that shows a run, which says why something is left; empty if there is none."""
    keys = [key for key in store.objects.list(f"runs/{run}") if _WARNING.search(key)]
    warnings = sorted(read_records(store.objects, keys).values(), key=lambda body: float(body["at"]))
    return str(warnings[-1]["message"]) if warnings else ""


def all_is_shown(store: ArtifactStore, run: str) -> None:
    """Note that nothing of a run is left."""
    for key in list(store.objects.list(f"{_FOLDER}/{run}")):
        remove_record(store.objects, key)


def show_apart(store: ArtifactStore, run: str, log_file: Path) -> "subprocess.Popen[bytes] | None":
    """Show a run that has ended, and those that were left before, in a separate process.

    Returns the process, which continues after this one has ended; None if there is nothing to show. The store says
    before it starts that the run is to be shown, so that one that is ended too early delays it until the next run.
    """
    tracking, left = tracking_of(store), left_by(store, run)
    if left.ledgers or (
        tracking is not None
        and (
            not all(map(tracking.is_shown, left.models + left.experiments))
            or _is_due(tracking, run, _ended(store, run))
            or is_left(store)
            or was_stopped(store, run)
        )
    ):
        create_record(store.objects, f"{_FOLDER}/{run}/run.json", {})
    runs = runs_left(store)
    if not runs:
        return None
    command = [sys.executable, "-m", _PROGRAM, store.address, *runs]
    with open(log_file, "ab") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


def was_stopped(store: ArtifactStore, run: str) -> bool:
    """Whether a signal, a user or the system ended a run, so that no task could end what MLflow shows of it."""
    end = end_of(store, run) or {}
    return end.get("state") == "stopped" or end.get("error") == "KilledError"


def close_run(store: ArtifactStore, run: str, killed: bool) -> None:
    """Show what a pipeline run left that did not show itself, then end its MLflow runs; see `end_shown`."""
    if apart := show_apart(store, run, Path(os.devnull)):
        try:
            apart.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            apart.kill()
    end_shown(store, run, killed)


def end_shown(store: ArtifactStore, run: str, killed: bool) -> bool:
    """End the open MLflow runs of a pipeline run and its child runs as killed; if it was `killed`, also an ended one.

    An error becomes a warning in the run record. Returns whether nothing failed.
    """
    tracking = tracking_of(store)
    if tracking is None or (tracking.embedded and not (tracking.embedded / "mlflow.db").is_file()):
        return True
    with warning_on_failure(store, "run:tracking") as showing, tracking.client() as client:
        experiments = [str(experiment.experiment_id) for experiment in every(client.search_experiments)]
        for above in every(client.search_runs, experiments, f"tags.`{RUN}` = '{run}'"):
            below = every(client.search_runs, experiments, f"tags.`{PARENT}` = '{above.info.run_id}'")
            open_runs = [shown for shown in (above, *below) if shown.info.status == "RUNNING"]
            for shown in [above, *open_runs] if killed else open_runs:
                client.set_terminated(shown.info.run_id, "KILLED")
    return not showing.failed
