"""Texts as values: those that Arrow's own reader of CSV takes, but hexadecimal numbers, and the same values."""

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.sources.csv_texts import read_texts
from gatehouse.data.sources.declared import TYPES

NUMBERS = st.text("0123456789-+.eExXaAfFiInN() \t_", max_size=22) | st.from_regex(
    r"[+-]?\d{1,21}(\.\d*)?([eE][+-]?\d{1,3})?", fullmatch=True
)
TIMES = (
    st.from_regex(
        r"(000[0-9]|19\d\d|20\d\d|9999)-[01]\d-[0-3]\d[ Tt][0-2]\d(:[0-6]\d(:[0-6]\d(\.\d{0,8})?)?)?"
        r"([Zz]|[+-]\d{2}(:?\d{2})?)?",
        fullmatch=True,
    )
    | st.datetimes().map(lambda time: f"{time.isoformat()}Z")
    | st.dates().map(lambda day: f"{day.isoformat()}T10+01")
    | st.text("0123456789-:TZ +.", max_size=26)
)
BOOLS = st.sampled_from(
    ["true", "True", "TRUE", "tRue", "1", "0", "01", "false", "FALSE", "False", " true", "t", "yes"]
)
CASES = [(ColumnType.int64, NUMBERS), (ColumnType.double, NUMBERS), (ColumnType.timestamp, TIMES)]


def _arrow(text: str, kind: ColumnType) -> Any:
    """The value that Arrow reads in a cell with quotes, as Arrow keeps it; `refused` where it reads none."""
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(f'"{text}"\n'.encode()),
            read_options=pa.csv.ReadOptions(column_names=["cell"]),
            convert_options=pa.csv.ConvertOptions(column_types={"cell": TYPES[kind]}, null_values=[]),
        )
    except pa.ArrowInvalid:
        return "refused"
    value = table["cell"][0]
    return value.cast(pa.int64()).as_py() if kind is ColumnType.timestamp else value.as_py()


def _ours(texts: list[str], kind: ColumnType) -> list[Any]:
    read = read_texts(pa.array(texts).cast(pa.binary()), kind, decimal=".", zone="", form="")
    values = read.values.cast(pa.int64()) if kind is ColumnType.timestamp else read.values
    misfits = read.misfits()
    return ["refused" if index in misfits else value for index, value in enumerate(values.to_pylist())]


def _agree(texts: list[str], kind: ColumnType) -> None:
    wanted = [_arrow(text, kind) for text in texts]
    for index, (text, value) in enumerate(zip(texts, wanted, strict=True)):
        beyond = (
            kind is ColumnType.timestamp
            and value != "refused"
            and not -62135596800 * 10**6 <= value < 253402300800 * 10**6
        )
        rounded = isinstance(value, float) and math.isinf(value) and "n" not in text.lower()
        hexadecimal = kind is ColumnType.int64 and "x" in text.lower()
        if beyond or rounded or hexadecimal:
            wanted[index] = "refused"
    assert [str(value) for value in _ours(texts, kind)] == [str(value) for value in wanted], texts


@pytest.mark.parametrize("kind", [ColumnType.int64, ColumnType.double])
@given(st.lists(NUMBERS, min_size=1, max_size=8))
@example(["9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"])
@example(["0xff", "0xfffffffffffffffff", "-0x1", " 1\t", "00000000000000000000000001", "1e400", "-inf", "nan(1)"])
@settings(max_examples=300, deadline=None)
def test_numbers_are_those_that_arrow_reads(kind: ColumnType, texts: list[str]) -> None:
    _agree(texts, kind)


@given(st.lists(TIMES, min_size=1, max_size=8))
@example(["1900-02-29T00:00:00Z", "2000-02-29T00:00:00Z", "2024-02-29 10Z", "2024-04-31T00:00:00Z"])
@example(["0000-02-29T00:00:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2024-01-21T00:00:00Z"])
@settings(max_examples=400, deadline=None)
def test_times_are_those_that_arrow_reads(texts: list[str]) -> None:
    _agree(texts, ColumnType.timestamp)


@given(st.lists(BOOLS, min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_truth_is_what_arrow_reads(texts: list[str]) -> None:
    _agree(texts, ColumnType.bool)


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_text_is_what_is_utf_8(cells: list[bytes]) -> None:
    def decoded(cell: bytes) -> str | None:
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return None

    read = read_texts(pa.array(cells, pa.binary()), ColumnType.string, decimal=".", zone="", form="")
    assert read.values.to_pylist() == [decoded(cell) for cell in cells]
    assert [*read.misfits()] == [index for index, cell in enumerate(cells) if decoded(cell) is None]


def test_many_texts_that_are_none_cost_no_more_than_texts_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow takes a hundred times as long for a text that it cannot cast, so it is given few of them."""
    seen, cast = [], pc.cast

    def counted(array: Any, *arguments: Any, **named: Any) -> Any:
        if pa.types.is_string(array.type) and arguments[0] != pa.string():
            seen.append(len(array) - array.null_count)
        return cast(array, *arguments, **named)

    texts = pa.array([b"2024-01-21T00:00:00Z", b"2024-02-30T00:00:00Z"] * 50_000, pa.binary())
    monkeypatch.setattr(pc, "cast", counted)
    read = read_texts(texts, ColumnType.timestamp, decimal=".", zone="", form="")
    assert len(read.misfits()) == 50_000
    assert len(seen) < 10, f"{len(seen)} casts"
    assert sum(seen) <= 50_000 + 2 * 4096
