"""Numbers of each draw of the bootstrap: a piece is a range of draws, on which one model is measured.

A draw has a generator of its own, so any worker can make it without those before it.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

import numpy as np

from gatehouse.errors import WrongImageError
from gatehouse.evaluation.bootstrap import Units, on_draws, shuffled
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.classification import calibration_error_debiased
from gatehouse.metrics.metric import Array, Predictions, all_on_draws
from gatehouse.metrics.tasks import TASKS, TaskName
from gatehouse.pieces.piece import KIND, Call, piece, run_pieces
from gatehouse.store.builder_code import builder_code
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

ROWS_DRAWN = 1 << 27
"""How many rows a piece draws at most, in all of its draws."""
_FILE = "numbers.npy"
_MOST, _FEWEST, _ROWS = 50, 5, 2_000_000  # Of shuffles, and of their rows.
CALIBRATION = "calibration_error"
RatesOfDraw = Callable[[Array], dict[str, Array]]
"""From how often each row was drawn to rates by name, shape (groups, classes); NaN for a rate of no rows."""


@dataclass(frozen=True)
class Sample:
    """Labelled rows, and predictions for them by role.

    Attributes:
        labels: Shape (rows,).
        divisions: The ways in which rows are divided into parts: each has the number of every row's part, from 0
            without gaps, shape (rows,).
    """

    labels: Array
    predictions: Mapping[str, Predictions]
    units: Units
    divisions: Sequence[Array] = ()

    def published(self, store: ArtifactStore) -> str:
        """Publish the rows for workers; returns the reference."""
        arrays = {"labels": self.labels} | {f"division {number}": of for number, of in enumerate(self.divisions)}
        if self.units.of_row is not None:
            arrays["units"] = self.units.of_row
        for role, read in self.predictions.items():
            arrays |= {f"{role} {form}": values for form, values in vars(read).items() if values is not None}
        with store.workspace() as workspace:
            for name, values in arrays.items():
                np.save(workspace / f"{name}.npy", values, allow_pickle=False)
            files = {f"{name}.npy": workspace / f"{name}.npy" for name in arrays}
            return str(store.publish(KIND, "sample", files, details={"units": self.units.number}))

    @classmethod
    def read(cls, store: ArtifactStore, reference: str, role: str) -> "Sample":
        """The published rows with the predictions of one role."""
        manifest = store.manifest(reference)
        names = {entry.path.removesuffix(".npy") for entry in manifest.files}

        def array(name: str) -> Array:
            values: Array = np.load(store.path(reference, f"{name}.npy"), allow_pickle=False)
            return values

        forms = [form.name for form in fields(Predictions) if f"{role} {form.name}" in names]
        read = Predictions(**{form: array(f"{role} {form}") for form in forms})
        units = Units("unit", manifest.details["units"], array("units") if "units" in names else None)
        divisions = [array(name) for number in range(len(names)) if (name := f"division {number}") in names]
        return cls(array("labels"), {role: read}, units, divisions)


class PartMetrics(StageModel):
    """Metrics of each part of each division of the rows, in turn; without a division all rows are one part."""

    role: str
    metrics: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that are measured."""
        return tuple(sorted({name for part in self.metrics for name in part}))

    def on_draws(self, sample: Sample, draws: range, seed: int) -> Array:
        """The metrics part by part, as `all_on_draws` lists them, shape (draws, numbers)."""
        labels, read = sample.labels, sample.predictions[self.role]
        metrics = [[metric_named(name) for name in part] for part in self.metrics]
        if not sample.divisions:
            return on_draws(all_on_draws(metrics[0], labels, read), sample.units, draws, seed)
        order = np.concatenate([np.argsort(part_of, kind="stable") for part_of in sample.divisions])
        ends = np.cumsum(np.concatenate([np.bincount(part_of) for part_of in sample.divisions]))[:-1]
        parts = zip(metrics, np.split(order, ends), strict=True)
        measured = [all_on_draws(of, labels[rows], read.take(rows)) for of, rows in parts]

        def of_parts(times: Array) -> Array:
            drawn = zip(measured, np.split(times[order], ends), strict=True)
            return np.hstack([measure(of_part) for measure, of_part in drawn])

        return on_draws(of_parts, sample.units, draws, seed)


class ShuffledMetric(StageModel):
    """A metric of predictions that are dealt to other rows at random, in a ranking to other rows of the group.

    There are 50 shuffles, or fewer (at least 5) if these have more than two million rows. Each has its share of the
    `samples` draws.
    """

    role: str
    metric: str
    samples: int

    @property
    def names(self) -> tuple[str, ...]:
        """The metric."""
        return (self.metric,)

    def on_draws(self, sample: Sample, draws: range, seed: int) -> Array:
        """The metric of each draw, and that of all rows in the same shuffle, shape (draws, 2)."""
        labels, read, metric = sample.labels, sample.predictions[self.role], metric_named(self.metric)
        shuffles = min(_MOST, max(_FEWEST, _ROWS // max(len(labels), 1)))
        values = list[Array]()
        for shuffle, numbers in groupby(draws, lambda number: number * shuffles // self.samples):
            measure = all_on_draws([metric], labels, shuffled(read, len(labels), seed, shuffle))
            drawn = on_draws(measure, sample.units, numbers, seed)[:, 0]
            values.append(np.column_stack([drawn, np.full(len(drawn), measure(np.ones(len(labels)))[0])]))
        return np.concatenate(values)


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


Measure = PartMetrics | GroupRates | ShuffledMetric
"""What is measured on each draw."""


class RangeRequest(StageModel):
    """A sample, what is measured on draws from number `first` to below `last`, and the code of a project's metrics."""

    sample: str
    measure: Measure
    first: int
    last: int
    seed: int
    code: str


class RangeResult(StageModel):
    """The artifact with the numbers of each draw."""

    numbers: str


def measured_draws(
    sample: Sample, measures: Sequence[Measure], samples: int, seed: int, store: ArtifactStore | None = None
) -> list[Array]:
    """The numbers of each draw by measure, shape (samples, numbers) each; the same draws for all measures of a seed.

    Few rows, and all without a store, are measured in this process.
    """
    pieces = max(1, -(-samples * len(sample.labels) // ROWS_DRAWN))
    firsts = range(0, samples, max(1, -(-samples // pieces)))
    if store is None or len(firsts) <= 1:
        return [measure.on_draws(sample, range(samples), seed) for measure in measures]
    reference = sample.published(store)
    calls = list[Call]()
    for measure in measures:
        of: dict[str, Any] = {"sample": reference, "measure": measure, "seed": seed}
        of["code"] = builder_code(*measure.names)
        ranges = [{"first": first, "last": min(first + firsts.step, samples)} for first in firsts]
        calls += [(measure_range, RangeRequest(**of, **draws)) for draws in ranges]
    results = iter(run_pieces(store, calls))
    return [np.concatenate([np.load(store.path(next(results).numbers, _FILE)) for _ in firsts]) for _ in measures]


@piece
def measure_range(request: RangeRequest, store: ArtifactStore) -> RangeResult:
    """Measure a range of draws. Raises WrongImageError if a metric of the project's own has other code here."""
    measure = request.measure
    if builder_code(*measure.names) != request.code:
        raise WrongImageError(
            f"{', '.join(measure.names)}: expected the packages of the project as the task has them, found other code. "
            "Give the workers the image of the task."
        )
    sample, sink = Sample.read(store, request.sample, measure.role), io.BytesIO()
    np.save(sink, measure.on_draws(sample, range(request.first, request.last), request.seed), allow_pickle=False)
    files = {_FILE: sink.getvalue()}
    return RangeResult(numbers=str(store.publish(KIND, "draws", files, derived_from={"sample": request.sample})))


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
