"""Files that change or go away while they are read: an error, never another content under the same identity."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from gatehouse.data.sources.file_reader import FileReader
from gatehouse.errors import SourceError
from tests.data.snapshot.conftest import HEADER, Events, rows


def _table(value: float) -> pa.Table:
    at = pa.array([0, 60_000_000], pa.timestamp("us", "UTC"))
    return pa.table({"id": [1, 2], "at": at, "value": [value, value]})


def _parquet(path: Path, value: float) -> None:
    pq.write_table(_table(value), path)


def _arrow(path: Path, value: float) -> None:
    pyarrow.feather.write_feather(_table(value), str(path), compression="zstd")


def _packed(path: Path, value: float) -> None:
    path.write_bytes(gzip.compress((HEADER + rows(0, 2, value)).encode()))


@pytest.mark.parametrize(
    ("name", "write"), [("e.parquet", _parquet), ("e.arrow", _arrow), ("e.csv.gz", _packed)], ids=["p", "a", "gz"]
)
def test_a_file_that_is_replaced_between_the_look_and_the_read_is_not_published(
    events: Events, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path, float], None]
) -> None:
    events.table = {"member": name}
    write(events.folder / name, 1.0)
    really = FileReader._reads

    def replaced(*arguments: Any) -> Any:
        write(events.folder / name, 2.0)
        return really(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(FileReader, "_reads", replaced)
        with pytest.raises(SourceError, match="changed while it was read"):
            events.take()
    write(events.folder / name, 1.0)
    value = events.read(events.take())["value"].to_pylist()
    assert value[1] == 1.0


def test_a_replaced_file_elsewhere_is_not_published(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fsspec.filesystem("memory")
    files.pipe_file("/gatehouse-changing/events.csv", (HEADER + rows(0, 60)).encode())
    really = FileReader._reads

    def replaced(*arguments: Any) -> Any:
        files.pipe_file("/gatehouse-changing/events.csv", (HEADER + rows(0, 60, 0.7)).encode())
        return really(*arguments)

    monkeypatch.setattr(FileReader, "_reads", replaced)
    with pytest.raises(SourceError, match="changed while it was read"):
        events.take(location="memory://gatehouse-changing")
