"""Files of every kind and from every place: rows in order, exact, and what is odd in them stays as it is."""

import csv
import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.data.sources.base import KnownPart
from gatehouse.data.sources.catalog import open_source, parse_source
from gatehouse.data.sources.raw_file import find_files
from gatehouse.errors import SourceError
from gatehouse.store.store import ArtifactStore

COLUMNS = {"a": "int64", "b": "string"}


def _rows(folder: Path | str, member: str, **more: Any) -> list[dict[str, Any]]:
    table = {"columns": COLUMNS} | more | {"member": member}
    body = {"name": "s", "kind": "files", "path": str(folder), "block_bytes": 1024, "tables": {"t": table}}
    with (
        tempfile.TemporaryDirectory() as store,
        open_source(parse_source(body), "", ArtifactStore.open(store)) as opened,
    ):
        return pa.concat_tables([part.read().table for part in opened.parts("t", ())]).to_pylist()


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), TEXTS), max_size=60), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=120, deadline=None)
def test_any_table_written_as_csv_comes_back(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[int, str]], line: str
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=line, quoting=csv.QUOTE_NONNUMERIC).writerows([("a", "b"), *table])
    (folder / "t.csv").write_bytes(text.getvalue().encode())
    expected = [{"a": number, "b": None if word in ("", "NA") else word} for number, word in table]
    assert _rows(folder, "t.csv") == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a,b\n", []),
        (b"a,b", []),
        (b"a,b\n1,x", [{"a": 1, "b": "x"}]),
        (b"\n\na,b\n\n1,x\n\n", [{"a": 1, "b": "x"}]),
        (b'\xef\xbb\xbf"a",b\r\n1,x\r\n', [{"a": 1, "b": "x"}]),
        (b"a,b\n,\nNA,NA\n", [{"a": None, "b": None}] * 2),
        (b'a,b\n1,"say ""hi""\n, you"\n', [{"a": 1, "b": 'say "hi"\n, you'}]),
        (b'a,b\n1,5" pipe\n2,6" pipe\n', [{"a": 1, "b": '5" pipe'}, {"a": 2, "b": '6" pipe'}]),
        ("a,b\n1,naïve 東京 🛫\n".encode(), [{"a": 1, "b": "naïve 東京 🛫"}]),
    ],
    ids=[
        "header",
        "header without line end",
        "no line end",
        "empty lines",
        "mark",
        "nulls",
        "quotes",
        "inch",
        "unicode",
    ],
)
def test_odd_files(tmp_path: Path, content: bytes, expected: list[dict[str, Any]]) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    assert _rows(tmp_path, "t.csv") == expected


def test_a_field_larger_than_blocks_and_with_line_ends(tmp_path: Path) -> None:
    large = "line\n" * 300_000
    (tmp_path / "t.csv").write_text(f'a,b\n1,x\n2,"{large}"\n3,y\n')
    assert [row["b"] for row in _rows(tmp_path, "t.csv")] == ["x", large, "y"]


def test_numbers_that_are_none_and_times_of_other_zones(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\nnan,2024-01-01T01:00:00+01:00\n-inf,2023-12-31T19:00:00-05:00\n")
    found = _rows(tmp_path, "t.csv", columns={"a": "double", "b": "timestamp"})
    assert str(found[0]["a"]) == "nan" and found[1]["a"] == float("-inf")
    assert found[0]["b"] == found[1]["b"] and found[0]["b"].isoformat() == "2024-01-01T00:00:00+00:00"


def test_json_lines(tmp_path: Path) -> None:
    lines = [{"a": number, "b": f"text {number}"} for number in range(200)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert _rows(tmp_path, "t.jsonl") == lines


def test_json_lines_may_lack_keys_and_a_bad_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n{"b": "2024-01-01"}\n')
    assert _rows(tmp_path, "t.jsonl") == [{"a": 1, "b": None}, {"a": None, "b": "2024-01-01"}]
    filler = "".join(f'{{"a": {number}, "b": "x"}}\n' for number in range(200))
    (tmp_path / "t.jsonl").write_text(filler + '{"a": \n')
    with pytest.raises(SourceError, match=r"Table t: t\.jsonl, line 201,"):
        _rows(tmp_path, "t.jsonl")
    (tmp_path / "t.jsonl").write_text(filler + '{"a": 1.5}\n')
    with pytest.raises(SourceError, match=r"t\.jsonl, line 201, column a: .* found 1\.5"):
        _rows(tmp_path, "t.jsonl")


def test_globs_take_files_by_name_whatever_their_kind(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [3], "b": ["p"]}), tmp_path / "3.parquet")
    pa.feather.write_feather(pa.table({"a": [4], "b": ["f"]}), str(tmp_path / "4.arrow"), compression="zstd")
    (tmp_path / "1.csv").write_text("a,b\n1,c\n")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b"b,a\ng,2\n"))
    assert [(row["a"], row["b"]) for row in _rows(tmp_path, "[0-9]*.*")] == [(1, "c"), (2, "g"), (3, "p"), (4, "f")]


@pytest.mark.parametrize(
    ("member", "table", "nulls", "said"),
    [
        ("t.parquet", {"delimiter": ";"}, None, r"delimiter: expected only for a CSV, found it for t\.parquet"),
        ("*.arrow", {"decimal": ",", "delimiter": ";"}, None, "no effect: leave it out"),
        ("t.parquet", {"encoding": "utf-16"}, None, "encoding: expected only for a CSV or JSON lines"),
        ("t.jsonl.gz", {"decimal": ",", "delimiter": ";"}, None, "expected only for a CSV"),
        ("t.parquet", {}, ["", "nil"], r"nulls: expected only where a table is a CSV, found t\.parquet"),
    ],
)
def test_what_has_an_effect_on_texts_only_is_refused_for_other_files(
    member: str, table: dict[str, str], nulls: list[str] | None, said: str
) -> None:
    body = {"name": "s", "kind": "files", "path": "p"} | ({"nulls": nulls} if nulls else {})
    declared = {"t": {"columns": COLUMNS, "member": member} | table}
    with pytest.raises(ValueError, match=said):
        parse_source(body | {"tables": declared})
    # Where one table is a CSV, or a pattern may find one, it may have an effect.
    parse_source(body | {"tables": {"t": declared["t"] | {"member": "t.*"}}})


def test_any_address_that_fsspec_knows(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    for name, content in (("1.csv", b"a,b\n1,x\n"), ("2.csv", b"a,b\n2,y\n")):
        files.pipe_file(f"/gatehouse-test/{name}", content)
    assert [row["a"] for row in _rows("memory://gatehouse-test", "*.csv")] == [1, 2]
    with pytest.raises(SourceError, match=r"has no file 'none\.csv'"):
        _rows("memory://gatehouse-test", "none.csv")


def test_a_known_packed_file_is_not_unpacked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a,b\n" + "".join(f"{number},text\n" for number in range(1000))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    table = {"member": "t.csv.gz", "columns": COLUMNS}
    body = {"name": "s", "kind": "files", "path": str(tmp_path), "block_bytes": 1024, "tables": {"t": table}}
    store = ArtifactStore.open(tmp_path / "store")
    with open_source(parse_source(body), "", store) as opened:
        before = list(opened.parts("t", ()))
    known = tuple(KnownPart(part.fingerprint, 1, part.position) for part in before)
    monkeypatch.setattr(gzip, "open", lambda *_: pytest.fail("unpacked it again"))
    with open_source(parse_source(body), "", store) as opened:
        again = list(opened.parts("t", known))
    assert len(before) > 5
    assert [(part.fingerprint, part.position) for part in again] == [(p.fingerprint, p.position) for p in before]


def test_sorting_on_ingest_orders_by_key_then_by_all(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n3,x\n1,z\n,n\n")
    (tmp_path / "2.csv").write_text("a,b\n1,é\n1,a\n1,Z\n")
    found = _rows(tmp_path, "*.csv", order_by=["a"], sort_on_ingest=True)
    assert [(row["a"], row["b"]) for row in found] == [(1, "Z"), (1, "a"), (1, "z"), (1, "é"), (3, "x"), (None, "n")]


def test_a_kind_of_file_that_is_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"t\.xlsx is of no kind that is read"):
        _rows(tmp_path, "t.xlsx")


def test_a_packed_typed_file_is_refused_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.parquet.gz").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(SourceError, match=r"t\.parquet\.gz is a packed \.parquet file"):
        _rows(tmp_path, "t.parquet.gz")


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
