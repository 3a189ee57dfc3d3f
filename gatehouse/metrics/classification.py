"""Metrics of classes: of predicted classes, of the order of scores, and of probabilities.

Labels are 0 or 1, or the number of the class, shape (rows,). Probabilities are those of label 1, shape (rows,), or of
each class, shape (rows, classes).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

from gatehouse.metrics.curves import BINS, calibration, calibration_of_draws
from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import About, Array, Metric, mean_metric, metric

_TINY = 1e-15
_BOTH = ("binary", "multiclass")


@dataclass(frozen=True)
class ClassCounts:
    """Rows of each class that occurs among labels or predictions, shape (classes,) each.

    Attributes:
        positive: Which class is the positive one of two; None with several classes.
    """

    right: Array
    labelled: Array
    predicted: Array
    positive: Array | None

    def average(self, parts: Array, wholes: Array) -> float:
        """Parts as shares of wholes (0 for a whole of 0): of the positive class, or the mean of several classes."""
        shares = parts / np.maximum(wholes, 1)
        return float(shares.mean() if self.positive is None else shares[self.positive].sum())


def class_metric(*, title: str, **about: Unpack[About]) -> Callable[[Callable[[ClassCounts], float]], Metric]:
    """Declare a function of counts by class, higher for better; these metrics share the counts of a draw."""

    def declare(of_counts: Callable[[ClassCounts], float]) -> Metric:
        def measure(labels: Array, classes: Array) -> float:
            return of_counts(_class_counter(labels, classes)(np.ones(len(labels))))

        name, prepare = of_counts.__name__, _class_counter
        return Metric(name, title, "higher", _BOTH, "classes", measure, prepare=prepare, of_counts=of_counts, **about)

    return declare


def _class_counter(labels: Array, classes: Array) -> Callable[[Array], ClassCounts]:
    """A function from how often each row was drawn to the counts.

    It keeps only the cells of the confusion matrix that occur, so thousands of classes need no more memory than rows.
    """
    names, numbers = np.unique(np.concatenate([labels, classes]), return_inverse=True)
    cells, cell = np.unique(numbers[: len(labels)] * len(names) + numbers[len(labels) :], return_inverse=True)
    label, prediction = np.divmod(cells, len(names))

    def count(times: Array) -> ClassCounts:
        rows = np.bincount(cell, weights=times, minlength=len(cells))
        right, labelled, predicted = (
            np.bincount(number, weights=weights, minlength=len(names))
            for number, weights in ((label, rows * (label == prediction)), (label, rows), (prediction, rows))
        )
        drawn = (labelled > 0) | (predicted > 0)
        positive = names[drawn] == 1 if np.asarray(classes).dtype == bool else None
        return ClassCounts(right[drawn], labelled[drawn], predicted[drawn], positive)

    return count


@mean_metric(title="accuracy", better="higher", tasks=_BOTH, reads="classes", aliases=("acc",))
def accuracy(labels: Array, classes: Array) -> Array:
    """1 for each row whose class is the predicted one, else 0."""
    return np.asarray(np.asarray(labels) == classes, np.float64)


@class_metric(title="balanced accuracy")
def balanced_accuracy(counts: ClassCounts) -> float:
    """Mean recall of the classes that labels have (Brodersen et al. 2010)."""
    there = counts.labelled > 0
    return float(np.mean(counts.right[there] / counts.labelled[there]))


@class_metric(title="precision")
def precision(counts: ClassCounts) -> float:
    """Share of right predictions of the positive class, or the mean over classes; 0 for a class never predicted."""
    return counts.average(counts.right, counts.predicted)


@class_metric(title="recall")
def recall(counts: ClassCounts) -> float:
    """Share of the positive class that is predicted so, or the mean over classes; 0 for a class without rows."""
    return counts.average(counts.right, counts.labelled)


@class_metric(title="F1")
def f1(counts: ClassCounts) -> float:
    """Harmonic mean of precision and recall of the positive class, or the mean over classes."""
    return counts.average(2 * counts.right, counts.labelled + counts.predicted)


@class_metric(title="Matthews correlation")
def mcc(counts: ClassCounts) -> float:
    """The correlation of labels and predicted classes (Gorodkin 2004); 0 if one of them is constant."""
    rows = counts.labelled.sum()
    spread = (rows**2 - np.sum(counts.labelled**2)) * (rows**2 - np.sum(counts.predicted**2))
    shared = rows * counts.right.sum() - np.sum(counts.labelled * counts.predicted)
    return float(shared) / math.sqrt(spread) if spread > 0 else 0.0


def ranked_metric(*, title: str, **about: Unpack[About]) -> Callable[[Callable[[Array, Array], float]], Metric]:
    """Declare a function of the order of scores, higher for better: scores are sorted once, and draws only count.

    The function takes the positive rows and all rows at every distinct score, from the highest score down, shape
    (scores,) each. Neighbouring scores without a positive row may be merged, and scores without any row must not
    change the result. With several classes the metric is its mean over the classes that labels have, each against
    the rest.
    """

    def declare(of_counts: Callable[[Array, Array], float]) -> Metric:
        def average(counts: list[tuple[Array, Array]]) -> float:
            return float(np.mean([of_counts(hits, rows) for hits, rows in counts]))

        def measure(labels: Array, scores: Array) -> float:
            return average(_score_counter(labels, scores)(np.ones(len(scores))))

        name, prepare = of_counts.__name__, _score_counter
        return Metric(name, title, "higher", _BOTH, "scores", measure, prepare=prepare, of_counts=average, **about)

    return declare


def _score_counter(labels: Array, scores: Array) -> Callable[[Array], list[tuple[Array, Array]]]:
    """A function from how often each row was drawn to counts of the positive class, or of each class in the draw."""
    if scores.ndim == 1:
        count_positive = _binary_score_counter(np.asarray(labels) > 0.5, scores)
        return lambda times: [count_positive(times)]
    # A class that the model does not know has equal scores everywhere.
    columns = {
        number: scores[:, int(number)] if number < scores.shape[1] else np.zeros(len(scores))
        for number in np.unique(labels)
    }
    counters = [_binary_score_counter(labels == number, column) for number, column in columns.items()]
    return lambda times: [counts for count in counters if (counts := count(times))[0].any()]


def _binary_score_counter(positive: Array, scores: Array) -> Callable[[Array], tuple[Array, Array]]:
    order = np.argsort(-scores, kind="stable")
    scores, positive = scores[order], positive[order]
    first = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    hit = np.logical_or.reduceat(positive, first)
    first = first[np.concatenate([[True], hit[1:] | hit[:-1]])]

    def count(times: Array) -> tuple[Array, Array]:
        rows = times[order]
        return np.add.reduceat(rows * positive, first), np.add.reduceat(rows, first)

    return count


@ranked_metric(title="ROC AUC", aliases=("auc", "auroc", "roc"))
def roc_auc(hits: Array, rows: Array) -> float:
    """The chance that a positive row scores above a negative one, ties counting half; 0.5 with only one class.

    This is the Mann-Whitney U statistic over the number of pairs (Hanley and McNeil 1982). With several classes it is
    the mean of each against the rest (Provost and Domingos 2000).
    """
    misses = rows - hits
    pairs = int(hits.sum()) * int(misses.sum())
    below = np.cumsum(misses[::-1])[::-1] - misses / 2
    return float(np.sum(hits * below) / pairs) if pairs else 0.5


@ranked_metric(title="PR AUC", aliases=("ap", "pr_auc", "prauc"))
def average_precision(hits: Array, rows: Array) -> float:
    """The sum over thresholds of (R_n - R_{n-1}) P_n, with recall R and precision P; 0.0 without a positive row."""
    shares = np.cumsum(hits) / np.maximum(np.cumsum(rows), 1)
    return float(np.sum(hits * shares) / max(int(hits.sum()), 1))


def _probability_of_label(labels: Array, probabilities: Array) -> Array:
    """The probability of each row's own class, shape (rows,); 0 for a class that the model does not know."""
    chosen, in_range = np.asarray(labels, np.int64), np.asarray(labels) < probabilities.shape[1]
    return np.where(in_range, probabilities[np.arange(len(chosen)), np.where(in_range, chosen, 0)], 0.0)


@mean_metric(title="log loss", better="lower", tasks=_BOTH, reads="probabilities", aliases=("cross_entropy", "logloss"))
def log_loss(labels: Array, probabilities: Array) -> Array:
    """Negative log likelihood of each row in nats; probabilities are kept 1e-15 away from 0 and 1."""
    if probabilities.ndim == 2:
        return np.asarray(-np.log(np.clip(_probability_of_label(labels, probabilities), _TINY, 1 - _TINY)))
    clipped = np.clip(probabilities, _TINY, 1 - _TINY)
    return np.asarray(-np.where(np.asarray(labels) > 0.5, np.log(clipped), np.log1p(-clipped)))


@mean_metric(title="Brier score", better="lower", tasks=_BOTH, reads="probabilities")
def brier(labels: Array, probabilities: Array) -> Array:
    """Squared error of each row's probability; with several classes the sum over all, up to 2 (Brier 1950)."""
    if probabilities.ndim == 1:
        return np.asarray((probabilities - labels) ** 2)
    right = _probability_of_label(labels, probabilities)
    remainder = np.sum(probabilities**2, axis=1) - right**2
    return np.asarray((1 - right) ** 2 + np.maximum(remainder, 0.0))


_Curve = tuple[Array, Array, Array]


def _gaps(curve: _Curve) -> Array:
    """Distance of probability and rate in each bin, times its share of the rows, shape (20,); 0 for an empty bin."""
    predicted, observed, counts = curve
    gaps = np.zeros(BINS)
    gaps[: len(counts)] = (predicted - observed) * counts / counts.sum()
    return gaps


_CALIBRATION: Any = {"better": "lower", "tasks": ("binary",), "reads": "probabilities"}
_CALIBRATION |= {"prepare": calibration_of_draws, "gaps": _gaps, "groups": BINS}


def _error(curve: _Curve) -> float:
    predicted, observed, counts = curve
    return float(np.sum(np.abs(predicted - observed) * counts) / np.sum(counts))


@metric(
    title="plain calibration error",
    **_CALIBRATION,
    of_counts=_error,
    caveat="chance makes it larger than the true error; the debiased one is nearer to that, and has the interval",
    has_interval=False,
)
def calibration_error(labels: Array, probabilities: Array) -> float:
    """Mean distance of rate and mean probability over 20 bins of equal size, by rows (Naeini 2015)."""
    return _error(tuple(calibration(labels, probabilities, BINS).T))


def _debiased_error(curve: _Curve) -> float:
    predicted, observed, counts = curve
    gaps, noise = np.abs(predicted - observed), np.sqrt(np.maximum(observed * (1 - observed), 0) / counts)
    corrected = []
    for gap, spread in zip(gaps.tolist(), noise.tolist(), strict=True):
        mean = gap  # Of |gap + spread * z| with z standard normal: that of the folded normal distribution.
        if spread:
            ratio = gap / spread
            mean = spread * math.sqrt(2 / math.pi) * math.exp(-ratio * ratio / 2) + gap * math.erf(ratio / math.sqrt(2))
        corrected.append(2 * gap - mean)
    return max(0.0, float(np.sum(np.array(corrected) * counts) / np.sum(counts)))


@metric(title="debiased calibration error", **_CALIBRATION, of_counts=_debiased_error)
def calibration_error_debiased(labels: Array, probabilities: Array) -> float:
    """`calibration_error` less the bias that drawing the rates again would add (Kumar, Liang and Ma 2019); at least 0.

    In a bin of n rows the rate r varies by sqrt(r (1 - r) / n), so even calibrated probabilities differ from rates.
    The mean of that distance, which the authors take from samples, is a formula here.
    """
    return _debiased_error(tuple(calibration(labels, probabilities, BINS).T))
