"""Shows trainings, experiments and pipeline runs in MLflow, once each, from their artifacts and records.

A task shows what it made, or leaves it to one process that shows the whole run when it has ended. For that process,
`tracking/left/<run>/run.json` says that a run has ended and is to be shown, and
`tracking/left/<run>/ledgers/<model>.json` that the ledger of a model is. They are removed when everything is shown:
what failed is tried again after the next run.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.store.records import create_record, flat, read_record, read_records, remove_record
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import RUN_ID, Event, end_of, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import (
    JOB,
    PARENT,
    REFERENCE,
    RUN,
    RUN_NAME,
    Point,
    Tracking,
    end_above,
    ensure_run,
    every,
    find_anywhere,
    find_run,
    is_number,
    log,
    metric_name,
    pipeline_run,
    require_server,
    tracking_of,
)
from gatehouse.tracking.place import is_shown_later, warning_on_failure
from gatehouse.tracking.provenance import Environment, capture_environment, cost_here, lineage_of, lineage_tags
from gatehouse.tracking.sending import is_left, is_unsent, send_rest

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

COMPLETE, STAGE = "gatehouse.complete", "gatehouse.stage"
PATIENCE = 300.0
"""Seconds that anybody waits at most for the process that shows a run."""
_OBJECTIVE, _BEST = "objective.", "best_"
"""Prefixes of the metrics that the search chose by, and of those at the epoch whose weights a model kept."""
_NOTE = (
    "`objective.*` are the values that the search chose by: those of the model that the trial kept, at its best epoch. "
    "Under its bare name a metric has one value for each epoch, and MLflow shows the last one."
)
_PROGRAM = "gatehouse.registry.projection"
"""Shows runs with the ledgers that they wrote to; nothing in this room knows ledgers."""
_FAILED = ("failed", "stopped")
_FOLDER = "tracking/left"
_WARNING = re.compile(r":(tracking|projection)\.[0-9]+\.warned")


def track_training(store: ArtifactStore, model: str) -> bool:
    """Show the training run of a model in MLflow: parameters, metrics of every epoch, lineage, environment.

    It also gets duration and cost, and is a child of the MLflow run of its pipeline run. If the model was shown before,
    this needs one look-up and does not import MLflow. If the run is shown later, this only checks that the server can
    be reached. An error becomes a warning in the run record. Returns whether nothing of it is left.
    """
    return _track(store, model, "train:tracking", partial(show_training, new=True))


def track_experiment(store: ArtifactStore, experiment: str) -> bool:
    """Show an experiment in MLflow: one run, with one child run per trial, including failed trials.

    Like `track_training`, it does nothing the second time and never raises. `trials.json` of the experiment lists
    number, parameters, state, model and reason of each trial.
    """
    return _track(store, experiment, "tune:tracking", _show_experiment)


def _track(
    store: ArtifactStore, artifact: str, label: str, show: Callable[[Tracking, "MlflowClient", Reference], object]
) -> bool:
    tracking, reference = tracking_of(store), Reference.parse(artifact)
    if tracking is None:
        return True
    if is_shown_later():
        with warning_on_failure(store, label):  # A server that is away is a warning of the task already.
            require_server(tracking.uri)
        return True
    # Another job may have made an identical model now: it has its own run.
    if str(reference) not in send_rest(store) and tracking.is_shown(str(reference)):
        return True
    with warning_on_failure(store, label) as showing:
        with tracking.client() as client:
            show(tracking, client, reference)
        tracking.mark_shown(str(reference))
    return not showing.failed


def show_training(
    tracking: Tracking,
    client: "MlflowClient",
    model: Reference,
    *,
    name: str = "train",
    parent: str = "",
    new: bool = False,
) -> "Run":
    """The MLflow run of a model; it is created or completed if it is missing or was interrupted.

    Its parent is by default the current pipeline run. If this process made the model, it is `new`: environment and
    pipeline run of the process apply to it.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    store = tracking.store
    manifest = store.manifest(model)
    if trained := manifest.derived_from.get("model"):  # A calibrated model has the training run of its source.
        return show_training(tracking, client, Reference.parse(trained), name=name, parent=parent, new=new)
    experiment = tracking.experiment(client, model.name.removesuffix("-trial"))
    tags = lineage_tags(lineage_of(store, model))
    measured = next(iter(store.measurements(model, "train")), {})
    if new:
        tags |= _environment(measured) | measured.get("place", {}).get("environment", {})
        parent = parent or pipeline_run(tracking, client, experiment, os.environ.get(RUN_ID, ""))
    seconds = measured.get("seconds")
    started = None if seconds is None else time.time() - seconds
    job = measured.get("job", "")
    run = find_run(client, experiment, JOB, job, newest=True) if job else None
    if run is None and not new and not tracking.embedded:
        # The task that trained it may have shown it already, in an experiment of KFP.
        run = find_anywhere(client, REFERENCE, str(model))
    if run is None:
        # The job's key is a tag too, so that metrics which arrive later find this run.
        with_job = tags | ({JOB: job} if job else {})
        run = ensure_run(client, experiment, REFERENCE, str(model), name, with_job, parent, started)
    if COMPLETE not in run.data.tags:
        # A job logs its own history; here points are added that were lost, or of a model from elsewhere.
        history = store.read_json(model, "history.json") if manifest.entry("history.json") else []
        points = [] if job and is_unsent(store, job) else _points(history, run)
        best = manifest.details.get("best_epoch")
        if best is not None and best < len(history):
            # The epoch whose weights the model has, and its values: the bare names have those of the last epoch.
            at_best = {key: value for key, value in history[best].items() if key != "epoch" and is_number(value)}
            points += [(f"{_BEST}{key}", float(value), 0) for key, value in ({"epoch": best} | at_best).items()]
        points += _spent(seconds, measured.get("place", {}), new)
        inputs = []
        for role, identity in manifest.derived_from.items():  # As data sets, which MLflow's pages show as links.
            source = Reference.parse(identity)
            reference = json.dumps({"reference": str(source)})
            data = Dataset(source.name, source.digest[:36], "gatehouse", reference)
            inputs.append(DatasetInput(data, [InputTag("mlflow.data.context", role)]))
        if inputs:
            client.log_inputs(run.info.run_id, inputs)
        # The run may have started with the job, before the model's lineage and the run's place were known.
        tags |= {RUN_NAME: name, REFERENCE: str(model), COMPLETE: "true"} | ({PARENT: parent} if parent else {})
        log(client, run, flat(measured.get("settings", manifest.configuration)), points, tags)
        _end(tracking, client, run, parent, seconds)
    return run


def _spent(seconds: float | None, place: Mapping[str, Any], here: bool) -> list[Point]:
    """Duration, and its cost at present prices, if the model was made here; a later viewer may have other prices."""
    if seconds is None:
        return []
    spent = {"duration_seconds": seconds}
    if here:
        spent |= cost_here(seconds, place.get("machine", ""), place.get("machines", 1))
    return [(name, value, 0) for name, value in spent.items()]


def _show_experiment(tracking: Tracking, client: "MlflowClient", reference: Reference) -> None:
    store = tracking.store
    manifest = store.manifest(reference)
    experiment = tracking.experiment(client, reference.name)
    above = pipeline_run(tracking, client, experiment, os.environ.get(RUN_ID, ""))
    tags = lineage_tags(lineage_of(store, reference)) | _environment({})
    measured = next(iter(store.measurements(reference, "tune", "search")), {})
    run = ensure_run(client, experiment, REFERENCE, str(reference), "tune", tags, above, measured.get("began"))
    for trial in store.read_json(reference, "trials.json"):
        name = f"trial {trial['number']}"
        if trial.get("model"):
            model = Reference.parse(trial["model"])
            shown = show_training(tracking, client, model, name=name, parent=str(run.info.run_id), new=True)
            values = [(f"{_OBJECTIVE}{metric}", float(value), 0) for metric, value in trial.get("values", {}).items()]
            log(client, shown, {}, values, {"mlflow.note.content": _NOTE} if values else {})
            continue
        # A job that was tracked while it ran has its own run, with the metrics up to its failure.
        job = measured.get("jobs", {}).get(str(trial["number"]), "")
        failed = find_run(client, experiment, JOB, job, newest=True) if job else None
        parent = str(run.info.run_id)
        tags = {"gatehouse.error": str(trial.get("reason", "")), RUN_NAME: name, PARENT: parent}
        key = f"{reference}#{trial['number']}"
        failed = failed or ensure_run(client, experiment, REFERENCE, key, name, tags, parent)
        log(client, failed, flat(trial["parameters"]), tags=tags)
        client.set_terminated(failed.info.run_id, "FAILED" if trial["state"] == "failed" else "KILLED")
    value = manifest.details.get("value")
    points: list[Point] = [] if value is None else [("best_value", float(value), 0)]
    points += _spent(measured.get("seconds"), {}, True)
    log(client, run, flat(manifest.configuration), points, {COMPLETE: "true"})
    _end(tracking, client, run, above, measured.get("seconds"))


def _end(tracking: Tracking, client: "MlflowClient", run: "Run", parent: str, seconds: float | None = None) -> None:
    """End a run, `seconds` after it began or now, and then its parent."""
    ended = None if seconds is None else int(run.info.start_time + seconds * 1000)
    client.set_terminated(run.info.run_id, end_time=ended)
    end_above(tracking, client, parent)


def _environment(measured: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a job as it was measured, which may have changed since; else that of this process."""
    recorded = measured.get("environment")
    return (Environment(**recorded) if recorded else capture_environment()).tags()


def _points(history: list[dict[str, float]], run: "Run") -> list[Point]:
    """All numbers of the epochs that the run lacks; the step is the epoch."""
    reached = {metric.key: metric.step for metric in run.data.to_proto().metrics}
    return [
        (name, float(value), step)
        for step, epoch in enumerate(history)
        for name, value in epoch.items()
        if name != "epoch" and is_number(value)
        if step > reached.get(metric_name(name), -1)
    ]


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
    """The records that the tasks of a run left to be shown."""
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
