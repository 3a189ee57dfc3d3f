"""Reading files: typed rows in order whatever the packing, and what does not fit is named by table, line and column."""

import csv
import gzip
import io
import json
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.catalog import open_source, parse_source
from gatehouse.data.sources.raw_file import find_files
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.store.store import ArtifactStore

COLUMNS = {"a": "int64", "b": "string"}
GOOD = b"a,b\n1,x\n2,NA\n"
AT = datetime(2013, 3, 31, 1, 30, tzinfo=UTC)
EUROPEAN = {"delimiter": ";", "decimal": ",", "times": {"at": "%d.%m.%Y %H:%M"}}
MIXED = {"name": "string", "price": "double", "at": "timestamp"}
TEXT = 'name;price;at\n"Città";1,5;31.03.2013 01:30\n;-2000;\n'


def _zip(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def _raws(folder: Path | str, member: str, content: bytes | None = None, zone: str = "", **table: Any) -> list[Raw]:
    if content is not None:
        (Path(folder) / member).write_bytes(content)
    body = {"name": "s", "kind": "files", "path": str(folder), "time_zone": zone}
    source = parse_source(body | {"tables": {"t": {"columns": COLUMNS} | table | {"member": member}}})
    with tempfile.TemporaryDirectory() as store, open_source(source, "", ArtifactStore.open(store)) as opened:
        return [part.read() for part in opened.parts("t", ())]


def _rows(folder: Path | str, member: str, content: bytes | None = None, **more: Any) -> list[dict[str, Any]]:
    return [row for raw in _raws(folder, member, content, **more) for row in raw.table.to_pylist()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", GOOD),
        ("t.csv", GOOD.replace(b"\n", b"\r\n")),
        ("t.csv", b"\xef\xbb\xbf" + GOOD),
        ("t.csv", b"\n\n" + GOOD.replace(b"\n", b"\n\n")),
        ("t.csv", b"b,a\nx,1\nNA,2\n"),
        ("t.csv", b'"a",b\n"1","x"\n2,NA'),
        ("t.csv.gz", gzip.compress(GOOD)),
        ("t.csv.zip", _zip(("t.csv", GOOD))),
        ("t.jsonl", b'{"a": 1, "b": "x"}\n{"a": 2}\n'),
    ],
)
def test_every_packing_gives_the_same_rows(tmp_path: Path, name: str, content: bytes) -> None:
    assert _rows(tmp_path, name, content) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), TEXTS), max_size=60), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=120, deadline=None)
def test_any_table_written_as_csv_comes_back(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[int, str]], line: str
) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=line, quoting=csv.QUOTE_NONNUMERIC).writerows([("a", "b"), *table])
    rows = _rows(tmp_path_factory.mktemp("csv"), "t.csv", text.getvalue().encode())
    assert rows == [{"a": number, "b": None if word in ("", "NA") else word} for number, word in table]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"a,b\n", []),
        (b"a,b", []),
        (b"a,b\n,\nNA,NA\n", [(None, None)] * 2),
        (b'a,b\n1,"say ""hi""\n, you"\n', [(1, 'say "hi"\n, you')]),
        (b'a,b\n1,5" pipe\n2,"6"" ""pipe"\n', [(1, '5" pipe'), (2, '6" "pipe')]),
        (b"a,b\n1,0x1\n 2,0xFF\n", [(1, "0x1"), (2, "0xFF")]),
        ("a,b\n1,naïve 東京 🛫\n".encode(), [(1, "naïve 東京 🛫")]),
    ],
)
def test_odd_files(tmp_path: Path, content: bytes, rows: list[tuple[int | None, str | None]]) -> None:
    assert [(row["a"], row["b"]) for row in _rows(tmp_path, "t.csv", content)] == rows


def test_a_field_larger_than_blocks_and_with_line_ends(tmp_path: Path) -> None:
    large = "line\n" * 300_000
    rows = _rows(tmp_path, "t.csv", f'a,b\n1,x\n2,"{large}"\n3,y\n'.encode())
    assert [row["b"] for row in rows] == ["x", large, "y"]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("t.csv", b"a,b\n1,zz\nzz,r\n", "line 3, column a: .* found 'zz'"),
        ("t.csv", b'a,b\n1,"x\ny"\n"w,v",r\n', "line 4, column a: .* found 'w,v'"),
        ("t.csv", b"b,a\nx,1\nx,1.5\n", r"line 3, column a: .* found '1\.5'"),
        ("t.csv", b"a,b\n1,x\n0x1,y\n", "line 3, column a: "),
        ("t.csv", b"a,b\n1,caf\xe9\n", r"line 2, column b: .* encoding"),
        ("t.csv", b"a,b\n1,x\n2\n", "line 3, expected 2 columns, found 1"),
        ("t.csv", b"a\n1\n", "missing: b"),
        ("t.csv", b'a,b\n1,"x\n2,r\n', "line 2: a quote opens a value"),
        ("t.csv", b'a,b\n1,"p ""q"""\n2,"x\n3,"y"\n', "line 3: a quote opens a value"),
        ("t.csv", b'a,b\n1,"x"y\n', "line 2: a quote opens a value"),
        ("t.csv", b"a,b,c\n1,x,2\n", "not declared: c"),
        ("t.csv", b"a,b,a\n1,x,2\n", "repeated: a"),
        ("t.csv", b"a;b\n1;x\n", "missing: a, b; not declared: a;b"),
        ("t.csv", b"", "is empty"),
        ("t.csv.zip", _zip(("t.csv", GOOD), ("u.csv", GOOD)), "holds 2 files"),
        ("t.csv.zip", b"not a zip", "cannot be unpacked"),
        ("t.csv.gz", gzip.compress(GOOD * 50)[:-12], "cannot be unpacked"),
        ("t.parquet", b"PAR1", "is not intact Parquet"),
        ("t.parquet.gz", gzip.compress(b"PAR1"), "expected files of"),
        ("t.xlsx", b"x", "expected files of"),
        ("t.jsonl", b'{"a": 1}\n' * 200 + b'{"a": \n', "line 201, "),
        ("t.jsonl", b'{"a": 1}\n' * 200 + b'{"a": 1.5}\n', r"line 201, column a: .* found 1\.5"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, name: str, content: bytes, place: str) -> None:
    with pytest.raises(SourceError, match=place) as raised:
        _rows(tmp_path, name, content)
    assert "Table t" in str(raised.value)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "latin-1", "utf-16", "utf-16-le", "utf-8-sig"])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_delimiters_decimal_commas_formats_and_encodings(tmp_path: Path, encoding: str, name: str) -> None:
    lines = "".join(f"Città {number};1,5;31.03.2013 01:30\n" for number in range(500))
    content = f"name;price;at\n{lines}".encode(encoding)
    packed = gzip.compress(content) if name.endswith("gz") else content
    rows = _rows(tmp_path, name, packed, zone="UTC", columns=MIXED, encoding=encoding, **EUROPEAN)
    assert rows == [{"name": f"Città {number}", "price": 1.5, "at": AT} for number in range(500)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b"a\n2013-07-01 12:00:00\nNA\n2013-07-01T10:00:00Z\n"),
        ("t.jsonl", b'{"a": "2013-07-01 12:00:00"}\n{"a": null}\n{"a": "2013-07-01T10:00:00Z"}\n'),
    ],
)
def test_times_without_a_zone_need_that_of_the_source(tmp_path: Path, name: str, content: bytes) -> None:
    noon = datetime(2013, 7, 1, 10, tzinfo=UTC)
    table: dict[str, Any] = {"columns": {"a": "timestamp"}}
    assert [row["a"] for row in _rows(tmp_path, name, content, zone="Europe/Rome", **table)] == [noon, None, noon]
    with pytest.raises(DeclarationError, match=r"column a: .* with its zone"):
        _rows(tmp_path, name, content, **table)
    skipped = content.replace(b"2013-07-01 12", b"2013-03-31 02")
    with pytest.raises(DeclarationError, match=r"column a: .* clocks in Europe/Rome show once"):
        _rows(tmp_path, name, skipped, zone="Europe/Rome", **table)
    [raw] = _raws(tmp_path, name, skipped, zone="Europe/Rome", **table, on_invalid="reject")
    assert raw.table.num_rows == 2 and raw.rejected is not None and raw.rejected.num_rows == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "at\n1364693400\n1364693400.5\n"),
        ("t.jsonl", '{"at": 1364693400}\n{"at": "1364693400.5"}\n'),
        ("t.jsonl", '{"at": "1364693400"}\n{"at": 1364693400.5}\n'),
    ],
)
def test_seconds_since_1970(tmp_path: Path, name: str, text: str) -> None:
    rows = _rows(tmp_path, name, text.encode(), columns={"at": "timestamp"}, times={"at": "seconds"})
    assert [row["at"] for row in rows] == [AT, AT.replace(microsecond=500_000)]


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"delimiter": ",,"}, "delimiter"),
        ({"delimiter": "a"}, "delimiter"),
        ({"decimal": ","}, "delimiter"),
        ({"encoding": "klingon"}, "encoding"),
        ({"encoding": "base64"}, "encoding"),
        ({"order_by": ["a"]}, "order_by"),
    ],
)
def test_wrong_settings_are_refused(table: dict[str, Any], key: str) -> None:
    tables = {"t": {"columns": COLUMNS, "member": "t.csv"} | table}
    with pytest.raises(ValidationError, match=key):
        parse_source({"name": "s", "kind": "files", "path": "p", "tables": tables})


def test_globs_take_files_by_name_whatever_their_kind(tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": ["p"], "a": pa.array([3], pa.int16())}), tmp_path / "3.parquet")
    pa.feather.write_feather(pa.table({"a": [4], "b": ["f"]}), str(tmp_path / "4.arrow"), compression="zstd")
    (tmp_path / "1.csv").write_text("a,b\n1,c\n")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b"b,a\ng,2\n"))
    (tmp_path / "5.jsonl").write_text(json.dumps({"a": 5}))
    rows = [(row["a"], row["b"]) for row in _rows(tmp_path, "[0-9]*.*")]
    assert rows == [(1, "c"), (2, "g"), (3, "p"), (4, "f"), (5, None)]


def test_any_address_that_fsspec_knows() -> None:
    files = fsspec.filesystem("memory")
    for name, content in (("1.csv", b"a,b\n1,x\n"), ("2.csv", b"a,b\n2,y\n")):
        files.pipe_file(f"/gatehouse-test/{name}", content)
    assert [row["a"] for row in _rows("memory://gatehouse-test", "*.csv")] == [1, 2]
    with pytest.raises(SourceError, match=r"has no file 'none\.csv'"):
        _rows("memory://gatehouse-test", "none.csv")


@pytest.mark.parametrize("member", ["t.csv", "*.csv"])
def test_a_store_without_credentials_is_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, member: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match=r"s3://bucket/raw cannot be listed: .*[Cc]redentials"):
        find_files("s3://bucket/raw", member)
