"""What files that nobody declared are told to be; and that a snapshot reads them as they were told."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.snapshot.column_types import Texts, look
from gatehouse.data.snapshot.sniffing import Sniffed, sniff, source_of
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.snapshot.written_numbers import as_number
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.store.database import connect
from gatehouse.store.store import ArtifactStore

DELIVERED = "2024-05-01 12:00:00"
EUROPEAN = "Tag;Größe;Ort;ok\n" + "".join(
    f"{1 + n % 28:02d}.{1 + n % 12:02d}.2023 1{n % 10}:00;{n},5;Köln {n};{'true' if n % 2 else 'false'}\n"
    for n in range(400)
)


def _file(folder: Path, text: str, name: str = "t.csv", encoding: str = "utf-8") -> Path:
    content = text.encode(encoding)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def _kinds(sniffed: Sniffed) -> dict[str, str]:
    return {column.name: str(column.kind) for column in sniffed.columns}


def _read(store: ArtifactStore, path: Path) -> tuple[SnapshotResult, list[dict[str, Any]]]:
    taken = snapshot(SnapshotRequest(source=parse_source(source_of(sniff(path), path, "t", DELIVERED))), store)
    [dataset] = store.manifest(taken.snapshot).derived_from.values()
    return taken, [row for part in store.paths(dataset) for row in pq.read_table(part).to_pylist()]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize("name", ["t.csv", "t.txt.gz"])
def test_semicolons_decimal_commas_days_and_encodings(
    tmp_path: Path, store: ArtifactStore, encoding: str, name: str
) -> None:
    path = _file(tmp_path, EUROPEAN, name, encoding)
    found = sniff(path)
    assert (found.delimiter, found.decimal, found.rows) == (";", ",", 400)
    assert found.encoding == ("utf-8" if encoding == "utf-8-sig" else encoding)
    assert _kinds(found) == {"Tag": "timestamp", "Größe": "double", "Ort": "string", "ok": "bool"}
    assert found.columns[0].form == "%d.%m.%Y %H:%M" and found.columns[0].naive and found.event_time == "Tag"
    taken, rows = _read(store, path)
    assert taken.rows == {"t": 400} and not taken.rejected
    assert rows[3]["Größe"] == 3.5 and rows[3]["Ort"] == "Köln 3" and rows[3]["Tag"].isoformat()[:10] == "2023-04-04"


def test_the_letters_that_windows_has_more_are_told_apart(tmp_path: Path) -> None:
    assert sniff(_file(tmp_path, "a,b\n1,€\n", encoding="cp1252")).encoding == "cp1252"


@pytest.mark.parametrize(("unit", "factor"), [("seconds", 1), ("milliseconds", 1000), ("microseconds", 1_000_000)])
def test_numbers_since_1970_are_told_by_name_and_size(
    tmp_path: Path, store: ArtifactStore, unit: str, factor: int
) -> None:
    lines = "".join(f"{n},{(1_700_000_000 + n) * factor},{1_700_000_000 + n}\n" for n in range(50))
    path = _file(tmp_path, "item,timestamp,views\n" + lines)
    found = sniff(path)
    assert _kinds(found) == {"item": "int64", "timestamp": "timestamp", "views": "int64"}
    assert found.columns[1].form == unit and not found.columns[1].naive
    assert _read(store, path)[1][0]["timestamp"].isoformat() == "2023-11-14T22:13:20+00:00"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "timestamp") for name in ("created_at", "createdAt", "START_TIME", "ts", "Pickup time")),
        *((name, "timestamp") for name in ("sort_by_date", "candidate_created_at", "id_date")),
        *((name, "timestamp") for name in ("orderdate", "PICKUPDATETIME", "trip_starttimestamp")),
        *((name, "int64") for name in ("updates", "update", "sometimes", "orderdate_id", "invalidate")),
        *((name, "int64") for name in ("counts", "contacts", "created_by", "candidate", "mandate_id", "lat_attr")),
        *((name, "int64") for name in ("uptime", "lifetime", "validate", "date_id", "date_updated_by")),
        *((name, "int64") for name in ("cputime", "responsetime", "avg_leadtime")),
    ],
)
def test_only_a_word_that_says_a_time_makes_numbers_times(tmp_path: Path, name: str, kind: str) -> None:
    lines = "".join(f"{1_700_000_000 + n}\n" for n in range(5))
    assert _kinds(sniff(_file(tmp_path, f"{name}\n{lines}"))) == {name: kind}


@pytest.mark.parametrize("odd", [500_000_000, 5_000_000_000, 7])
def test_a_glued_name_makes_numbers_times_only_where_all_are_of_our_years(tmp_path: Path, odd: int) -> None:
    lines = "".join(f"{1_700_000_000 + n}\n" for n in range(50))
    assert _kinds(sniff(_file(tmp_path, f"orderdate\n{lines}{odd}\n"))) == {"orderdate": "int64"}


@pytest.mark.parametrize(("digits", "told"), [("123456", False), ("1234567", True), ("123456789Z", True)])
def test_times_finer_than_a_microsecond_are_told(tmp_path: Path, digits: str, told: bool) -> None:
    column = sniff(_file(tmp_path, f"at,note\n2024-01-01T00:00:00.{digits},a\n")).columns[0]
    assert (column.too_fine, str(column.kind)) == (told, "string" if told else "timestamp")


@pytest.mark.parametrize("fine", [(True, False), (False, True)])
def test_times_are_too_fine_where_those_of_all_blocks_are(fine: tuple[bool, bool]) -> None:
    column = Texts("at")
    for each in fine:
        look(column, pa.array([f"2024-01-01T00:00:00.123456{'7' if each else ''}"]))
    assert not column.too_fine


def test_a_few_values_of_another_type_are_told_and_rejected(tmp_path: Path, store: ArtifactStore) -> None:
    lines = "".join(f"2024-01-01T00:00:{n % 60:02d}Z,{'many' if n == 250 else n}\n" for n in range(600))
    path = _file(tmp_path, "at,n\n" + lines)
    found = sniff(path).columns[1]
    assert (found.kind, found.misfits, found.missing) == ("int64", 1, 0)
    assert _read(store, path)[0].rejected_rows == {"t": 1}


@pytest.mark.parametrize(
    ("cell", "odd", "kind", "misfits", "almost"),
    [
        ("{}", 30, "int64", 30, ""),
        ("{}.5", 30, "double", 30, ""),
        ("2024-01-01T00:00:{:02}Z", 30, "timestamp", 30, ""),
        ("{}.5", 31, "string", 31, "double"),
        ("no{}", 30, "string", 0, ""),
    ],
)
def test_one_value_of_twenty_may_have_another_type(
    tmp_path: Path, store: ArtifactStore, cell: str, odd: int, kind: str, misfits: int, almost: str
) -> None:
    cells = [cell.format(n % 60) for n in range(600)]
    cells[-odd:] = ["nil"] * odd
    path = _file(tmp_path, "v\n" + "\n".join(cells))
    found = sniff(path).columns[0]
    assert (str(found.kind), found.misfits, found.almost) == (kind, misfits, almost)
    assert (found.mostly, found.mostly_rows) == (("nil", odd) if misfits else ("", 0))
    taken, rows = _read(store, path)
    assert taken.rejected_rows.get("t", 0) == (0 if almost else misfits) == 600 - len(rows)
    given = sniff(path, ["nil"])
    assert (given.columns[0].missing, given.columns[0].misfits, given.nulls) == (odd, 0, ("", "NA", "nil"))


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([str(2**63 + n) for n in range(300)], "string"),
        ([str(2**63 - 1 - n) for n in range(300)], "int64"),
        ([*(str(10**17 + n) for n in range(300)), "1.5"], "string"),
        ([f"{10**17 + n}.0" for n in range(300)], "double"),
        ([f"{n:05}" for n in range(90_000, 90_300)], "int64"),
        ([f"{n:05}" for n in (*range(90_000, 90_300), 501)], "string"),
        ([f"0.{n}" for n in range(300)], "double"),
    ],
)
def test_numbers_that_would_lose_digits_stay_texts(
    tmp_path: Path, store: ArtifactStore, cells: list[str], kind: str
) -> None:
    path = _file(tmp_path, "id,y\n" + "".join(f"{cell},1\n" for cell in cells))
    found = sniff(path)
    assert (_kinds(found)["id"], bool(found.columns[0].why_text)) == (kind, kind == "string")
    assert found.repeated == 0, "all cells differ"
    if kind != "double":
        assert len({row["id"] for row in _read(store, path)[1]}) == len(cells)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_rows_are_repeated_where_their_cells_are(tmp_path: Path, name: str) -> None:
    rows = [("1.0", None), ("1", None), ("1.00000000000000000001", None), ("1", None), ("1", "")]
    if name == "t.parquet":
        pq.write_table(pa.table({"v": [one for one, _ in rows], "w": [two for _, two in rows]}), tmp_path / name)
        assert sniff(tmp_path / name).repeated == 1
    else:  # A column without a name is the number of the row, and an empty cell in quotes is empty.
        lines = "".join(f"{place},{one},{two or ''}\n" for place, (one, two) in enumerate(rows))
        assert sniff(_file(tmp_path, f",v,w\n{lines}")).repeated == 2


@pytest.mark.parametrize("share", [0.025, 0.4])
def test_a_file_is_read_whatever_share_of_its_rows_does_not_fit(
    tmp_path: Path, store: ArtifactStore, share: float
) -> None:
    lines = (f"{n},{n % 2}{',9' if n % 200 < 200 * share else ''}\n" for n in range(600))
    path = _file(tmp_path, "id,y\n" + "".join(lines))
    assert sniff(path).reject_limit == pytest.approx(1.5 * share)
    assert _read(store, path)[0].rejected_rows == {"t": 600 * share}


def test_marks_of_missing_values_are_found_where_they_matter(tmp_path: Path, store: ArtifactStore) -> None:
    path = _file(tmp_path, "at,n,s\n2024-01-01,?,None\n2024-01-02,2,x\n,3,y\n")
    found = sniff(path)
    assert found.nulls == ("", "NA", "?") and _kinds(found)["n"] == "int64"
    assert [column.missing for column in found.columns] == [1, 1, 0] and found.missing_as == ("", "?")
    assert [(row["n"], row["s"]) for row in _read(store, path)[1]] == [(None, "None"), (2, "x"), (3, "y")]


def test_a_word_of_a_text_column_that_another_column_makes_a_missing_value_is_told(tmp_path: Path) -> None:
    lines = "".join(f"{('card', 'none', 'NA', '')[n % 4]},{n % 3 or 'none'},x\n" for n in range(1, 4001))
    path = _file(tmp_path, f"pay,n,s\n{lines}")
    pay, n, s = sniff(path).columns
    told = (
        "1,000 'NA' are read as missing, as `nulls` has it by default; 1,000 'none' are read as missing, as in "
        "column n; write values that are not missing in another way in the file"
    )
    assert (pay.note, pay.missing, n.note, n.missing, s.note) == (told, 3000, "", 1333, "")
    assert "none" not in sniff(path, ["none"]).columns[0].note, "it was asked for"


def test_a_file_without_times_gets_a_time(tmp_path: Path, store: ArtifactStore) -> None:
    path = _file(tmp_path, "Größe|it's\n1|a\n2|NULL\n", encoding="latin-1")
    taken, rows = _read(store, path)
    assert taken.as_of == "2024-05-01T12:00:00+00:00"
    assert {row["delivered_at"].isoformat() for row in rows} == {"2024-05-01T12:00:00+00:00"}
    assert [(row["Größe"], row["it's"]) for row in rows] == [(1, "a"), (2, "NULL")]


def test_the_time_of_a_file_without_times_takes_the_name_of_no_column(tmp_path: Path, store: ArtifactStore) -> None:
    path = _file(tmp_path, "delivered_at,Delivered_at_2,n\nlate,x,1\nsoon,y,2\n")
    taken, rows = _read(store, path)
    assert taken.as_of == "2024-05-01T12:00:00+00:00" and sniff(path).delivered == "delivered_at_3"
    assert [row["delivered_at"] for row in rows] == ["late", "soon"]


def test_hexadecimal_numbers_are_texts(tmp_path: Path, store: ArtifactStore) -> None:
    texts = ["0x1", "0x01", "0xFFFFFFFFFFFFFFFF", "0Xff", *(f"0x{n:02x}" for n in range(100))]
    path = _file(tmp_path, "created_at,n\n" + "".join(f"{text},1\n" for text in texts))
    assert _kinds(sniff(path))["created_at"] == "string"
    assert [row["created_at"] for row in _read(store, path)[1]] == texts


def test_digits_beyond_a_microsecond_that_are_zero_say_nothing(tmp_path: Path, store: ArtifactStore) -> None:
    path = _file(tmp_path, "at,n\n2024-01-01T00:00:00.000000000Z,1\n2024-01-01T02:00:00.000001000Z,2\n")
    assert _kinds(sniff(path))["at"] == "timestamp" and not sniff(path).columns[0].too_fine
    assert [row["at"].microsecond for row in _read(store, path)[1]] == [0, 1]


def test_a_day_that_two_formats_fit_is_told(tmp_path: Path) -> None:
    found = sniff(_file(tmp_path, "day,n\n01/02/2013,1\n03/04/2013,2\n")).columns[0]
    assert (found.form, found.also) == ("%m/%d/%Y", "%d/%m/%Y")
    assert not sniff(_file(tmp_path, "day,n\n01/02/2013,1\n23/04/2013,2\n")).columns[0].also


def test_an_odd_value_is_shown_also_with_a_character_that_one_cannot_see(tmp_path: Path) -> None:
    assert sniff(_file(tmp_path, "v\n" + "1\n" * 30 + "6.2\x1a\n")).columns[0].such_as == "6.2\x1a"


def test_a_column_without_a_name_is_left_out(tmp_path: Path, store: ArtifactStore) -> None:
    rows = _read(store, _file(tmp_path, ",at,v\n0,2024-01-01,x\n1,2024-01-02,y\n"))[1]
    assert [row["v"] for row in rows] == ["x", "y"] and list(rows[0]) == ["at", "v"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.parquet", "x", "is not intact Parquet"),
        ("t.csv", "Eve,2\nAdam,4\n", "expected a header in the first line, but cell 2 of it is a number"),
        ("t.csv", "a,1990\nx,5\n", "where the first line has them, give that column a name that is no number"),
        ("t.csv", "\ufeff\ufeffa,b\n1,2\n", "expected at most one byte order mark, found two"),
        ("t.csv", "", "expected a header and rows below it, found an empty file"),
        ("t.csv", "\n \n", "expected"),
        ("t.csv", "sep=;\na;b\n1;2\n", "found sep=;. Remove this line"),
        ("t.csv", '{"a": 1, "b": 2}\n' * 9, "expected a CSV, found JSON"),
        ("t.txt", "a       name    n\n" + "1       x       3\n" * 9, "found columns of a fixed width"),
        ("t.csv", "PK\x03\x04 \x00", "found an Excel file or a zip. Save the table as CSV"),
        ("t.csv", "PAR1 \x00", "found Parquet. Rename it"),
        ("t.csv", "a,b\n", "expected rows below the header"),
        ("t.csv", "a,b,a\n1,2,3\n", "expected columns with different names, found one name for columns 1, 3"),
        ("t.csv", "My table\n\na,b\n" + "1,2\n" * 9, "2 lines stand before the table"),
        ("t.csv", "a,b\n" + "1,2,\n" * 9, "expected a header of 3 cells, as most rows have, found a first line of 2"),
        ("t.csv", "a,b\n1,\x00\n", "found a NUL byte in line 2"),
        ("t.csv.gz", "a,b\n1,2\n", "is not intact gzip"),
        ("t.inter", "a,b\n1,2\n", "rename it to .csv or .tsv"),
    ],
)
def test_what_is_no_table_is_told(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DeclarationError, match=said):
        source_of(sniff(path), path, "t", DELIVERED)


@pytest.mark.parametrize("text", ["7,eve@x.org\n8,adam@x.org\n", "eve@x.org,7\n1,2,3\n1,2,3\n"])
def test_a_first_line_that_may_be_a_persons_row_is_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(DeclarationError, match="expected a header") as told:
        sniff(_file(tmp_path, text))
    assert "eve" not in str(told.value)


def test_one_column_of_sentences_is_one_column(tmp_path: Path) -> None:
    assert _kinds(sniff(_file(tmp_path, "note\n" + "too late; alas, too late\nfine\n" * 9))) == {"note": "string"}
    assert len(sniff(_file(tmp_path, "a b\n" + "1 2\n" * 9)).columns) == 2


def test_a_file_that_is_not_there_and_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        sniff(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_bytes(b"a,b\n\x81\x8d\x93,2\n")
    with pytest.raises(SourceError, match="found bytes that are none"):
        sniff(tmp_path / "t.csv")


@pytest.mark.parametrize("times", [True, False])
@pytest.mark.parametrize("at", [0, 150, 300])
@pytest.mark.parametrize("cells", ["9", "9,2024-01-01,1,2"])
def test_one_row_of_another_width_is_set_aside(
    tmp_path: Path, store: ArtifactStore, times: bool, at: int, cells: str
) -> None:
    lines = [f"{n},{'2024-01-01' if times else 'x'},{n % 2}\n" for n in range(301)]
    lines[at] = f"{cells}\n"
    path = _file(tmp_path, "id,when,y\n" + "".join(lines))
    found = sniff(path)
    assert (found.delimiter, found.rows, found.uneven) == (",", 300, 1)
    assert list(_kinds(found)) == ["id", "when", "y"]
    taken, rows = _read(store, path)
    assert taken.rejected_rows == {"t": 1} and len(rows) == 300


def test_a_small_file_may_lose_two_rows_however_the_limit_is_rounded(tmp_path: Path, store: ArtifactStore) -> None:
    text = "n,s\n" + "".join(f"{n},x\n" for n in range(20)) + "1,x,y\nmany,x\n"
    assert _read(store, _file(tmp_path, text))[0].rejected_rows == {"t": 2}


def test_a_value_of_another_type_is_set_aside_in_a_file_without_times(tmp_path: Path, store: ArtifactStore) -> None:
    path = _file(tmp_path, "n,s\n" + "".join(f"{'many' if n == 7 else n},x\n" for n in range(20)))
    taken, rows = _read(store, path)
    assert taken.rejected_rows == {"t": 1} and len(rows) == 19


@pytest.mark.parametrize(("unit", "factor"), [("seconds", 1), ("milliseconds", 1000), ("microseconds", 1_000_000)])
def test_numbers_that_may_be_times_are_times_when_they_are_named(tmp_path: Path, unit: str, factor: int) -> None:
    lines = "".join(f"{n},{(1_700_000_000.25 + n) * factor:.{2 if unit == 'seconds' else 0}f}\n" for n in range(50))
    found = sniff(_file(tmp_path, "n,t\n" + lines))
    assert [column.epoch for column in found.columns] == ["", unit] and not found.event_time
    named = found.ordered_by("t")
    assert (str(named.columns[1].kind), named.columns[1].form, named.event_time) == ("timestamp", unit, "t")


NUMBERS = [0.5, 7.25, 250.0, 999.5, *(1000.0 + 1234.5 * n for n in range(100))]


def _german(number: float) -> str:
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


@pytest.mark.parametrize(
    ("written", "share", "said"),
    [
        (lambda n: f"{n:.2f}%", 100, "a percent sign"),
        (lambda n: f"{n:,.2f}", 1, "commas between thousands"),
        (lambda n: f"${n:,.2f}", 1, "a currency and commas between thousands"),
        (lambda n: f"-{n:.2f} EUR", -1, "a currency"),
        (_german, 1, "points between thousands and a decimal comma"),
        (lambda n: f"€ {_german(n)}", 1, "a currency and points between thousands and a decimal comma"),
        (lambda n: f"{n:.2f} %".replace(".", ","), 100, "a percent sign and a decimal comma"),
        (lambda n: f"{n:,.2f}".replace(",", "'"), 1, "blanks or apostrophes between thousands"),
    ],
)
def test_numbers_with_signs_in_them_are_told_and_a_query_reads_them(
    tmp_path: Path, written: Callable[[float], str], share: int, said: str
) -> None:
    lines = "".join(f"{place};{written(number)};a b\n" for place, number in enumerate(NUMBERS))
    path = _file(tmp_path, f"id;v;note\n{lines}")
    _, column, note = sniff(path).columns
    assert (str(column.kind), " and ".join(column.marks), note.marks) == ("string", said, ())
    with connect() as connection:
        rows = connection.execute(
            f"SELECT {as_number('v', column.marks)} FROM read_csv('{path}', delim=';', header=true, all_varchar=true)"
        ).fetchall()
    assert [row[0] for row in rows] == pytest.approx([number / share for number in NUMBERS])


def test_commas_that_may_stand_between_thousands_are_no_decimal_commas(tmp_path: Path, store: ArtifactStore) -> None:
    cells = [f"{n * 7:,}" for n in range(400)]
    path = _file(tmp_path, "id;v\n" + "".join(f"{n};{cell}\n" for n, cell in enumerate(cells)))
    found = sniff(path)
    column = found.columns[1]
    assert (found.decimal, str(column.kind), column.marks) == (".", "string", ("commas between thousands",))
    assert "between thousands or before decimals" in column.why_text
    assert [row["v"] for row in _read(store, path)[1]] == cells
    # Another column of the file tells what a comma is.
    path = _file(tmp_path, "id;v;w\n" + "".join(f"{n};{cell};{n},5\n" for n, cell in enumerate(cells)))
    assert sniff(path).decimal == "," and _kinds(sniff(path))["v"] == "double"
    assert "are read as decimal, as those of other columns are" in sniff(path).columns[1].note


@pytest.mark.parametrize(
    ("delimiter", "cells", "others", "kind", "why"),
    [
        ("\t", [f"{n * 70:,}" for n in range(400)], "1.5", "string", "commas stand between thousands"),
        (",", [f'"{n * 70:,}"' for n in range(400)], "1.5", "string", "commas stand between thousands"),
        ("\t", [*(f"{n * 70:,}" for n in range(400)), "1,5"], "x", "string", "or before decimals"),
        ("\t", ["1,5", *map(str, range(400))], "x", "double", ""),
        (";", [f"{n * 70:,}".replace(",", ".") for n in range(400)], "x", "string", "points may stand between"),
        (";", [f"{n * 70:,}".replace(",", ".") for n in range(400)], "1.5", "double", ""),
        (",", [f"{n * 70:,}".replace(",", ".") for n in range(400)], "x", "double", ""),
        (";", [f"{n / 8}" for n in range(400)], "x", "double", ""),
    ],
)
def test_numbers_that_may_be_a_thousand_times_as_large_are_not_guessed(
    tmp_path: Path, delimiter: str, cells: list[str], others: str, kind: str, why: str
) -> None:
    path = _file(tmp_path, f"v{delimiter}w\n" + "".join(f"{cell}{delimiter}{others}\n" for cell in cells))
    column = sniff(path).columns[0]
    assert (str(column.kind), bool(column.why_text)) == (kind, bool(why)) and why in column.why_text


@pytest.mark.parametrize(
    ("cell", "why"), [("{},5", "have a decimal comma"), ("1,{:03}", "may stand between thousands")]
)
def test_quoted_commas_in_a_file_that_commas_separate_stay_texts(
    tmp_path: Path, store: ArtifactStore, cell: str, why: str
) -> None:
    path = _file(tmp_path, "id,v\n" + "".join(f'{n},"{cell.format(n)}"\n' for n in range(400)))
    found = sniff(path)
    assert found.decimal == "." and why in found.columns[1].why_text
    assert _read(store, path)[1][7]["v"] == cell.format(7)


def test_a_decimal_sign_that_others_do_not_have_is_told(tmp_path: Path) -> None:
    path = _file(tmp_path, "a;b\n" + "".join(f"{n},25;{n}.25\n" for n in range(400)))
    assert "a decimal point, those of other columns a comma" in sniff(path).columns[1].why_text


def test_a_few_numbers_with_signs_are_told_among_others(tmp_path: Path) -> None:
    path = _file(tmp_path, "id,v\n" + "".join(f'{n},"{n * 2.57:,.2f}"\n' for n in range(400)))
    column = sniff(path).columns[1]
    assert (str(column.kind), column.misfits, column.marks) == ("double", 10, ("commas between thousands",))


@pytest.mark.parametrize("cell", ["10.0.{}.7", "2024.01.{:02}.x", "12-{}", "A {}", "$", "1,2,{}", "{} kg"])
def test_other_texts_are_no_numbers_with_signs(tmp_path: Path, cell: str) -> None:
    path = _file(tmp_path, "id;v\n" + "".join(f"{n};{cell.format(n % 60)}\n" for n in range(400)))
    assert not sniff(path).columns[1].marks
