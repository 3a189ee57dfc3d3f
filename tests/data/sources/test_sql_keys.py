"""The keys that order the rows of SQL databases: what a table went on by is read from there, and ties are refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gatehouse.data.sources.base import KnownPart, Part
from gatehouse.data.sources.sql import SqlReader
from gatehouse.errors import SourceError
from tests.data.sources.reading import read
from tests.data.sources.sql_databases import orders, run, source


def as_known(parts: list[Part]) -> tuple[KnownPart, ...]:
    """What a snapshot remembers of parts."""
    return tuple(KnownPart(part.fingerprint, part.read().table.num_rows, part.position) for part in parts)


def test_of_an_appended_table_only_the_new_rows_are_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orders(url, 0, 1000)
    spec = source(url, rows_per_part=100, append_only=True)
    _, before, _ = read(spec)
    known = as_known(before)
    orders(url, 1000, 1010)
    fetched = count_fetched(monkeypatch)
    with SqlReader(spec) as reader:
        state = reader.state()["orders"]
        after = list(reader.parts("orders", known))
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


def test_the_short_last_part_is_read_again_and_a_known_part_can_be(url: str) -> None:
    orders(url, 0, 25)
    spec = source(url, append_only=True)
    known = as_known(read(spec)[1])
    orders(url, 25, 32)
    _, parts, table = read(spec, known)
    assert [part.read().table.num_rows for part in parts] == [10, 10, 10, 2]
    assert table["id"].to_pylist() == list(range(32))


def test_known_parts_of_another_declaration_are_not_taken(url: str) -> None:
    orders(url, 0, 25)
    known = as_known(read(source(url, append_only=True))[1])
    _, parts, table = read(source(url, rows_per_part=5, append_only=True), known)
    assert len(parts) == 5 and table.num_rows == 25
    query = "SELECT * FROM orders WHERE id <> 3"
    assert read(source(url, query=query, append_only=True), known)[2]["id"].to_pylist()[3] == 4


def test_a_row_below_the_last_key_is_not_lost_silently(url: str) -> None:
    orders(url, 0, 10)
    orders(url, 11, 25)
    spec = source(url, append_only=True)
    known = as_known(read(spec)[1])
    orders(url, 10, 11)
    with pytest.raises(SourceError, match=r"append_only, but up to the key id=20 it has 21 rows now, and had 20"):
        read(spec, known)


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
    known = as_known(parts)
    for index in range(1, len(parts), 3):
        with SqlReader(spec) as reader:
            continued = list(reader.parts("orders", known[:index]))[index:]
        assert pa.concat_tables([part.read().table for part in continued]).equals(table.slice(3 * index))


def test_times_as_keys_continue_where_they_ended(url: str) -> None:
    orders(url, 0, 25)
    spec = source(url, order_by=["placed", "id"], append_only=True)
    _, parts, table = read(spec)
    assert read(spec, as_known(parts))[2].equals(table)


def test_text_keys_are_ordered_by_their_bytes_whatever_the_collation(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (id text COLLATE NOCASE)", "INSERT INTO orders VALUES ('b'), ('B'), ('a'), ('A')")
    assert read(source(url, columns={"id": "string"}))[2]["id"].to_pylist() == ["A", "B", "a", "b"]


def test_ties_are_an_error_that_says_so(url: str) -> None:
    orders(url, 0, 25)
    run(url, "UPDATE orders SET id = 13 WHERE id = 14")
    with pytest.raises(SourceError, match=r"several rows have the key id=13, so their order is not fixed"):
        read(source(url))
    with pytest.raises(SourceError, match=r"several rows have the key id=13"):
        read(source(url, rows_per_part=14))


def test_a_null_in_the_key_is_an_error(url: str) -> None:
    orders(url, 0, 3)
    run(url, "UPDATE orders SET id = NULL WHERE id = 1")
    with pytest.raises(SourceError, match="order_by column id is null in 1 rows"):
        read(source(url))


def test_an_order_that_is_not_that_of_the_declared_type_is_an_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    run(url, "CREATE TABLE orders (at text)")
    run(url, "INSERT INTO orders VALUES ('2024-01-01 10:00:00+02:00'), ('2024-01-01 09:00:00+00:00')")
    spec = source(url, columns={"at": "timestamp"}, order_by=["at"])
    with pytest.raises(SourceError, match="the database puts the row with at="):
        read(spec)


def test_a_table_without_a_key_is_sorted_by_all_its_columns(url: str) -> None:
    run(url, "CREATE TABLE orders (item text, n bigint)")
    run(url, "INSERT INTO orders VALUES ('b', 1), ('a', 2), ('a', 1), ('a', 2), ('C', 1)")
    spec = source(url, columns={"item": "string", "n": "int64"}, sort_on_ingest=True)
    assert read(spec)[2].to_pydict() == {"item": ["C", "a", "a", "a", "b"], "n": [1, 1, 2, 2, 1]}
