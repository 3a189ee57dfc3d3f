"""Curves are thinned without losing their ends or their area."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.evaluation.evaluating import POINTS, Curves
from gatehouse.evaluation.evaluating import curves_of as curves_named
from gatehouse.metrics.classification import roc_auc
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY


def example(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    labels = np.append(draw.integers(0, 2, rows - 2), [0, 1]).astype(np.int8)
    return labels, np.clip(0.5 + 0.15 * draw.normal(size=rows) + 0.1 * (labels - 0.5), 0, 1)


def curves_of(labels: np.ndarray, scores: np.ndarray, bins: int) -> Curves:
    """All curves of a binary model."""
    return curves_named(profile_of(BINARY).curves, labels, BINARY.read(scores, None), bins)


@given(st.integers(2, 2000), st.integers(0, 50))
def test_curves_have_few_finite_points_and_keep_their_ends(rows: int, seed: int) -> None:
    labels, scores = example(rows, seed)
    curves = curves_of(labels, scores, 20)
    assert all(np.isfinite(points).all() for points in map(np.array, curves.values()))
    assert max(len(points) for points in curves.values()) <= POINTS + 2
    assert curves["roc"][0][:2] == [0.0, 0.0]
    assert curves["roc"][-1][:2] == [1.0, 1.0]
    assert curves["precision_recall"][-1][0] == 1.0


def test_a_thinned_curve_has_the_area_of_the_whole() -> None:
    labels, scores = example(50_000)
    points = np.array(curves_of(labels, scores, 20)["roc"])
    assert np.trapezoid(points[:, 1], points[:, 0]) == pytest.approx(roc_auc(labels, scores), abs=5e-4)
