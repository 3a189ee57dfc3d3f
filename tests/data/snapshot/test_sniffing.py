"""Inferring how an undeclared file is read; a snapshot then reads it so, with the same rows."""

import gzip
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatehouse.data.snapshot.sniffing import Sniffed, sniff, source_of
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.store.store import ArtifactStore

DELIVERED = "2024-05-01 12:00:00"
EUROPEAN = "Tag;Größe;Ort;ok\n" + "".join(
    f"{1 + n % 28:02d}.{1 + n % 12:02d}.2023 1{n % 10}:00;{n},5;Köln {n};{'true' if n % 2 else 'false'}\n"
    for n in range(400)
)


def _file(folder: Path, text: str | bytes, name: str = "t.csv", encoding: str = "utf-8") -> Path:
    content = text.encode(encoding) if isinstance(text, str) else text
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def _kinds(sniffed: Sniffed) -> dict[str, str]:
    return {column.name: str(column.kind) for column in sniffed.columns}


def _read(store: ArtifactStore, path: Path, sniffed: Sniffed | None = None) -> tuple[SnapshotResult, list[Any]]:
    source = parse_source(source_of(sniffed or sniff(path), path, "t", DELIVERED))
    taken = snapshot(SnapshotRequest(source=source, look=True), store)
    [dataset] = store.manifest(taken.snapshot).derived_from.values()
    return taken, [row for part in store.paths(dataset) for row in pq.read_table(part).to_pylist()]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"])
@pytest.mark.parametrize("name", ["t.csv", "t.txt.gz"])
def test_semicolons_decimal_commas_days_and_encodings(
    tmp_path: Path, store: ArtifactStore, encoding: str, name: str
) -> None:
    sign = "€" if encoding == "cp1252" else ""
    path = _file(tmp_path, EUROPEAN.replace("Köln", f"Köln{sign}"), name, encoding)
    sniffed = sniff(path)
    assert (sniffed.delimiter, sniffed.decimal, sniffed.rows) == (";", ",", 400)
    assert sniffed.encoding == ("utf-8" if encoding == "utf-8-sig" else encoding)
    assert _kinds(sniffed) == {"Tag": "timestamp", "Größe": "double", "Ort": "string", "ok": "bool"}
    assert sniffed.columns[0].form == "%d.%m.%Y %H:%M" and sniffed.columns[0].naive and sniffed.event_time == "Tag"
    taken, rows = _read(store, path, sniffed)
    assert taken.rows == {"t": 400} and not taken.rejected
    assert (rows[3]["Größe"], rows[3]["Ort"], str(rows[3]["Tag"])[:10]) == (3.5, f"Köln{sign} 3", "2023-04-04")


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["0", "1"], "int64"),
        (["true", "false"], "bool"),
        (["1.5", "nan"], "double"),
        (["2024-01-01T00:00:00Z", "2024-01-02 00:00:00.000001000Z"], "timestamp"),
        (["2024-01-01", "2024-01-02"], "timestamp"),
        (["2024-01-01T00:00:00.1234567Z"], "string"),
        (["0x1", "0x01"], "string"),
        ([str(2**63 + n) for n in range(300)], "string"),
        ([str(2**63 - 1 - n) for n in range(300)], "int64"),
        ([*(str(10**17 + n) for n in range(300)), "1.5"], "string"),
        ([f"{n:05}" for n in (*range(90_000, 90_300), 501)], "string"),
        (["too late, alas", "fine"], "string"),
        ([f"{n * 7:,}" for n in range(400)], "string"),
        (["12%", "1.5 %", "-7%"], "double"),
        (["12%", "1,5%"], "double"),
        (["12%", "0.12", "13%", "14"], "string"),
        (["1E3", "10E2", "100E1", "12E4"], "string"),
        (["1e3", "10e2", "100e1", "12e4"], "string"),
        (["1.9", "1.10", "1.1", "1.100"], "string"),
        (["1.90", "1.10", "12.15"], "double"),
        (["1", "1.0", "1.25", "1e+3"], "double"),
    ],
)
def test_the_type_of_a_column(tmp_path: Path, store: ArtifactStore, cells: list[str], kind: str) -> None:
    path = _file(tmp_path, "id;v\n" + "".join(f"{place};{cell}\n" for place, cell in enumerate(cells)))
    sniffed = sniff(path)
    assert _kinds(sniffed)["v"] == kind
    rows = _read(store, path, sniffed)[1]
    assert [row["v"] for row in rows] == cells if kind == "string" else len(rows) == len(cells)


@pytest.mark.parametrize(
    ("cells", "form", "also"),
    [
        (["07/03/2024", "08/03/2024"], "%m/%d/%Y", "%d/%m/%Y"),
        (["7/3/24", "8/3/24"], "%m/%d/%y", "%d/%m/%y"),
        (["7/3/24 10:30", "13/3/24 10:30"], "%d/%m/%y %H:%M", ""),
        (["7/13/24", "8/3/24"], "%m/%d/%y", ""),
        (["7.3.24", "8.3.24"], "%d.%m.%y", ""),
        (["7-3-24", "8-3-24"], "%d-%m-%y", "%m-%d-%y"),
        (["07-03-2024", "08-13-2024"], "%m-%d-%Y", ""),
    ],
)
def test_a_day_that_may_be_a_month_is_said(tmp_path: Path, cells: list[str], form: str, also: str) -> None:
    [column] = sniff(_file(tmp_path, "at\n" + "\n".join(cells))).columns
    assert (column.form, column.also) == (form, also)


@pytest.mark.parametrize(("unit", "factor"), [("seconds", 1), ("milliseconds", 1000), ("microseconds", 1_000_000)])
def test_numbers_since_1970_are_times_if_name_and_size_say_so(
    tmp_path: Path, store: ArtifactStore, unit: str, factor: int
) -> None:
    lines = "".join(f"{n},{(1_700_000_000 + n) * factor},{1_700_000_000 + n}\n" for n in range(50))
    path = _file(tmp_path, "item,timestamp,views\n" + lines)
    sniffed = sniff(path)
    assert _kinds(sniffed) == {"item": "int64", "timestamp": "timestamp", "views": "int64"}
    assert sniffed.columns[1].form == unit and not sniffed.columns[1].naive
    assert str(_read(store, path)[1][0]["timestamp"]) == "2023-11-14 22:13:20+00:00"
    assert sniffed.columns[2].epoch == "seconds"
    named = sniffed.ordered_by("views")
    assert (str(named.columns[2].kind), named.columns[2].form, named.event_time) == ("timestamp", "seconds", "views")
    assert _kinds(sniff(_file(tmp_path, f"timestamp\n1700000000\n{5 * 10**9}\n")))["timestamp"] == "int64"


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("created_at", "createdAt", "START_TIME", "ts", "Pickup time", "sort_by_date", "id_date"), "timestamp"),
        (("updates", "sometimes", "counts", "created_by", "candidate", "date_id", "uptime", "cputime"), "int64"),
    ],
)
def test_only_a_word_for_a_time_makes_numbers_times(tmp_path: Path, names: tuple[str, ...], kind: str) -> None:
    line = ",".join(["1700000000"] * len(names))
    assert set(_kinds(sniff(_file(tmp_path, f"{','.join(names)}\n{line}\n"))).values()) == {kind}


@pytest.mark.parametrize(
    ("cell", "odd", "kind", "almost"),
    [("{}", 30, "int64", ""), ("{}.5", 30, "double", ""), ("{}.5", 31, "string", "double"), ("no{}", 30, "string", "")],
)
def test_one_value_of_twenty_may_have_another_type(
    tmp_path: Path, store: ArtifactStore, cell: str, odd: int, kind: str, almost: str
) -> None:
    cells = [cell.format(n % 60) for n in range(600)]
    cells[-odd:] = ["nil"] * odd
    path = _file(tmp_path, "v\n" + "\n".join(cells))
    column = sniff(path).columns[0]
    assert (str(column.kind), column.almost) == (kind, almost)
    assert _read(store, path)[0].rejected_rows.get("t", 0) == (odd if kind != "string" else 0)
    nulls = sniff(path, ["nil"])
    assert (nulls.columns[0].misfits, nulls.nulls) == (0, ("", "NA", "nil"))


@pytest.mark.parametrize(
    ("delimiter", "cells", "remainder", "kind"),
    [
        ("\t", [f"{n * 70:,}" for n in range(400)], "1.5", "string"),
        (",", [f'"{n * 70:,}"' for n in range(400)], "1.5", "string"),
        (",", [f'"{n},5"' for n in range(400)], "x", "string"),
        ("\t", ["1,5", *map(str, range(400))], "x", "double"),
        (";", [f"{n * 70:,}".replace(",", ".") for n in range(400)], "x", "string"),
        (";", [f"{n * 70:,}".replace(",", ".") for n in range(400)], "1.5", "double"),
        (",", [f"{n * 70:,}".replace(",", ".") for n in range(400)], "x", "double"),
        (";", [f"{n}.25" for n in range(400)], "1,5", "string"),
    ],
)
def test_numbers_that_may_be_a_thousand_times_as_large_are_not_guessed(
    tmp_path: Path, delimiter: str, cells: list[str], remainder: str, kind: str
) -> None:
    lines = "".join(f"{cell}{delimiter}{remainder}\n" for cell in cells)
    column = sniff(_file(tmp_path, f"v{delimiter}w\n{lines}")).columns[0]
    assert (str(column.kind), bool(column.why_text)) == (kind, kind == "string")


def test_a_file_without_times_gets_a_time_in_a_column_of_its_own(tmp_path: Path, store: ArtifactStore) -> None:
    path = _file(tmp_path, ",delivered_at,Delivered_at_2\n0,late,1\n1,soon,2\n1,soon,2\n")
    sniffed = sniff(path)
    taken, rows = _read(store, path, sniffed)
    assert taken.as_of == "2024-05-01T12:00:00+00:00" and sniffed.delivered == "delivered_at_3"
    assert set(rows[0]) == {"Delivered_at_2", "delivered_at", "delivered_at_3"}, "a column without a name is left out"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.parquet", "x"),
        ("t.csv", "Eve,2\nAdam,4\n"),
        ("t.csv", ""),
        ("t.csv", '{"a": 1, "b": 2}\n' * 9),
        ("t.csv", "PK\x03\x04 \x00"),
        ("t.csv", "PAR1 \x00"),
        ("t.csv", "a,b\n"),
        ("t.csv", "a,b,a\n1,2,3\n"),
        ("t.csv", "My table\n\na,b\n" + "1,2\n" * 9),
        ("t.csv", "a,b\n" + "1,2,\n" * 9),
        ("t.csv", "a,b\n1,\x00\n"),
        ("t.csv", b"a,b\n\x81\x8d\x93,2\n"),
        ("t.csv.gz", b"a,b\n1,2\n"),
        ("t.inter", "a,b\n1,2\n"),
    ],
)
def test_what_is_no_table_is_refused_without_a_cell(tmp_path: Path, name: str, text: str | bytes) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(DeclarationError, match=r"expected|is not intact") as raised:
        sniff(path)
    assert "Eve" not in str(raised.value)
    with pytest.raises(SourceError, match="no such file"):
        sniff(tmp_path / "none.csv")


CELLS = st.sampled_from(
    (
        *("", "7", "0.5", "1,5", "x", "none", "NA", "2024-01-02", "1.2.2024", "true", "007", "1e5", " 1 "),
        *('"a;b"', '"a,b"', '"x\ny"', '"x\r\ny"', '"say ""no"""', 'x"y', '""', "#", "é", "🙂", "inf", "%", "\ufeff"),
    )
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
    text = draw(st.sampled_from(["", "", "\n", "\ufeff", "\r\n"]))
    text += "".join(line + ends[number % len(ends)] for number, line in enumerate(lines))
    return text.encode(draw(st.sampled_from(["utf-8", "utf-16"])))


def _counts_agree(store: ArtifactStore, path: Path) -> tuple[int, int]:
    sniffed = sniff(path)
    taken, _ = _read(store, path, sniffed)
    rejected = taken.rejected_rows.get("t", 0)
    misfits = sum(column.misfits for column in sniffed.kept if not column.almost)
    assert sniffed.rows + sniffed.uneven == taken.rows["t"] + rejected
    assert sniffed.uneven <= rejected <= sniffed.uneven + misfits
    return taken.rows["t"], rejected


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=nasty_files())
def test_a_snapshot_has_the_rows_that_were_counted_in_any_file(
    tmp_path: Path, store: ArtifactStore, content: bytes
) -> None:
    path = _file(tmp_path, content)
    try:
        sniff(path)
    except SourceError:
        return
    _counts_agree(store, path)


@pytest.mark.parametrize(
    ("cells", "kind", "value"),
    [
        (pa.array([2**63 - 1, None], pa.uint64()), "int64", 2**63 - 1),
        (pa.array([1.25], pa.float32()), "double", 1.25),
        (pa.array([2.5, float("nan"), None]), "double", 2.5),
        (pa.array([Decimal("1.25")], pa.decimal128(38, 2)), "double", 1.25),
        (pa.array([Decimal(2**53 + 1)], pa.decimal128(38, 0)), "int64", 2**53 + 1),
        (pa.array([time(1, 2, 3)], pa.time32("ms")), "string", "01:02:03.000"),
        (pa.array([timedelta(seconds=2)], pa.duration("ms")), "int64", 2000),
        (pa.array(["a"]).dictionary_encode(), "string", "a"),
        (pa.array([None], pa.null()), "string", None),
        (pa.array([date(2024, 1, 2)]), "timestamp", "2024-01-02 00:00:00+00:00"),
        (pa.array([1_704_153_600 * 10**9], pa.timestamp("ns")), "timestamp", "2024-01-02 00:00:00+00:00"),
        (pa.array([datetime(2024, 1, 2)], pa.timestamp("us", "Europe/Rome")), "timestamp", "2024-01-02 00:00:00+00:00"),
    ],
)
def test_a_column_of_parquet_keeps_its_type(
    tmp_path: Path, store: ArtifactStore, cells: pa.Array, kind: str, value: Any
) -> None:
    pq.write_table(pa.table({"id": range(len(cells)), "v": cells, "left": [[1]] * len(cells)}), tmp_path / "t.parquet")
    sniffed = sniff(tmp_path / "t.parquet")
    assert [column.name for column in sniffed.kept] == ["id", "v"]
    assert str(sniffed.columns[1].kind) == kind
    row = _read(store, tmp_path / "t.parquet", sniffed)[1][0]
    assert (str(row["v"]) if kind == "timestamp" else row["v"]) == value
    text = _read(store, tmp_path / "t.parquet", sniffed.ordered_by(""))[1][0]
    assert kind != "timestamp" or isinstance(text["v"], str)


def test_parquet_has_times_since_1970(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"created_at": [1_700_000_000] * 3, "v": ["a", "a", None]}), path)
    sniffed = sniff(path)
    assert (sniffed.event_time, sniffed.columns[0].form) == ("created_at", "seconds")
    with pytest.raises(DeclarationError, match="--nulls"):
        sniff(path, ["nil"])
    pq.write_table(pa.table({"v": [[1]]}), path)
    with pytest.raises(DeclarationError, match="expected a column that a snapshot can hold"):
        source_of(sniff(path), path, "t", DELIVERED)
