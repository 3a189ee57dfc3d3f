"""Targets: which labels, weights and groups of a training set can be learned from, and what becomes of them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.training.data.targets import outputs_of, targets_of
from gatehouse.training.transformation.columns import FeatureError
from tests.training.specs import network


def _tables(**columns: list[Any]) -> dict[str, pa.Table]:
    return {part: pa.table(columns) for part in ("train", "validation")}


def test_weights_of_rows_and_of_classes_multiply_and_classes_weigh_in_training_only() -> None:
    tables = _tables(label=[0, 1, 2, 0], weight=[1.0, 2.0, 0.0, 0.5])
    spec = network(loss="multiclass", sample_weight="weight", class_weights=(1.0, 10.0, 100.0)).loss
    targets = targets_of(tables, "label", spec)
    assert targets["train"].weights is not None
    assert targets["train"].weights.tolist() == [1.0, 20.0, 0.0, 0.5]
    assert targets["validation"].weights is not None
    assert targets["validation"].weights.tolist() == [1.0, 2.0, 0.0, 0.5]
    assert outputs_of(targets["train"].labels, spec) == 3


def test_balanced_classes_weigh_the_same_in_all() -> None:
    targets = targets_of(_tables(label=[0, 0, 0, 1]), "label", network(class_weights="balanced").loss)
    weights = targets["train"].weights
    assert weights is not None
    assert weights[:3].sum() == pytest.approx(weights[3]) == pytest.approx(2.0)
    assert targets["validation"].weights is None


def test_rows_of_a_group_are_brought_together_in_their_order() -> None:
    tables = _tables(label=[0.0, 1.0, 2.0, 3.0, 4.0], day=["b", "a", None, "b", "a"])
    target = targets_of(tables, "label", network(loss="pairwise", group="day").loss)["train"]
    order = target.order()
    assert order is not None
    assert target.groups is not None
    assert order.tolist() == [0, 3, 1, 4, 2]
    assert (np.diff(target.groups[order]) >= 0).all()


@pytest.mark.parametrize(
    ("columns", "changes", "message"),
    [
        ({"label": [0.0, 1.5]}, {"loss": "multiclass"}, "1 of 2 rows are not whole numbers from 0 to 9999"),
        ({"label": [0.0, float("inf")]}, {"loss": "mse"}, "1 of 2 rows are not finite numbers"),
        ({"label": [-1.0, 1.0]}, {"loss": "pairwise", "group": "label"}, "1 of 2 rows are not finite numbers from 0"),
        ({"label": [2.0, 2.0]}, {"loss": "mse"}, "2 rows with 1 distinct label; expected two at least"),
        ({"label": [0, 1]}, {"sample_weight": "w"}, "Sample weight w is no column of the training set; it has label"),
        ({"label": [0, 1], "w": [1.0, -1.0]}, {"sample_weight": "w"}, "expected finite numbers from 0 up"),
        ({"label": [0, 1], "w": ["a", "b"]}, {"sample_weight": "w"}, "expected numbers, found string"),
        ({"label": [0, 1]}, {"class_weights": (1.0, 2.0, 3.0)}, "has 3 numbers; expected 2, one a class"),
        ({"label": ["a", "b"]}, {}, "Label label: expected numbers, found string"),
    ],
)
def test_what_cannot_be_learned_from_is_named(
    columns: dict[str, list[Any]], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FeatureError, match=message):
        targets_of(_tables(**columns), "label", network(**changes).loss)


def test_a_class_that_training_never_sees_is_named() -> None:
    tables = {"train": pa.table({"label": [0, 1]}), "validation": pa.table({"label": [0, 3]})}
    with pytest.raises(FeatureError, match="validation of the split has labels that part train has not: 3"):
        targets_of(tables, "label", network(loss="multiclass").loss)
