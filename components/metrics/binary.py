"""Metrics of binary classifiers: one definition for training, evaluation and the leakage alarm.

Everywhere, `labels` are 0 or 1 and `scores` are higher for more likely; probabilities are in [0, 1]. Shapes are
(rows,).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_TINY = 1e-15


def roc_auc(labels: Array, scores: Array) -> float:
    """Area under the ROC curve: the chance that a positive row scores above a negative one, ties counting half.

    This is the Mann-Whitney U statistic over the number of pairs (Hanley and McNeil 1982).

    Returns:
        A number in [0, 1]; 0.5 where only one class is there.
    """
    positive = np.asarray(labels) > 0.5
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if ones == 0 or zeros == 0:
        return 0.5
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return float((ranks[inverse][positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def log_loss(labels: Array, probabilities: Array) -> float:
    """Mean negative log likelihood in nats; probabilities are kept 1e-15 away from 0 and 1."""
    kept = np.clip(probabilities, _TINY, 1 - _TINY)
    return float(-np.mean(np.where(np.asarray(labels) > 0.5, np.log(kept), np.log1p(-kept))))


def brier_score(labels: Array, probabilities: Array) -> float:
    """Mean squared error of the probabilities (Brier 1950)."""
    return float(np.mean((np.asarray(probabilities) - np.asarray(labels)) ** 2))


def average_precision(labels: Array, scores: Array) -> float:
    """Area under the precision-recall curve as a sum of steps: sum over thresholds of (R_n - R_{n-1}) P_n.

    Returns:
        A number in [0, 1]; 0.0 where there is no positive row.
    """
    recall, precision = precision_recall_curve(labels, scores)
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def precision_recall_curve(labels: Array, scores: Array) -> tuple[Array, Array]:
    """Recall and precision at every distinct score, from the highest down."""
    hits, taken = _cumulated(labels, scores)
    ones = hits[-1] if len(hits) else 0
    return (hits / ones if ones else np.zeros(len(hits))), hits / np.maximum(taken, 1)


def roc_curve(labels: Array, scores: Array) -> tuple[Array, Array, Array]:
    """False positive rate, true positive rate and threshold at every distinct score, from the highest down.

    The curve begins at (0, 0), with a threshold above every score.
    """
    hits, taken = _cumulated(labels, scores)
    ones, rows = (hits[-1], taken[-1]) if len(hits) else (0, 0)
    misses = taken - hits
    thresholds = np.unique(scores)[::-1].astype(float)
    start = thresholds[:1] + 1 if len(thresholds) else np.ones(1)
    return (
        np.concatenate([[0.0], misses / max(rows - ones, 1)]),
        np.concatenate([[0.0], hits / max(ones, 1)]),
        np.concatenate([start, thresholds]),
    )


def calibration_curve(labels: Array, probabilities: Array, bins: int) -> tuple[Array, Array, Array]:
    """Mean probability, observed rate and row count in `bins` groups of about equal size, by probability.

    Rows of the same probability may fall into different groups; each counts with the rate of all of them, so that the
    order of rows does not matter.
    """
    _, inverse, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    labels = (np.bincount(inverse, weights=labels) / counts)[inverse]
    order = np.argsort(probabilities, kind="stable")
    groups = [group for group in np.array_split(order, bins) if len(group)]
    predicted = np.array([np.mean(probabilities[group]) for group in groups])
    observed = np.array([np.mean(labels[group]) for group in groups])
    return predicted, observed, np.array([len(group) for group in groups])


def expected_calibration_error(labels: Array, probabilities: Array, bins: int = 20) -> float:
    """Mean distance of observed rate and mean probability over groups of equal size, weighted by rows (Naeini 2015)."""
    predicted, observed, counts = calibration_curve(labels, probabilities, bins)
    return float(np.sum(np.abs(predicted - observed) * counts) / np.sum(counts))


def _cumulated(labels: Array, scores: Array) -> tuple[Array, Array]:
    """Positives and rows at or above every distinct score, from the highest score down."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    positives = np.bincount(inverse, weights=np.asarray(labels) > 0.5, minlength=len(counts))
    return np.cumsum(positives[::-1]), np.cumsum(counts[::-1])
