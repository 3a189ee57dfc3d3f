"""Facts about a version that all places show."""

from gatehouse.registry.state import ModelVersion, State
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_tags

MODEL, EVALUATION, VERDICT = "gatehouse.model", "gatehouse.evaluation", "gatehouse.verdict"


def origin(version: ModelVersion) -> dict[str, str]:
    """Facts that never change: the model, and all artifacts it was made from."""
    return lineage_tags(version.lineage) | {MODEL: version.model}


def standing(state: State, version: ModelVersion) -> dict[str, str]:
    """The stage of a version, the evaluation that it was registered with, and its tags."""
    status = version.ended or " ".join(state.aliases_of(version.version)) or state.stage_of(version)
    return {
        "gatehouse.version": str(version.version),
        "gatehouse.status": status,
        EVALUATION: version.evaluation,
    } | dict(version.tags)


def measured(store: ArtifactStore, evaluation: str) -> dict[str, float]:
    """The candidate's metrics on the test rows, by the names that are shown."""
    metrics = store.read_json(evaluation, "metrics.json")
    return {f"test_{name}": float(value) for name, value in metrics["candidate"].items()}
