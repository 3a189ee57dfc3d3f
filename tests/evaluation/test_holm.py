"""Holm's correction, against statsmodels' numbers worked by hand."""

import numpy as np
import pytest

from gatehouse.evaluation.bootstrap import holm


def test_each_is_multiplied_by_what_is_left_and_none_is_below_a_smaller_one() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.6, 0.9])).tolist() == [1.0, 1.0]
    assert holm(np.array([])).tolist() == []


def test_by_chance_at_most_a_twentieth_of_families_has_a_rejection() -> None:
    draw = np.random.default_rng(0)
    assert np.mean([holm(draw.random(20)).min() < 0.05 for _ in range(2000)]) == pytest.approx(0.05, abs=0.015)
