"""Every metric against scikit-learn and its definition, with ties, single classes and hard probabilities."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn

from gatehouse.components.metrics.binary import (
    average_precision,
    brier_score,
    calibration_curve,
    expected_calibration_error,
    log_loss,
    precision_recall_curve,
    roc_auc,
    roc_curve,
)

# Few distinct scores, so that ties are the rule.
ROWS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)), min_size=1
)
BOTH = ROWS.filter(lambda rows: len({label for label, _ in rows}) == 2)


def columns(rows: list[tuple[int, float]]) -> tuple[Any, Any]:
    return np.array([label for label, _ in rows], dtype=np.int8), np.array([score for _, score in rows])


@given(BOTH)
def test_areas_agree_with_sklearn(rows: list[tuple[int, float]]) -> None:
    labels, scores = columns(rows)
    assert roc_auc(labels, scores) == pytest.approx(sklearn.roc_auc_score(labels, scores))
    assert average_precision(labels, scores) == pytest.approx(sklearn.average_precision_score(labels, scores))


@given(ROWS)
def test_losses_agree_with_sklearn(rows: list[tuple[int, float]]) -> None:
    labels, scores = columns(rows)
    kept = np.clip(scores, 1e-15, 1 - 1e-15)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert log_loss(labels, scores) == pytest.approx(sklearn.log_loss(labels, kept, labels=[0, 1]))
    assert brier_score(labels, scores) == pytest.approx(np.mean((scores - labels) ** 2))


@given(BOTH)
def test_the_curve_encloses_the_area(rows: list[tuple[int, float]]) -> None:
    labels, scores = columns(rows)
    false_positive, true_positive, thresholds = roc_curve(labels, scores)
    assert np.trapezoid(true_positive, false_positive) == pytest.approx(roc_auc(labels, scores))
    assert (false_positive[0], true_positive[0]) == (0, 0)
    assert (false_positive[-1], true_positive[-1]) == (1, 1)
    assert np.isfinite(thresholds).all()
    for at, threshold in enumerate(thresholds):
        assert true_positive[at] == pytest.approx(np.mean(scores[labels == 1] >= threshold))
        assert false_positive[at] == pytest.approx(np.mean(scores[labels == 0] >= threshold))


@given(BOTH)
def test_precision_and_recall_agree_with_their_definition(rows: list[tuple[int, float]]) -> None:
    labels, scores = columns(rows)
    recall, precision = precision_recall_curve(labels, scores)
    for at, threshold in enumerate(np.unique(scores)[::-1]):
        taken = scores >= threshold
        assert precision[at] == pytest.approx(labels[taken].mean())
        assert recall[at] == pytest.approx(labels[taken].sum() / labels.sum())


@given(BOTH)
def test_swapping_the_labels_mirrors_the_area(rows: list[tuple[int, float]]) -> None:
    labels, scores = columns(rows)
    assert roc_auc(1 - labels, scores) == pytest.approx(1 - roc_auc(labels, scores))


@given(BOTH, st.randoms())
def test_the_order_of_rows_does_not_matter(rows: list[tuple[int, float]], random: Any) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    for metric in (roc_auc, average_precision, log_loss, brier_score, expected_calibration_error):
        assert metric(*columns(shuffled)) == pytest.approx(metric(*columns(rows)), abs=1e-12)


@given(ROWS, st.integers(1, 30))
def test_calibration_groups_are_of_about_equal_size(rows: list[tuple[int, float]], bins: int) -> None:
    labels, scores = columns(rows)
    predicted, observed, counts = calibration_curve(labels, scores, bins)
    assert counts.sum() == len(rows)
    assert counts.max() - counts.min() <= 1
    assert (predicted * counts).sum() == pytest.approx(scores.sum())
    assert (observed * counts).sum() == pytest.approx(labels.sum())
    assert 0 <= expected_calibration_error(labels, scores, bins) <= 1


def test_probabilities_that_come_true_have_no_calibration_error() -> None:
    labels = np.array([0] * 500 + [1] * 500)
    assert expected_calibration_error(labels, np.full(1000, 0.5)) == pytest.approx(0.0, abs=1e-9)
    assert expected_calibration_error(labels, np.full(1000, 0.9)) == pytest.approx(0.4)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_an_area_by_convention_and_no_warning(label: int) -> None:
    labels, scores = np.full(4, label), np.array([0.1, 0.2, 0.3, 0.4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert roc_auc(labels, scores) == 0.5
        assert average_precision(labels, scores) == float(label)
        assert np.isfinite(roc_curve(labels, scores)).all()
        assert np.isfinite(log_loss(labels, scores))


def test_equal_scores_tell_nothing() -> None:
    labels = np.array([0, 1, 1, 0])
    assert roc_auc(labels, np.full(4, 0.3)) == 0.5
    assert average_precision(labels, np.full(4, 0.3)) == 0.5


def test_a_certain_mistake_costs_much_but_not_everything() -> None:
    assert 30 < log_loss(np.array([1]), np.array([0.0])) < 40
    assert log_loss(np.array([1]), np.array([1.0])) < 1e-12
