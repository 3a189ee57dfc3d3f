"""A metric: a function with a name, a direction and a task, declared by a decorator."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack

from gatehouse.metrics.lazy_numpy import np

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
else:
    Array = Any
OnDraw = Callable[[Array], float]
Counted = Callable[[Array], Any]
Reads = Literal["scores", "probabilities", "classes", "groups"]
_LARGE = 1e10


@dataclass(frozen=True)
class Predictions:
    """Predictions of a model for rows, in every form that a metric may read.

    Attributes:
        scores: Higher for more, shape (rows,); the predicted values of a regression. With several classes one score
            per class, shape (rows, classes).
        probabilities: Of the positive label, shape (rows,), or of each class, shape (rows, classes).
        classes: The predicted class, shape (rows,): for two classes truth values, for several their number.
        groups: Number of the group of each row, shape (rows,).
    """

    scores: Array
    probabilities: Array | None = None
    classes: Array | None = None
    groups: Array | None = None

    def take(self, rows: Array) -> "Predictions":
        """The predictions for these row numbers, shape (some,); a row may occur more than once."""
        return replace(self, **{name: values[rows] for name, values in vars(self).items() if values is not None})

    def decided(self, threshold: float) -> "Predictions":
        """The same predictions with this threshold between two classes; several classes have none."""
        if self.probabilities is None or self.probabilities.ndim > 1:
            return self
        return replace(self, classes=self.probabilities >= threshold)

    def form(self, name: str) -> Array:
        """One form of the predictions, which the task must have."""
        values = getattr(self, name)
        assert values is not None, f"a metric reads {name}, which its task does not have"
        return np.asarray(values)


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        reads: Which form of the predictions it reads; `groups` stands for scores and groups.
        prepare: From labels and what it reads to a function from row counts of a draw to statistics. Metrics with the
            same `prepare` share the statistics. None measures the drawn rows again.
        of_counts: From these statistics to the metric.
        by_row: From labels and what it reads to a number per row, if the metric is their mean or its root.
        gaps: For calibration errors: from the statistics to the signed gap of each bin times its share of the rows,
            shape (groups,). The absolute gaps sum to the error.
        has_interval: Whether its interval is shown as its own. The interval of calibration errors is that of the true
            error, which the plain error of few rows may exceed.
        aliases: Its names in other programs: an error about one of them shows ours.
    """

    name: str
    title: str
    better: Literal["higher", "lower"]
    tasks: tuple[str, ...]
    reads: Reads
    function: Callable[..., float]
    form: str = ".4f"
    prepare: Callable[..., Counted] | None = None
    of_counts: Callable[[Any], float] = float
    by_row: Callable[..., Array] | None = None
    gaps: Callable[[Any], Array] | None = None
    groups: int = 0
    caveat: str = ""
    has_interval: bool = True
    aliases: tuple[str, ...] = ()

    def __call__(self, labels: Array, *predicted: Array) -> float:
        """The metric of labels and of what it reads; NaN if one of these numbers is NaN."""
        return math.nan if _holds_nan(labels, *predicted) else float(self.function(labels, *predicted))

    def measure(self, labels: Array, predictions: Predictions) -> float:
        """The metric of labels, shape (rows,), and predictions for the same rows; NaN if a label or score is NaN."""
        return math.nan if _holds_nan(predictions.scores) else self(labels, *self.read(predictions))

    def on_draws(self, labels: Array, predictions: Predictions) -> OnDraw:
        """A function from how often each row was drawn, float64, shape (rows,), to the metric of that draw."""
        measured = all_on_draws([self], labels, predictions)
        return lambda times: measured(times)[0]

    def counted(self, labels: Array, predictions: Predictions) -> Counted:
        """A function from how often each row was drawn, shape (rows,), to the argument of `of_counts`."""
        if self.prepare:
            return self.prepare(labels, *self.read(predictions))

        def measure_drawn_rows(times: Array) -> float:
            drawn = np.repeat(np.arange(len(labels)), times.astype(np.int64))
            return self.measure(labels[drawn], predictions.take(drawn))

        return measure_drawn_rows

    def is_better(self, value: float, than: float) -> bool:
        """Whether one value is strictly better than another; False with NaN."""
        return self.worse_by(value, than) < 0

    def worse_by(self, value: float, than: float) -> float:
        """By how much one value is worse than another; negative if it is better."""
        return value - than if self.better == "lower" else than - value

    def keeps(self, value: float, limit: float) -> bool:
        """Whether a value is at least as good as a limit; False with NaN."""
        return self.worse_by(value, limit) <= 0

    def text(self, value: float) -> str:
        """The value as reports write it."""
        return format(value, ".3e" if abs(value) >= _LARGE else self.form)

    def read(self, predictions: Predictions) -> tuple[Array, ...]:
        """The arguments of `function` and `by_row` after the labels."""
        if self.reads == "groups":
            return predictions.scores, predictions.form("groups")
        return (predictions.form(self.reads),)


class About(TypedDict, total=False):
    """What every declaration may add, as attributes of a `Metric`."""

    form: str
    caveat: str
    aliases: tuple[str, ...]


def metric(**about: Any) -> Callable[[Callable[..., float]], Metric]:
    """Declare a function of labels and of what it reads as the metric of its name; `about` has attributes of it."""
    return lambda function: Metric(name=function.__name__, function=function, **about)


def mean_metric(
    *,
    title: str,
    better: Literal["higher", "lower"],
    tasks: tuple[str, ...],
    reads: Reads,
    root: bool = False,
    **about: Unpack[About],
) -> Callable[[Callable[..., Array]], Metric]:
    """Declare a function that returns a number per row, shape (rows,): the metric is their mean, or its root."""

    def declare(by_row: Callable[..., Array]) -> Metric:
        def of_mean(mean: float) -> float:
            return float(np.sqrt(mean) if root else mean)

        def prepare(*arrays: Array) -> OnDraw:
            numbers = np.asarray(by_row(*arrays), np.float64)
            # Without BLAS: its threads cost more than the sum, and its last bits depend on the processor.
            return lambda times: of_mean(float(np.einsum("i,i", times, numbers)) / times.sum())

        def measure(*arrays: Array) -> float:
            return of_mean(by_row(*arrays).mean())

        return Metric(by_row.__name__, title, better, tasks, reads, measure, prepare=prepare, by_row=by_row, **about)

    return declare


def all_on_draws(metrics: Sequence[Metric], labels: Array, predictions: Predictions) -> Callable[[Array], list[float]]:
    """A function from how often each row was drawn, float64, shape (rows,), to the metrics of that draw, flat.

    The gaps of a metric follow its value; `by_metric` separates them again. All rows of a group must be drawn equally
    often. A draw gives NaN if one label or score is NaN, or if it has no rows.
    """
    numbers = sum(1 + metric.groups for metric in metrics)
    if _holds_nan(labels, *(values for values in vars(predictions).values() if values is not None)):
        return lambda times: [math.nan] * numbers
    keys = [(metric.prepare or metric.name, metric.reads) for metric in metrics]
    counters = {
        key: metric.counted(labels, predictions) for key, metric in dict(zip(keys, metrics, strict=True)).items()
    }

    def measure(times: Array) -> list[float]:
        if not times.any():
            return [math.nan] * numbers
        counts = {key: count(times) for key, count in counters.items()}
        values: list[float] = []
        for key, metric in zip(keys, metrics, strict=True):
            values.append(metric.of_counts(counts[key]) if metric.prepare else counts[key])
            values.extend(metric.gaps(counts[key]) if metric.gaps else ())
        return values

    return measure


def by_metric(metrics: Sequence[Metric], drawn: Array) -> list[Array]:
    """The columns of each metric, shape (samples, 1 + groups), in what `all_on_draws` gave, (samples, numbers)."""
    return np.split(drawn, np.cumsum([1 + metric.groups for metric in metrics])[:-1], axis=1)


def _holds_nan(*arrays: Array) -> bool:
    return any(bool(np.isnan(array).any()) for array in arrays)
