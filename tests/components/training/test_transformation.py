"""Fitted transformations: missing, unknown, rare and infinite values; the same after a trip through JSON."""

import json

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.components.training.transformation import MISSING, UNKNOWN, FeatureError, Transformation
from tests.components.training import synthetic

RARE = 20


def _fit(rows: pa.Table) -> Transformation:
    return Transformation.fit(rows, synthetic.NUMERIC, synthetic.CATEGORICAL)


def test_numbers_are_standardised_on_the_rows_it_was_fitted_on() -> None:
    rows = synthetic.table()
    numbers, _ = _fit(rows).apply(rows)
    assert np.abs(numbers[:, 0].mean()) < 1e-5
    assert numbers[:, 0].std() == pytest.approx(1.0, abs=1e-5)


def test_missing_numbers_become_the_median_and_raise_their_indicator() -> None:
    rows = synthetic.table()
    numbers, _ = _fit(rows).apply(rows)
    absent = rows["wind"].is_null().to_numpy()
    assert numbers.shape[1] == len(synthetic.NUMERIC) + 1, "one indicator, for the one column with missing values"
    assert (numbers[:, 3] == absent).all()
    assert len(np.unique(numbers[absent, 1])) == 1
    assert np.isfinite(numbers).all()


def test_nan_counts_as_missing() -> None:
    rows = synthetic.table()
    as_nan = rows.set_column(3, "wind", pa.array(rows["wind"].to_numpy(), from_pandas=False))
    assert as_nan["wind"].null_count == 0
    fitted = _fit(rows)
    assert np.array_equal(fitted.apply(as_nan)[0], fitted.apply(rows)[0])


def test_a_number_far_outside_what_was_seen_is_clipped() -> None:
    rows = synthetic.table()
    fitted = _fit(rows)
    extreme = rows.set_column(2, "distance", pa.array([1e12] * rows.num_rows))
    assert np.abs(fitted.apply(extreme)[0][:, 0]).max() < 10


def test_categories_missing_unknown_and_rare() -> None:
    rows = synthetic.table()
    rare = ["XX"] * (RARE - 1) + rows["carrier"].to_pylist()[RARE - 1 :]
    fitted = _fit(rows.set_column(5, "carrier", pa.array(rare)))
    assert fitted.categorical[0].vocabulary == ("AA", "DL", "UA")
    odd = rows.slice(0, 4).set_column(5, "carrier", pa.array(["XX", None, "never seen", "UA"]))
    assert fitted.apply(odd)[1][:, 0].tolist() == [UNKNOWN, MISSING, UNKNOWN, 4]


def test_a_constant_or_wholly_missing_column_gives_finite_numbers() -> None:
    rows = synthetic.table()
    rows = rows.set_column(2, "distance", pa.array([5.0] * rows.num_rows))
    rows = rows.set_column(3, "wind", pa.nulls(rows.num_rows, pa.float64()))
    numbers, _ = _fit(rows).apply(rows)
    assert np.isfinite(numbers).all()


def test_json_keeps_every_bit() -> None:
    rows = synthetic.table()
    fitted = _fit(rows)
    again = Transformation.from_json(json.loads(json.dumps(fitted.to_json())))
    assert again == fitted
    for part in (0, 1):
        assert np.array_equal(again.apply(rows)[part], fitted.apply(rows)[part])


def test_infinities_text_and_missing_columns_are_named() -> None:
    rows = synthetic.table()
    endless = rows.set_column(2, "distance", pa.array([np.inf, -np.inf] + [1.0] * (rows.num_rows - 2)))
    with pytest.raises(FeatureError, match="distance: 2 values are infinite"):
        _fit(endless)
    with pytest.raises(FeatureError, match="wind: expected numbers, found string"):
        _fit(rows.set_column(3, "wind", rows["carrier"]))
    with pytest.raises(FeatureError, match="distance are missing"):
        _fit(rows.drop_columns(["distance"]))
