"""Counts by part and bin give the drift between parts."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.splitting.divide import PARTS, Parts
from gatehouse.data.splitting.profile import MIN_ROWS, Profile, profile_of
from tests.data.splitting.conftest import opened

THIRDS = dict(zip(PARTS, np.split(np.arange(3000), 3), strict=True))


def _profile(tmp_path: Path, values: Any, parts: Parts, kind: str) -> Profile:
    return profile_of(opened(tmp_path, {"x": values, "label": np.zeros(3000)}, **{kind: ["x"]}), "x", parts)


def test_the_index_is_its_formula(tmp_path: Path) -> None:
    values = pa.array([*["a"] * 800, *["b"] * 200, *["a"] * 500, *["b"] * 500, *["a"] * 1000])
    profile = _profile(tmp_path, values, THIRDS, "categorical")
    assert profile.psi(0, 1) == pytest.approx((0.5 - 0.8) * np.log(0.5 / 0.8) + (0.5 - 0.2) * np.log(0.5 / 0.2))
    all_a, no_b = 1 / 1.0001, 1e-4 / 1.0001  # An empty bin counts as 1e-4, and shares still sum to one.
    expected = (all_a - 0.8) * np.log(all_a / 0.8) + (no_b - 0.2) * np.log(no_b / 0.2)
    assert profile.psi(0, 2) == pytest.approx(expected)


def test_too_few_rows_have_no_index(tmp_path: Path) -> None:
    few = {"train": np.arange(2000), "validation": np.arange(2000, 2000 + MIN_ROWS - 1), "test": np.arange(2500, 3000)}
    profile = _profile(tmp_path, np.arange(3000.0), few, "numeric")
    assert profile.psi(0, 1) is None and profile.psi(0, 2) > 1
