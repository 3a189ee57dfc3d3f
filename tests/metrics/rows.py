"""Rows of each task, as hypothesis draws them: few distinct values, so that ties are the rule."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)
VALUES = st.integers(-3, 3).map(float) | st.floats(-1e3, 1e3)


def _columns(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(np.array(column) for column in zip(*rows, strict=True))


BINARY = st.lists(st.tuples(st.integers(0, 1), SCORES), min_size=1, max_size=60).map(_columns)
BOTH = BINARY.filter(lambda columns: len(set(columns[0])) == 2)
CLASSES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60).map(_columns)
NUMBERS = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=60).map(_columns)
RANKINGS = st.lists(st.tuples(st.integers(0, 3), SCORES, st.integers(0, 4)), min_size=1, max_size=40).map(_columns)
TRUTHS = st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=1, max_size=60).map(_columns)


@st.composite
def probabilities_of_classes(draw: st.DrawFn) -> tuple[Any, Any]:
    """Labels and the probability of each of two to five classes; not every class need have a row."""
    classes = draw(st.integers(2, 5))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=40))
    weights = draw(
        st.lists(
            st.lists(st.integers(0, 4), min_size=classes, max_size=classes).filter(any),
            min_size=len(labels),
            max_size=len(labels),
        )
    )
    return np.array(labels), np.array([np.array(each) / sum(each) for each in weights])


SMALL_RANKINGS = (
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2).map(float), st.integers(0, 3)), min_size=1, max_size=12)
    .filter(lambda rows: max(np.bincount([group for _, _, group in rows])) <= 6)
    .map(_columns)
)
