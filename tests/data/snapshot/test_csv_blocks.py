"""A CSV in blocks of bytes: the parts of one process, whatever its quotes, line ends and rows that do not fit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gatehouse.data.snapshot import csv_blocks
from gatehouse.data.snapshot.csv_blocks import store_blocks
from gatehouse.data.snapshot.parts import Stored, store_parts
from gatehouse.data.sources import file_reader
from gatehouse.data.sources.catalog import open_source
from gatehouse.data.sources.file_reader import FileReader
from gatehouse.data.sources.files import FolderSource
from gatehouse.data.sources.raw_file import find_files
from gatehouse.errors import MisfitError, SourceError
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.servers import BUCKET, s3_server

NUMBERS = st.sampled_from(["1", "22", "-3", "", "NA", "much", '"4"', '"5\n"'])
TEXTS = st.sampled_from(["a", "bb bb", "", '"c,d"', '"e ""f"""', '"g\nh"', '"i\r\n\n"', '"j\r"', "ü"])
ENDS = st.sampled_from(["\n", "\n", "\r\n", "\r\n", "\r", "\n\n", ",more\n"])
CSVS = st.lists(st.tuples(NUMBERS, TEXTS, ENDS), max_size=40).map(
    lambda rows: "n,t\n" + "".join(f"{number},{text}{end}" for number, text, end in rows)
)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_pieces(store: ArtifactStore, calls: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Each piece gets its request as a worker does."""
        requests = [(piece, piece.request.model_validate(request.model_dump(mode="json"))) for piece, request in calls]
        return [piece.function(request, store) for piece, request in requests]

    monkeypatch.setattr(csv_blocks, "run_pieces", run_pieces)


def divided_and_whole(
    folder: Path, text: bytes, *, window: int, windows: int, rows: int, **declared: Any
) -> tuple[list[Stored], list[Stored]]:
    """The parts of a CSV that is read in blocks of some windows, and of the same CSV read whole."""
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
        (file,) = source.state()["t"]["files"]
        body = {"table": "t", "columns": tuple(spec.tables["t"].columns), "file": "t.csv", "identity": file["identity"]}
        body |= {"source": spec, "location": source.place}
        divided = store_blocks(body, len(text), window * windows, "", store)
        return divided, store_parts(source.parts("t", ()), spec.tables["t"], None, {}, store)


@settings(max_examples=100)
@given(CSVS, st.sampled_from([40, 48, 64]), st.sampled_from([1, 2, 3]), st.integers(1, 7))
def test_blocks_give_the_parts_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, text: str, window: int, windows: int, rows: int
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    try:
        divided, whole = divided_and_whole(folder, text.encode(), window=window, windows=windows, rows=rows)
    except SourceError:  # A block has no row end, or one that a line feed may complete.
        event("not divided")
        return
    event("divided")
    assert divided == whole


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("cell", ["a", '"b, c"', '"d\ne"', '"f ""g"""', '"\r\n\r\n"', '5" pipe 6"'])
def test_rows_of_any_length_are_divided(tmp_path: Path, cell: str, end: str) -> None:
    rows = "".join(f"{'x' if row % 11 == 5 else row},{cell}{'z' * (row % 23)}{end}" for row in range(300))
    if cell.startswith('"'):
        rows = rows.replace("z", "")
    divided, whole = divided_and_whole(tmp_path, f"n,t{end}{rows}".encode(), window=64, windows=3, rows=16)
    assert divided == whole and sum(part.rejected_rows for part in whole) == 27
    assert [part.position["part"] for part in divided] == list(range(18))
    assert [part.position["last"] for part in divided] == [False] * 17 + [True]


def test_a_quote_that_is_a_letter_divides_nothing_wrongly(tmp_path: Path) -> None:
    rows = "".join(f'{row},{row}" pipe\n' for row in range(100))
    with pytest.raises(SourceError, match="no row of"):
        divided_and_whole(tmp_path, ("n,t\n" + '0,"quoted\nvalue"\n' + rows).encode(), window=64, windows=1, rows=16)


def test_a_file_with_a_mark_is_not_divided_and_a_row_that_does_not_fit_is_named(tmp_path: Path) -> None:
    rows = "".join(f"{row},text\n" for row in range(100))
    with pytest.raises(SourceError, match="cannot be divided"):
        divided_and_whole(tmp_path, f"\ufeffn,t\n{rows}".encode(), window=64, windows=1, rows=16)
    wrong = f"n,t\n{rows.replace('80,', 'x,')}".encode()
    with pytest.raises(MisfitError, match=r"t\.csv, line 82, column n"):
        divided_and_whole(tmp_path, wrong, window=64, windows=1, rows=16, on_invalid="fail")


def test_rows_get_the_time_of_their_delivery(tmp_path: Path) -> None:
    text = ("n,t\n" + "".join(f"{row},text\n" for row in range(100))).encode()
    declared: dict[str, Any] = {"columns": {"n": "int64", "t": "string", "at": "timestamp"}, "event_time": "at"}
    divided, whole = divided_and_whole(
        tmp_path, text, window=64, windows=2, rows=16, delivered="2024-01-01T00:00:00Z", **declared
    )
    assert divided == whole and whole[0].first == "2024-01-01T00:00:00+00:00"


def test_a_span_of_a_file_is_read_from_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as proxy:
        for variable, value in proxy.environment.items():
            monkeypatch.setenv(variable, value)
        fsspec.filesystem("s3", skip_instance_cache=True).pipe_file(f"{BUCKET}/raw/t.csv", b"0123456789")
        (file,) = find_files(f"s3://{BUCKET}/raw", "t.csv")
        assert file.span(2, 5) == b"234" and file.span(8, 11) == b"89"
