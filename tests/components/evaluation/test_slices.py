"""Slices: every row counts once a column, and small or one-sided slices are shown but not judged."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.components.evaluation.slices import MOST_VALUES, group, roc_auc_interval, slice_metrics
from gatehouse.components.evaluation.spec import EvaluationSpec
from gatehouse.components.metrics.binary import roc_auc
from gatehouse.errors import ConfigurationError

LABELS = np.array([0, 1, 0, 1, 1, 1], dtype=np.int8)
SCORES = np.array([0.1, 0.9, 0.6, 0.4, 0.5, 0.5])
TABLE = pa.table({"carrier": ["AA", "AA", "ÜÄ", "ÜÄ", None, None], "number": [1, 1, 1, 1, 2, 2]})
SPEC = EvaluationSpec(slices=("carrier",), min_slice_rows=2)


def test_each_value_is_a_slice_and_so_are_nulls() -> None:
    found = {entry.name: entry for entry in slice_metrics(TABLE, LABELS, SCORES, SPEC)}
    assert set(found) == {"carrier=AA", "carrier=ÜÄ", "carrier=(null)"}
    assert (found["carrier=AA"].roc_auc, found["carrier=ÜÄ"].roc_auc) == (1.0, 0.0)
    assert found["carrier=AA"].label_rate == 0.5


def test_a_slice_of_one_class_has_no_area_and_is_not_judged() -> None:
    (entry,) = [each for each in slice_metrics(TABLE, LABELS, SCORES, SPEC) if each.name == "carrier=(null)"]
    assert (entry.roc_auc, entry.low, entry.champion_roc_auc, entry.judged) == (None, None, None, False)
    assert math.isfinite(entry.log_loss)


def test_small_slices_are_not_judged() -> None:
    spec = SPEC.model_copy(update={"min_slice_rows": 3})
    assert not any(entry.judged for entry in slice_metrics(TABLE, LABELS, SCORES, spec))
    assert any(entry.judged for entry in slice_metrics(TABLE, LABELS, SCORES, SPEC))


def test_the_champion_has_its_own_numbers() -> None:
    found = slice_metrics(TABLE, LABELS, SCORES, SPEC, champion=1 - SCORES)
    assert {entry.name: entry.champion_roc_auc for entry in found}["carrier=AA"] == 0.0


def test_columns_that_are_no_text_can_be_sliced() -> None:
    spec = EvaluationSpec(slices=("number",))
    assert [entry.name for entry in slice_metrics(TABLE, LABELS, SCORES, spec)] == ["number=1", "number=2"]


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"no column weather; it has carrier, number"):
        slice_metrics(TABLE, LABELS, SCORES, EvaluationSpec(slices=("carrier", "weather")))


@given(st.lists(st.none() | st.text(max_size=3), min_size=1, max_size=120))
def test_groups_divide_the_rows(values: list[str | None]) -> None:
    names, members = group(pa.chunked_array([pa.array(values, pa.string())]))
    assert len(members) == len(values)
    assert 0 <= members.min() <= members.max() < len(names) <= MOST_VALUES
    if len(set(values)) <= MOST_VALUES:
        assert all(
            names[group_] == (value if value is not None else "(null)")
            for group_, value in zip(members, values, strict=True)
        )


def test_rare_values_are_taken_together() -> None:
    values = [f"common {index % 39}" for index in range(390)] + [f"rare {index}" for index in range(300)]
    names, members = group(pa.chunked_array([values]))
    assert len(names) == MOST_VALUES
    assert names[-1] == "(other)"
    assert all(name.startswith("common") for name in names[:-1])
    assert (members == MOST_VALUES - 1).sum() == 300


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    truth, covered = 0.7602, 0  # Of two normal distributions whose means are one deviation apart: Phi(1 / sqrt 2).
    for seed in range(300):
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, 2, 200)
        low, high = roc_auc_interval(
            roc_auc(labels, draw.normal(size=200) + labels), int(labels.sum()), 200 - int(labels.sum())
        )
        covered += low <= truth <= high
    assert 270 <= covered <= 297


@given(st.floats(0, 1), st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_interval_holds_its_area_and_stays_within_0_and_1(area: float, ones: int, zeros: int) -> None:
    low, high = roc_auc_interval(area, ones, zeros)
    assert 0 <= low <= area <= high <= 1
