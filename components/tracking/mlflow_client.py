"""A quiet MLflow client on the server of the environment, or on a SQLite file inside the store."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gatehouse.components.artifacts.store import ArtifactStore

if TYPE_CHECKING:
    from mlflow import MlflowClient

URI = "MLFLOW_TRACKING_URI"


def tracking_uri(store: ArtifactStore) -> str:
    """The tracking server of the environment, else `sqlite:///<store>/mlflow/mlflow.db`."""
    return os.environ.get(URI, "") or f"sqlite:///{store.address}/mlflow/mlflow.db"


def open_client(store: ArtifactStore) -> "MlflowClient":
    """Open MLflow's client; imports MLflow, so call it only when there is something to write."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = tracking_uri(store)
    if uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def experiment_id(client: "MlflowClient", store: ArtifactStore, name: str) -> str:
    """The id of the experiment `name`, which is created where it is missing; its artifacts lie in the store."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    local = not os.environ.get(URI, "")
    location = f"file://{store.address}/mlflow/artifacts" if local else None
    return str(client.create_experiment(name, artifact_location=location))
