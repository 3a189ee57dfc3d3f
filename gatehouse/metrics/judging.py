"""How evaluation and gate judge the models of each task; training does not depend on it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gatehouse.metrics.tasks import Task


@dataclass(frozen=True)
class TaskProfile:
    """How evaluation and gate judge the models of a task."""

    objective: str
    leakage_alarm: Mapping[str, float]
    feature_alarm: float
    slices: Mapping[str, float]
    curves: tuple[str, ...]


_PROFILES = {
    "binary": TaskProfile(
        objective="log_loss",
        leakage_alarm={"roc_auc": 0.95},
        feature_alarm=0.95,  # docs/decisions/alarm-for-one-feature.md
        slices={"roc_auc": 0.5},
        curves=("roc", "precision_recall", "calibration", "histogram", "confusion"),
    ),
    "multiclass": TaskProfile(
        objective="log_loss",
        leakage_alarm={"accuracy": 0.99},
        feature_alarm=0.995,  # docs/decisions/alarm-for-one-feature.md
        slices={},
        curves=("confusion", "confidence"),
    ),
    "regression": TaskProfile(
        objective="rmse",
        leakage_alarm={"r2": 0.99},
        feature_alarm=0.995,  # docs/decisions/alarm-for-one-feature.md
        slices={},
        curves=("predicted", "residuals"),
    ),
    "ranking": TaskProfile(
        objective="ndcg",
        leakage_alarm={"ndcg": 0.99},
        feature_alarm=0.995,  # docs/decisions/alarm-for-one-feature.md
        slices={},
        curves=("positions",),
    ),
}


def profile_of(task: Task) -> TaskProfile:
    """How models of a task are judged."""
    return _PROFILES[task.name]


def external_profile(task: Task, decided: bool) -> TaskProfile:
    """How scores of unknown origin are judged: nobody knows what is too good to be true for them.

    If they are `decided`, a class instead of probabilities, accuracy is compared.
    """
    profile = replace(profile_of(task), leakage_alarm={})
    return replace(profile, objective="accuracy", slices={}, curves=("confusion",)) if decided else profile


def objective_of(task: str) -> str:
    """The metric by which models of a task, by its name, are compared; empty for an unknown task."""
    return _PROFILES[task].objective if task in _PROFILES else ""
