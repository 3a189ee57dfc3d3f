"""Reading files: what fits becomes typed rows in order, what does not is named by table, column, line, value."""

import gzip
import io
import math
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.catalog import open_source, parse_source
from gatehouse.data.sources.files import FileTable
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.store.store import ArtifactStore

SPEC = FileTable.model_validate({"member": "t.csv", "columns": {"a": "int64", "b": "string"}})
TIMED = FileTable.model_validate({"member": "t.csv", "columns": {"a": "timestamp"}, "event_time": "a"})
GOOD = b"a,b\n1,x\n2,NA\n"


def _zip(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def _read(folder: Path, name: str, content: bytes, spec: FileTable = SPEC) -> pa.Table:
    (folder / name).write_bytes(content)
    table = spec.model_dump(mode="json") | {"member": name}
    source = parse_source(
        {"name": "s", "kind": "files", "path": str(folder), "block_bytes": 1024, "tables": {"t": table}}
    )
    with open_source(source, "", ArtifactStore.open(folder / "store")) as opened:
        return pa.concat_tables([part.read().table for part in opened.parts("t", ())])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", GOOD),
        ("t.csv", GOOD.replace(b"\n", b"\r\n")),
        ("t.csv", b"\xef\xbb\xbf" + GOOD),
        ("t.csv", b"b,a\nx,1\nNA,2\n"),
        ("t.csv", b'"a",b\n"1","x"\n2,NA'),
        ("t.csv.gz", gzip.compress(GOOD)),
        ("t.csv.zip", _zip(("t.csv", GOOD))),
    ],
    ids=["csv", "crlf", "byte order mark", "other order", "quoted", "gzip", "zip"],
)
def test_every_packing_gives_the_same_rows(tmp_path: Path, name: str, content: bytes) -> None:
    assert _read(tmp_path, name, content).to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_parquet_is_cast_to_the_declared_types(tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": ["x"], "a": pa.array([1], pa.int16())}), tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    assert _read(tmp_path, "t.parquet", content).schema.types == [pa.int64(), pa.string()]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", b"a,b\n1,zz\nzz,r\n", "line 3, column a: expected int64 or a null, found 'zz'"),
        ("t.csv", b'a,b\n1,"x\ny"\n"w,v",r\n', "line 4, column a: expected int64 or a null, found 'w,v'"),
        ("t.csv", b"b,a\nx,1\nx,1.5\n", "line 3, column a: expected int64 or a null, found '1.5'"),
        ("t.csv", b"a,b\n1,caf\xe9\n", "line 2, column b: expected text in UTF-8"),
        ("t.csv", b"a,b\n1,x\n2\n", "line 3, expected 2 columns, found 1"),
        ("t.csv", b"a\n1\n", "missing: b"),
        ("t.csv", b'a,b\n1,"x\n2,r\n', "line 2: a quote opens a value and is not closed"),
        ("t.csv", b'a,b\n1,"p ""q"""\n2,"x\n3,"y"\n', "line 3: a quote opens a value and is not closed"),
        ("t.csv", b'a,b\n1,"x"y\n', "line 2: a quote opens a value and is not closed"),
        ("t.csv", b"a,b,c\n1,x,2\n", "not declared: c"),
        ("t.csv", b"a,b,a\n1,x,2\n", "repeated: a"),
        ("t.csv", b"", "is empty, expected a first line with the columns a, b"),
        ("t.csv.zip", _zip(("t.csv", GOOD), ("u.csv", GOOD)), "holds 2 files, expected one"),
        ("t.csv.zip", b"not a zip", "cannot be unpacked"),
        ("t.csv.gz", gzip.compress(GOOD * 50)[:-12], "cannot be unpacked"),
        ("t.parquet", b"PAR1", "is not intact Parquet"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with pytest.raises(SourceError) as raised:
        _read(tmp_path, name, content)
    assert said in str(raised.value)
    assert "Table t" in str(raised.value)


def test_a_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="line 2, column a: expected a time with its zone"):
        _read(tmp_path, "t.csv", b"a\n2013-01-01 00:00:00\n", TIMED)


def test_a_quote_inside_a_value_without_quotes_is_a_letter(tmp_path: Path) -> None:
    assert _read(tmp_path, "t.csv", b'a,b\n1,5" pipe\n2,"6"" ""pipe"\n').to_pylist()[0] == {"a": 1, "b": '5" pipe'}


ROME = "Europe/Rome"


def _zoned(folder: Path, name: str, content: bytes, **more: str) -> Raw:
    (folder / name).write_bytes(content)
    table = TIMED.model_dump(mode="json") | {"member": name, **more}
    body = {"name": "s", "kind": "files", "path": str(folder), "time_zone": ROME, "tables": {"t": table}}
    with open_source(parse_source(body), "", ArtifactStore.open(folder / "store")) as opened:
        return next(part.read() for part in opened.parts("t", ()))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b"a\n2013-07-01 12:00:00\nNA\n2013-07-01T10:00:00Z\n"),
        ("t.jsonl", b'{"a": "2013-07-01 12:00:00"}\n{"a": null}\n{"a": "2013-07-01T10:00:00Z"}\n'),
    ],
)
def test_times_without_a_zone_are_in_the_zone_that_the_source_states(tmp_path: Path, name: str, content: bytes) -> None:
    noon = datetime(2013, 7, 1, 10, tzinfo=UTC)
    assert _zoned(tmp_path, name, content).table["a"].to_pylist() == [noon, None, noon]


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("2013-10-27 02:30:00", "clocks in Europe/Rome show twice"),
        ("2013-03-31 02:30:00", "clocks in Europe/Rome skip"),
    ],
    ids=["twice", "never"],
)
def test_a_time_that_the_zone_has_twice_or_never_is_refused_or_set_aside(tmp_path: Path, time: str, said: str) -> None:
    content = f"a\n2013-01-01 00:00:00\n{time}\n".encode()
    with pytest.raises(
        DeclarationError, match=rf"line 3, column a: expected timestamp, not one that {said}, or a null, found '{time}'"
    ):
        _zoned(tmp_path, "t.csv", content)
    raw = _zoned(tmp_path, "t.csv", content, on_invalid="reject")
    assert raw.table.num_rows == 1 and raw.rejected.num_rows == 1


def test_a_zone_that_does_not_exist_is_refused() -> None:
    body = {"name": "s", "kind": "files", "path": ".", "time_zone": "Mars/Base", "tables": {"t": TIMED.model_dump()}}
    with pytest.raises(ValueError, match="expected a zone of the IANA database"):
        parse_source(body)


def test_a_number_that_no_double_holds_is_refused_where_an_infinity_is_read(tmp_path: Path) -> None:
    spec = FileTable.model_validate({"member": "t.csv", "columns": {"a": "double"}})
    assert _read(tmp_path, "t.csv", b"a\n1.5\n-inf\nInfinity\n", spec)["a"].to_pylist() == [1.5, -math.inf, math.inf]
    with pytest.raises(SourceError, match="line 3, column a: expected double or a null, found '1e400'"):
        _read(tmp_path, "t.csv", b"a\ninf\n1e400\n", spec)


def test_a_hexadecimal_number_is_no_whole_number(tmp_path: Path) -> None:
    found = _read(tmp_path, "t.csv", b"a,b\n1,0x1\n 2,0xFF\n")
    assert found.to_pydict() == {"a": [1, 2], "b": ["0x1", "0xFF"]}
    for text in (b"0x1", b"0Xff", b"0xFFFFFFFFFFFFFFFF", b" 0x1"):
        with pytest.raises(DeclarationError, match=r"Table t: t\.csv, line 3, column a: "):
            _read(tmp_path, "t.csv", b"a,b\n1,x\n" + text + b",y\n")
