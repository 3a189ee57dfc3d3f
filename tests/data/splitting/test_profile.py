"""Counts by part, bin and label give the drift and the ROC AUC that the rows give one by one."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from gatehouse.data.splitting.partition import PARTS, Parts
from gatehouse.data.splitting.profile import MIN_ROWS, Area, Profile, profile_of, sampled
from tests.data.splitting.conftest import opened


def _profile(tmp_path: Path, values: Any, labels: Any, parts: Parts, categorical: bool = False) -> Profile:
    details = {"categorical": ["x"]} if categorical else {"numeric": ["x"]}
    return profile_of(opened(tmp_path, {"x": values, "label": labels}, **details), "x", labels, parts)


def _thirds(count: int) -> Parts:
    return dict(zip(PARTS, np.split(np.arange(count), 3), strict=True))


def test_the_area_is_that_of_scoring_each_row_by_its_bins_rate(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    labels = (generator.random(6000) < 0.3).astype(np.int8)
    values = np.round(generator.normal(size=6000) + labels, 1)
    values[generator.random(6000) < 0.1] = np.nan
    parts = _thirds(6000)
    found = _profile(tmp_path, values, labels, parts)
    train, judged = parts["train"], parts["validation"]
    inner = np.quantile(
        values[train][np.isfinite(values[train]) & (values[train] != 0)], np.linspace(0, 1, 33)[1:-1], method="lower"
    )

    def bin_of(value: float) -> int:
        return -2 if np.isnan(value) else -1 if value == 0 else int(sum(edge <= value for edge in set(inner)))

    bins, mean = np.array([bin_of(value) for value in values]), labels[train].mean()
    rates = {}
    for each in set(bins):
        held = labels[train][bins[train] == each]
        rates[each] = (held.sum() + 20 * mean) / (len(held) + 20)
    expected = roc_auc_score(labels[judged], [rates[each] for each in bins[judged]])
    area = found.auc()
    assert area is not None and area.value == pytest.approx(expected, abs=1e-12)
    assert area.low < area.value < area.high


def test_rare_and_new_categories_are_one_bin_of_drift(tmp_path: Path) -> None:
    labels = np.tile([0, 1], 3000).astype(np.int8)
    frequent = np.repeat([f"c{number:02d}" for number in range(40)], 50)
    parts = _thirds(6000)
    same = _profile(tmp_path, pa.array(np.tile(frequent, 3)), labels, parts, categorical=True)
    assert same.psi(0, 1) == pytest.approx(0.0)
    renamed = np.where(frequent >= "c30", "new", frequent)
    moved = _profile(tmp_path, pa.array([*frequent, *renamed, *frequent]), labels, parts, categorical=True)
    # The ten categories beyond the thirty that are compared were one bin before, and are after they were renamed.
    assert moved.psi(0, 1) == pytest.approx(0.0)


def test_the_index_is_its_formula(tmp_path: Path) -> None:
    labels = np.tile([0, 1], 1500).astype(np.int8)
    values = pa.array([*["a"] * 800, *["b"] * 200, *["a"] * 500, *["b"] * 500, *["a"] * 1000])
    found = _profile(tmp_path, values, labels, _thirds(3000), categorical=True)
    assert found.psi(0, 1) == pytest.approx((0.5 - 0.8) * np.log(0.5 / 0.8) + (0.5 - 0.2) * np.log(0.5 / 0.2))
    all_a, no_b = 1 / 1.0001, 1e-4 / 1.0001  # An empty bin counts as 1e-4, and shares still sum to one.
    expected = (all_a - 0.8) * np.log(all_a / 0.8) + (no_b - 0.2) * np.log(no_b / 0.2)
    assert found.psi(0, 2) == pytest.approx(expected)


def test_too_few_rows_or_one_class_have_neither(tmp_path: Path) -> None:
    labels = np.tile([0, 1], 1500).astype(np.int8)
    few = {"train": np.arange(2000), "validation": np.arange(2000, 2000 + MIN_ROWS - 1), "test": np.arange(2600, 3000)}
    found = _profile(tmp_path, np.arange(3000.0), labels, few)
    assert found.psi(0, 1) is None
    one_class = _profile(tmp_path, np.arange(3000.0), np.repeat([0, 1, 0], 1000).astype(np.int8), _thirds(3000))
    assert one_class.auc() is None


@pytest.mark.parametrize("value", [0.5, 0.9, 1.0])
def test_an_area_lies_inside_its_interval_nine_times_of_ten(value: float) -> None:
    """Scores of few rows, drawn again and again; the interval may hold more often than it says, as at 1."""
    drawn, rows = np.random.default_rng(7), 20
    shift = {0.5: 0.0, 0.9: 1.8124, 1.0: 40.0}[value]
    held = 0
    for _ in range(400):
        zeros, ones = drawn.normal(0, 1, rows), drawn.normal(shift, 1, rows)
        area = Area.of(float((ones[:, None] > zeros).mean()), rows)
        held += area.low <= value <= area.high
    assert held >= 0.87 * 400


def test_a_sample_is_evenly_spaced_and_whole_where_it_can_be() -> None:
    parts = {"train": np.arange(600_001), "validation": np.arange(200_000), "test": np.arange(3)}
    assert {name: len(rows) for name, rows in sampled(parts).items()} == {
        "train": 150_001,
        "validation": 200_000,
        "test": 3,
    }


def test_an_outcome_of_few_rows_hides_none_of_many() -> None:
    part = np.array([[98, 2, 0], [2, 98, 0], [0, 0, 2]])
    area = Profile("x", np.array([part, part, part]), 3).auc()
    assert area is not None and area.low > 0.9 and area.value < 1
