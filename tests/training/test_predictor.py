"""Scores: a row has the same one to the bit in batch and online, alone and among others; odd input is named."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.training.model_spec import NumericSpec, TransformationSpec
from gatehouse.training.models import build_model
from gatehouse.training.predictor import Predictor
from gatehouse.training.spec import NetworkTraining
from gatehouse.training.transformation import FeatureError, fit
from tests.training import synthetic
from tests.training.specs import architecture, network

FEATURES = [*synthetic.NUMERIC, *synthetic.CATEGORICAL]
SPEC = TransformationSpec(
    columns={
        "wind": NumericSpec(normalisation="quantile", imputation="mean"),
        "delay_rate": NumericSpec(clip=None, normalisation="none", imputation="constant", indicator="always"),
    },
)


# Layers of 3, 5 and 8 outputs: with a plain product a row's last bits depend on its place among the others.
NETWORKS = [
    network(hidden=(37, 5)),
    network(hidden=(64, 8, 3)),
    network("ft_transformer", feed_forward=37),
    network("linear"),
]


def _predictor(rows: pa.Table, spec: NetworkTraining = NETWORKS[0]) -> Predictor:
    fitted = fit(rows, synthetic.NUMERIC, synthetic.CATEGORICAL, SPEC)
    described = architecture(spec, fitted.width, [column.cardinality for column in fitted.categorical])
    torch.manual_seed(5)
    weights = build_model(described).state_dict()
    return Predictor({"architecture": described, "transformation": fitted.to_json()}, weights)


@pytest.mark.parametrize("spec", NETWORKS)
def test_batch_and_online_scores_are_equal_to_the_bit(spec: NetworkTraining) -> None:
    rows = synthetic.table(333)
    predictor = _predictor(rows, spec)
    batch = predictor.predict(rows)
    alone = np.concatenate([predictor.predict_online([row]) for row in rows.select(FEATURES).to_pylist()[::7]])
    assert np.array_equal(batch[::7], alone)
    order = np.random.default_rng(1).permutation(rows.num_rows)
    assert np.array_equal(predictor.predict(rows.take(pa.array(order))), batch[order])
    assert np.array_equal(predictor.predict(rows.slice(100, 70)), batch[100:170])


_PREDICTOR = _predictor(synthetic.table())
_NUMBER = st.none() | st.floats(allow_infinity=False, width=32) | st.integers(-(2**40), 2**40)
_TEXT = st.none() | st.sampled_from(["UA", "EWR"]) | st.text(max_size=3)
_ROW = st.fixed_dictionaries(
    {**dict.fromkeys(synthetic.NUMERIC, _NUMBER), **dict.fromkeys(synthetic.CATEGORICAL, _TEXT)}
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(_ROW, min_size=1, max_size=5))
def test_any_row_scores_online_as_in_a_table_of_the_training_types(rows: list[dict[str, Any]]) -> None:
    kinds = dict.fromkeys(synthetic.NUMERIC, pa.float64()) | dict.fromkeys(synthetic.CATEGORICAL, pa.string())
    table = pa.table({name: pa.array([row[name] for row in rows], kinds[name]) for name in FEATURES})
    batch = _PREDICTOR.predict(table)
    assert np.isfinite(batch).all()
    assert np.array_equal(_PREDICTOR.predict_online(rows), batch)
    assert np.array_equal(np.concatenate([_PREDICTOR.predict_online([row]) for row in rows]), batch)


def test_a_numeric_category_keeps_its_id_when_missing_values_make_it_floating() -> None:
    rows = synthetic.table()
    codes = pa.array(np.arange(rows.num_rows) % 4, pa.int64())
    fitted = fit(rows.set_column(5, "carrier", codes), [], ["carrier"])
    whole = fitted.apply(pa.table({"carrier": pa.array([3, None])}))[1]
    assert np.array_equal(fitted.apply(pa.table({"carrier": [3.0, float("nan")]}))[1], whole)
    with pytest.raises(FeatureError, match="carrier: expected categories of type int64"):
        fitted.apply(pa.table({"carrier": [3.5]}))
    with pytest.raises(FeatureError, match="carrier: expected numbers, found string"):
        fitted.apply(pa.table({"carrier": ["3"]}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wind": float("inf")}, "wind: 1 values are infinite"),
        ({"wind": "3"}, "wind: expected numbers, found string"),
        ({"wind": [3.0]}, "wind: expected numbers, found list"),
        ({"wind": 2**70}, "wind: expected values of one type"),
        ({"carrier": 7}, "carrier: expected text, found int64"),
        ({"carrier": True}, "carrier: expected text, found bool"),
        ({"delay_rate": 1e300}, "delay_rate: values are too large for single precision"),
    ],
)
def test_odd_values_are_named(change: dict[str, Any], message: str) -> None:
    row = synthetic.table(1).select(FEATURES).to_pylist()[0]
    with pytest.raises(FeatureError, match=message):
        _PREDICTOR.predict_online([row | change])


def test_values_as_clients_send_them_are_taken() -> None:
    row = synthetic.table(1).select(FEATURES).to_pylist()[0] | {"wind": 3.0, "distance": 900.0, "delay_rate": 1.0}
    expected = _PREDICTOR.predict_online([row])
    for wind, distance, rate in ((3, 900, True), (np.float32(3), np.int64(900), 1), (Decimal("3"), 900, 1)):
        sent = row | {"wind": wind, "distance": distance, "delay_rate": rate}
        assert np.array_equal(_PREDICTOR.predict_online([sent]), expected)
    none = _PREDICTOR.predict_online([row | {"wind": None, "carrier": None}])
    assert np.array_equal(_PREDICTOR.predict_online([row | {"wind": float("nan"), "carrier": float("nan")}]), none)
    assert _PREDICTOR.predict_online([]).shape == (0,)
