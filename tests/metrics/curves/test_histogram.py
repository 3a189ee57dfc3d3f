"""The histogram of scores: every row is in a bin of its label."""

import numpy as np
import pytest

from gatehouse.metrics.curves.histogram import BINS, histogram


def test_it_holds_every_row() -> None:
    draw = np.random.default_rng(0)
    bins = histogram(draw.integers(0, 2, 1000), draw.random(1000))
    assert bins.shape == (BINS, 3)
    assert bins[:, 1:].sum(axis=0) == pytest.approx([1, 1])


def test_a_label_without_rows_has_no_share() -> None:
    assert histogram(np.ones(3), np.array([0.0, 0.5, 1.0]))[:, 1].sum() == 0
