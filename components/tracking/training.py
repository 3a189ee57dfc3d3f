"""Sends a finished training run to MLflow, once."""

from gatehouse.components.artifacts.store import ArtifactStore


def track_training(store: ArtifactStore, model: str) -> None:
    """Log the run that made `model`."""
