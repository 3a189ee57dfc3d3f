"""Finds metrics by the names that configurations write."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import TASKS

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Array, Metric, Predictions


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
    if name not in metrics():
        raise ConfigurationError(f"Expected one of the metrics {', '.join(metrics())}, found {name!r}.")
    return metrics()[name]


def metrics_for(task: str) -> "dict[str, Metric]":
    """The metrics of a task, by name."""
    return {name: metric for name, metric in metrics().items() if task in metric.tasks}


def measure(task: str, labels: "Array", predictions: "Predictions") -> dict[str, float]:
    """All metrics of a task, by name, of labels, shape (rows,), and predictions for the same rows."""
    return {name: metric.measure(labels, predictions) for name, metric in metrics_for(task).items()}


def aliases() -> dict[str, str]:
    """Names of metrics in other programs, and their names here."""
    return {alias: metric.name for metric in metrics().values() for alias in metric.aliases}


def is_minimized(measure: str) -> bool:
    """Whether less is better of a metric, or of the mean of a loss."""
    losses = {mean for task in TASKS.values() for mean in task.losses.values()}
    return measure in losses or metric_named(measure).better == "lower"


def _metric_name(name: str) -> str:
    if name in metrics():
        return name
    if meant := nearest(name, metrics(), synonyms=aliases()):
        raise ValueError(f"expected a metric{meant}, found {name!r}")
    raise ValueError(f"expected one of the metrics {', '.join(metrics())}, found {name!r}")


class _Enumerated:
    """Lists the metrics in a JSON schema."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "enum": list(metrics())}


MetricName = Annotated[str, AfterValidator(_metric_name), _Enumerated]
"""The name of a metric in a configuration."""
