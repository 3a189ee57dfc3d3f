"""How evaluation and gate judge the models of each task; training does not depend on it."""

from collections.abc import Mapping
from dataclasses import dataclass

from gatehouse.metrics.tasks import Task


@dataclass(frozen=True)
class Judging:
    """How evaluation and gate judge the models of a task."""

    objective: str
    leakage_alarm: Mapping[str, float]
    feature_alarm: float
    slices: Mapping[str, float]
    curves: tuple[str, ...]


_JUDGED = {
    "binary": Judging(
        objective="log_loss",
        leakage_alarm={"roc_auc": 0.95},
        feature_alarm=0.95,  # docs/decisions/alarm-for-one-feature.md
        slices={"roc_auc": 0.5},
        curves=("roc", "precision_recall", "calibration", "histogram", "confusion"),
    ),
    "multiclass": Judging(
        objective="log_loss",
        leakage_alarm={"accuracy": 0.99},
        feature_alarm=0.995,  # docs/decisions/alarm-for-one-feature.md
        slices={},
        curves=("confusion", "confidence"),
    ),
    "regression": Judging(
        objective="rmse",
        leakage_alarm={"r2": 0.99},
        feature_alarm=0.995,  # docs/decisions/alarm-for-one-feature.md
        slices={},
        curves=("predicted", "residuals"),
    ),
    "ranking": Judging(
        objective="ndcg",
        leakage_alarm={"ndcg": 0.99},
        feature_alarm=0.995,  # docs/decisions/alarm-for-one-feature.md
        slices={},
        curves=("positions",),
    ),
}


def judging_of(task: Task) -> Judging:
    """How models of a task are judged."""
    return _JUDGED[task.name]


def objective_of(task: str) -> str:
    """The metric by which models of a task, by its name, are compared; empty for an unknown task."""
    return _JUDGED[task].objective if task in _JUDGED else ""
