"""The metrics of the candidate in an evaluation, with intervals if there are any."""

from collections.abc import Iterable

from gatehouse.errors import ErasedArtifactError, MissingArtifactError
from gatehouse.metrics.catalogue import metric_named, metrics
from gatehouse.metrics.judging import objective_of
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore


class Number(StageModel):
    """One number, and the bounds of its interval if there is one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


def objective_first(store: ArtifactStore, evaluation: str, names: Iterable[str]) -> list[str]:
    """Names of metrics, with the one that compares models of the evaluation's task first."""
    objective = objective_of(str(store.manifest(evaluation).details.get("task", "")))
    return sorted(names, key=lambda name: name != objective)


def numbers_of(store: ArtifactStore, evaluation: str) -> tuple[Number, ...]:
    """Every metric of the candidate on the whole test part, the objective first; empty if the evaluation is gone."""
    try:
        measured = store.read_json(evaluation, "metrics.json")["candidate"]
    except (ErasedArtifactError, MissingArtifactError):
        return ()
    held = store.manifest(evaluation).entry("uncertainty.json") is not None
    intervals = store.read_json(evaluation, "uncertainty.json")["intervals"].get("candidate", {}) if held else {}
    return tuple(
        Number(name=name, value=float(measured[name]), low=low, high=high)
        for name in objective_first(store, evaluation, measured)
        for low, high in [(intervals.get(name) if _has_interval(name) else None) or (None, None)]
    )


def _has_interval(metric: str) -> bool:
    """Whether a metric has intervals; also for a metric that only an earlier version had."""
    return metric not in metrics() or metric_named(metric).has_interval
