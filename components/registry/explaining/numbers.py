"""The numbers that an evaluation holds of its candidate, each with its interval where there is one."""

from gatehouse.components.artifacts.stage import StageModel
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ErasedArtifactError, MissingArtifactError


class Number(StageModel):
    """One number, and the bounds of its interval where the evaluation holds one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


def numbers_of(store: ArtifactStore, evaluation: str) -> tuple[Number, ...]:
    """Every metric of the candidate on the whole test part; none where the evaluation is gone."""
    try:
        measured = store.read_json(evaluation, "metrics.json")["candidate"]
    except (ErasedArtifactError, MissingArtifactError):
        return ()
    held = store.manifest(evaluation).entry("uncertainty.json") is not None
    intervals = store.read_json(evaluation, "uncertainty.json")["intervals"].get("candidate", {}) if held else {}
    return tuple(
        Number(name=name, value=float(value), low=low, high=high)
        for name, value in measured.items()
        for low, high in [intervals.get(name) or (None, None)]
    )
