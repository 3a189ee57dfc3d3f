"""A part of a split is read in order, and refused where no model can be judged on it."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from gatehouse.data.splitting import parts
from gatehouse.data.splitting.parts import FileRows, UnusablePartError, files_with, group_numbers, read_part
from gatehouse.metrics.tasks import BINARY
from gatehouse.store.store import ArtifactStore
from tests.data.splitting.conftest import Publish
from tests.training.synthetic import publish_split, publish_training_set, table


def test_rows_and_labels_are_those_of_the_split(store: ArtifactStore) -> None:
    training_set = publish_training_set(store, table())
    split = publish_split(store, training_set, test=range(500, 400, -2))
    part = read_part(store, training_set, split, "test", BINARY)
    assert part.rows.tolist() == list(range(500, 400, -2))
    assert part.table["flight_id"].to_pylist() == [f"f{row}" for row in part.rows]
    assert part.labels.tolist() == table()["label"].to_numpy()[part.rows].tolist()


@pytest.mark.parametrize("test", [range(400, 500, 2), range(500, 400, -2)])
def test_rows_are_scored_some_at_a_time_by_the_columns_that_a_model_reads(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, test: range
) -> None:
    monkeypatch.setattr(parts, "AT_ONCE", 7)
    training_set = publish_training_set(store, table(), row_group=50)
    part = read_part(store, training_set, publish_split(store, training_set, test=test), "test", BINARY)
    seen = list[int]()

    def score(rows: pa.Table) -> npt.NDArray[np.float64]:
        assert rows.column_names == ["distance"]
        seen.append(rows.num_rows)
        return rows["distance"].to_numpy()

    scores = part.scored(score, ["distance", "gone"])
    assert scores.tolist() == part.table["distance"].to_pylist() == table()["distance"].to_numpy()[list(test)].tolist()
    assert sum(seen) == len(test) and max(seen) <= 7
    assert part.scored(lambda rows: np.ones(rows.num_rows), []).tolist() == [1.0] * len(test)
    assert part.take(np.array([0, 3])).table["flight_id"].to_pylist() == [f"f{row}" for row in part.rows[[0, 3]]]


@pytest.mark.parametrize(
    ("rows", "files", "before"), [([6, 0], 1, 0), ([7, 13], 1, 7), ([6, 7], 2, 0), ([29, 13], 4, 7)]
)
def test_rows_are_read_from_the_files_that_hold_them(
    publish: Publish, store: ArtifactStore, rows: list[int], files: int, before: int
) -> None:
    training_set = publish({"number": range(30)}, rows_a_file=7)
    paths, start = files_with(store, training_set, min(rows), max(rows))
    assert (len(paths), start) == (files, before)
    assert FileRows(paths, np.array(rows) - start)["number"].to_pylist() == rows


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1, 1, 1], "0 rows with label 0 and 3 with label 1; expected some of both"),
        ([0, 1, 2], "1 rows that are not 0 or 1"),
        ([0, 1, None], "1 rows that are not 0 or 1"),
    ],
)
def test_labels_that_no_model_can_be_judged_on(store: ArtifactStore, labels: list[int | None], expected: str) -> None:
    rows = table(3).drop_columns("label").append_column("label", pa.array(labels, pa.int8()))
    training_set = publish_training_set(store, rows)
    split = publish_split(store, training_set, test=range(3))
    with pytest.raises(UnusablePartError, match=f"label label: found {expected}"):
        read_part(store, training_set, split, "test", BINARY)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_rows_without_a_group_are_not_ranked_together(missing: float | None) -> None:
    assert group_numbers(pa.chunked_array([["b", "a", "b"]]), "rows").tolist() == [0, 1, 0]
    with pytest.raises(UnusablePartError, match="2 rows without one"):
        group_numbers(pa.chunked_array([[1.0, missing, 2.0, missing]]), "rows")


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float64(), pa.bool_()])
def test_labels_of_any_type_become_0_and_1(store: ArtifactStore, kind: pa.DataType) -> None:
    rows = table(4).drop_columns("label").append_column("label", pa.array([0, 1, 1, 0]).cast(kind))
    training_set = publish_training_set(store, rows)
    part = read_part(store, training_set, publish_split(store, training_set, test=range(4)), "test", BINARY)
    assert part.labels.dtype == np.float64
    assert part.labels.tolist() == [0, 1, 1, 0]
