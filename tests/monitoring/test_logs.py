"""Logs of predictions: where they come from, other models, repeats, labels that are not known yet."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.monitoring.rows import collect_log, predicted, read_log, with_labels
from gatehouse.store.store import ArtifactStore

MODEL = f"models/delay/sha256-{'a' * 64}"
KEYS = ["flight", "decision_time"]


def _table(**columns: Any) -> pa.Table:
    return pa.table({"flight": ["A", "B", "C"], "decision_time": [1, 2, 3], **columns})


def _publish(store: ArtifactStore, kind: str, table: pa.Table, derived: dict[str, str], as_of: str = "") -> str:
    for parent in derived.values():
        store.objects.put_bytes(f"{parent}/manifest.json", b"{}")
    with store.workspace() as workspace:
        path = Path(workspace) / "part-00000.parquet"
        pq.write_table(table, path)
        return str(
            store.publish(
                kind, "delay", {path.name: path}, rows=table.num_rows, derived_from=derived, details={"as_of": as_of}
            )
        )


def _models(store: ArtifactStore) -> list[str]:
    return [str(store.publish("models", "delay", {"model.json": content})) for content in ("{}", "[]")]


def test_what_batch_scoring_wrote_comes_with_the_features_it_read(store: ArtifactStore) -> None:
    model, other = _models(store)
    rows = _publish(store, "decisions", _table(wind=[1.0, 2.0, 3.0]), {})
    scored = _table(
        probability=[0.1, 0.2, 0.3], positive=[False] * 3, model=[model, other, model], model_version=[1] * 3
    )
    reference = _publish(store, "predictions", pa.concat_tables([scored, scored]), {"model": model, "rows": rows})
    log = read_log(store, reference, model, "binary", KEYS)
    assert (log.foreign_rows, log.repeated) == (2, 2)
    assert log.table.to_pydict() == {
        "flight": ["A", "C"],
        "decision_time": [1, 3],
        "probability": [0.1, 0.3],
        "wind": [1.0, 3.0],
    }


def test_labels_are_joined_by_key_and_time_and_are_null_where_not_known_yet() -> None:
    labels = pa.table({"flight": ["C", "A", "C"], "decision_time": [3, 1, 9], "label": [1, 0, 1]})
    joined = with_labels(_table(probability=[0.1, 0.2, 0.3]), labels, KEYS)
    assert joined["label"].to_pylist() == [0, None, 1] and joined["flight"].to_pylist() == ["A", "B", "C"]


def test_probabilities_of_several_classes_are_read_as_a_table() -> None:
    probabilities = pa.array([[0.1, 0.9], [0.5, 0.5], [1.0, 0.0]], pa.list_(pa.float64(), 2))
    assert predicted(_table(probabilities=probabilities), "multiclass").tolist() == probabilities.to_pylist()


def test_a_log_without_predictions_is_refused(store: ArtifactStore) -> None:
    reference = _publish(store, "prediction-logs", _table(score=[1, 2, 3]), {})
    with pytest.raises(ConfigurationError, match="found no probability"):
        read_log(store, reference, MODEL, "binary", KEYS)
    with pytest.raises(ConfigurationError, match="a snapshot with a table named predictions, found flights"):
        read_log(store, _publish(store, "snapshots", _table(), {"flights": reference}), MODEL, "binary", KEYS)


def test_parquet_files_of_a_folder_become_a_log_and_the_same_again(store: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "logs" / "day=1").mkdir(parents=True)
    pq.write_table(_table(probability=[0.1, 0.2, 0.3]), tmp_path / "logs" / "day=1" / "a.parquet")
    pq.write_table(_table(probability=[0.4, 0.5, 0.6]).slice(1), tmp_path / "logs" / "b.parquet")
    log = collect_log(store, str(tmp_path / "logs"), MODEL)
    assert store.manifest(log).rows == 5 and collect_log(store, str(tmp_path / "logs"), MODEL) == log
    assert read_log(store, log, MODEL, "binary", KEYS).repeated == 2
    with pytest.raises(ConfigurationError, match="expected Parquet files"):
        collect_log(store, str(tmp_path / "none"), MODEL)


def test_the_latest_log_is_the_one_of_the_champion_that_knows_most(store: ArtifactStore) -> None:
    model, other = _models(store)
    tables = [_table(probability=[0.1, 0.2, entry]) for entry in (0.3, 0.4, 0.5)]
    of = [(model, "2013-01-02"), (model, "2013-01-03"), (other, "2013-01-04")]
    made = [
        _publish(store, "predictions", table, {"model": scorer}, as_of)
        for table, (scorer, as_of) in zip(tables, of, strict=True)
    ]
    assert collect_log(store, "latest", model) == made[1]
    assert collect_log(store, "", model) == ""
    with pytest.raises(ConfigurationError, match="found none"):
        collect_log(store, "latest", MODEL.replace("a" * 64, "c" * 64))
