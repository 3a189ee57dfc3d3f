"""Tests how well one feature alone predicts the label."""

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.features.leakage.alarms import single_feature_auc
from gatehouse.metrics.tasks import BINARY, TASKS

LABEL = [True, True, False, False]


@pytest.mark.parametrize(
    ("values", "area"),
    [
        ([4.0, 3.0, 2.0, 1.0], 1.0),
        ([1.0, 2.0, 3.0, 4.0], 1.0),  # The other direction tells as much.
        ([1.0, 1.0, 1.0, 1.0], 0.5),
        ([None, None, 1.0, 2.0], 1.0),  # That it is missing gives the label away.
        ([None, 1.0, None, 1.0], 0.5),
        ([4.0, 1.0, 3.0, 2.0], 0.5),
        ([4.0, 2.0, 3.0, 1.0], 0.75),
    ],
)
def test_a_number(values: list[float | None], area: float) -> None:
    table = pa.table({"label": LABEL, "x": pa.array(values, pa.float32())})
    assert single_feature_auc(table, "label", BINARY, ["x"], []) == {"x": area}


@pytest.mark.parametrize(
    ("values", "area"),
    [
        (["a", "a", "b", "b"], 1.0),
        (["a", "b", "a", "b"], 0.5),
        ([None, None, "b", "c"], 1.0),
        (["a", "a", "a", "b"], 0.75),
    ],
)
def test_a_category(values: list[str | None], area: float) -> None:
    table = pa.table({"label": LABEL, "x": pa.array(values, pa.string())})
    assert single_feature_auc(table, "label", BINARY, [], ["x"]) == {"x": area}


@pytest.mark.parametrize("kind", ["numeric", "categorical"])
def test_of_a_ranking_only_the_order_within_its_groups_counts(kind: str) -> None:
    random = np.random.default_rng(7)
    groups = np.repeat(np.arange(300), 7)
    level = np.repeat(random.normal(size=300) * 9, 7)
    order = random.permuted(np.tile(np.arange(7.0), (300, 1)), axis=1).ravel()
    table = pa.table({"label": level + order, "group": groups.astype(str), "level": level, "place": order})
    features = {"numeric": ["level", "place"], "categorical": []}
    features = features if kind == "numeric" else dict(zip(features, reversed(features.values()), strict=True))
    within = single_feature_auc(table, "label", TASKS["ranking"], **features, group="group")
    over_all = single_feature_auc(table, "label", TASKS["ranking"], **features)
    assert within == {"level": pytest.approx(0.5), "place": pytest.approx(1.0)}
    assert over_all["level"] > 0.9 and over_all["place"] < 0.7


@pytest.mark.parametrize(
    ("task", "labels", "values", "area"),
    [
        ("regression", [1.5, 2.5, 3.5, 9.0], [10.0, 20.0, 30.0, 90.0], 1.0),
        ("regression", [1.5, 2.5, 3.5, 9.0], [0.0, 1.0, 0.0, 1.0], 0.5),
        ("ranking", [0, 0, 0, 2], [1.0, 1.0, 1.0, 2.0], 1.0),
        ("multiclass", [0, 1, 2] * 100, [5.0, 5.0, 7.0] * 100, 1.0),  # It tells one class and no other.
        ("multiclass", [0, 1] * 200 + [2, 2], [1.0] * 400 + [2.0, 2.0], 0.505),  # A class of two rows tells nothing.
    ],
)
def test_labels_of_other_tasks(task: str, labels: list[float], values: list[float], area: float) -> None:
    table = pa.table({"label": labels, "x": values})
    assert single_feature_auc(table, "label", TASKS[task], ["x"], []) == {"x": pytest.approx(area, abs=1e-4)}
