"""Datasets of a KFP pipeline: one table in several formats is read the same, and nothing damaged passes as a table."""

import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from gatehouse.data.datasets import read_dataset, write_dataset
from gatehouse.errors import DeclarationError

ROWS = range(500)
MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
TABLE = pa.table(
    {
        "at": pa.array([MOMENT + timedelta(milliseconds=7 * row) for row in ROWS], pa.timestamp("us", "UTC")),
        "created": pa.array([1_700_000_000 + row for row in ROWS]),
        "share": pa.array([None if row % 9 == 0 else row / 7 for row in ROWS]),
        "code": pa.array([f"{row:05}" for row in ROWS]),
        "odd": pa.array([row % 2 == 1 for row in ROWS]),
    }
)


def write_json(path: Path) -> None:
    rows = [json.dumps({**row, "at": row["at"].isoformat()}) + "\n" for row in TABLE.to_pylist()]
    path.write_text("".join(rows))


def write_narrow(path: Path) -> None:
    table = TABLE.set_column(3, "code", pc.dictionary_encode(TABLE["code"]))
    table = table.set_column(0, "at", table["at"].cast(pa.timestamp("ns")))
    pq.write_table(table.set_column(1, "created", table["created"].cast(pa.int32())), path)


def write_folder(path: Path) -> None:
    path.mkdir()
    pq.write_table(TABLE.slice(0, 100), path / "part-0")
    pq.write_table(TABLE.slice(100), path / "part-1")
    (path / "_SUCCESS").touch()


@pytest.mark.parametrize("write", [lambda path: pa.csv.write_csv(TABLE, path), write_json, write_narrow, write_folder])
def test_a_table_is_the_same_in_every_format(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "dataset")
    assert read_dataset(tmp_path / "dataset").equals(TABLE)
    write_dataset(pa.concat_tables([TABLE.slice(0, 3), TABLE.slice(3)]), tmp_path / "a")
    write_dataset(TABLE, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_nan_is_a_null(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"v": pa.array([1.5, float("nan"), None], kind)}), tmp_path / "dataset")
    assert read_dataset(tmp_path / "dataset")["v"].to_pylist() == [1.5, None, None]


def test_text_is_read_as_declared_and_never_guessed(tmp_path: Path) -> None:
    rows = [*range(99), "many"]
    (tmp_path / "data").write_text("n,day,m\n" + "".join(f"{row},01/02/2020,1\n" for row in rows))
    read = read_dataset(tmp_path / "data", types={"m": "double"})
    assert read["n"].to_pylist() == list(map(str, rows))
    assert read["day"][0].as_py() == "01/02/2020"  # The first of February, or the second of January.
    assert [str(read_dataset(tmp_path / "data", types={"m": kind})["m"].type) for kind in ("", "string")] == [
        "int64",
        "string",
    ]
    assert read["m"].type == pa.float64()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b" \n", "nothing"),
        (pickle.dumps({"a": [1]}), "pickle"),
        (b"\x01\x02\x00\x04", "no text"),
        (b'[{"a": 1}]', "lines=True"),
        (b'{"a": 1}\n{"a": ', "JSON"),
        (b'{"a": 1}\n{"a": "x"}\n', "JSON"),
        (b"a,b\n1,2\n3,4,5\n6,7\n", "line 3"),
        (b"a,b\n1,2\n3,4\n6", "line 4"),
        (b'a,b\n1,2\n"x,4\n', "line 3"),
        (b"a,b\n", "rows"),
        (b"a,a\n1,2\n", "1, 2"),
        (b",a\n0,1\n", "index=False"),
        (b"PAR1" + bytes(99), "intact"),
    ],
)
def test_what_is_no_whole_table_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "given").write_bytes(content)
    with pytest.raises(DeclarationError, match=f"{tmp_path}/given.*{words}"):
        read_dataset(tmp_path / "given")


def test_a_name_that_says_parquet_is_believed(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(DeclarationError, match="Parquet"):
        read_dataset(tmp_path / "rows.parquet")


@pytest.mark.parametrize("rows", ['{"a": 9223372036854775809}', '{"a": 0.5}\n{"a": 9007199254740993}'])
def test_numbers_that_a_double_would_make_equal_are_refused(tmp_path: Path, rows: str) -> None:
    (tmp_path / "rows").write_text(rows)
    with pytest.raises(DeclarationError, match=f"column a, row {rows.count(chr(10)) + 1}"):
        read_dataset(tmp_path / "rows")
    (tmp_path / "rows").write_text(
        '{"a": 9007199254740993, "b": 1e20, "c": 9007199254740992}\n{"a": 1, "b": 1, "c": 0.5}'
    )
    assert read_dataset(tmp_path / "rows")["a"].to_pylist() == [2**53 + 1, 1]


def test_parquet_that_would_lose_something_is_refused(tmp_path: Path) -> None:
    for name, column in (("big", pa.array([2**63 + 1], pa.uint64())), ("fine", pa.array([1], pa.timestamp("ns")))):
        pq.write_table(pa.table({name: column}), tmp_path / name)
        with pytest.raises(DeclarationError, match=f"column {name}, row 1"):
            read_dataset(tmp_path / name)
    write_folder(tmp_path / "parts")
    (tmp_path / "parts" / "day=1").mkdir()  # Its column `day` would be lost.
    with pytest.raises(DeclarationError, match="day=1"):
        read_dataset(tmp_path / "parts")
    (tmp_path / "parts" / "day=1").rmdir()
    pq.write_table(TABLE.drop(["odd"]), tmp_path / "parts" / "part-2")
    with pytest.raises(DeclarationError, match="part-2"):
        read_dataset(tmp_path / "parts")
