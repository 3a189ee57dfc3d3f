"""Preparing a job: what is refused and how it is named, the share of rows, and the lock on the job's directory."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.launchers.launcher import JOB
from gatehouse.store.hidden_values import hiding
from gatehouse.store.store import ArtifactStore
from gatehouse.training.data.job import prepare_job
from gatehouse.training.data.parts import read_part
from gatehouse.training.transformation.columns import FeatureError
from tests.training import synthetic
from tests.training.specs import network, vary

SPEC = network(hidden=(8,), batch_size=128)


def _with_labels(values: list[float | None]) -> pa.Table:
    rows = synthetic.table()
    labels = pa.array(values + [1.0, 0.0] * rows.num_rows, pa.float64())[: rows.num_rows]
    return rows.set_column(1, "label", labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([None, None], "Label label: 2 of 1003 rows are null"),
        ([float("nan")], "Label label: 1 of 1003 rows are not 0 or 1"),
        ([2.0], "Label label: 1 of 1003 rows are not 0 or 1"),
    ],
)
def test_labels_that_are_neither_0_nor_1_are_named(
    store: ArtifactStore, tmp_path: Path, labels: list[float | None], message: str
) -> None:
    training_set = synthetic.publish_training_set(store, _with_labels(labels))
    with pytest.raises(FeatureError, match=message):
        prepare_job(store, training_set, synthetic.publish_split(store, training_set), "", SPEC, tmp_path)


@pytest.mark.parametrize("rows", [range(0), range(1)])
@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_part_without_both_labels_is_refused(store: ArtifactStore, tmp_path: Path, part: str, rows: range) -> None:
    training_set = synthetic.publish_training_set(store, synthetic.table())
    split = synthetic.publish_split(store, training_set, **{part: rows})
    with pytest.raises(FeatureError, match=f"Part {part} of the split has . rows? with label 0 and . with label 1"):
        prepare_job(store, training_set, split, "", SPEC, tmp_path)


@pytest.mark.parametrize("rows", [synthetic.TRAIN + 1, 2_000_000_000])
def test_a_batch_of_more_rows_than_there_are_is_refused(store: ArtifactStore, tmp_path: Path, rows: int) -> None:
    data = synthetic.fitted_data(store)
    prepare_job(store, *data, vary(SPEC, batch_size=synthetic.TRAIN), tmp_path)
    with pytest.raises(
        ConfigurationError, match=f"batch_size: expected at most the 1,003 rows of the part train, found {rows:,}"
    ):
        prepare_job(store, *data, vary(SPEC, batch_size=rows), tmp_path)


def test_the_processes_that_train_know_that_columns_are_sensitive(store: ArtifactStore, tmp_path: Path) -> None:
    with hiding(lambda: {"name", "code"}):
        prepare_job(store, *synthetic.fitted_data(store), SPEC, tmp_path)
    assert json.loads((tmp_path / JOB).read_text())["hidden"] == ["code", "name"]


def test_a_split_of_another_training_set_is_refused(store: ArtifactStore) -> None:
    training_set, _ = synthetic.lay_out(store)
    other = synthetic.publish_training_set(store, synthetic.table(seed=4))
    with pytest.raises(FeatureError, match="divides training-sets/flights"):
        read_part(store, training_set, synthetic.publish_split(store, other), "train")


def test_nothing_of_validation_or_test_reaches_the_transformation(store: ArtifactStore, tmp_path: Path) -> None:
    rows = synthetic.table()
    changed = rows["distance"].to_numpy().copy()
    changed[synthetic.TRAIN :] *= 1000
    fitted = []
    for table in (rows, rows.set_column(2, "distance", pa.array(changed))):
        training_set = synthetic.publish_training_set(store, table)
        split = synthetic.publish_split(store, training_set)
        reference = synthetic.fitted(store, training_set, split)
        fitted.append(prepare_job(store, training_set, split, reference, SPEC, tmp_path).transformation)
    assert fitted[0] == fitted[1]


def test_a_fraction_of_the_train_rows_is_spread_over_all_of_them(store: ArtifactStore, tmp_path: Path) -> None:
    spec = vary(SPEC, train_fraction=0.1)
    prepare_job(store, *synthetic.fitted_data(store), spec, tmp_path)
    assert len(np.load(tmp_path / "train" / "labels.npy")) == 100
    assert len(np.load(tmp_path / "validation" / "labels.npy")) == synthetic.VALIDATION


def test_a_refit_has_the_rows_of_both_parts_in_one(store: ArtifactStore, tmp_path: Path) -> None:
    data = synthetic.fitted_data(store)
    for name, spec in {"two": SPEC, "one": vary(SPEC, refit=1)}.items():
        (tmp_path / name).mkdir()
        prepare_job(store, *data, spec, tmp_path / name)
    assert not (tmp_path / "one" / "validation").exists()
    for name in ("numbers", "ids", "labels"):
        parts = [np.load(tmp_path / "two" / part / f"{name}.npy") for part in ("train", "validation")]
        assert np.array_equal(np.load(tmp_path / "one" / "train" / f"{name}.npy"), np.concatenate(parts)), name
