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
