"""No error, log or record of a stage quotes a row of data that have a sensitive column, whatever read the row."""

import logging
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from gatehouse.data.snapshot.stage import SnapshotRequest
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import GatehouseError, HiddenValueError
from gatehouse.evaluation import footprint
from gatehouse.evaluation.integration import stage as integration
from gatehouse.evaluation.slices import slice_columns
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.features.decisions_stage import _faults
from gatehouse.features.exact import cast_values, row_of
from gatehouse.features.point_in_time.entity_rows import EntityRows
from gatehouse.store.code import Code
from gatehouse.store.database import connect
from gatehouse.store.hidden_values import hiding
from gatehouse.store.run import RUN_ID
from gatehouse.store.stage import STAGES, StageModel, declared_stages
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation import table_of_rows, texts_of

SECRET = "918273"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
declared_stages()


class Request(StageModel):
    data: str


def _decisions(_: Path) -> str:
    with connect() as connection:
        rows = pa.table({"name": [SECRET] * 2, "decision_time": pa.array([NOON] * 2)})
        connection.register("requested", rows)
        return " ".join(_faults(connection, ["name", "decision_time"], NOON))


READERS: dict[str, Callable[[Path], object]] = {
    "decisions": _decisions,
    "request": lambda _: cast_values([f"x{SECRET}"], pa.int64(), row_of("seats")),
    "slices": lambda _: slice_columns(pa.table({"name": [f"x{SECRET}"]}), EvaluationSpec(slices={"a": "name::INT"})),
    "time": lambda _: EntityRows.of_frame(pd.DataFrame({"event_timestamp": [f"x{SECRET}"]})),
    "types": lambda _: table_of_rows([{"name": 1}, {"name": f"x{SECRET}"}], ["name"]),
    "categories": lambda _: texts_of("name", pa.chunked_array([[float(SECRET) + 0.5]]), "int64"),
    "program": lambda folder: integration.run(["-c", f"raise SystemExit('{SECRET}')"], 60.0, folder)[1],
    "assertion": lambda _: integration._shown("test_it.py::test_it", f"assert {SECRET} == 1"),
    "skipped": lambda _: integration._shown("test_it.py::test_it", f"was skipped: row {SECRET}"),
    "expected": lambda _: integration._shown("test_it.py::test_it", f"is expected to fail: row {SECRET}"),
    "parameter": lambda _: integration._shown(f"test_it.py::test_it[{SECRET}]", "was deselected"),
    "untried": lambda _: integration.require_permanent(
        {"permanent": False, "name": "StoreError", "message": f"row {SECRET}"}
    ),
}
"""What reads rows, with rows that it refuses: each returns or raises a message."""


@pytest.mark.parametrize("sensitive", [(), ("name",)])
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_of_rows_quotes_one(tmp_path: Path, reader: str, sensitive: tuple[str, ...]) -> None:
    with hiding(lambda: sensitive):
        try:
            message = READERS[reader](tmp_path)
        except GatehouseError as error:
            message = error
    assert (SECRET in str(message)) == (not sensitive)


def _unexpected(*_: object) -> None:
    logging.getLogger("gatehouse").info("reading")
    pa.array([f"x{SECRET}"]).cast(pa.int64())


@pytest.mark.parametrize("name", sorted(STAGES))
def test_no_stage_quotes_a_row(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv(RUN_ID, "run")
    source = store.publish("datasets", "people", {}, details={"sensitive": ["name"]})
    data = str(store.publish("features", "v", {}, derived_from={"people": source}))
    declared = STAGES[name]
    request: StageModel = Request(data=data)
    if name == "snapshot":
        table = {"member": "people.csv", "columns": {"name": "string"}, "sensitive": ["name"]}
        described = {"name": "small", "kind": "files", "path": str(tmp_path), "tables": {"people": table}}
        request = SnapshotRequest(source=parse_source(described))
    monkeypatch.setattr(declared, "function", _unexpected)
    monkeypatch.setattr(declared, "outside", None)
    monkeypatch.setattr(declared, "sources", lambda: Code({}, {}))
    with caplog.at_level(logging.DEBUG), pytest.raises(HiddenValueError, match=r"sensitive \(name\)") as raised:
        declared(request, store)
    assert SECRET not in "".join(traceback.format_exception(raised.value)) + caplog.text
    recorded = [path for path in Path(store.address).rglob("*") if path.is_file() and "runs" in path.parts]
    assert any("failed" in path.name for path in recorded)
    assert not [path for path in recorded if SECRET in path.read_text()]


@pytest.mark.parametrize("sensitive", [(), ("name",)])
def test_the_process_that_measures_memory_quotes_no_row(tmp_path: Path, sensitive: tuple[str, ...]) -> None:
    store = ArtifactStore.open(tmp_path / SECRET)  # Its name is in the words of the process, which finds no model.
    with hiding(lambda: sensitive), pytest.raises(footprint.FootprintError, match="measuring its memory") as raised:
        footprint.measured_memory(store, f"models/m/sha256-{'0' * 64}", tmp_path)
    assert (SECRET in str(raised.value)) == (not sensitive)
