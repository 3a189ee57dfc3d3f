"""Preparing a job: what is refused and how it is named, the share of rows, and the lock on the job's directory."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.splitting import parts
from gatehouse.data.splitting.parts import UnusablePartError
from gatehouse.errors import ConfigurationError
from gatehouse.store.store import ArtifactStore
from gatehouse.training.job import outputs_of, prepare_job, read_part, targets_of
from gatehouse.training.spec import NetworkTraining
from gatehouse.training.transformation import FeatureError
from tests.training import synthetic
from tests.training.specs import network, vary

SPEC = network(hidden=(8,), batch_size=128)


def test_a_batch_of_more_rows_than_there_are_is_refused(store: ArtifactStore, tmp_path: Path) -> None:
    data = synthetic.fitted_data(store)
    prepare_job(store, *data, vary(SPEC, batch_size=synthetic.TRAIN), tmp_path)
    with pytest.raises(ConfigurationError, match=r"batch_size: expected at most the 1,003 rows .*, found 1,004"):
        prepare_job(store, *data, vary(SPEC, batch_size=synthetic.TRAIN + 1), tmp_path)


def test_a_reference_of_no_split_is_refused(store: ArtifactStore) -> None:
    with pytest.raises(UnusablePartError, match="expected the split"):
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


ROWS = np.random.default_rng(2).permutation(synthetic.TRAIN + synthetic.VALIDATION)


def _table() -> pa.Table:
    draw = np.random.default_rng(8)
    rows = synthetic.table()
    days = pa.array([f"d{day}" for day in draw.integers(0, 40, rows.num_rows)])
    return rows.append_column("day", days).append_column("weight", pa.array(draw.gamma(1.0, 1.0, rows.num_rows)))


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        network(batch_size=128, train_fraction=0.3, sample_weight="weight", class_weights="balanced"),
        network(batch_size=128, loss="pairwise", group="day"),
    ],
)
def test_arrays_are_those_of_the_whole_table_whatever_the_batches(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: NetworkTraining, shuffled: bool
) -> None:
    table = _table()
    training_set = synthetic.publish_training_set(store, table, row_group=500)
    end = synthetic.TRAIN
    chosen = {"train": ROWS[:end].tolist(), "validation": ROWS[end:].tolist()} if shuffled else {}
    split = synthetic.publish_split(store, training_set, **chosen)
    monkeypatch.setattr(parts, "AT_ONCE", 201)
    reference = synthetic.fitted(store, split)
    fitted = prepare_job(store, split, reference, spec, tmp_path).transformation
    default = {"train": range(end), "validation": range(end, len(ROWS))}
    for part, rows in (chosen or default).items():
        taken = np.array(rows)
        if part == "train" and spec.data.train_fraction < 1:
            count = round(len(taken) * spec.data.train_fraction)
            taken = taken[np.linspace(0, len(taken) - 1, count).astype(int)]
        whole = table.take(pa.array(taken))
        met = list(dict.fromkeys(whole["day"].to_pylist()))
        order = np.argsort([met.index(day) for day in whole["day"].to_pylist()], kind="stable")
        whole = whole.take(pa.array(order)) if spec.loss.kind == "pairwise" else whole
        numbers, ids = fitted.apply(whole)
        expected = {"numbers": numbers, "ids": ids, "labels": whole["label"].to_numpy().astype(np.float32)}
        for name, array in expected.items():
            np.save(tmp_path / "expected.npy", array)
            assert (tmp_path / part / f"{name}.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes(), name


def test_rows_that_the_training_set_has_not_are_refused(store: ArtifactStore) -> None:
    training_set = synthetic.publish_training_set(store, synthetic.table(10))
    part = read_part(store, synthetic.publish_split(store, training_set, train=range(11)), "train")
    with pytest.raises(UnusablePartError, match="rows 0 to 10 of a training set of 10 rows"):
        part["label"]
