"""What all features tell together: nothing of chance, much of a sum, and measured on later rows only."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.features.leakage.all_features import joint_auc

NAMES = ("label", "at", ["a", "b"], ["town"])
START = datetime(2024, 1, 1, tzinfo=UTC)


def _rows(count: int, weight: float) -> pa.Table:
    generator = np.random.default_rng(5)
    a, b, noise = generator.normal(size=(3, count))
    order = generator.permutation(count)
    return pa.table(
        {
            "a": a,
            "b": b,
            "town": pa.array(["x", "y"] * (count // 2)),
            "label": pa.array((weight * (a + b) + noise > 0).astype(np.int8)),
            "at": pa.array([START + timedelta(minutes=int(each)) for each in order], pa.timestamp("us", "UTC")),
        }
    )


@pytest.mark.parametrize(("weight", "least", "most"), [(0.0, 0.4, 0.6), (3.0, 0.94, 1.0)])
def test_the_interval_holds_what_the_features_tell(weight: float, least: float, most: float) -> None:
    found = joint_auc(_rows(4000, weight), *NAMES)
    assert found is not None and least < found.low < found.area < found.high <= most


def test_rows_are_measured_that_are_later_than_those_fitted_on() -> None:
    rows = _rows(4000, 3.0).sort_by("at")
    turned = np.where(np.arange(4000) < 2800, 1, -1)
    rows = rows.set_column(0, "a", pa.array(rows["a"].to_numpy() * turned)).set_column(
        1, "b", pa.array(rows["b"].to_numpy() * turned)
    )
    found = joint_auc(rows, *NAMES)
    assert found is not None and found.area < 0.1


def test_few_rows_say_nothing() -> None:
    assert joint_auc(_rows(400, 3.0), *NAMES) is None
