"""A source of the project's own: its parts are read once, its files are in the key, and misuse is named."""

import importlib
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import DeclarationError
from gatehouse.store.builder_code import BuilderError
from gatehouse.store.store import ArtifactStore

READER = """
import pyarrow as pa
from functools import partial
from pathlib import Path
from gatehouse.data.sources.base import Part
from gatehouse.data.sources.declared import declare

class Lines:
    def __init__(self, spec):
        self.spec = spec
    def state(self):
        return {"t": {"text": Path(self.spec.options["file"]).read_text()}}
    def parts(self, table, earlier_parts):
        for line in Path(self.spec.options["file"]).read_text().split():
            yield Part(line, partial(self.read, line))
    def read(self, line):
        with open(self.spec.options["file"] + ".log", "a") as log:
            log.write(line)
        rows = pa.table({"x": [line]})
        place = lambda piece, row, number: "line " + line
        return declare([rows], self.spec.tables["t"], name="t", place=place, time_zone="")

def nothing(spec):
    return spec
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's module, and the lines that it reads."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_lines", raising=False)
    path = tmp_path / "own_lines.py"
    path.write_text(READER)
    (tmp_path / "lines").write_text("a b")
    importlib.invalidate_caches()
    return path


def take(store: ArtifactStore, module: Path, reader: str = "own_lines:Lines", kind: str = "string") -> SnapshotResult:
    body = {"name": "s", "kind": "own", "reader": reader, "options": {"file": str(module.with_name("lines"))}}
    tables = {"t": {"columns": {"x": kind}, "guards": {"duplicate_rows": "accept"}}}
    return snapshot(SnapshotRequest(source=parse_source(body | {"tables": tables})), store)


def test_only_new_parts_are_read_and_an_edit_of_the_reader_reads_all_again(store: ArtifactStore, module: Path) -> None:
    log = module.with_name("lines.log")
    first = take(store, module)
    assert (first.rows, sorted(log.read_text()), take(store, module).unchanged) == ({"t": 2}, ["a", "b"], True)
    module.with_name("lines").write_text("a b c")
    assert (take(store, module).rows, log.read_text()[2:]) == ({"t": 3}, "c")
    module.write_text(READER + "# another version\n")
    assert not take(store, module).unchanged and sorted(log.read_text()[3:]) == ["a", "b", "c"]  # In any order.


def test_rows_that_do_not_fit_are_refused_with_their_place(store: ArtifactStore, module: Path) -> None:
    with pytest.raises(DeclarationError, match="Table t, line a"):
        take(store, module, kind="int64")


@pytest.mark.parametrize("reader", ["own_lines:Absent", "own_absent:Lines", "own_lines:nothing"])
def test_a_reader_that_is_none_is_named(store: ArtifactStore, module: Path, reader: str) -> None:
    with pytest.raises(BuilderError, match=reader):
        take(store, module, reader)


def test_a_password_among_the_options_is_refused(module: Path) -> None:
    body = {"name": "s", "kind": "own", "reader": "m:R", "options": {"url": "db://me:secret@host/db"}}
    with pytest.raises(ValidationError) as caught:
        parse_source(body | {"tables": {"t": {"columns": {"x": "string"}}}})
    assert "secret" not in str(caught.value)
