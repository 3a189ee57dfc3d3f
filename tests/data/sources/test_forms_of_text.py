"""Files that are not the CSV of the textbook: other delimiters, decimal signs, encodings and times, found and read."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gatehouse.data.sources.catalog import open_source, parse_source
from gatehouse.errors import SourceError
from gatehouse.store.store import ArtifactStore
from tests.data.snapshot.conftest import Events

COLUMNS = {"name": "string", "price": "double", "at": "timestamp"}
AT = datetime(2013, 3, 31, 1, 30, tzinfo=UTC)
WANTED = [{"name": "Città", "price": 1.5, "at": AT}, {"name": None, "price": -2000.0, "at": None}]
EUROPEAN = {"delimiter": ";", "decimal": ",", "times": {"at": "%d.%m.%Y %H:%M"}}
TEXT = 'name;price;at\n"Città";1,5;31.03.2013 01:30\n;-2000;\n'


def _rows(folder: Path, content: bytes, name: str = "t.csv", **table: Any) -> list[dict[str, Any]]:
    (folder / name).write_bytes(content)
    body: dict[str, Any] = {"member": name, "columns": COLUMNS, **table}
    source = {"name": "s", "kind": "files", "path": str(folder), "time_zone": "UTC", "block_bytes": 1024}
    with open_source(
        parse_source(source | {"tables": {"t": body}}), "", ArtifactStore.open(folder / "store")
    ) as opened:
        return [row for part in opened.parts("t", ()) for row in part.read().table.to_pylist()]


def test_semicolons_decimal_commas_and_a_format_of_times(tmp_path: Path) -> None:
    assert _rows(tmp_path, TEXT.encode(), **EUROPEAN) == WANTED


def test_tabs(tmp_path: Path) -> None:
    text = TEXT.replace(";", "\t").replace('"Città"', '"Citt\tà"')
    assert _rows(tmp_path, text.encode(), **EUROPEAN | {"delimiter": "\t"})[0]["name"] == "Citt\tà"


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-8-sig"])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_other_encodings(tmp_path: Path, encoding: str, name: str) -> None:
    lines = "".join(f"Città {number};1,5;31.03.2013 01:30\n" for number in range(500))
    content = f"name;price;at\n{lines}".encode(encoding)
    packed = gzip.compress(content) if name.endswith("gz") else content
    rows = _rows(tmp_path, packed, name, **EUROPEAN, encoding=encoding)
    assert [row["name"] for row in rows] == [f"Città {number}" for number in range(500)]


def test_a_file_of_another_encoding_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"t\.csv is not written in utf-16.*Correct the table's encoding"):
        _rows(tmp_path, b"name;price;at\nx;1;\n\n", encoding="utf-16", **EUROPEAN)
    with pytest.raises(SourceError, match=r"line 2, column name: expected text in UTF-8 \(or encoding, e.g. cp1252\)"):
        _rows(tmp_path, TEXT.encode("cp1252"), **EUROPEAN)
    with pytest.raises(SourceError, match=r"t\.csv begins as UTF-16 does.*encoding to utf-16"):
        _rows(tmp_path, TEXT.encode("utf-16"), **EUROPEAN)


@pytest.mark.parametrize(("delimiter", "said"), [(";", "';'"), ("\t", "a tab"), ("|", "'|'")])
def test_a_file_with_another_delimiter_is_told_as_such(tmp_path: Path, delimiter: str, said: str) -> None:
    text = TEXT.replace(";", delimiter)
    with pytest.raises(SourceError) as caught:
        _rows(tmp_path, text.encode())
    assert f"t.csv is separated by {said}, expected ','" in str(caught.value)
    assert f"Set source.tables.t.delimiter to {json.dumps(delimiter)}." in str(caught.value)


def test_a_decimal_comma_and_a_number_in_place_of_a_time_are_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"expected double, with a point \(or state decimal\), or a null, found '1,5'"
    ):
        _rows(tmp_path, b'name,price,at\nx,"1,5",\n')
    with pytest.raises(SourceError, match=r"expected timestamp, not seconds since 1970 \(or state times\), or a null"):
        _rows(tmp_path, b"name,price,at\nx,1,1364693400\n")
    with pytest.raises(
        SourceError, match=r"column at: expected timestamp, without nanoseconds, or a null, found '2013"
    ):
        _rows(tmp_path, b"name,price,at\nx,1,2013-03-31T01:30:00.123456789Z\n")


def test_a_point_is_no_decimal_comma(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"line 2, column price: expected double or a null, found '1\.5'"):
        _rows(tmp_path, b"name;price;at\nx;1.5;\n", **EUROPEAN)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "name,price,at\nx,1,1364693400\ny,2,1364693400.5\n"),
        ("t.jsonl", '{"name": "x", "price": 1, "at": 1364693400}\n{"name": "y", "price": 2, "at": 1364693400.5}\n'),
        ("t.jsonl", '{"name": "x", "price": 1, "at": "1364693400"}\n{"name": "y", "price": 2, "at": 1364693400.5}\n'),
    ],
)
def test_seconds_since_1970(tmp_path: Path, name: str, text: str) -> None:
    rows = _rows(tmp_path, text.encode(), name, times={"at": "seconds"})
    assert [row["at"] for row in rows] == [AT, AT.replace(microsecond=500_000)]


def test_an_append_to_a_file_of_another_delimiter_leaves_its_blocks(events: Events, reads: Any) -> None:
    events.table = {"delimiter": ";"}
    text = events.csv.read_text().replace(",", ";")
    events.write(text)
    events.take()
    reads()
    events.write(text + text.splitlines()[-1].replace("599;", "600;") + "\n")
    assert events.take().rows == {"events": 601}
    assert reads() == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"delimiter": ",,"}, "delimiter"),
        ({"delimiter": "a"}, "expected no quote, letter, digit"),
        ({"decimal": ","}, "files with decimal commas are mostly separated by ';'"),
        ({"encoding": "klingon"}, "expected an encoding that Python knows"),
        ({"encoding": "base64"}, "expected an encoding that Python knows"),
    ],
)
def test_settings_that_cannot_be_are_refused(table: dict[str, str], said: str) -> None:
    body = {"name": "s", "kind": "files", "path": ".", "tables": {"t": {"member": "t.csv", "columns": COLUMNS} | table}}
    with pytest.raises(ValidationError, match=said):
        parse_source(body)
