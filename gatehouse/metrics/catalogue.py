"""Finds metrics by the names that configurations write: those of Gatehouse, and those of a project's own.

A metric of a project's own is named as `package.module:name`, where `name` is a `Metric` as the decorators of
`metric.py` make it. The files of its package are in the key of what measures it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.metrics import classification, ranking, regression
from gatehouse.metrics.metric import Metric
from gatehouse.metrics.tasks import TASKS
from gatehouse.store.builder_code import BuilderError, is_installed, named_object

_DECLARED = [
    metric
    for module in (classification, ranking, regression)
    for metric in vars(module).values()
    if isinstance(metric, Metric)
]
METRICS: Mapping[str, Metric] = MappingProxyType(
    {metric.name: metric for metric in sorted(_DECLARED, key=lambda metric: metric.name)}
)
"""The metrics of Gatehouse by name, in alphabetical order."""
ALIASES = {alias: metric.name for metric in _DECLARED for alias in metric.aliases}
_OWN = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
OwnName = Annotated[str, Field(pattern=_OWN)]
"""The name of an object of a project's own, `package.module:name`."""


def is_own(name: str) -> bool:
    """Whether a text has the form of a metric of a project's own, `package.module:name`."""
    return re.match(_OWN, name) is not None


@cache
def metric_named(name: str) -> Metric:
    """The metric of a name.

    Raises ConfigurationError if Gatehouse has none of this name; BuilderError if one of a project's own cannot be
    imported, or is no `Metric`.
    """
    if not is_own(name):
        return METRICS[_expected(name)]
    metric = named_object(name)
    if not isinstance(metric, Metric):
        raise BuilderError(
            f"{name}: expected a metric, declared by a decorator of gatehouse.metrics.metric, found "
            f"{type(metric).__name__}."
        )
    return replace(metric, name=name)


def metrics_for(task: str, further: Iterable[str] = ()) -> dict[str, Metric]:
    """The metrics of a task, and further ones of a project's own, by name."""
    of_task = {name: metric for name, metric in METRICS.items() if task in metric.tasks}
    return of_task | {name: metric_named(name) for name in sorted({*further} - of_task.keys())}


def metric_problem(name: str, task: str) -> str:
    """Why models of a task cannot be measured by a metric; empty if they can.

    A metric of a project's own is imported if its package is installed here; else whoever measures it checks it.
    """
    if is_own(name):
        if not is_installed(name):
            return ""
        try:
            tasks = metric_named(name).tasks
        except BuilderError as error:
            return str(error)
        return "" if task in tasks else f"{name} is a metric of {', '.join(tasks)}, and not of {task}"
    offered = metrics_for(task)
    if name in offered:
        return ""
    return (
        f"the task {task} has the metrics {', '.join(offered)}; found {name}{nearest(name, offered, synonyms=ALIASES)}"
    )


def is_minimized(measure: str) -> bool:
    """Whether less is better of a metric, or of the mean of a loss."""
    losses = {mean for task in TASKS.values() for mean in task.losses.values()}
    return measure in losses or metric_named(measure).better == "lower"


def _expected(name: str) -> str:
    if name not in METRICS:
        meant = nearest(name, METRICS, synonyms=ALIASES)
        expected = f"a metric{meant}" if meant else f"one of the metrics {', '.join(METRICS)}"
        raise ConfigurationError(f"expected {expected}, or one of your own as package.module:name, found {name!r}")
    return name


def _metric_name(name: str) -> str:
    try:
        return name if is_own(name) else _expected(name)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


class _Enumerated:
    """Lists the metrics in a JSON schema."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "anyOf": [{"enum": [*METRICS]}, {"pattern": _OWN}]}


MetricName = Annotated[str, AfterValidator(_metric_name), _Enumerated]
"""The name of a metric in a configuration."""
MetricNames = Annotated[tuple[MetricName, ...], AfterValidator(lambda names: tuple(sorted(set(names))))]
"""Names of metrics, in no order, which must not change the identity of a configuration."""
