"""Finds the metrics: every file of the room holds one, under its own name, which configurations write."""

import importlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, WithJsonSchema

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError

if TYPE_CHECKING:
    from gatehouse.metrics.catalogue.metric import Array, Metric, Predictions

# The last part stands for every module of the folder, also to what takes the digest of code.
_ROOM = "gatehouse.metrics.*"
NAMES = tuple(sorted(path.stem for path in Path(__file__).parents[1].glob("[a-z]*.py")))


@cache
def metric_named(name: str) -> "Metric":
    """The metric of a name.

    Raises:
        ConfigurationError: if there is none.
    """
    from gatehouse.metrics.catalogue.metric import Metric

    if name not in NAMES:
        raise ConfigurationError(f"Expected one of the metrics {', '.join(NAMES)}, found {name!r}.")
    found = getattr(importlib.import_module(_ROOM.replace("*", name)), name, None)
    if not isinstance(found, Metric):
        raise ConfigurationError(f"gatehouse/metrics/{name}.py: expected a metric named {name}, found {found!r}.")
    return found


def metrics_for(task: str) -> "dict[str, Metric]":
    """The metrics of a task, by name."""
    return {name: metric_named(name) for name in NAMES if task in metric_named(name).tasks}


def measure(task: str, labels: "Array", predictions: "Predictions") -> dict[str, float]:
    """All metrics of a task, by name, of labels, shape (rows,), and predictions for the same rows."""
    return {name: metric.measure(labels, predictions) for name, metric in metrics_for(task).items()}


def _known(name: str) -> str:
    if name in NAMES:
        return name
    # Only a mistake imports the metrics, and with them NumPy.
    aliases = {alias: each for each in NAMES for alias in metric_named(each).aliases}
    if meant := nearest(name, NAMES, elsewhere=aliases):
        raise ValueError(f"expected a metric{meant}, found {name!r}")
    raise ValueError(f"expected one of the metrics {', '.join(NAMES)}, found {name!r}")


MetricName = Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(NAMES)})]
"""The name of a metric in a configuration."""
