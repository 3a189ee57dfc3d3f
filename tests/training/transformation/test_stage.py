"""The stage that fits a transformation: on the train part only, and refused for another split."""

import json

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation.columns import FeatureError
from gatehouse.training.transformation.fitted import FILE, read_transformation
from gatehouse.training.transformation.spec import CategoricalSpec, NumericSpec, TransformationSpec
from gatehouse.training.transformation.stage import FitRequest, fit_transformation
from tests.training import synthetic


def _fit(store: ArtifactStore, table: pa.Table, spec: TransformationSpec = TransformationSpec()) -> str:  # noqa: B008
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
    assert _digest(store, _fit(store, rows, spec)) == _digest(store, _fit(store, changed, spec))
    one_row = rows.set_column(2, "distance", pa.array([-1e9, *rows["distance"].to_pylist()[1:]]))
    assert _digest(store, _fit(store, one_row, spec)) != _digest(store, _fit(store, rows, spec))


def test_the_artifact_names_its_origin_and_settings(store: ArtifactStore) -> None:
    spec = TransformationSpec(columns={"wind": NumericSpec(normalisation="min_max")})
    manifest = store.manifest(_fit(store, synthetic.table(), spec))
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
