"""That a first look counts the rows, and those that are rejected, as the snapshot that is then taken does."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatehouse.data.snapshot.sniffing import sniff, source_of
from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import SourceError
from gatehouse.store.store import ArtifactStore

DELIVERED = "2024-05-01 12:00:00"


def _counted(store: ArtifactStore, path: Path) -> tuple[int, int]:
    """Rows and rejected rows of a file at the first look, which are those of its snapshot."""
    found = sniff(path)
    source = parse_source(source_of(found, path, "t", DELIVERED))
    taken = snapshot(SnapshotRequest(source=source, look=True), store)
    rejected = taken.rejected_rows.get("t", 0)
    assert (found.rows + found.uneven, found.uneven + found.misfit_rows) == (taken.rows["t"] + rejected, rejected)
    return taken.rows["t"], rejected


@pytest.mark.parametrize(
    ("text", "rows", "rejected"),
    [
        pytest.param('a,b\n1,x\n2,"' + "y" * 3_000_000 + '"\n3,z\n', 3, 0, id="a cell of 3 MB"),
        pytest.param("\na,b\n" + "1,x\n" * 9, 9, 0, id="an empty first line"),
        pytest.param("\r\n\r\na,b\r\n\r\n" + "1,x\r\n\r\n" * 9, 9, 0, id="empty lines"),
        pytest.param("a,b\n" + "1,x\n" * 30_000 + "1,x\r3\n1,x\n", 30_002, 1, id="a lone carriage return"),
        pytest.param("a,b\r" + "1,x\r" * 30, 30, 0, id="carriage returns alone"),
        pytest.param("a,b\n" + "1,x\r\n1,x\n1,x\r" * 9, 27, 0, id="each end of line"),
        pytest.param("a,b\n" + '1,x"y\n' * 9 + '1,x"\r1,z\n', 11, 0, id="quotes within cells"),
        pytest.param('a,b\n1,"x\ny\r\n"\n' * 1 + "2,z\n" * 9, 10, 0, id="ends of lines within quotes"),
        pytest.param("a,b\n" + "1,2\n" * 60 + "x,y\n7\n", 60, 2, id="two misfits in one row"),
        pytest.param("a,b,c\n" + "1,2,3\n" * 60 + "x,y,3\n1,y,3\n", 60, 2, id="misfits in rows that share one"),
        pytest.param(",b\n" + "1,2\n" * 60 + "x,3\n", 61, 0, id="a misfit in a column that is left out"),
    ],
)
def test_a_first_look_counts_the_rows_of_the_snapshot(
    tmp_path: Path, store: ArtifactStore, text: str, rows: int, rejected: int
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    assert _counted(store, path) == (rows, rejected)


CELLS = st.one_of(
    st.sampled_from(["", "7", "0.5", "1,5", "x", "none", "NA", "2024-01-02", "1.2.2024", "true", "007", "1e5", " 1 "]),
    st.sampled_from(
        ['"a;b"', '"a,b"', '"x\ny"', '"x\r\ny"', '"say ""no"""', 'x"y', '""', "#", "é", "🙂", "inf", "%", "\ufeff"]
    ),
)


@st.composite
def nasty_files(draw: st.DrawFn) -> bytes:
    """Files of a few columns, each mostly of one kind, with odd cells, ends of lines and rows."""
    delimiter, width = draw(st.sampled_from(",;\t|")), draw(st.integers(1, 4))
    usual = [draw(CELLS) for _ in range(width)]
    lines = [delimiter.join(f"c{column}" for column in range(width))]
    for _ in range(draw(st.integers(1, 60))):
        cells = [draw(CELLS) if draw(st.integers(0, 15)) == 0 else cell for cell in usual]
        lines.append(delimiter.join([*cells, "z"] if draw(st.integers(0, 15)) == 0 else cells))
    ends = draw(st.lists(st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n"]), min_size=1, max_size=3))
    begin = draw(st.sampled_from(["", "", "\n", "\ufeff", "\r\n"]))
    text = begin + "".join(line + ends[number % len(ends)] for number, line in enumerate(lines))
    return text.encode(draw(st.sampled_from(["utf-8", "utf-16"])))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=nasty_files())
def test_a_first_look_counts_the_rows_of_the_snapshot_of_any_file(
    tmp_path: Path, store: ArtifactStore, content: bytes
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    try:
        sniff(path)
    except SourceError:
        return
    _counted(store, path)
