"""Labels as outcomes: classes by how frequent they are, and numbers above their median."""

import numpy as np
import pytest

from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.outcomes import outcomes


@pytest.mark.parametrize(
    ("task", "labels", "fitted_on", "expected"),
    [
        ("binary", [0, 1, 0], [1], [0, 1, 0]),
        ("multiclass", [7, 3, 3, 5], [7, 3, 3, 5, 5, 5], [2, 1, 1, 0]),
        ("multiclass", [3, 9], [3, 3], [0, 1]),
        ("regression", [1, 2, 3, 4], [1, 2, 3, 4], [0, 0, 1, 1]),
        ("regression", [1, 5, 5], [5, 5, 1], [0, 1, 1]),  # No number is above the median.
        ("ranking", [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]),
        ("regression", [1, 2], [], [0, 0]),
    ],
)
def test_the_outcome_of_each_row(task: str, labels: list[float], fitted_on: list[float], expected: list[int]) -> None:
    found = outcomes(TASKS[task], np.array(labels, float), np.array(fitted_on, float))
    assert found.tolist() == expected


def test_classes_beyond_the_twentieth_are_one_outcome() -> None:
    labels = np.repeat(np.arange(30.0), np.arange(30, 0, -1))
    found = outcomes(TASKS["multiclass"], labels, labels)
    assert found.max() == 20 and set(found[labels >= 20]) == {20} and set(found[labels == 19]) == {19}
