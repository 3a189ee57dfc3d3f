"""Preparing a job: what is refused and how it is named, the share of rows, and the lock on the job's directory."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.splitting.parts import UnusablePartError
from gatehouse.errors import ConfigurationError
from gatehouse.store.store import ArtifactStore
from gatehouse.training.data.job import outputs_of, prepare_job, targets_of
from gatehouse.training.transformation.columns import FeatureError
from tests.training import synthetic
from tests.training.specs import network, vary

SPEC = network(hidden=(8,), batch_size=128)


def test_a_batch_of_more_rows_than_there_are_is_refused(store: ArtifactStore, tmp_path: Path) -> None:
    data = synthetic.fitted_data(store)
    prepare_job(store, *data, vary(SPEC, batch_size=synthetic.TRAIN), tmp_path)
    with pytest.raises(ConfigurationError, match=r"batch_size: expected at most the 1,003 rows .*, found 1,004"):
        prepare_job(store, *data, vary(SPEC, batch_size=synthetic.TRAIN + 1), tmp_path)


def test_a_reference_of_no_split_is_refused(store: ArtifactStore) -> None:
    with pytest.raises(UnusablePartError, match="expected a split"):
        prepare_job(store, synthetic.publish_training_set(store, synthetic.table()), "", SPEC, Path())


def test_a_refit_has_the_rows_of_both_parts_in_one(store: ArtifactStore, tmp_path: Path) -> None:
    data = synthetic.fitted_data(store)
    for name, spec in {"two": SPEC, "one": vary(SPEC, refit=1)}.items():
        (tmp_path / name).mkdir()
        prepare_job(store, *data, spec, tmp_path / name)
    assert not (tmp_path / "one" / "validation").exists()
    for name in ("numbers", "ids", "labels"):
        parts = [np.load(tmp_path / "two" / part / f"{name}.npy") for part in ("train", "validation")]
        assert np.array_equal(np.load(tmp_path / "one" / "train" / f"{name}.npy"), np.concatenate(parts)), name


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


@pytest.mark.parametrize(
    ("columns", "changes", "message"),
    [
        ({"label": [0, None]}, {}, "1 of 2 rows are null"),
        ({"label": [0.0, float("nan")]}, {}, "1 of 2 rows are not 0 or 1"),
        ({"label": [1, 1]}, {}, "Part train of the split has 0 rows with label 0 and 2 with label 1"),
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
