"""`gatehouse data` as a person or a program uses it: what is printed, and the exit code."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import ConfigurationError, InvalidReferenceError, MissingArtifactError, StoreError
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.manifest import Column
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


@pytest.fixture
def family(store: ArtifactStore) -> dict[str, Reference]:
    """Two snapshots of a table that grew, a split of the first, and an orphan blob."""
    first, second = _table(store, [1, 2, 3]), _table(store, [2, 3, 4, 5])
    before = store.publish("snapshots", "s", {"source.json": "1"}, derived_from={"t": first})
    after = store.publish("snapshots", "s", {"source.json": "2"}, derived_from={"t": second})
    split = store.publish("splits", "x", {"train.json": "[0]"}, derived_from={"snapshot": before})
    store.objects.put_bytes(f"blobs/ab/{'ab' * 32}", b"orphan")
    return {"first": first, "second": second, "before": before, "after": after, "split": split}


def _table(store: ArtifactStore, ids: list[int]) -> Reference:
    with store.workspace() as workspace:
        pq.write_table(pa.table({"id": ids}), workspace / "p.parquet")
        columns = [Column("id", "int64")]
        return store.publish("datasets", "t", {"p.parquet": workspace / "p.parquet"}, columns=columns, rows=len(ids))


def _run(store: ArtifactStore, *arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*map(str, arguments), "--store", store.address])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def _fails(store: ArtifactStore, *arguments: object) -> str:
    error = _run(store, *arguments, code=1).exception
    assert isinstance(error, (ConfigurationError, MissingArtifactError, InvalidReferenceError, StoreError)), repr(error)
    return str(error)


def _json(store: ArtifactStore, *arguments: object, code: int = 0) -> Any:
    return json.loads(_run(store, *arguments, "--json", code=code).stdout)


def test_list_prints_references_and_states(store: ArtifactStore, family: dict[str, Reference]) -> None:
    _run(store, "deprecate", family["first"], "--reason", "wrong", "--successor", family["second"])
    _run(store, "erase", family["split"], "--reason", "request 17", "--yes", "--only")
    output = _run(store, "list").stdout
    assert all(item.short in output and str(item) not in output for item in family.values())
    states = {row["reference"]: row["state"] for row in _json(store, "list")}
    assert states[str(family["first"])] == "deprecated" and states[str(family["split"])] == "erased"
    assert {row["reference"] for row in _json(store, "list", "splits")} == {str(family["split"])}


def test_show_takes_a_cut_digest(store: ArtifactStore, family: dict[str, Reference]) -> None:
    assert json.loads(_run(store, "show", family["split"].short, "--json").stdout)["kind"] == "splits"
    assert str(family["split"]) in _run(store, "show", "splits/x").stdout
    message = _run(store, "show", "splits/x").stdout
    assert str(family["before"]) in message and "made from" in message, (
        "a reference is there to be copied, however long it is"
    )
    assert "train.json" in message and '"kind"' not in message
    assert "is the beginning of 2 references" in _fails(store, "show", "snapshots/s")
    assert "is not in the store" in _fails(store, "show", "models/none")
    assert "is not a reference" in _fails(store, "show", "nothing")


def test_verify_reports_everything_that_is_wrong(store: ArtifactStore, family: dict[str, Reference]) -> None:
    assert {item["state"] for item in _json(store, "verify")} == {"intact"}
    for entry, file in (("second", "p.parquet"), ("split", "train.json")):
        store.path(family[entry], file).unlink()
    states = {item["reference"]: item["state"] for item in _json(store, "verify", family["split"], code=1)}
    assert states == {
        str(family["split"]): "broken",
        str(family["before"]): "intact",
        str(family["first"]): "intact",
    }
    store.objects.put_bytes("registry/m/ledger/000001.json", b"")
    broken = [item for item in _json(store, "verify", code=1) if item["state"] == "broken"]
    records = [item["reference"] for item in broken if item["problems"]]
    assert set(records) == {str(family["split"]), str(family["second"]), "registry/m/ledger/000001.json"}
    assert "3 references verified" in _run(store, "verify", code=1).stdout


def test_diff_counts_rows_of_one_side_and_names_columns_that_differ(
    store: ArtifactStore, family: dict[str, Reference]
) -> None:
    def changes(before: Reference, after: Reference) -> list[tuple[Any, ...]]:
        return [tuple(change.values()) for change in _json(store, "diff", before, after)]

    grown = [("t", "rows", 3, 4), ("t", "rows only there", 1, 2)]
    assert changes(family["before"], family["after"]) == grown
    with store.workspace() as workspace:
        pq.write_table(pa.table({"id": [1.0, 2.0], "name": ["a", "b"]}), workspace / "p.parquet")
        columns = [Column("id", "double"), Column("name", "string")]
        files = {"p.parquet": workspace / "p.parquet"}
        retyped = store.publish("datasets", "t", files, columns=columns, rows=2)
    other = store.publish("snapshots", "s", {}, derived_from={"t": retyped, "u": family["first"]})
    typed = [("t", "rows", 3, 2), ("t", "column id", "int64", "double"), ("t", "column name", None, "string")]
    assert changes(family["before"], other) == [*typed, ("u", "rows", None, 3), ("u", "column id", None, "int64")]
    assert changes(family["first"], family["first"])[1] == ("t", "rows only there", 0, 0)


def test_gc_changes_nothing_unless_told_and_then_only_what_is_old(
    store: ArtifactStore, family: dict[str, Reference]
) -> None:
    assert "young: 1 (6 bytes)" in _run(store, "gc", "--delete").stdout
    assert "may go: 1 (6 bytes)" in _run(store, "gc", "--dry-run", "--days", 0).stdout
    assert "nothing to collect" not in _run(store, "gc", "--days", 0).stdout
    assert [item["state"] for item in _json(store, "gc", "--delete", "--days", 0)] == ["deleted"]
    assert "nothing to collect" in _run(store, "gc").stdout
    assert "5 references verified" in _run(store, "verify").stdout


def test_a_broken_manifest_is_a_finding_of_gc_and_verify(store: ArtifactStore, family: dict[str, Reference]) -> None:
    data = b"[" * 100_000
    broken = f"datasets/t/sha256-{sha256_bytes(data)}"
    store.objects.put_bytes(f"{broken}/manifest.json", data)
    items = _json(store, "gc", "--delete", "--days", 0, code=1)
    assert [(item["kind"], item["state"]) for item in items] == [("manifest", "broken"), ("blob", "kept")]
    assert "While a manifest is broken, no data is deleted" in _run(store, "gc", code=1).stdout
    output = _run(store, "verify", code=1).stdout
    assert broken in output and "5 references verified" in output and "1 broken" in output


def test_erase_asks_and_without_a_terminal_needs_yes(store: ArtifactStore, family: dict[str, Reference]) -> None:
    message = _fails(store, "erase", family["before"], "--reason", "request 17", "--only")
    assert "expected --yes" in message and store.exists(family["before"])
    arguments = ("erase", family["before"], "--reason", "request 17", "--yes", "--only", "--by", "officer")
    output = _run(store, *arguments).stdout
    assert str(family["first"]) in output, "it did not say what else it erases"
    assert str(family["split"]) in output and "erased in part; the record is erasures/000001.json" in output
    assert "1 blobs that no manifest lists" in output
    assert "was erased on" in _run(store, *arguments).stdout


def test_an_interrupted_erasure_is_finished(store: ArtifactStore, family: dict[str, Reference]) -> None:
    blob = store.manifest(family["split"]).files[0].blob
    erase = ("erase", family["split"], "--reason", "request 17", "--yes", "--only")
    _run(store, *erase)
    store.objects.put_bytes(blob, b"[0]")
    assert "was erased on" in _run(store, *erase).stdout
    assert store.objects.stat(blob) is None


def test_pull_copies_to_a_store_or_a_directory(
    store: ArtifactStore, family: dict[str, Reference], tmp_path: Path
) -> None:
    assert "3 of 3 artifacts copied" in _run(store, "pull", family["split"], "--to", tmp_path / "other").stdout
    assert ArtifactStore.open(tmp_path / "other").verify(family["split"]) == 3
    assert "0 of 3 artifacts copied" in _run(store, "pull", family["split"], "--to", tmp_path / "other").stdout
    assert "source.json" in _run(store, "pull", family["before"], tmp_path / "plain").stdout
    assert (tmp_path / "plain" / "source.json").read_text() == "1"
    assert "both or neither" in _fails(store, "pull", family["split"])
    assert "another store" in _fails(store, "pull", family["split"], "--to", store.address)


def _take(store: ArtifactStore, folder: Path, text: str) -> SnapshotResult:
    (folder / "events.csv").write_text("id,at,name\n" + text)
    columns = {"id": "int64", "at": "timestamp", "name": "string"}
    table = {"member": "events.csv", "columns": columns, "event_time": "at", "sensitive": ["name"]}
    table |= {"on_invalid": "reject", "reject_limit": 1.0}
    source = parse_source({"name": "s", "kind": "files", "path": str(folder), "tables": {"events": table}})
    return snapshot(SnapshotRequest(source=source), store)


def test_rejected_rows_are_shown_by_reason(store: ArtifactStore, tmp_path: Path) -> None:
    taken = _take(
        store, tmp_path, "1,2024-01-01T00:00:00Z,anna\nx,2024-01-01T00:00:00Z,anna\ny,2024-01-01T00:00:00Z,anna\n"
    )
    for reference in ("", taken.snapshot, taken.rejected["events"]):
        words = ("rejected", *([reference] if reference else []), "--examples", "1")
        [table] = _json(store, *words)
        assert (table["table"], table["rows"], table["rejected"], table["hidden"]) == ("events", 1, 2, ["name"])
        [group] = table["groups"]
        assert (group["column"], group["rows"], len(group["examples"])) == ("id", 2, 1)
        assert group["examples"][0]["place"] == "events.csv, line 3"
        output = _run(store, *words).stdout
        assert "events.csv, line 3" in output and "line 4" not in output and "anna" not in output
