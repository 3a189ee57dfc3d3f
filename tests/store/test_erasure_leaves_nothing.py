"""No byte of erased rows is left in a store: every file is searched, tables decoded, on each kind of store."""

import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.data.validation.contract import CONTRACT_FILE
from gatehouse.data.validation.stage import ValidateRequest, validate
from gatehouse.store import memo
from gatehouse.store.eraser import LOGS
from gatehouse.store.run import RUN_ID, Attempt
from gatehouse.store.store import ArtifactStore
from tests.store.conftest import Place

EVERY = pytest.mark.parametrize("place", ["local", "gs", "s3"], indirect=True)
NAME = "Slartibartfast"
OLDEST = b"2024-01-01T00:00:00"
"""The time of the person's rows, which is the first of each delivery."""
CONTRACT = {
    "version": 1,
    "tables": {"people": {"columns": {"id": {"type": "int64"}, "name": {"type": "string", "allowed": ["Arthur"]}}}},
}


def _taken(store: ArtifactStore, folder: Path, rows: int) -> SnapshotResult:
    """A snapshot of a person's rows, of which one is set aside, and of others; each delivery has more of these."""
    good = "".join(f"{number},2024-01-01T00:{number:02d}:00Z,Arthur\n" for number in range(rows))
    personal = f"70,2024-01-01T00:00:00Z,{NAME}\nno number,2024-01-01T00:00:00Z,{NAME}\n"
    (folder / "people.csv").write_text("id,at,name\n" + personal + good)
    columns = {"id": "int64", "at": "timestamp", "name": "string"}
    table = {"member": "people.csv", "columns": columns, "event_time": "at"}
    table |= {"on_invalid": "reject", "reject_limit": 0.5}
    source = {"name": "small", "kind": "files", "path": str(folder), "rows_per_part": 30, "tables": {"people": table}}
    return snapshot(SnapshotRequest(source=parse_source(source)), store)


def _holding(store: ArtifactStore) -> set[str]:
    """The first folder of every key, and of every file on this machine, that holds the name; tables are decoded."""
    folders = {key.split("/")[0] for key in store.objects.list("") if _says(store.objects.get_bytes(key))}
    for folder, _, names in os.walk(os.environ["GATEHOUSE_CACHE"]):
        folders |= {"cache" for name in names if _says((Path(folder) / name).read_bytes())}
    return folders


def _says(data: bytes) -> bool:
    if data[:4] == b"PAR1":
        data = repr(pq.read_table(io.BytesIO(data)).to_pylist()).encode()
    return NAME.encode() in data


@EVERY
def test_no_byte_of_erased_rows_is_left(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")
    store = ArtifactStore(place.open())
    first, second = (_taken(store, tmp_path, rows) for rows in (40, 55))
    contract = store.publish("config", "contract", {CONTRACT_FILE: json.dumps(CONTRACT)})
    judged = validate(ValidateRequest(snapshot=first.snapshot, contract=str(contract)), store)
    with store.workspace() as workspace:
        table = pq.read_table(store.paths(store.manifest(second.snapshot).derived_from["people"])[0])
        pq.write_table(table.filter(pc.equal(table["name"], NAME)), workspace / "x.parquet")
        inputs = {"snapshot": second.snapshot}
        features = store.publish("features", "f", {"x.parquet": workspace / "x.parquet"}, derived_from=inputs)
        other = store.publish("features", "g", {"x.parquet": _written(workspace, pa.table({"name": ["Ford"]}))})
    log = store.local_folder / LOGS / "run-1.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text(NAME)
    Attempt(store, "require_contract").note("failed", message=f"found {NAME}")
    memo.remember(store, "judge", "k" * 64, {"judged": judged.validation, "reasons": [f"found {NAME}"]})
    assert any(OLDEST in store.objects.get_bytes(key) for key in store.objects.list("sources"))
    assert {"blobs", "memo", "runs", "reports"} <= _holding(ArtifactStore(place.open()))
    command = ["erase", first.snapshot, "--reason", "request 17", "--yes", "--store", place.address]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0 and "erased; the record is erasures/000001.json" in done.output, done.exception
    after = ArtifactStore(place.open())
    assert _holding(after) == set() and not log.exists()
    assert not [key for key in after.objects.list("") if OLDEST in after.objects.get_bytes(key)]
    assert not any(
        after.exists(reference) for reference in (first.snapshot, second.snapshot, judged.validation, features)
    )
    assert after.verify(other) == 1 and after.verify(contract) == 1


def _written(folder: Path, table: pa.Table) -> Path:
    pq.write_table(table, folder / "other.parquet")
    return folder / "other.parquet"
