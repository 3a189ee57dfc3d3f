"""Finds metrics by the names that configurations write."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import TASKS

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Array, Metric, Predictions


_OF_CLASSES = ["accuracy", "average_precision", "balanced_accuracy", "brier", "f1", "log_loss", "mcc", "precision"]
_OF_CLASSES += ["recall", "roc_auc"]
_CALIBRATION = ["calibration_error", "calibration_error_debiased"]
NAMES = {
    "binary": sorted([*_OF_CLASSES, *_CALIBRATION]),
    "multiclass": _OF_CLASSES,
    "regression": ["mae", "mape", "mse", "pinball_p10", "pinball_p90", "r2", "rmse"],
    "ranking": ["mean_average_precision", "mean_reciprocal_rank", "ndcg", "ndcg_at_10"]
    + [f"precision_at_{places}" for places in (1, 10, 5)],
}
"""The metrics of each task. They are declared with NumPy, and configuration is read without it."""
_ALL = sorted({*NAMES["binary"], *NAMES["regression"], *NAMES["ranking"]})
_MINIMIZED = {"brier", "log_loss", *_CALIBRATION, *NAMES["regression"]} - {"r2"}
ALIASES = {"acc": "accuracy", "logloss": "log_loss", "cross_entropy": "log_loss"}
ALIASES |= dict.fromkeys(("ap", "pr_auc", "prauc"), "average_precision")
ALIASES |= dict.fromkeys(("auc", "auroc", "roc"), "roc_auc")
"""Names of metrics in other programs, and their names here."""


@cache
def metrics() -> "dict[str, Metric]":
    """All metrics by name, in alphabetical order. The first call imports NumPy, which most commands do not need."""
    from gatehouse.metrics import classification, ranking, regression
    from gatehouse.metrics.metric import Metric

    declared = [
        metric
        for module in (classification, ranking, regression)
        for metric in vars(module).values()
        if isinstance(metric, Metric)
    ]
    return {metric.name: metric for metric in sorted(declared, key=lambda metric: metric.name)}


def metric_named(name: str) -> "Metric":
    """The metric of a name. Raises ConfigurationError if there is none."""
    return metrics()[_expected(name)]


def _expected(name: str) -> str:
    if name not in _ALL:
        raise ConfigurationError(f"Expected one of the metrics {', '.join(_ALL)}, found {name!r}.")
    return name


def metrics_for(task: str) -> "dict[str, Metric]":
    """The metrics of a task, by name."""
    return {name: metric for name, metric in metrics().items() if task in metric.tasks}


def measure(task: str, labels: "Array", predictions: "Predictions") -> dict[str, float]:
    """All metrics of a task, by name, of labels, shape (rows,), and predictions for the same rows."""
    return {name: metric.measure(labels, predictions) for name, metric in metrics_for(task).items()}


def is_minimized(measure: str) -> bool:
    """Whether less is better of a metric, or of the mean of a loss."""
    losses = {mean for task in TASKS.values() for mean in task.losses.values()}
    return measure in losses or _expected(measure) in _MINIMIZED


def _metric_name(name: str) -> str:
    if name in _ALL:
        return name
    meant = nearest(name, _ALL, synonyms=ALIASES)
    expected = f"a metric{meant}" if meant else f"one of the metrics {', '.join(_ALL)}"
    raise ValueError(f"expected {expected}, found {name!r}")


class _Enumerated:
    """Lists the metrics in a JSON schema."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "enum": _ALL}


MetricName = Annotated[str, AfterValidator(_metric_name), _Enumerated]
"""The name of a metric in a configuration."""
