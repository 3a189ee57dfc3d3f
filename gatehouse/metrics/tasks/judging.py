"""How evaluation and gate judge the models of each task; apart from the tasks, as nothing that trains depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass

from gatehouse.metrics.tasks.task import Task


@dataclass(frozen=True)
class Judging:
    """How evaluation and gate judge the models of a task.

    Attributes:
        objective: The metric that a candidate must beat baseline and champion in, where a policy names none.
        leakage_alarm: Values of metrics that are too good to be true, where a policy names none.
        feature_alarm: ROC AUC above which one feature is taken for a leak, where a project names none.
        slices: Values of metrics that every judged slice must reach, where a policy names none.
        curves: Names of the curves that the evaluation holds, which are files of the room of metrics.
        row_loss: Metric that is the mean of a loss of each row; empty where single rows have none.
    """

    objective: str
    leakage_alarm: Mapping[str, float]
    feature_alarm: float
    slices: Mapping[str, float]
    curves: tuple[str, ...]
    row_loss: str


_JUDGED = {
    "binary": Judging(
        objective="log_loss",
        leakage_alarm={"roc_auc": 0.95},
        feature_alarm=0.95,  # docs/decisions/alarm-for-one-feature.md
        slices={"roc_auc": 0.5},
        curves=("roc", "precision_recall", "calibration", "histogram", "confusion"),
        row_loss="log_loss",
    ),
    "multiclass": Judging(
        objective="log_loss",
        leakage_alarm={"accuracy": 0.99},
        feature_alarm=0.995,  # docs/decisions/alarm-for-one-feature.md
        slices={},
        curves=("confusion", "confidence"),
        row_loss="log_loss",
    ),
    "regression": Judging(
        objective="rmse",
        leakage_alarm={"r2": 0.99},
        feature_alarm=0.995,  # docs/decisions/alarm-for-one-feature.md
        slices={},
        curves=("predicted", "residuals"),
        row_loss="mse",
    ),
    "ranking": Judging(
        objective="ndcg",
        leakage_alarm={"ndcg": 0.99},
        feature_alarm=0.995,  # docs/decisions/alarm-for-one-feature.md
        slices={},
        curves=("positions",),
        row_loss="",
    ),
}


def judging_of(task: Task) -> Judging:
    """How models of a task are judged."""
    return _JUDGED[task.name]


def objective_of(task: str) -> str:
    """The metric by which models of a task, by its name, are compared; empty where none are judged."""
    return _JUDGED[task].objective if task in _JUDGED else ""
