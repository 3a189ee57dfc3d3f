"""How features become arrays: each column, fitted on the train part only, and refused for another split."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gatehouse.runtime.variables import ENGINE
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training import transformation_stage
from gatehouse.training.model_spec import CategoricalSpec, NumericSpec, TransformationSpec
from gatehouse.training.transformation import (
    FILE,
    FIRST_KNOWN,
    MISSING,
    UNKNOWN,
    FeatureError,
    Transformation,
    fit,
    read_transformation,
)
from gatehouse.training.transformation_stage import FitRequest, fit_transformation
from tests.training import synthetic

RARE = 20


def _fit(rows: pa.Table) -> Transformation:
    return fit(rows, synthetic.NUMERIC, synthetic.CATEGORICAL)


def test_missing_numbers_become_the_median_and_raise_their_indicator() -> None:
    rows = synthetic.table()
    numbers, _ = _fit(rows).apply(rows)
    absent = rows["wind"].is_null().to_numpy()
    assert numbers.shape[1] == len(synthetic.NUMERIC) + 1, "one indicator, for the one column with missing values"
    assert (numbers[:, 3] == absent).all()
    assert len(np.unique(numbers[absent, 1])) == 1
    assert np.isfinite(numbers).all()


def test_categories_missing_unknown_and_rare() -> None:
    rows = synthetic.table()
    rare = ["XX"] * (RARE - 1) + rows["carrier"].to_pylist()[RARE - 1 :]
    fitted = _fit(rows.set_column(5, "carrier", pa.array(rare)))
    assert fitted.categorical[0].vocabulary == ("AA", "DL", "UA")
    odd = rows.slice(0, 4).set_column(5, "carrier", pa.array(["XX", None, "never seen", "UA"]))
    assert fitted.apply(odd)[1][:, 0].tolist() == [UNKNOWN, MISSING, UNKNOWN, 4]


def test_infinities_and_missing_columns_are_named() -> None:
    rows = synthetic.table()
    with pytest.raises(FeatureError, match="wind: 1,503 values are infinite"):
        _fit(rows.set_column(3, "wind", pa.array([np.inf] * rows.num_rows)))
    with pytest.raises(FeatureError, match="distance are missing"):
        _fit(rows.drop_columns(["distance"]))


_VALUES = (
    st.none()
    | st.integers(-(10**6), 10**6).map(lambda number: number / 8)
    | st.sampled_from([0.0, -0.0, 1.0, float("nan")])
)
_WORDS = st.none() | st.sampled_from(["a", "b", "c", ""])
_NUMERIC_SPECS = st.builds(
    NumericSpec,
    clip=st.sampled_from([None, (0.0, 1.0), (0.001, 0.999), (0.25, 0.75)]),
    imputation=st.sampled_from(["median", "mean", "constant"]),
    constant=st.sampled_from([0.0, -1e3]),
    normalisation=st.sampled_from(["standard", "min_max", "quantile", "none"]),
    indicator=st.sampled_from(["when_missing", "always", "never"]),
)
_SPECS = st.builds(
    TransformationSpec,
    numeric=_NUMERIC_SPECS,
    categorical=st.builds(CategoricalSpec, min_count=st.integers(1, 4), max_size=st.integers(0, 2)),
)


def _table(rows: list[tuple[float | None, str | None]]) -> pa.Table:
    return pa.table(
        {"x": pa.array([x for x, _ in rows], pa.float64()), "c": pa.array([c for _, c in rows], pa.string())}
    )


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.tuples(_VALUES, _WORDS), min_size=1, max_size=40), spec=_SPECS, order=st.randoms())
def test_the_order_of_rows_changes_nothing(
    rows: list[tuple[float | None, str | None]], spec: TransformationSpec, order: random.Random
) -> None:
    fitted = fit(_table(rows), ["x"], ["c"], spec)
    shuffled = order.sample(rows, len(rows))
    again = fit(_table(shuffled), ["x"], ["c"], spec)
    assert json.dumps(again.to_json()) == json.dumps(fitted.to_json())


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(_VALUES, _WORDS), min_size=1, max_size=40),
    spec=_SPECS,
    odd=st.lists(st.tuples(_VALUES | st.just(1e30), _WORDS | st.just("new")), max_size=10),
)
def test_what_was_never_seen_stays_within_the_arrays(
    rows: list[tuple[float | None, str | None]], spec: TransformationSpec, odd: list[tuple[float | None, str | None]]
) -> None:
    assume(spec.numeric.clip)
    fitted = fit(_table(rows), ["x"], ["c"], spec)
    numbers, ids = fitted.apply(_table(odd))
    (column,) = fitted.categorical
    assert numbers.shape == (len(odd), fitted.width)
    assert np.isfinite(numbers).all()
    for (value, word), given_id in zip(odd, ids[:, 0], strict=True):
        assert 0 <= given_id < column.cardinality
        assert (given_id == MISSING) == (word is None)
        if word in column.vocabulary:
            assert given_id == FIRST_KNOWN + column.vocabulary.index(word)
        elif word is not None:
            assert given_id == UNKNOWN
        assert value is None or np.isnan(value) or not fitted.numeric[0].knots or 0 <= numbers[0, 0] <= 1


def test_numbers_are_scaled_to_0_to_1_or_ranked_or_left_as_they_are() -> None:
    rows = pa.table({"x": [4.0, 1.0, None, 2.0, 2.0, 3.0]})

    def column(spec: NumericSpec) -> list[float]:
        fitted = fit(rows, ["x"], [], TransformationSpec(numeric=spec))
        values: list[float] = fitted.apply(rows)[0][:, 0].tolist()
        return values

    whole: dict[str, Any] = {"clip": None, "indicator": "never"}
    assert column(NumericSpec(normalisation="none", imputation="mean", **whole)) == pytest.approx([4, 1, 2.4, 2, 2, 3])
    values = column(NumericSpec(normalisation="min_max", imputation="constant", constant=-1.0, **whole))
    assert values == pytest.approx([1, 0.4, 0, 0.6, 0.6, 0.8])
    ranks = column(NumericSpec(normalisation="quantile", imputation="constant", constant=4.0, **whole))
    assert ranks[1] < ranks[3] == ranks[4] < ranks[5] < ranks[0] == ranks[2]
    assert ranks[3] == pytest.approx(0.4, abs=0.01)


def test_a_vocabulary_keeps_the_most_frequent() -> None:
    words = ["d"] * 4 + ["b"] * 3 + ["a"] * 3 + ["c"] * 3 + ["e"]
    spec = CategoricalSpec(min_count=2, max_size=3)
    (column,) = fit(pa.table({"c": words}), [], ["c"], TransformationSpec(categorical=spec)).categorical
    assert column.vocabulary == ("a", "b", "d") and column.cardinality == FIRST_KNOWN + 3


def test_settings_of_single_columns_are_checked_all_at_once() -> None:
    columns = {"wind": CategoricalSpec(), "carrier": NumericSpec(), "speed": NumericSpec()}
    with pytest.raises(FeatureError) as caught:
        fit(synthetic.table(), synthetic.NUMERIC, synthetic.CATEGORICAL, TransformationSpec(columns=columns))
    assert [line.split(":")[0] for line in str(caught.value).splitlines()[1:]] == [
        "  - columns.wind",
        "  - columns.carrier",
        "  - columns.speed",
    ]
    parsed = TransformationSpec.model_validate(
        {"columns": {"wind": {"normalisation": "quantile"}, "carrier": {"min_count": 5}}}
    )
    assert parsed.of_numeric("wind").normalisation == "quantile"
    assert parsed.of_categorical("carrier").min_count == 5
    assert TransformationSpec.model_validate_json(parsed.model_dump_json()) == parsed


def _published(store: ArtifactStore, table: pa.Table, spec: TransformationSpec = TransformationSpec()) -> str:  # noqa: B008
    training_set = synthetic.publish_training_set(store, table)
    request = FitRequest(split=synthetic.publish_split(store, training_set), spec=spec, model_name="flights")
    return fit_transformation(request, store).transformation


def _digest(store: ArtifactStore, transformation: str) -> str:
    (entry,) = store.manifest(transformation).files
    assert entry.path == FILE
    return entry.sha256


def test_what_is_fitted_depends_on_the_train_part_alone(store: ArtifactStore) -> None:
    rows = synthetic.table()
    everything = rows.slice(0, synthetic.TRAIN)
    later_rows = {name: pa.nulls(500, rows.schema.field(name).type) for name in rows.column_names}
    later_rows |= {
        "label": pa.array([1] * 500, pa.int8()),
        "distance": pa.array([1e9] * 500),
        "carrier": pa.array(["ZZ"] * 500),
    }
    changed = pa.concat_tables([everything, pa.table(later_rows).cast(rows.schema)])
    spec = TransformationSpec(numeric=NumericSpec(normalisation="quantile"), categorical=CategoricalSpec(min_count=1))
    assert _digest(store, _published(store, rows, spec)) == _digest(store, _published(store, changed, spec))
    one_row = rows.set_column(2, "distance", pa.array([-1e9, *rows["distance"].to_pylist()[1:]]))
    assert _digest(store, _published(store, one_row, spec)) != _digest(store, _published(store, rows, spec))


SPEC = TransformationSpec(
    numeric=NumericSpec(normalisation="quantile", clip=(0.01, 0.99)),
    columns={"wind": NumericSpec(normalisation="standard", imputation="mean"), "carrier": CategoricalSpec(max_size=2)},
)


@pytest.mark.parametrize(("values", "pieces"), [(1, 5), (2 * synthetic.TRAIN, 3), (1 << 22, 1)])
@pytest.mark.parametrize("workers", [1, 2])
def test_pieces_and_workers_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: int, pieces: int, workers: int
) -> None:
    store, rows = ArtifactStore.open(tmp_path / "store"), synthetic.table()
    monkeypatch.setattr(transformation_stage, "_VALUES", values)
    monkeypatch.setenv(ENGINE, json.dumps({"kind": "local", "workers": workers}))
    fitted = store.read_json(_published(store, rows, SPEC), FILE)
    whole = fit(rows.slice(0, synthetic.TRAIN), synthetic.NUMERIC, synthetic.CATEGORICAL, SPEC)
    assert fitted == json.loads(json.dumps(whole.to_json()))
    assert len(list((tmp_path / "store").glob("pieces/transformation/*"))) == pieces


def test_the_artifact_names_its_origin_and_settings(store: ArtifactStore) -> None:
    spec = TransformationSpec(columns={"wind": NumericSpec(normalisation="min_max")})
    manifest = store.manifest(_published(store, synthetic.table(), spec))
    assert manifest.reference == Reference.parse(str(manifest.reference))
    assert manifest.reference.kind == "transformations"
    assert {Reference.parse(reference).kind for reference in manifest.derived_from.values()} == {
        "training-sets",
        "splits",
    }
    assert TransformationSpec.model_validate(manifest.configuration) == spec
    assert manifest.details == {"rows": synthetic.TRAIN, "width": len(synthetic.NUMERIC) + 1}


def test_a_transformation_of_another_split_is_refused(store: ArtifactStore) -> None:
    training_set, split = synthetic.lay_out(store)
    fitted = synthetic.fitted(store, split)
    other = synthetic.publish_split(store, training_set, train=range(500))
    read = read_transformation(store, split, fitted)
    assert json.loads(json.dumps(read.to_json())) == store.read_json(fitted, FILE)
    assert np.isfinite(read.apply(synthetic.table())[0]).all()
    with pytest.raises(FeatureError, match=f"was fitted on {split}, expected {other}"):
        read_transformation(store, other, fitted)
