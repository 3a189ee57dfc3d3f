"""The population stability index of a feature, from train to test."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.splitting.checks import MIN_ROWS, feature_psi
from tests.data.splitting.conftest import opened


def _psi(tmp_path: Path, values: Any, kind: str, train: int = 1000) -> float | None:
    training_set = opened(tmp_path, {"x": values, "label": np.zeros(len(values))}, **{kind: ["x"]})
    rows = np.arange(len(values))
    return feature_psi(training_set, "x", {"train": rows[:train], "validation": rows[:0], "test": rows[train:]})


@pytest.mark.parametrize(("a", "share"), [(500, 0.5), (1000, 1.0)])
def test_the_index_is_its_formula(tmp_path: Path, a: int, share: float) -> None:
    values = pa.array([*["a"] * 800, *["b"] * 200, *["a"] * a, *["b"] * (1000 - a)])
    rest = max(1 - share, 1e-4)  # An empty bin counts as 1e-4, and shares still sum to one.
    p, q = share / (share + rest), rest / (share + rest)
    expected = (p - 0.8) * np.log(p / 0.8) + (q - 0.2) * np.log(q / 0.2)
    assert _psi(tmp_path, values, "categorical") == pytest.approx(expected, abs=1e-6)


def test_too_few_rows_have_no_index(tmp_path: Path) -> None:
    numbers = np.arange(3000.0)
    assert _psi(tmp_path, numbers, "numeric", 3000 - MIN_ROWS) > 1  # type: ignore[operator]  # there are enough rows
    assert _psi(tmp_path, numbers, "numeric", 3000 - MIN_ROWS + 1) is None
