"""Parts of a split: what is read batch by batch is what a whole table would give, and other columns stay unread."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.training.data import parts
from gatehouse.training.data.job import prepare_job
from gatehouse.training.data.parts import read_part
from gatehouse.training.spec import NetworkTraining
from gatehouse.training.transformation.columns import FeatureError
from tests.training import synthetic
from tests.training.specs import network

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
    with pytest.raises(FeatureError, match="rows 0 to 10 of a training set of 10 rows"):
        part["label"]
