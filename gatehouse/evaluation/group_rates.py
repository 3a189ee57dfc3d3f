"""The rates of groups of rows on each draw of the bootstrap, from which fairness is measured."""

from collections.abc import Callable

import numpy as np

from gatehouse.evaluation.bootstrap import on_draws
from gatehouse.evaluation.sample import Sample
from gatehouse.metrics.classification import calibration_error_debiased
from gatehouse.metrics.metric import Array
from gatehouse.metrics.tasks import TASKS, TaskName
from gatehouse.store.stage import StageModel

CALIBRATION = "calibration_error"
RatesOfDraw = Callable[[Array], dict[str, Array]]
"""From how often each row was drawn to rates by name, shape (groups, classes); NaN for a rate of no rows."""


class GroupRates(StageModel):
    """The rates of each part of the first division of the rows; `classes` is the number of classes, 0 for none."""

    role: str
    task: TaskName
    classes: int
    names: tuple[str, ...] = ()
    """No metric of a project's own."""

    def on_draws(self, sample: Sample, draws: range, seed: int) -> Array:
        """The rates by name, group and class, shape (draws, names · groups · classes)."""
        rates = self.of_draw(sample)
        return on_draws(lambda times: np.concatenate([*rates(times).values()], axis=None), sample.units, draws, seed)

    def of_draw(self, sample: Sample) -> RatesOfDraw:
        """The function that measures the rates of a draw; all have the same shape."""
        labels, read, members = sample.labels, sample.predictions[self.role], sample.divisions[0]
        groups, task = int(members.max()) + 1, TASKS[self.task]
        if not task.has_classes:
            columns = {"mean_prediction": read.scores, "mean_error": read.scores - labels}

            def means(times: Array) -> dict[str, Array]:
                counts = np.bincount(members, weights=times, minlength=groups)
                sums = {
                    name: np.bincount(members, weights=times * values, minlength=groups)
                    for name, values in columns.items()
                }
                return {name: _share(total, counts)[:, None] for name, total in sums.items()}

            return means
        rates = _class_rates(labels, read.form("classes"), members, groups, self.classes)
        if task.output == "probabilities":
            return rates
        rows = [np.flatnonzero(members == number) for number in range(groups)]
        errors = [calibration_error_debiased.on_draws(labels[numbers], read.take(numbers)) for numbers in rows]

        def binary_rates(times: Array) -> dict[str, Array]:
            positive = {name: values[:, 1:] for name, values in rates(times).items()}
            calibration = [[error(times[numbers])] for error, numbers in zip(errors, rows, strict=True)]
            return positive | {CALIBRATION: np.array(calibration)}

        return binary_rates


def _class_rates(labels: Array, classes: Array, members: Array, groups: int, number: int) -> RatesOfDraw:
    """Rates of each class against the rest; it counts only the pairs of label and prediction that occur."""
    label, prediction = labels.astype(np.int64), np.asarray(classes).astype(np.int64)
    cells, cell = np.unique((members * number + label) * number + prediction, return_inverse=True)
    rest, predicted_as = np.divmod(cells, number)
    of_group, labelled_as = np.divmod(rest, number)

    def count(times: Array) -> dict[str, Array]:
        rows = np.bincount(cell, weights=times, minlength=len(cells))
        right, positive, selected = (
            np.bincount(of_group * number + of_class, weights=weights, minlength=groups * number).reshape(
                groups, number
            )
            for of_class, weights in (
                (labelled_as, rows * (labelled_as == predicted_as)),
                (labelled_as, rows),
                (predicted_as, rows),
            )
        )
        total = positive.sum(axis=1, keepdims=True)
        return {
            "selection_rate": _share(selected, np.broadcast_to(total, selected.shape)),
            "true_positive_rate": _share(right, positive),
            "false_positive_rate": _share(selected - right, total - positive),
        }

    return count


def _share(parts: Array, wholes: Array) -> Array:
    return np.asarray(np.divide(parts, wholes, out=np.full(parts.shape, np.nan), where=wholes > 0))
