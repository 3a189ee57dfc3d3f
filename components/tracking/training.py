"""Sends a finished training run to MLflow, once a model: parameters, the history of its metrics, its lineage."""

import logging
import time
from typing import Any

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tracking.environment import environment_tags
from gatehouse.components.tracking.lineage import lineage

logger = logging.getLogger(__name__)
MODEL_TAG = "gatehouse.model"


def track_training(store: ArtifactStore, model: str) -> None:
    """Log the run that made `model`; does nothing, and imports nothing, where that was done before.

    Tracking never decides about a run: where MLflow cannot be reached the failure is logged as a warning.
    """
    if run_of(store, model):
        return
    try:
        _log(store, model)
    except Exception as error:  # MLflow raises whatever its store does; a model must not be lost for it.
        logger.warning("MLflow did not take the training run of %s: %s", model, error)


def run_of(store: ArtifactStore, model: str) -> str:
    """MLflow's id of the run that made `model`, or an empty string."""
    import json

    key = _key(model)
    if store.objects.size(key) is None:
        return ""
    return str(json.loads(store.objects.get_bytes(key))["run_id"])


def _key(model: str) -> str:
    return f"tracking/{Reference.parse(model)}/run.json"


def _log(store: ArtifactStore, model: str) -> None:
    from mlflow.entities import Metric, Param, RunTag

    from gatehouse.components.tracking.mlflow_client import experiment_id, open_client

    reference = Reference.parse(model)
    manifest = store.manifest(reference)
    client = open_client(store)
    now = int(time.time() * 1000)
    parents = {parent.split("/")[0]: parent for parent in reversed(lineage(store, reference))}
    tags: dict[str, str] = {
        MODEL_TAG: str(reference),
        **{f"gatehouse.lineage.{kind}": parent for kind, parent in parents.items()},
        **environment_tags(),
    }
    run = client.create_run(experiment_id(client, store, reference.name), run_name=reference.short, tags=tags)
    metrics = [
        Metric(name, float(value), now, step)
        for step, row in enumerate(store.read_json(reference, "history.json"))
        for name, value in row.items()
        if name != "epoch"
    ]
    parameters = [Param(name, _text(value)) for name, value in manifest.configuration.items()]
    client.log_batch(run.info.run_id, metrics=metrics[:1000], params=parameters, tags=[RunTag("gatehouse.stage", "train")])
    client.set_terminated(run.info.run_id)
    store.record(_key(model), {"run_id": run.info.run_id})


def _text(value: Any) -> str:
    return str(value)[:6000]
