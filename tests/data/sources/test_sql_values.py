"""The values of SQL databases: kept exactly as declared, or named, or set aside."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from gatehouse.data.sources.base import KnownPart, Part
from gatehouse.data.sources.databases import _pieces
from gatehouse.data.sources.sql import SqlReader
from gatehouse.errors import DeclarationError, SourceError
from tests.data.sources.reading import read
from tests.data.sources.sql_databases import run, source


@pytest.mark.parametrize(
    ("column", "declared_as", "value", "message"),
    [
        ("double precision", "string", "5", "declared as string"),
        ("text", "int64", "'5'", "declared as int64"),
        ("double precision", "int64", "1.5", "found 1.5"),
        ("bigint", "double", "9007199254740993", "found 9007199254740993"),
        ("numeric(30)", "int64", "100000000000000000000", "found"),
        ("bigint", "bool", "2", "expected true or false or a null, found 2"),
        ("text", "timestamp", "'2024-01-01 10:00:00'", "State the zone of times without one in source.time_zone"),
        ("text", "timestamp", "'yesterday'", "found 'yesterday'"),
    ],
)
def test_a_value_that_does_not_fit_is_named(url: str, column: str, declared_as: str, value: str, message: str) -> None:
    run(url, f"CREATE TABLE orders (id bigint, v {column})", "INSERT INTO orders (id) VALUES (1), (2)")
    run(url, f"INSERT INTO orders VALUES (3, {value})")
    with pytest.raises(SourceError, match=r"Table orders.*column v.*expected") as caught:
        read(source(url, columns={"id": "int64", "v": declared_as}))
    assert message in str(caught.value)


def test_numbers_of_the_database_become_the_declared_ones(url: str) -> None:
    run(url, "CREATE TABLE orders (id bigint, money numeric(10,2), whole numeric(20,0), small real, flag smallint)")
    run(url, "INSERT INTO orders VALUES (1, 12.50, 12, 0.5, 1), (9223372036854775807, NULL, 7, 2, 0)")
    columns = {"id": "int64", "money": "double", "whole": "int64", "small": "double", "flag": "bool"}
    assert read(source(url, columns=columns))[2].to_pydict() == {
        "id": [1, 2**63 - 1],
        "money": [12.5, None],
        "whole": [12, 7],
        "small": [0.5, 2.0],
        "flag": [True, False],
    }


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
def test_numbers_and_times_that_are_written_in_one_way_only_become_text(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres") if kind == "postgresql" else f"duckdb:///{tmp_path / 'a.duckdb'}"
    run(url, "CREATE TABLE orders (id bigint, whole bigint, money numeric(30,2), made timestamp)")
    run(url, "INSERT INTO orders VALUES (1, -7, 12345678901234567890.5, '2024-07-01 12:00:00')")
    columns = {"id": "int64", "whole": "string", "money": "string", "made": "string"}
    [row] = read(source(url, columns=columns))[2].to_pylist()
    assert row == {"id": 1, "whole": "-7", "money": "12345678901234567890.50", "made": "2024-07-01 12:00:00.000000"}


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
def test_times_dates_and_special_doubles(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres") if kind == "postgresql" else f"duckdb:///{tmp_path / 'a.duckdb'}"
    run(url, "CREATE TABLE orders (id int, zoned timestamptz, naive timestamp, day date, v double precision)")
    run(
        url,
        "INSERT INTO orders VALUES (1, '2024-07-01 12:00:00+02', '2024-07-01 12:00:00', '2024-07-01', 'NaN'), "
        "(2, '2024-01-01 00:00:00.000001+00', '2024-01-01 00:00:00', '1969-12-31', '-Infinity')",
    )
    columns = {"id": "int64", "zoned": "timestamp", "naive": "timestamp", "day": "timestamp", "v": "double"}
    table = read(source(url, columns=columns, time_zone="America/New_York"))[2]
    assert table["zoned"].to_pylist() == [datetime(2024, 7, 1, 10, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 1, UTC)]
    assert table["naive"].to_pylist() == [datetime(2024, 7, 1, 16, tzinfo=UTC), datetime(2024, 1, 1, 5, tzinfo=UTC)]
    assert table["day"].to_pylist() == [datetime(2024, 7, 1, 4, tzinfo=UTC), datetime(1969, 12, 31, 5, tzinfo=UTC)]
    assert str(table["v"].to_pylist()) == "[nan, -inf]"
    for column in ("naive", "day"):
        with pytest.raises(SourceError, match=f"the row with id=1, column {column}: .*with its zone"):
            read(source(url, columns={"id": "int64", column: "timestamp"}, guards={"new_column": "accept"}))


def test_a_time_that_never_comes_is_named_or_set_aside(postgres: str) -> None:
    run(postgres, "CREATE TABLE orders (id int, at timestamptz)")
    run(postgres, "INSERT INTO orders VALUES (1, '2024-01-01 00:00:00+00'), (2, 'infinity'), (3, '-infinity')")
    columns = {"id": "int64", "at": "timestamp"}
    with pytest.raises(SourceError, match=r"id=2, column at: .*found 'a time that is not in the years 1 to 9999'"):
        read(source(postgres, columns=columns))
    parts = read(source(postgres, columns=columns, on_invalid="reject", reject_limit=1))[1]
    raw = parts[0].read()
    assert raw.table["id"].to_pylist() == [1] and raw.rejected.num_rows == 2


def test_bytes_are_refused_and_uuids_are_text(postgres: str) -> None:
    run(postgres, "CREATE TABLE orders (id uuid, b bytea)")
    run(postgres, "INSERT INTO orders VALUES ('00000000-0000-0000-0000-00000000000a', '\\x00')")
    columns = {"id": "string"}
    spec = source(postgres, columns=columns, guards={"new_column": "accept"})
    assert read(spec)[2]["id"].to_pylist() == ["00000000-0000-0000-0000-00000000000a"]
    with pytest.raises(SourceError, match=r"column b: expected text .* found the type binary"):
        read(source(postgres, columns=columns | {"b": "string"}))


def test_a_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (id bigint, v text)")
    run(url, "INSERT INTO orders VALUES (1, 'ok'), (2, CAST(x'ff' AS text))")
    with pytest.raises(SourceError, match=r"Table orders|table orders"):
        read(source(url, columns={"id": "int64", "v": "string"}))


def test_a_column_of_mixed_values_names_the_one_that_does_not_fit(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (id bigint, v)")
    run(url, "INSERT INTO orders VALUES (1, 5), (2, 'five')")
    with pytest.raises(
        DeclarationError, match=r"Table orders, the row with id=2, column v: expected a whole .* found the type string"
    ):
        read(source(url, columns={"id": "int64", "v": "int64"}))


def test_rows_that_do_not_fit_are_set_aside_where_declared(url: str) -> None:
    run(url, "CREATE TABLE orders (id bigint, v double precision)")
    run(url, "INSERT INTO orders VALUES (1, 1), (2, 2.5), (3, NULL), (4, 4)")
    spec = source(url, rows_per_part=3, columns={"id": "int64", "v": "int64"}, on_invalid="reject")
    with SqlReader(spec) as reader:
        first, second = [part.read() for part in reader.parts("orders")]
        before = reader.state()
    assert first.table.to_pylist() == [{"id": 1, "v": 1}, {"id": 3, "v": None}]
    assert first.rejected is not None and second.rejected is None
    [rejected] = first.rejected.to_pylist()
    assert (rejected["place"], rejected["column"], rejected["found"]) == ("the row with id=2", "v", "2.5")
    assert rejected["raw"] == '{"id": 2, "v": 2.5}'
    run(url, "UPDATE orders SET v = 3.5 WHERE id = 2")
    assert read(spec)[0] != before


@pytest.mark.parametrize("value", ["'s3cr3t'", "2", "NULL"])
def test_no_message_shows_what_is_sensitive(tmp_path: Path, value: str) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (name text, v)", f"INSERT INTO orders VALUES ('s3cr3t', 1), ('s3cr3t', {value})")
    columns = {"name": "string", "v": "int64"}
    with pytest.raises(SourceError, match="a value that is not shown") as caught:
        read(source(url, columns=columns, order_by=["name"], sensitive=["name", "v"]))
    assert "s3cr3t" not in str(caught.value)


def test_a_row_that_the_driver_quotes_is_not_shown_beside_a_sensitive_column(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,name\n1,a\nx,s3cr3t\n")
    query = f"SELECT * FROM read_csv('{tmp_path}/orders.csv', columns={{'id': 'BIGINT', 'name': 'VARCHAR'}})"
    spec = source("duckdb://", query=query, columns={"id": "int64", "name": "string"}, sensitive=["name"])
    with pytest.raises(SourceError, match=r"ended the read: ConversionException.* sensitive \(name\)") as caught:
        read(spec)
    assert "s3cr3t" not in str(caught.value)


def test_no_value_of_a_row_that_does_not_fit_is_shown_beside_a_sensitive_column(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (name text, note text, v)", "INSERT INTO orders VALUES ('b', 's3cr3t', 's3cr3t')")
    run(url, "INSERT INTO orders VALUES ('a', '', 1), ('c', '', 2), ('d', 's3cr3t', 's3cr3t')")
    columns = {"name": "string", "note": "string", "v": "int64"}
    sensitive: dict[str, Any] = {"columns": columns, "sensitive": ["name"], "on_invalid": "reject"}
    for order, said in (
        ({"sort_on_ingest": True}, "name, note, v"),
        ({"order_by": ["note", "name"]}, "note, name"),
        ({"order_by": ["note", "name"], "query": "SELECT * FROM orders"}, "note, name"),
    ):
        with SqlReader(source(url, rows_per_part=1, **sensitive, **order)) as reader:
            parts = [part.read() for part in reader.parts("orders")]
        rejected = [row for part in parts if part.rejected is not None for row in part.rejected.to_pylist()]
        numbers = (2, 4) if "sort_on_ingest" in order else (3, 4)
        assert [row["place"] for row in rejected] == [f"row {number} in the order of {said}" for number in numbers]
        assert {(row["found"], row["raw"]) for row in rejected} == {("a value that is not shown", "***")}


def test_a_key_that_does_not_fit_is_not_shown_beside_a_sensitive_column(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (id, name text)", "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), ('s3cr3t', '3')")
    spec = source(url, columns={"id": "int64", "name": "string"}, sensitive=["name"])
    with pytest.raises(SourceError, match="row 3 in the order of id") as caught:
        read(spec)
    assert "s3cr3t" not in str(caught.value)


def test_a_row_beside_a_sensitive_column_has_its_number_among_all_rows_of_a_table_that_grew(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (id bigint, v)", "INSERT INTO orders VALUES (1, 1), (2, 2), (3, 3), (4, 'x')")
    spec = source(
        url,
        rows_per_part=2,
        columns={"id": "int64", "v": "int64"},
        append_only=True,
        sensitive=["v"],
        on_invalid="reject",
        reject_limit=1,
    )

    def places(parts: list[Part]) -> list[str]:
        raws = [part.read() for part in parts]
        return [row["place"] for raw in raws if raw.rejected is not None for row in raw.rejected.to_pylist()]

    with SqlReader(spec) as reader:
        parts = list(reader.parts("orders"))
        assert places(parts) == ["row 4 in the order of id"]
    run(url, "INSERT INTO orders VALUES (5, 'x')")
    known = tuple(KnownPart(part.fingerprint, 2, part.position) for part in parts)
    with SqlReader(spec) as reader:
        assert places(list(reader.parts("orders", known))) == ["row 4 in the order of id", "row 5 in the order of id"]
    run(url, "INSERT INTO orders VALUES ('key', 6)")
    with SqlReader(spec) as reader, pytest.raises(SourceError, match="row 6 in the order of id"):
        list(reader.parts("orders", known))


def test_the_first_row_of_a_file_that_a_query_reads_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("s3cr3t,name,id\n")
    query = f"SELECT * FROM read_csv('{tmp_path / 'orders.csv'}', header = true)"
    spec = source("duckdb:///:memory:", query=query, columns={"id": "int64", "name": "string"}, sensitive=["name"])
    with pytest.raises(SourceError, match=r"not declared: column 1 \(name not shown\)\)"):
        read(spec)


@pytest.mark.parametrize(
    ("kind", "values", "kept"),
    [
        ("int64", ["9007199254740993", "1.0", "NULL"], [9007199254740993, 1, None]),
        ("int64", ["1", "'x'", "2"], [1, 2]),
        ("double", ["9007199254740993", "0.5"], [0.5]),
        ("string", ["'a'", "5", "0.5", "x'00'", "'b'"], ["a", "5", "b"]),
        ("timestamp", ["'2024-01-01T00:00:00Z'", "5"], [datetime(2024, 1, 1, tzinfo=UTC)]),
        ("bool", ["1", "'x'", "0", "2"], [True, False]),
    ],
)
def test_values_of_several_types_in_a_column_are_kept_exactly_or_set_aside(
    tmp_path: Path, kind: str, values: list[str], kept: list[Any]
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (id bigint, v)")
    for number, value in enumerate(values):
        run(url, f"INSERT INTO orders VALUES ({number}, {value})")
    columns = {"id": "int64", "v": kind}
    with SqlReader(source(url, columns=columns, on_invalid="reject", reject_limit=1)) as reader:
        raws = [part.read() for part in reader.parts("orders", ())]
    assert [value for raw in raws for value in raw.table["v"].to_pylist()] == kept
    aside = [row for raw in raws if raw.rejected is not None for row in raw.rejected.to_pylist()]
    assert len(aside) == len(values) - len(kept)
    assert all(row["column"] == "v" and row["reason"].startswith("expected ") for row in aside)
    if aside:
        with pytest.raises(SourceError, match=r"the row with id=\d, column v: expected"):
            read(source(url, columns=columns))


def test_values_that_arrow_has_no_type_for_are_never_taken_for_text() -> None:
    rows = [(1, "a"), (2**70, "b"), (3, "\ud800"), (4, "d")]
    found = [piece.to_pydict() for piece in _pieces(rows, ["n", "t"])]
    assert found == [
        {"n": [1], "t": ["a"]},
        {"n": [str(2**70).encode()], "t": ["b"]},
        {"n": [3], "t": [b"\\ud800"]},
        {"n": [4], "t": ["d"]},
    ]


def test_no_time_becomes_a_date_or_loses_its_zone_beside_another() -> None:
    values = [date(2024, 1, 1), datetime(2024, 1, 1, 5), datetime(2024, 1, 1, 5, tzinfo=UTC)]
    found = [piece["v"][0].as_py() for piece in _pieces([(value,) for value in values], ["v"])]
    assert found == values


def test_numbers_since_1970_are_times_where_declared(url: str) -> None:
    run(url, "CREATE TABLE orders (id bigint, made bigint)", "INSERT INTO orders VALUES (1, 1364693400), (2, NULL)")
    columns = {"id": "int64", "made": "timestamp"}
    with pytest.raises(SourceError, match=r"found the type int64\. times: \{made: seconds\}"):
        read(source(url, columns=columns))
    _, _, table = read(source(url, columns=columns, times={"made": "seconds"}))
    assert table["made"].to_pylist() == [datetime(2013, 3, 31, 1, 30, tzinfo=UTC), None]
