"""A metric: a function of labels and predictions, and what its users need to know of it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from gatehouse.reports.format import LARGE

Array = npt.NDArray[Any]
Measure = Callable[..., float]
OnDraw = Callable[[Array], float]
Counted = Callable[[Array], Any]
Reads = Literal["scores", "probabilities", "classes"]


@dataclass(frozen=True)
class Predictions:
    """What a model says of rows, in every form that a metric may read.

    Attributes:
        scores: Higher for more, shape (rows,); of regression the predicted values. Of several classes a score of each,
            shape (rows, classes).
        probabilities: Of the positive label, shape (rows,), or of each class, shape (rows, classes); None where a task
            has none.
        classes: The predicted class, shape (rows,): of two classes whether it is the positive one, as truth values, of
            several their number; None where a task has none.
        groups: Number of the group of each row, shape (rows,); None where a task has none.
    """

    scores: Array
    probabilities: Array | None = None
    classes: Array | None = None
    groups: Array | None = None

    def take(self, rows: Array) -> "Predictions":
        """The predictions for some rows, by number, shape (some,); a row may come more than once."""
        return replace(self, **{name: each[rows] for name, each in vars(self).items() if each is not None})

    def decided(self, threshold: float) -> "Predictions":
        """The same where two classes have this threshold; several have none."""
        if self.probabilities is None or self.probabilities.ndim > 1:
            return self
        return replace(self, classes=self.probabilities >= threshold)

    def form(self, name: str) -> Array:
        """One form of the predictions, by name, of a task that has it; shaped as `Predictions` says."""
        found = getattr(self, name)
        assert found is not None, f"a metric reads {name}, which its task does not have"
        return np.asarray(found)


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: Of its file, and in configuration and results.
        title: What reports call it.
        better: Which values are better.
        tasks: Names of the tasks that it is for.
        reads: Which of the predictions it reads; `groups` stands for scores and groups.
        function: From labels, shape (rows,), and what it reads to a number.
        form: How the number is written, in Python's format language.
        chance: By name of a task: the value of a model that guesses; a task is left out where it depends on the rows.
        aliases: What other programs call it, in lower case; a mistake in a configuration is told our name.
        prepare: From the same to a function of how often each row was drawn, which quickly counts what a draw has;
            metrics of one `prepare` share what it counts. None measures the drawn rows anew.
        of_counts: From what was counted to the metric.
        by_row: From labels and what it reads to a number for each row, where the metric is their mean or its root.
        gaps: Of a calibration error, from what was counted to the gap of each group of rows, times its share of the
            rows, shape (groups,): their absolute values sum to the error. Chance makes it larger than that of all rows
            there could be, and that of a draw larger again.
        groups: How many gaps there are; 0 of other metrics.
        by_group: From labels and what it reads to a number for each group of a ranking by its number, shape (groups,),
            where the metric is their mean; NaN for one that does not count.
        caveat: When the number misleads, for those who read it.
        has_interval: Whether the interval that goes with it is shown as its own. That of calibration errors is of the
            true error, which the plain one of some rows may be far above.
    """

    name: str
    title: str
    better: Literal["higher", "lower"]
    tasks: tuple[str, ...]
    reads: Reads | Literal["groups"]
    function: Measure
    form: str = ".4f"
    chance: Mapping[str, float] = field(default_factory=dict, hash=False)
    aliases: tuple[str, ...] = ()
    prepare: Callable[..., Counted] | None = None
    of_counts: Callable[[Any], float] = float
    by_row: Callable[..., Array] | None = None
    gaps: Callable[[Any], Array] | None = None
    groups: int = 0
    by_group: Callable[..., Array] | None = None
    caveat: str = ""
    has_interval: bool = True

    def __call__(self, labels: Array, *read: Array) -> float:
        """The metric of labels and of what it reads; NaN where one of these numbers is."""
        return math.nan if _holds_nan(labels, *read) else float(self.function(labels, *read))

    def measure(self, labels: Array, predictions: Predictions) -> float:
        """The metric of labels, shape (rows,), and predictions for the same rows; NaN where a label or score is."""
        return math.nan if _holds_nan(predictions.scores) else self(labels, *self.read(predictions))

    def on_draws(self, labels: Array, predictions: Predictions) -> OnDraw:
        """A function from how often each row was drawn, float64, shape (rows,), to the metric of that draw."""
        measured = all_on_draws([self], labels, predictions)
        return lambda times: measured(times)[0]

    def counted(self, labels: Array, predictions: Predictions) -> Counted:
        """A function from how often each row was drawn, shape (rows,), to what `of_counts` takes."""
        return self.prepare(labels, *self.read(predictions)) if self.prepare else self._anew(labels, predictions)

    def _anew(self, labels: Array, predictions: Predictions) -> OnDraw:
        rows = np.arange(len(labels))

        def drawn_rows(times: Array) -> float:
            drawn = np.repeat(rows, times.astype(np.int64))
            return self.measure(labels[drawn], predictions.take(drawn))

        return drawn_rows

    def is_better(self, value: float, than: float) -> bool:
        """Whether one value is strictly better than another; never where one is NaN."""
        return self.worse_by(value, than) < 0

    def worse_by(self, value: float, than: float) -> float:
        """By how much one value is worse than another; negative where it is better."""
        return value - than if self.better == "lower" else than - value

    def keeps(self, value: float, limit: float) -> bool:
        """Whether a value is as good as a limit, or better; never where it is NaN."""
        return self.worse_by(value, limit) <= 0

    def text(self, value: float) -> str:
        """The value as reports write it; a large one by its power of ten."""
        return format(value, ".3e" if abs(value) >= LARGE else self.form)

    def read(self, predictions: Predictions) -> tuple[Array, ...]:
        """What `function`, `by_row` and `by_group` take after the labels; shaped as `Predictions` says."""
        if self.reads == "groups":
            return predictions.scores, predictions.form("groups")
        return (predictions.form(self.reads),)


class About(TypedDict, total=False):
    """What every declaration may add, as attributes of a `Metric`."""

    form: str
    chance: Mapping[str, float]
    aliases: tuple[str, ...]
    caveat: str


def all_on_draws(metrics: Sequence[Metric], labels: Array, predictions: Predictions) -> Callable[[Array], list[float]]:
    """A function from how often each row was drawn, float64, shape (rows,), to the metrics of that draw, flat.

    The values are in the order of the metrics. If a metric has gaps, they follow its value; `by_metric` separates them
    again. Counts that several metrics share are made once per draw. All rows of a group must be drawn equally often. If
    one label or score is NaN, every draw gives NaN; so does a draw without rows.
    """
    numbers = sum(1 + metric.groups for metric in metrics)
    if _holds_nan(labels, *(each for each in vars(predictions).values() if each is not None)):
        return lambda times: [math.nan] * numbers
    keys = [(metric.prepare or metric.name, metric.reads) for metric in metrics]
    counted = {
        key: metric.counted(labels, predictions) for key, metric in dict(zip(keys, metrics, strict=True)).items()
    }

    def measured(times: Array) -> list[float]:
        if not times.any():
            return [math.nan] * numbers
        counts = {key: count(times) for key, count in counted.items()}
        found: list[float] = []
        for key, metric in zip(keys, metrics, strict=True):
            found.append(metric.of_counts(counts[key]) if metric.prepare else counts[key])
            found.extend(metric.gaps(counts[key]) if metric.gaps else ())
        return found

    return measured


def by_metric(metrics: Sequence[Metric], drawn: Array) -> list[Array]:
    """What `all_on_draws` gave of each metric, shape (samples, 1 + groups); of all, shape (samples, numbers)."""
    return np.split(drawn, np.cumsum([1 + metric.groups for metric in metrics])[:-1], axis=1)


def _holds_nan(*given: Array) -> bool:
    return any(bool(np.isnan(each).any()) for each in given)


def probability_of_label(labels: Array, probabilities: Array) -> Array:
    """What each row's own class was given, shape (rows,); 0 for a class that the model does not know.

    Args:
        labels: Number of the class, shape (rows,).
        probabilities: Shape (rows, classes).
    """
    chosen, known = np.asarray(labels, np.int64), np.asarray(labels) < probabilities.shape[1]
    return np.where(known, probabilities[np.arange(len(chosen)), np.where(known, chosen, 0)], 0.0)
