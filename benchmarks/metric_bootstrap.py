"""The bootstrap of every metric: ours, prepared once, and scikit-learn's function in a loop over drawn rows.

Both measure what is drawn with replacement: rows, or whole groups of a ranking. Ours takes all rounds, and its time
includes the preparation; scikit-learn takes a few, and its time is scaled to as many. To draw is in neither, and to
gather what was drawn only in ours, as one draw serves all metrics. Processor time, summed over the metrics of a task
that scikit-learn has.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import metrics as sklearn

from gatehouse.evaluation.bootstrap import Units
from gatehouse.metrics.catalogue import metrics_for
from gatehouse.metrics.metric import Predictions
from gatehouse.metrics.tasks import TASKS

LEAST = {"binary": 10.0, "multiclass": 10.0, "regression": 3.0, "ranking": 10.0}
_CLASSES, _GROUP, _DRAWS = 5, 20, 10
_SklearnMetric = Callable[[Any, Predictions], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--their-rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    missed = []
    for task in TASKS:
        labels, predictions = _example(task, options.rows)
        totals = np.zeros(2)
        print(f"\n{task}, {options.rows:,} rows, {options.rounds:,} rounds     ours      scikit-learn   ratio")
        for name, metric in metrics_for(task).items():
            seconds = _gatehouse(metric, labels, predictions, options.rounds)
            if name not in _PEERS[task]:
                print(f"{name:34} {seconds:8.2f} s")
                continue
            peer = _sklearn(_PEERS[task][name], labels, predictions, options.their_rounds) * options.rounds
            totals += seconds, peer
            print(f"{name:34} {seconds:8.2f} s {peer:12.1f} s {peer / seconds:8.1f}")
        ratio = totals[1] / totals[0]
        print(f"{'all':34} {totals[0]:8.2f} s {totals[1]:12.1f} s {ratio:8.1f}, expected at least {LEAST[task]:g}")
        if ratio < LEAST[task]:
            missed.append(task)
    if missed:
        raise SystemExit(f"Too slow: {', '.join(missed)}.")


def _example(task: str, rows: int) -> tuple[Any, Predictions]:
    draw = np.random.default_rng(7)
    signal = draw.normal(size=rows)
    noisy = signal + draw.normal(size=rows)
    if task == "regression":
        return signal, TASKS[task].read(noisy, None)
    if task == "ranking":
        return np.round(np.maximum(signal, 0)), TASKS[task].read(noisy, np.arange(rows) // _GROUP)
    if task == "binary":
        return (signal > 1).astype(float), TASKS[task].read(1 / (1 + np.exp(1 - noisy)), None)
    labels = draw.integers(0, _CLASSES, rows)
    weights = np.exp(np.eye(_CLASSES)[labels] + draw.normal(size=(rows, _CLASSES)))
    return labels.astype(float), TASKS[task].read(weights / weights.sum(axis=1, keepdims=True), None)


def _gatehouse(metric: Any, labels: Any, predictions: Predictions, rounds: int) -> float:
    units = Units("row", len(labels)) if predictions.groups is None else Units("group", *_numbered(predictions.groups))
    draws = list(units.draws(range(_DRAWS), 3))
    seconds = -time.process_time()
    measured = metric.on_draws(labels, predictions)
    for number in range(rounds):
        measured(draws[number % _DRAWS])
    return seconds + time.process_time()


def _numbered(groups: Any) -> tuple[int, Any]:
    return len(np.unique(groups)), groups


def _sklearn(measured: _SklearnMetric, labels: Any, predictions: Predictions, rounds: int) -> float:
    """Seconds of a round. Groups have the same size here, so that rows of a drawn group are easily found."""
    draw, size, seconds = np.random.default_rng(3), 1 if predictions.groups is None else _GROUP, 0.0
    for _ in range(rounds):
        drawn = draw.integers(0, len(labels) // size, len(labels) // size)
        rows = (drawn[:, None] * size + np.arange(size)).ravel()
        sample = labels[rows], predictions.take(rows)
        seconds -= time.process_time()
        measured(*sample)
        seconds += time.process_time()
    return seconds / rounds


def _by_group(measured: Callable[[Any, Any], float]) -> _SklearnMetric:
    """The mean over groups with a relevant row of what scikit-learn says of each."""

    def mean(labels: Any, read: Predictions) -> float:
        groups = zip(labels.reshape(-1, _GROUP), read.scores.reshape(-1, _GROUP), strict=True)
        return float(np.mean([measured(*group) for group in groups if group[0].any()]))

    return mean


def _ndcg(most: int | None) -> _SklearnMetric:
    return lambda labels, read: sklearn.ndcg_score(labels.reshape(-1, _GROUP), read.scores.reshape(-1, _GROUP), k=most)


_NAMES = np.arange(_CLASSES)
_OF_CLASSES: dict[str, _SklearnMetric] = {
    "accuracy": lambda labels, read: sklearn.accuracy_score(labels, read.classes),
    "balanced_accuracy": lambda labels, read: sklearn.balanced_accuracy_score(labels, read.classes),
    "mcc": lambda labels, read: sklearn.matthews_corrcoef(labels, read.classes),
}
_PEERS: dict[str, dict[str, _SklearnMetric]] = {
    "binary": _OF_CLASSES
    | {
        "average_precision": lambda labels, read: sklearn.average_precision_score(labels, read.scores),
        "brier": lambda labels, read: sklearn.brier_score_loss(labels, read.probabilities),
        "f1": lambda labels, read: sklearn.f1_score(labels, read.classes),
        "log_loss": lambda labels, read: sklearn.log_loss(labels, read.probabilities),
        "precision": lambda labels, read: sklearn.precision_score(labels, read.classes),
        "recall": lambda labels, read: sklearn.recall_score(labels, read.classes),
        "roc_auc": lambda labels, read: sklearn.roc_auc_score(labels, read.scores),
    },
    "multiclass": _OF_CLASSES
    | {
        "average_precision": lambda labels, read: sklearn.average_precision_score(labels, read.scores),
        "brier": lambda labels, read: sklearn.brier_score_loss(labels, read.probabilities),
        "f1": lambda labels, read: sklearn.f1_score(labels, read.classes, average="macro"),
        "log_loss": lambda labels, read: sklearn.log_loss(labels, read.probabilities, labels=_NAMES),
        "precision": lambda labels, read: sklearn.precision_score(labels, read.classes, average="macro"),
        "recall": lambda labels, read: sklearn.recall_score(labels, read.classes, average="macro"),
        "roc_auc": lambda labels, read: sklearn.roc_auc_score(labels, read.scores, multi_class="ovr"),
    },
    "regression": {
        "mae": lambda labels, read: sklearn.mean_absolute_error(labels, read.scores),
        "mape": lambda labels, read: sklearn.mean_absolute_percentage_error(labels, read.scores),
        "mse": lambda labels, read: sklearn.mean_squared_error(labels, read.scores),
        "pinball_p10": lambda labels, read: sklearn.mean_pinball_loss(labels, read.scores, alpha=0.1),
        "pinball_p90": lambda labels, read: sklearn.mean_pinball_loss(labels, read.scores, alpha=0.9),
        "r2": lambda labels, read: sklearn.r2_score(labels, read.scores),
        "rmse": lambda labels, read: sklearn.root_mean_squared_error(labels, read.scores),
    },
    "ranking": {
        "mean_average_precision": _by_group(lambda labels, scores: sklearn.average_precision_score(labels > 0, scores)),
        "ndcg": _ndcg(None),
        "ndcg_at_10": _ndcg(10),
    },
}


if __name__ == "__main__":
    main()
