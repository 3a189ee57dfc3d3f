"""Shows a pipeline run in MLflow: one run for it, with one child run for each stage that ran."""

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import Event, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.cost import cost_here
from gatehouse.tracking.mlflow_client import (
    REFERENCE,
    Point,
    Tracking,
    end_above,
    ensure_run,
    find_run,
    log,
    pipeline_run,
    tracking_of,
)
from gatehouse.tracking.shown import warning_on_failure

if TYPE_CHECKING:
    from mlflow import MlflowClient

STAGE = "gatehouse.stage"
_IN_VAIN = ("failed", "stopped")


def track_run(store: ArtifactStore, run: str) -> bool:
    """Show the stages of a pipeline run: durations, cost, results and errors; stages from the memo are only named.

    A stage is shown once. A stage that made a model or an experiment is shown by the run of that artifact. The MLflow
    experiment has the name of the model, or of the project if the run has no model. If all results came from the memo,
    this only reads the run's record and does not import MLflow. An error becomes a warning in the run record.

    Args:
        store: The store that holds the run's record.
        run: The pipeline run.

    Returns:
        Whether nothing of it is left.
    """
    tracking, ended = tracking_of(store), _ended(store, run)
    if tracking is None or not _is_due(tracking, run, ended):
        return True
    with warning_on_failure(store, "run:tracking") as showing:
        with tracking.client() as client:
            _show(tracking, client, run, _experiment(store, run, ended), ended)
        tracking.mark_shown(f"runs/{run}/{len(ended)}")
    return not showing.failed


def is_due(store: ArtifactStore, run: str) -> bool:
    """Whether a stage of a pipeline run did work that MLflow does not show yet."""
    tracking = tracking_of(store)
    return tracking is not None and _is_due(tracking, run, _ended(store, run))


def _is_due(tracking: Tracking, run: str, ended: list[Event]) -> bool:
    worked = any(event.event in _IN_VAIN or _works(event) for event in ended)
    return worked and not tracking.is_shown(f"runs/{run}/{len(ended)}")


def _works(event: Event) -> bool:
    """Whether a stage did work that the memo could have saved; a stage without a memo runs every time."""
    return event.event == "finished" and bool(event.body.get("memo"))


def _ended(store: ArtifactStore, run: str) -> list[Event]:
    """How the newest attempt at each stage of a run ended, in order of time; sub-stages are left out."""
    latest: dict[str, Event] = {}
    for _, event in events(store, run):
        if ":" in event.stage or event.event not in ("finished", "hit", *_IN_VAIN):
            continue
        if event.stage not in latest or event.attempt >= latest[event.stage].attempt:
            latest[event.stage] = event
    return sorted(latest.values(), key=lambda event: float(event.body["at"]))


def _experiment(store: ArtifactStore, run: str, ended: Iterable[Event]) -> str:
    """The experiment of the run's model, so that everything about the model is in one place."""
    for event in ended:
        if made := event.body.get("tracked"):
            return Reference.parse(made).name
    plan = f"runs/{run}/plan.json"
    if store.objects.stat(plan) is None:
        return "pipelines"
    return str(json.loads(store.objects.get_bytes(plan))["project"])


def _show(tracking: Tracking, client: "MlflowClient", run: str, name: str, ended: list[Event]) -> None:
    experiment = tracking.experiment(client, name)
    above = pipeline_run(tracking, client, experiment, run)
    for event in ended:
        if event.event != "hit" and not _shown_already(client, experiment, event):
            _show_stage(client, experiment, above, run, event)
    failed = [event.stage for event in ended if event.event in _IN_VAIN]
    recalled = [event.stage for event in ended if event.event == "hit"]
    spent = sum(float(event.body["seconds"]) for event in ended)
    points: list[Point] = [(key, value, 0) for key, value in cost_here(spent).items()]
    tags = {"gatehouse.from_memo": " ".join(recalled), "gatehouse.error": ", ".join(failed)}
    log(client, client.get_run(above), points=points, tags={key: value for key, value in tags.items() if value})
    status = "FAILED" if failed else "FINISHED"
    end_above(tracking, client, above, status, int(float(ended[-1].body["at"]) * 1000))


def _shown_already(client: "MlflowClient", experiment: str, event: Event) -> bool:
    made = event.body.get("tracked", "")
    return bool(made) and find_run(client, experiment, REFERENCE, str(Reference.parse(made))) is not None


def _show_stage(client: "MlflowClient", experiment: str, above: str, run: str, event: Event) -> None:
    at, seconds = float(event.body.get("at", time.time())), float(event.body["seconds"])
    shown = ensure_run(client, experiment, STAGE, f"{run}/{event.stage}", event.stage, {}, above, at - seconds)
    result: dict[str, Any] = event.body.get("result", {})
    points: list[Point] = [("duration_seconds", seconds, 0), *((k, v, 0) for k, v in cost_here(seconds).items())]
    for field, value in result.items():
        points += [(name, float(each), 0) for name, each in _named(field, value).items() if is_number(each)]
    tags = {f"gatehouse.result.{name}": str(value) for name, value in result.items() if references_in(value)}
    if event.event in _IN_VAIN:
        # Not the error's message, which may quote rows: they could not be erased from MLflow.
        tags["gatehouse.error"] = str(event.body.get("error", ""))
    log(client, shown, points=points, tags=tags)
    status = {"failed": "FAILED", "stopped": "KILLED"}.get(event.event, "FINISHED")
    client.set_terminated(shown.info.run_id, status, int(at * 1000))


def _named(field: str, value: Any) -> dict[str, Any]:
    """The values of a result's field by name; fields other than `metrics` get the field's name as a prefix."""
    if not isinstance(value, dict):
        return {field: value}
    prefix = "" if field == "metrics" else f"{field.removesuffix('_metrics')}."
    return {f"{prefix}{name}": each for name, each in value.items()}


def is_number(value: Any) -> bool:
    """Whether it is one that MLflow keeps as a metric; a boolean is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
