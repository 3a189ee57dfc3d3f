"""Thresholds: the best by their rule among all, against a search of every one; ties take the highest."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.training.calibration.errors import CalibrationError
from gatehouse.training.calibration.spec import CostThreshold, FBetaThreshold, FixedThreshold, PrecisionThreshold
from gatehouse.training.calibration.thresholds import choose_threshold

RULES = [
    FBetaThreshold(rule="f_beta", beta=2.0),
    CostThreshold(rule="cost", false_positive=1.0, false_negative=3.0, true_positive=0.5),
    PrecisionThreshold(rule="precision", at_least=0.5),
]


def worth(labels: Any, taken: Any, rule: Any) -> float:
    """How good it is to take these rows for positive, by the words of the rule."""
    hits, alarms = float((labels[taken] == 1).sum()), float((labels[taken] == 0).sum())
    misses, rest = float((labels[~taken] == 1).sum()), float((labels[~taken] == 0).sum())
    if isinstance(rule, FBetaThreshold):
        precision, recall = hits / (hits + alarms), hits / (hits + misses)
        by = rule.beta**2
        return (1 + by) * precision * recall / (by * precision + recall) if hits else 0.0
    if isinstance(rule, CostThreshold):
        return -(0.5 * hits + alarms + 3.0 * misses + 0.0 * rest)
    return hits if hits / (hits + alarms) >= rule.at_least else -1.0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.rule)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12)), min_size=2, max_size=40))
def test_no_other_threshold_is_better(rule: Any, given: list[tuple[int, int]]) -> None:
    rows = np.array([*given, (0, 0), (1, 12)], np.float64)
    labels, probabilities = rows[:, 0], rows[:, 1] / 12
    every = [worth(labels, probabilities >= each, rule) for each in np.unique(probabilities)]
    if isinstance(rule, PrecisionThreshold) and max(every) < 0:
        with pytest.raises(CalibrationError, match="no threshold has a precision of at least"):
            choose_threshold(labels, probabilities, rule)
        return
    found = choose_threshold(labels, probabilities, rule)
    assert worth(labels, probabilities >= found, rule) == pytest.approx(max(every))
    higher = [value for at, value in zip(np.unique(probabilities), every, strict=True) if at > found]
    assert not higher or max(higher) <= max(every) - 1e-12 or (probabilities >= found).any()


def test_it_lies_half_way_to_the_next_probability() -> None:
    labels, probabilities = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.1, 0.2, 0.6, 0.9])
    assert choose_threshold(labels, probabilities, RULES[0]) == pytest.approx(0.4)
    assert choose_threshold(labels, probabilities, FixedThreshold(at=0.7)) == 0.7


def test_of_equally_good_thresholds_it_is_the_highest() -> None:
    labels, probabilities = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.9, 0.7, 0.5, 0.3])
    rule = CostThreshold(rule="cost", false_positive=1.0, false_negative=1.0)
    assert choose_threshold(labels, probabilities, rule) == pytest.approx(0.8)


def test_of_neighbouring_numbers_it_takes_the_right_one() -> None:
    low = 0.5
    high = float(np.nextafter(low, 1))
    found = choose_threshold(np.array([0.0, 1.0]), np.array([low, high]), RULES[0])
    assert (np.array([low, high]) >= found).tolist() == [False, True]
