"""Shows finished training runs and experiments in MLflow, once each, from their artifacts."""

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import (
    JOB,
    PARENT,
    REFERENCE,
    RUN_NAME,
    Point,
    Tracking,
    end_above,
    ensure_run,
    find_anywhere,
    find_run,
    flat,
    is_number,
    log,
    metric_name,
    pipeline_run,
    require_server,
    tracking_of,
)
from gatehouse.tracking.place import is_shown_later, warning_on_failure
from gatehouse.tracking.provenance import Environment, capture_environment, cost_here, lineage_of, lineage_tags
from gatehouse.tracking.sending import is_unsent, send_rest

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

COMPLETE = "gatehouse.complete"
_OBJECTIVE, _BEST = "objective.", "best_"
"""Prefixes of the metrics that the search chose by, and of those at the epoch whose weights a model kept."""
_NOTE = (
    "`objective.*` are the values that the search chose by: those of the model that the trial kept, at its best epoch. "
    "Under its bare name a metric has one value for each epoch, and MLflow shows the last one."
)


def track_training(store: ArtifactStore, model: str) -> bool:
    """Show the training run of a model in MLflow: parameters, metrics of every epoch, lineage, environment.

    It also gets duration and cost, and is a child of the MLflow run of its pipeline run. If the model was shown before,
    this needs one look-up and does not import MLflow. If the run is shown later, this only checks that the server can
    be reached. An error becomes a warning in the run record. Returns whether nothing of it is left.
    """
    tracking = tracking_of(store)
    if tracking is None or _is_left(tracking, "train:tracking"):
        return True
    delivered, reference = send_rest(store), Reference.parse(model)
    # Another job may have made an identical model now: it has its own run.
    if str(reference) not in delivered and tracking.is_shown(str(reference)):
        return True
    with warning_on_failure(store, "train:tracking") as showing:
        with tracking.client() as client:
            show_training(tracking, client, reference, new=True)
        tracking.mark_shown(str(reference))
    return not showing.failed


def track_experiment(store: ArtifactStore, experiment: str) -> bool:
    """Show an experiment in MLflow: one run, with one child run per trial, including failed trials.

    Like `track_training`, it does nothing the second time and never raises. `trials.json` of the experiment lists
    number, parameters, state, model and reason of each trial.
    """
    tracking = tracking_of(store)
    if tracking is None or _is_left(tracking, "tune:tracking"):
        return True
    send_rest(store)
    reference = Reference.parse(experiment)
    if tracking.is_shown(str(reference)):
        return True
    with warning_on_failure(store, "tune:tracking") as showing:
        with tracking.client() as client:
            _show_experiment(tracking, client, reference)
        tracking.mark_shown(str(reference))
    return not showing.failed


def _is_left(tracking: Tracking, label: str) -> bool:
    """Whether the run is shown later; then a server that is away is a warning of the task already."""
    if not is_shown_later():
        return False
    with warning_on_failure(tracking.store, label):
        require_server(tracking.uri)
    return True


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
        # A job spools its own history; here points are added that were lost, or of a model from elsewhere.
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
