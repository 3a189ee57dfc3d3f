"""Reading SQL databases: PostgreSQL, SQLite and DuckDB, each a real one."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pgserver
import pyarrow as pa
import pytest
from pydantic import ValidationError

from gatehouse.data.sources.sql import SqlReader, SqlSource
from gatehouse.errors import DeclarationError, SourceError
from tests.data.sources.reading import read
from tests.data.sources.sql_databases import ORDERS, orders, run, source

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


@pytest.mark.parametrize("change", ["UPDATE orders SET item = 'other' WHERE id = 7", "DELETE FROM orders WHERE id = 7"])
def test_a_changed_row_changes_the_state(url: str, change: str) -> None:
    orders(url, 0, 25)
    before = read(source(url))[0]
    run(url, change)
    assert read(source(url))[0] != before


def test_a_version_query_stands_for_the_rows(url: str) -> None:
    orders(url, 0, 3)
    spec = source(url, version_query="SELECT max(id) FROM orders;")
    before = read(spec)[0]["orders"]
    assert before["version"] == ["2"]
    assert "digest" not in before


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


def test_an_empty_table_has_no_parts_and_all_null_columns_keep_their_type(url: str) -> None:
    orders(url, 0, 0)
    state, parts, _ = read(source(url, append_only=True))
    assert parts == [] and state["orders"]["last_key"] is None
    run(url, "INSERT INTO orders (id) VALUES (1), (2)")
    table = read(source(url))[2]
    assert table.schema.types == [pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.timestamp("us", tz="UTC")]
    assert table["item"].null_count == table["placed"].null_count == 2


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


def test_two_readers_at_once_see_the_same(url: str) -> None:
    orders(url, 0, 25)
    with SqlReader(source(url)) as one, SqlReader(source(url)) as other:
        first, second = one.parts("orders"), other.parts("orders")
        assert [a.read().table for a in first] == [b.read().table for b in second]


def test_a_duckdb_file_cannot_be_written_while_it_is_read(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path / 'shop.duckdb'}"
    orders(url, 0, 3)
    with SqlReader(source(url)) as reader:
        reader.state()
        program = f"import duckdb; duckdb.connect({str(tmp_path / 'shop.duckdb')!r})"
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "lock" in ended.stderr


def test_a_server_that_goes_away_ends_the_read_with_a_clear_error(postgres: str) -> None:
    run(postgres, "CREATE TABLE orders AS SELECT i AS id, repeat('x', 1000) AS item FROM generate_series(1, 100000) i")
    with SqlReader(source(postgres, columns={"id": "int64", "item": "string"})) as reader:
        parts = reader.parts("orders")
        next(parts)
        run(postgres, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        with pytest.raises(SourceError, match="Source shop, table orders: the database ended the read"):
            list(parts)


def test_a_wrong_password_is_not_told(
    postgres: str, postgres_server: pgserver.PostgresServer, monkeypatch: pytest.MonkeyPatch
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


def test_a_query_needs_no_file_of_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("id,item\n2,b\n1,a\n")
    query = f"SELECT * FROM read_csv('{path}')"
    body = {"query": query, "columns": {"id": "int64", "item": "string"}}
    for url in ("duckdb:///:memory:", "duckdb://"):
        _, _, table = read(source(url, **body))
        assert table.to_pylist() == [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite:///:memory:", r"in memory is empty.*duckdb:///:memory: for a query of CSV or Parquet"),
        ("sqlite+pysqlite://", "in memory is empty"),
        ("duckdb:///:memory:", r"in memory has no tables: expected a query of files, found table \(orders\)"),
    ],
)
def test_a_database_in_memory_says_before_a_run_why_there_is_nothing_to_read(
    url: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValidationError, match=f"url: .*{why}"):
        source(url)
    monkeypatch.setenv("SHOP_URL", url)
    with pytest.raises(SourceError, match=f"Source shop, SHOP_URL: .*{why}"):
        read(source("sqlite:///x").model_copy(update={"url": "", "url_env": "SHOP_URL"}))
