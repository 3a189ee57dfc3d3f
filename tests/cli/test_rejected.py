"""`gatehouse data rejected`: which rows of which table, why, and no value that is sensitive."""

import json
from pathlib import Path

from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.store.store import ArtifactStore


def _take(store: ArtifactStore, folder: Path, text: str) -> SnapshotResult:
    (folder / "events.csv").write_text("id,at,name\n" + text)
    columns = {"id": "int64", "at": "timestamp", "name": "string"}
    table = {"member": "events.csv", "columns": columns, "event_time": "at", "sensitive": ["name"]}
    table |= {"on_invalid": "reject", "reject_limit": 1.0}
    source = parse_source({"name": "s", "kind": "files", "path": str(folder), "tables": {"events": table}})
    return snapshot(SnapshotRequest(source=source), store)


def _run(store: ArtifactStore, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["rejected", *arguments, "--store", store.address])
    assert result.exit_code == 0, result.output
    return result.output


def test_rejected_rows_are_shown_by_reason(store: ArtifactStore, tmp_path: Path) -> None:
    taken = _take(
        store, tmp_path, "1,2024-01-01T00:00:00Z,anna\nx,2024-01-01T00:00:00Z,anna\ny,2024-01-01T00:00:00Z,anna\n"
    )
    for reference in ("", taken.snapshot, taken.rejected["events"]):
        output = _run(store, *([reference] if reference else []), "--examples", "1")
        assert "events 1 row, 2 rejected" in output
        assert "2  column id: expected int64 or a null" in output
        assert "events.csv, line 3\n" in output
        assert "No value is shown, as columns are sensitive: name." in output
        assert "line 4" not in output and "anna" not in output
    [result] = json.loads(_run(store, "--json"))
    assert result["groups"][0]["rows"] == 2 and result["reference"] == taken.rejected["events"]
