"""What one feature alone tells about the label, in the cases where it tells most or nothing."""

import pyarrow as pa
import pytest

from gatehouse.components.features.leakage.single_features import single_feature_auc

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
    assert single_feature_auc(table, "label", ["x"], []) == {"x": area}


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
    assert single_feature_auc(table, "label", [], ["x"]) == {"x": area}


def test_nothing_is_told_where_only_one_label_is() -> None:
    table = pa.table({"label": [True, True], "x": [1.0, 2.0], "y": ["a", "b"]})
    assert single_feature_auc(table, "label", ["x"], ["y"]) == {"x": 0.5, "y": 0.5}
