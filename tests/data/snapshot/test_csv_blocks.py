"""A CSV in blocks of bytes: the parts of one process, whatever its quotes, line ends and rows that do not fit."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gatehouse.data.snapshot import csv_blocks, file_pieces
from gatehouse.data.snapshot.csv_blocks import BlockRequest, ScanRequest, read_block, scan_block, store_blocks
from gatehouse.data.snapshot.parts import Stored, store_parts
from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.sources import file_reader
from gatehouse.data.sources.catalog import open_source
from gatehouse.data.sources.file_reader import FileReader
from gatehouse.data.sources.files import FolderSource
from gatehouse.data.sources.raw_file import find_files
from gatehouse.errors import SourceError
from gatehouse.pieces.engine import Engine
from gatehouse.pieces.piece import Call
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.servers import BUCKET, s3_server

NUMBERS = st.sampled_from(["1", "22", "-3", "", "NA", "much", '"4"', '"5\n"'])
TEXTS = st.sampled_from(["a", "bb bb", "", '"c,d"', '"e ""f"""', '"g\nh"', '"i\r\n\n"', '"j\r"', "ü"])
ENDS = st.sampled_from(["\n", "\n", "\r\n", "\r\n", "\r", "\n\n", ",more\n"])
CSVS = st.lists(st.tuples(NUMBERS, TEXTS, ENDS), max_size=40).map(
    lambda rows: "n,t\n" + "".join(f"{number},{text}{end}" for number, text, end in rows)
)


ROUNDS: list[tuple[str, int]] = []


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_pieces(store: ArtifactStore, calls: Sequence[Call]) -> list[Any]:
        """Each piece gets its request as a worker does, and remembers its result."""
        ROUNDS.extend([(calls[0][0].name.rpartition(":")[2], len(calls))] if calls else [])
        requests = [(piece, piece.request.model_validate(request.model_dump(mode="json"))) for piece, request in calls]
        return [piece.run(request, store, piece.key(request)) for piece, request in requests]

    ROUNDS.clear()
    # Another process would not see the small windows below, which only this process has.
    monkeypatch.setattr(csv_blocks, "run_pieces", run_pieces)
    monkeypatch.setattr(file_pieces, "run_pieces", run_pieces)


def divided_and_whole(
    folder: Path, text: bytes, *, window: int, windows: int, rows: int, **declared: Any
) -> tuple[list[Stored] | None, list[Stored]]:
    """The parts of a CSV that is read in blocks of some windows, None if it is not, and of the same CSV read whole."""
    (folder / "raw").mkdir(exist_ok=True)
    (folder / "raw" / "t.csv").write_bytes(text)
    table = {"member": "t.csv", "columns": {"n": "int64", "t": "string"}, "on_invalid": "reject"} | declared
    spec = FolderSource.model_validate(
        {"name": "s", "path": f"file://{folder}/raw", "rows_per_part": rows, "tables": {"t": table}}
    )
    store = ArtifactStore.open(folder / "store")
    with pytest.MonkeyPatch.context() as patch, open_source(spec, "", store) as source:
        patch.setattr(file_reader, "WINDOW", window)
        patch.setattr(csv_blocks, "ROWS", 2 * rows)
        assert isinstance(source, FileReader)
        files = source.state()["t"]["files"]
        body = {"table": "t", "columns": tuple(spec.tables["t"].columns), "source": spec, "location": source.place}
        divided = store_blocks(body, files, window * windows, "", store)
        return divided.get("t.csv"), store_parts(source.parts("t", ()), spec.tables["t"], None, {}, store)


@settings(max_examples=100)
@given(CSVS, st.sampled_from([40, 48, 64]), st.sampled_from([1, 2, 3]), st.integers(1, 7))
def test_blocks_give_the_parts_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, text: str, window: int, windows: int, rows: int
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    divided, whole = divided_and_whole(folder, text.encode(), window=window, windows=windows, rows=rows)
    event("divided" if divided is not None else "not divided")
    assert divided in (None, whole)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("cell", ["a", '"b, c"', '"d\ne"', '"f ""g"""', '"\r\n\r\n"', '5" pipe 6"'])
def test_rows_of_any_length_are_divided(tmp_path: Path, cell: str, end: str) -> None:
    rows = "".join(f"{'x' if row % 11 == 5 else row},{cell}{'z' * (row % 23)}{end}" for row in range(300))
    if cell.startswith('"'):
        rows = rows.replace("z", "")
    divided, whole = divided_and_whole(tmp_path, f"n,t{end}{rows}".encode(), window=64, windows=3, rows=16)
    assert divided is not None and divided == whole and sum(part.rejected_rows for part in whole) == 27
    assert [part.position["part"] for part in divided] == list(range(18))
    assert [part.position["last"] for part in divided] == [False] * 17 + [True]


def test_a_file_is_not_divided_where_its_quotes_mislead_or_a_row_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f'{row},{row}" pipe\n' for row in range(100)]
    text = "".join(["n,t\n", '0,"quoted\nvalue"\n', *rows]).encode()
    assert divided_and_whole(tmp_path, text, window=64, windows=1, rows=16)[0] is None
    monkeypatch.setattr(csv_blocks, "HEADER", 3)  # Shorter than the header of the file.
    text = "".join(["n,t\n", *(f"{row},text\n" for row in range(100))]).encode()
    assert divided_and_whole(tmp_path, text, window=64, windows=1, rows=16)[0] is None


def test_a_mark_is_no_part_of_a_row(tmp_path: Path) -> None:
    text = "".join(["\ufeffn,t\n", *(f"{row},text\n" for row in range(100))]).encode()
    divided, whole = divided_and_whole(tmp_path, text, window=64, windows=2, rows=16)
    assert divided is not None and divided == whole


def test_rows_get_the_time_of_their_delivery(tmp_path: Path) -> None:
    text = ("n,t\n" + "".join(f"{row},text\n" for row in range(100))).encode()
    declared: dict[str, Any] = {"columns": {"n": "int64", "t": "string", "at": "timestamp"}, "event_time": "at"}
    divided, whole = divided_and_whole(
        tmp_path, text, window=64, windows=2, rows=16, delivered="2024-01-01T00:00:00Z", **declared
    )
    assert divided == whole and whole[0].first == "2024-01-01T00:00:00+00:00"


def test_a_snapshot_of_a_bucket_takes_large_files_in_rounds_and_an_erasure_finds_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"a": 60, "b": 3, "c": 100, "d": 0, "e": 80, "f": 70}
    texts = {
        name: "".join(["n,t\n", *(f"{row},Slartibartfast {name}\n" for row in range(rows[name]))]) for name in rows
    }
    texts["f"] += '5,"x\n' + "y\n" * 200 + '"\n'  # A row as long as a block.
    quoted = [f'{row},"long Slartibartfast\n{row},g"\n' for row in range(70, 140)]
    texts["g"] = "".join(["n,t\n", *(f"{row},Slartibartfast g\n" for row in range(70)), '1,5" pipe\n', *quoted])
    table = {"member": "*.csv", "columns": {"n": "int64", "t": "string"}}
    body = {"name": "s", "path": f"s3://{BUCKET}/raw", "rows_per_part": 8, "tables": {"t": table}}
    request = SnapshotRequest(source=FolderSource.model_validate(body))
    with s3_server() as proxy:
        for variable, value in proxy.environment.items():
            monkeypatch.setenv(variable, value)
        files = fsspec.filesystem("s3", skip_instance_cache=True)
        for name, text in texts.items():
            files.pipe_file(f"{BUCKET}/raw/{name}.csv", text.encode())
        whole = snapshot(request, ArtifactStore.open(tmp_path / "whole"))
        monkeypatch.setattr(file_reader, "WINDOW", 64)  # Small files then have many windows,
        monkeypatch.setattr(file_pieces, "BYTES", 256)  # and many blocks.
        monkeypatch.setattr(file_pieces, "engine_of", lambda _: Engine(kind="ray"))  # Only a cluster divides files.
        store = ArtifactStore.open(tmp_path / "divided")
        assert snapshot(request, store) == whole
    assert len(list(store.objects.list("memo/read_block"))) > len(list(store.references("pieces")))
    assert [name for name, _ in ROUNDS] == ["scan_block", "read_block", "assemble_parts", "store_files"]
    erase(store, plan_erasure(store, whole.snapshot), "request 12", "me")
    for key in store.objects.list(""):
        content = store.objects.get_bytes(key)
        text = str(pq.read_table(io.BytesIO(content)).to_pylist()) if content.startswith(b"PAR1") else str(content)
        assert "Slarti" not in text, key


def test_a_file_that_grew_or_changed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "raw" / "t.csv"
    path.parent.mkdir()
    path.write_text("n,t\n1,a\n")
    body = {
        "name": "s",
        "path": f"file://{path.parent}",
        "tables": {"t": {"member": "t.csv", "columns": {"n": "int64"}}},
    }
    source, store = FolderSource.model_validate(body), ArtifactStore.open(tmp_path / "store")
    identity = find_files(source.path, "t.csv")[0].identity()
    named = {"source": source, "table": "t", "columns": ("n",), "location": source.path, "file": "t.csv"}
    span = {"start": 0, "stop": 8, "lines": 0, "left": 0}
    read_block.function(BlockRequest(**named, **span, identity=identity, size=8), store)
    with pytest.raises(SourceError, match="changed"):
        read_block.function(BlockRequest(**named, **span, identity="etag:another", size=8), store)
    path.write_text("n,t\n1,a\n2,b\n")
    grown = find_files(source.path, "t.csv")[0].identity()
    with pytest.raises(SourceError, match="changed"):
        read_block.function(BlockRequest(**named, **span, identity=grown, size=8), store)
    with pytest.raises(SourceError, match="changed"):
        scan_block.function(ScanRequest(**named, identity=identity, size=12, start=0, stop=12), store)
