"""What MLflow shows of a store: its runs, and the steps of their metrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of


@contextmanager
def client_of(store: ArtifactStore) -> Iterator[Any]:
    tracking = tracking_of(store)
    assert tracking is not None
    with tracking.client() as client:
        yield client


def runs_of(store: ArtifactStore, experiment: str, query: str = "") -> list[Any]:
    """The runs of an experiment, ordered by name."""
    with client_of(store) as client:
        entry = client.get_experiment_by_name(experiment)
        order = ["attribute.run_name ASC"]
        return list(client.search_runs([entry.experiment_id], query, order_by=order)) if entry else []


def steps_of(store: ArtifactStore, run: Any, name: str) -> list[int]:
    with client_of(store) as client:
        return sorted(point.step for point in client.get_metric_history(run.info.run_id, name))
