"""How sure each number of an evaluation is: intervals by role and metric, and what dependent rows cost."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gatehouse.evaluation.bootstrap import Measured, Units, interval, on_draws
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.metrics.catalogue.found import metrics_for
from gatehouse.metrics.catalogue.metric import Array, Predictions, all_on_draws, by_metric
from gatehouse.metrics.tasks.task import Task


@dataclass(frozen=True)
class Uncertainty:
    """Intervals of all metrics, and what they come from.

    Attributes:
        unit: What was drawn: `row`, `group`, `day`, `week`, or a column of the training set.
        units: How many of these the test rows are.
        samples: Number of draws.
        intervals: By role and metric, the ends of the 95 % interval.
        design_effect: By metric, the variance of the candidate's value over draws of units, over that of draws of rows,
            or of groups of a ranking (Kish 1965): how many times fewer independent ones the test part is worth. Empty
            where these were drawn.
    """

    unit: str
    units: int
    samples: int
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    design_effect: Mapping[str, float]


def uncertainty_of(
    task: Task, labels: Array, predictions: Mapping[str, Predictions], units: Units, spec: EvaluationSpec
) -> tuple[Uncertainty, dict[str, dict[str, Array]]]:
    """The intervals of all metrics of a task, and the values on each draw that they come from, by role and metric.

    Roles are measured one after another on the same draws, so that never more than one is prepared.

    Args:
        task: Says which metrics there are.
        labels: Shape (rows,).
        predictions: For the rows, by role, of the candidate first.
        units: What is drawn.
        spec: How often, and from which seed.
    """
    drawn = {role: _drawn(task, labels, each, units, spec) for role, each in predictions.items()}
    metrics = metrics_for(task.name)
    intervals = {
        role: {name: interval(each, drawn[role][name], units.number, labels, read) for name, each in metrics.items()}
        for role, read in predictions.items()
    }
    effect: dict[str, float] = {}
    candidate = next(iter(predictions))
    single = Units.single(len(labels), predictions[candidate].groups)
    if units.number < single.number:
        alone = _drawn(task, labels, predictions[candidate], single, spec)
        effect = {
            name: float(np.nanvar(drawn[candidate][name][:, 0]) / spread)
            for name, each in alone.items()
            if (spread := np.nanvar(each[:, 0])) > 0
        }
    values = {role: {name: each[:, 0] for name, each in found.items()} for role, found in drawn.items()}
    return Uncertainty(units.name, units.number, spec.bootstrap_samples, intervals, effect), values


def _drawn(task: Task, labels: Array, predictions: Predictions, units: Units, spec: EvaluationSpec) -> dict[str, Array]:
    metrics = metrics_for(task.name)
    measured = Measured(all_on_draws([*metrics.values()], labels, predictions))
    found = on_draws([measured], units, spec.bootstrap_samples, spec.seed)
    return dict(zip(metrics, by_metric([*metrics.values()], found), strict=True))
