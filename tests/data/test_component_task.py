"""The task of a component: which artifacts it takes, the stages that it runs, and the artifacts that it gives."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kfp import dsl

from gatehouse.data.component_task import ComponentTask, local_files, verdict_facts
from gatehouse.data.datasets import read_dataset
from gatehouse.data.splitting.stage import split
from gatehouse.errors import ConfigurationError, ContractBreachError
from gatehouse.operations.preparing_stage import prepare, require_contract
from gatehouse.store.run import LAST_STAGE, RUN_ID, events
from gatehouse.store.store import ArtifactStore
from tests.components import stored
from tests.training.synthetic import TEST, lay_out, table

RANDOM = {"strategy": "random"}


@pytest.fixture
def data(store: ArtifactStore) -> tuple[str, str]:
    """A training set of the store, and its split."""
    return lay_out(store)


def test_an_artifact_is_taken_by_its_metadata_or_by_the_address_of_an_importer(
    store: ArtifactStore, data: tuple[str, str]
) -> None:
    reference = data[0]
    for artifact in (
        stored(store, reference),
        dsl.Dataset(uri=store.address_of(reference)),
        dsl.Dataset(uri=f"{store.address_of(reference)}/manifest.json"),
    ):
        task = ComponentTask("", artifact)
        assert task.kept and task.store.address == store.address
        assert task.find(artifact) == task.take("data", artifact, "training-sets") == reference
        assert (task.find(artifact, "splits"), task.is_nothing(artifact)) == ("", False)
        assert task.table(artifact) == table()
        with pytest.raises(ConfigurationError, match=r"^data: expected splits .*training-sets"):
            task.take("data", artifact, "splits")


def test_a_table_that_anything_wrote_has_no_reference_and_is_read(tmp_path: Path) -> None:
    rows = pa.table({"number": [1, 2], "text": ["a", "b"]})
    pq.write_table(rows, tmp_path / "parquet")
    (tmp_path / "csv").write_text("number,text\n1,a\n2,b\n")
    for artifact in (dsl.Dataset(uri=str(tmp_path / form)) for form in ("parquet", "csv")):
        task = ComponentTask("", artifact)
        assert not task.kept and task.find(artifact) == "" and task.table(artifact) == rows
        assert local_files(artifact, tmp_path / "local") == Path(artifact.path)
        with pytest.raises(ConfigurationError, match=r"^data: .*without a reference"):
            task.take("data", artifact)


def test_an_output_with_nothing_in_it_is_as_no_artifact(store: ArtifactStore, tmp_path: Path) -> None:
    output = dsl.Model(uri=str(tmp_path / "model"))
    assert ComponentTask(store.address).give(output, "") == ""
    task = ComponentTask("", output)
    for artifact in (output, None):
        assert task.is_nothing(artifact) and task.find(artifact) == task.take("model", artifact, "models") == ""
    assert not task.kept and local_files(None, tmp_path) is None


def test_a_part_of_a_split_is_its_rows(store: ArtifactStore, data: tuple[str, str], tmp_path: Path) -> None:
    task, part = ComponentTask(store.address), dsl.Dataset(uri=str(tmp_path / "test"))
    assert task.give(part, data[1], part="test") == store.address_of(data[1])
    assert task.table(part) == table()[-TEST:]
    path = local_files(part, tmp_path / "local")
    assert path is not None and read_dataset(path) == table()[-TEST:].set_column(
        1, "label", table()["label"][-TEST:].cast(pa.int64())
    )
    with pytest.raises(ConfigurationError, match="one table"):  # The split's own files hold numbers of rows.
        task.table(stored(store, data[1]))


def test_artifacts_of_two_stores_need_the_address_of_one(
    store: ArtifactStore, data: tuple[str, str], tmp_path: Path
) -> None:
    other = ArtifactStore.open(tmp_path / "other")
    artifacts = [stored(place, lay_out(place)[0]) for place in (store, other)]
    with pytest.raises(ConfigurationError, match=f"^store: .*{store.address}"):
        ComponentTask("", *artifacts, None)
    assert ComponentTask(other.address, *artifacts).store.address == other.address
    with pytest.raises(ConfigurationError, match=r"^store: "):
        ComponentTask("", dsl.Artifact(metadata={"reference": data[0]}))


def test_who_can_follow_a_reference_gets_a_manifest_and_anybody_else_the_files(
    store: ArtifactStore, data: tuple[str, str], tmp_path: Path
) -> None:
    task, kinds = ComponentTask(store.address), (dsl.Dataset, dsl.Artifact)
    rows, folder = (kind(uri=str(tmp_path / kind.__name__)) for kind in kinds)
    for output, reference in zip((rows, folder), data, strict=True):
        task.give(output, reference, {"model_name": "a"})
        assert Path(output.path).read_text() == store.manifest(reference).to_json()
        assert output.metadata == {"reference": store.address_of(reference), "model_name": "a"}
    assert local_files(rows, tmp_path / "local") == tmp_path / "local" / "rows.parquet"
    files = {"train.parquet", "validation.parquet", "test.parquet"}
    assert local_files(folder, tmp_path / "split") == tmp_path / "split"
    assert {path.name for path in (tmp_path / "split").iterdir()} == files
    task.give(rows, data[0], tables=True)
    assert pq.read_table(rows.path) == table() and rows.metadata["reference"] == store.address_of(data[0])
    assert local_files(rows, tmp_path / "none") == Path(rows.path)

    alone = ComponentTask("")
    rows, folder = (kind(uri=str(tmp_path / f"alone-{kind.__name__}")) for kind in kinds)
    training_set, split_ = lay_out(alone.store)
    assert alone.give(rows, training_set) == alone.give(folder, split_) == ""
    assert {path.name for path in Path(folder.path).iterdir()} == files
    assert pq.read_table(rows.path) == table() and rows.metadata == folder.metadata == {}


def test_a_task_tried_again_finds_its_unfinished_store(tmp_path: Path) -> None:
    first, second = (ComponentTask("", unfinished=tmp_path / "unfinished") for _ in range(2))
    assert second.store.exists(lay_out(first.store)[0]) and not second.kept


def test_stages_run_with_checked_fields_and_again_where_the_run_says_so(
    store: ArtifactStore, data: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_ID, "own")
    task = ComponentTask(store.address)
    with pytest.raises(ConfigurationError, match=r"(?s)spec\.seed.*spec\.sed"):
        task.run(split, training_set=data[0], spec=RANDOM | {"seed": "x", "sed": 1})
    by_kfp = {"training_set": data[0], "spec": RANDOM | {"seed": 3.0}}
    for rerun in ("", "split"):
        if rerun:
            task.run(prepare, rerun=rerun)
        task.run(split, **by_kfp)
        task.run(split, **by_kfp)
    ends = [event.event for _, event in events(store, "own") if event.stage == "split" and event.event != "started"]
    assert ends == ["finished", "hit", "finished", "finished"]
    monkeypatch.setenv(LAST_STAGE, "split")
    with pytest.raises(SystemExit) as ended:
        task.run(split, **by_kfp)
    assert ended.value.code == 0


def test_a_verdict_is_that_of_the_metadata_else_of_the_artifact_and_never_pass_by_default(
    store: ArtifactStore, data: tuple[str, str], tmp_path: Path
) -> None:
    task = ComponentTask(store.address)
    passed = store.publish("validations", "a", {"x": "x"}, details={"verdict": "pass"})
    failed = dsl.Artifact(metadata=verdict_facts("fail", ["orders.id: null"]))
    cases: list[tuple[Any, str]] = [
        (None, "pass"),
        (stored(store, str(passed)), "pass"),
        (stored(store, data[1]), "pass"),
        (stored(store, data[0]), "not checked"),
        (dsl.Artifact(uri=str(tmp_path)), "not checked"),
        (failed, "fail"),
    ]
    assert [task.verdict("The data", artifact)["verdict"] for artifact, _ in cases] == [word for _, word in cases]
    with pytest.raises(ContractBreachError, match=r"orders\.id: null"):
        task.run(require_contract, **task.verdict("The data", failed))
    assert json.loads(failed.metadata["reasons"]) == ["orders.id: null"]
