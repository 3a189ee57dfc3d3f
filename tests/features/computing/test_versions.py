"""Versions of a table: whatever is computed next, what was known stays, and from now on the newest is known."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.previous.stage import PreviousRequest, previous_features
from gatehouse.features.computing.spans import ALL_TIME
from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.computing.versions import Earlier, next_table, redefined_table
from gatehouse.features.database import connect, write_parquet
from gatehouse.features.definitions.declarations import Available, FeatureView
from gatehouse.features.definitions.repository import View
from gatehouse.store.manifest import FileEntry
from gatehouse.store.store import ArtifactStore
from tests.features.publishing import publish_definitions

START = datetime(2024, 1, 1, tzinfo=UTC)
VIEW = View(
    "prices",
    FeatureView(name="prices", entities=("shop",), available=Available("arrived"), features={"price": "numeric"}),
    "",
)
Row = tuple[str, int, int, float | None]
"""Shop, day of the event, day from which it is known, price."""


def rows_table(rows: Iterable[Row]) -> pa.Table:
    days = [
        {"shop": shop, "event_timestamp": day(event), "known_from": day(known_from), "price": price}
        for shop, event, known_from, price in sorted(rows, key=lambda row: row[:3])
    ]
    times = pa.timestamp("us", "UTC")
    fields = [("shop", pa.string()), ("event_timestamp", times), ("known_from", times), ("price", pa.float32())]
    return pa.Table.from_pylist(days, pa.schema(fields))


def day(number: int) -> datetime:
    return START + timedelta(days=number)


class History:
    """A table to which computed rows are added, one snapshot after the other."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.connection, self.folder, self.number = connection, folder, 0
        self.paths: dict[str, Path] = {}
        self.settled = day(0)

    def add(self, computed: Sequence[Row], settled: int, as_of: int) -> list[Row]:
        self.number += 1
        folder = self.folder / str(self.number)
        self.connection.register("rows", rows_table(computed))
        if self.paths:
            entries = {name: FileEntry(name, "0" * 64, 0, None) for name in self.paths}
            earlier = Earlier(entries, self.paths, self.settled)
            written = next_table(self.connection, VIEW, earlier, [ALL_TIME], "rows", day(as_of), folder)
        else:
            written = redefined_table(self.connection, VIEW, [], "rows", folder)
        self.paths = {name: file if isinstance(file, Path) else self.paths[name] for name, file in written.items()}
        self.settled = day(settled)
        rows = pa.concat_tables([pq.read_table(path) for path in self.paths.values()]).to_pylist()
        return [
            (row["shop"], (row["event_timestamp"] - START).days, (row["known_from"] - START).days, row["price"])
            for row in rows
        ]


def standing(rows: Iterable[Row], at: int) -> dict[tuple[str, int], float | None]:
    """Of each event the newest version known at a moment."""
    return {row[:2]: row[3] for row in sorted(rows, key=lambda row: row[2]) if row[2] <= at}


def values_at(rows: Iterable[Row], at: int) -> dict[tuple[str, int], float | None]:
    """The same without those of nulls: they also stand for what is gone."""
    return {key: price for key, price in standing(rows, at).items() if price is not None}


@pytest.fixture(scope="module")
def connection() -> Iterable[duckdb.DuckDBPyConnection]:
    with connect() as opened:
        yield opened


computed_rows = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 5)), st.sampled_from([None, 1.0, 2.0])
).map(lambda prices: [(shop, event, event + lag, price) for (shop, event, lag), price in prices.items()])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(steps=st.lists(st.tuples(computed_rows, st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=4))
@example([([("a", 1, 1, 1.0)], 0, 0), ([("a", 1, 1, 2.0)], 2, 2), ([("a", 1, 1, 2.0), ("a", 1, 4, 1.0)], 0, 1)])
def test_what_was_settled_stays_and_the_newest_is_known_from_now_on(
    connection: duckdb.DuckDBPyConnection, steps: list[tuple[list[Row], int, int]]
) -> None:
    with TemporaryDirectory() as folder:
        history, before, settled, as_of = History(connection, Path(folder)), [], 0, 2
        for computed, behind, later in steps:
            was, as_of = settled, as_of + later
            settled = max(settled, as_of - behind)
            rows = history.add(computed, settled, as_of)
            assert len({row[:3] for row in rows}) == len(rows)
            if before:
                assert all(values_at(rows, at) == values_at(before, at) for at in range(was))
            for late in {*rows} - {*before} - {*computed}:
                assert standing({*rows} - {late}, as_of) != standing(rows, as_of), "a version that says nothing new"
            assert all(values_at(rows, at) == values_at(computed, at) for at in range(as_of, 12))
            before = rows


def test_a_changed_definition_does_not_make_corrections_known_earlier(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    corrected = tmp_path / "corrected-2024-01-01.parquet"
    pq.write_table(rows_table([("a", 1, 5, 11.0), ("a", 1, 7, 12.0), ("b", 1, 5, None)]), corrected)
    computed: list[Row] = [("a", 1, 1, 6.0), ("a", 1, 2, 7.0), ("a", 1, 9, 8.0), ("a", 2, 2, 9.0), ("b", 2, 2, 9.0)]
    connection.register("rows", rows_table(computed))
    written = redefined_table(connection, VIEW, [corrected], "rows", tmp_path)
    files = {name: pq.read_table(path).to_pylist() for name, path in written.items() if isinstance(path, Path)}
    assert [(row["known_from"], row["price"]) for row in files.pop("corrected-2024-01-08.parquet")] == [(day(7), 7.0)]
    assert {name: [row["price"] for row in rows] for name, rows in files.items()} == {
        "known-2024-01-01.parquet": [9.0, 9.0],
        "known-2024-01-08.parquet": [8.0],
    }


DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions.declarations import Available, Entity, FeatureView, LabelView, Source

shop = Entity(name="shop")
sales = Source(table="sales", event_time="day")
prices = FeatureView(name="prices", entities=("shop",), available=Available("event_timestamp"), window=timedelta(0),
                     features={"price": "numeric"})
places = FeatureView(name="places", entities=("shop",), static=True, features={"size": "numeric"})
sold = LabelView(name="sold", entities=("shop",), arrives=Available("event_timestamp"))
"""
QUERIES = {
    "views/prices.sql": "SELECT shop, day AS event_timestamp, amount AS price FROM raw.sales",
    "views/places.sql": "SELECT shop, TIMESTAMPTZ '1970-01-01' AS event_timestamp, size FROM raw.shops",
    "labels/sold.sql": "SELECT 1",
}


class Shop:
    def __init__(self, folder: Path) -> None:
        self.store, self.folder = ArtifactStore.open(folder / "store"), folder

    def snapshot(self, days: int, amount: str = "1") -> str:
        """The first days, in which `amount` was sold."""
        tables = {
            "sales": f"SELECT 'a' AS shop, day, ({amount}) AS amount FROM generate_series("
            f"TIMESTAMPTZ '{START}', TIMESTAMPTZ '{day(days - 1)}', INTERVAL 1 DAY) AS t (day)",
            "shops": "SELECT 'a' AS shop, 7 AS size",
        }
        datasets = {}
        with connect() as connection:
            for name, query in tables.items():
                path = self.folder / f"{name}.parquet"
                write_parquet(connection.sql(query).to_arrow_table(), path)
                datasets[name] = self.store.publish("datasets", name, {"part.parquet": path.read_bytes()})
        details = {"as_of": day(days).isoformat(), "window": ""}
        return str(self.store.publish("snapshots", "s", {"s": "1"}, derived_from=datasets, details=details))

    def definitions(self, queries: Mapping[str, str]) -> str:
        return publish_definitions(self.store, "features", {"definitions.py": DEFINITIONS, **QUERIES, **queries})

    def compute(self, days: int, parent: str = "", amount: str = "1", queries: Mapping[str, str] | None = None) -> str:
        request = ComputeRequest(
            snapshot=self.snapshot(days, amount),
            definitions=self.definitions(queries or {}),
            project="shop",
            parent=parent,
        )
        return compute_features.function(request, self.store).feature_tables

    def parent(self, days: int, queries: Mapping[str, str] | None = None) -> str:
        request = PreviousRequest(
            snapshot=self.snapshot(days), definitions=self.definitions(queries or {}), project="shop"
        )
        return previous_features.function(request, self.store).feature_tables

    def table(self, feature_tables: str, view: str) -> str:
        return self.store.manifest(feature_tables).derived_from[f"view:{view}"]

    def rows(self, feature_tables: str, view: str = "prices", feature: str = "price") -> list[tuple[int, int, float]]:
        table = pq.read_table(self.store.paths(self.table(feature_tables, view)))
        return sorted(
            ((row["event_timestamp"] - START).days, (row["known_from"] - START).days, row[feature])
            for row in table.to_pylist()
        )


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


CORRECTED = "if(day = TIMESTAMPTZ '2024-01-01', 5, 1)"


def test_a_comment_changes_nothing_and_other_code_keeps_what_was_corrected(shop: Shop) -> None:
    second = shop.compute(4, shop.compute(3), CORRECTED)
    assert [row for row in shop.rows(second) if row[0] == 0] == [(0, 0, 1.0), (0, 4, 5.0)]
    query = QUERIES["views/prices.sql"]
    commented = {"views/prices.sql": "-- Of a day.\n" + query.replace(" FROM", "\nFROM /* all */")}
    assert shop.table(shop.compute(4, second, CORRECTED, commented), "prices") == shop.table(second, "prices")
    doubled = {"views/prices.sql": query.replace("amount", "2 * amount")}
    third = shop.compute(5, second, CORRECTED, doubled)
    assert shop.rows(third) == [(0, 4, 10.0), (1, 1, 2.0), (2, 2, 2.0), (3, 3, 2.0), (4, 4, 2.0)]
    fourth = shop.compute(6, third, CORRECTED, doubled)
    assert shop.rows(fourth) == [*shop.rows(third), (5, 5, 2.0)]
    origins = [shop.store.manifest(shop.table(tables, "prices")).derived_from["parent"] for tables in (third, fourth)]
    assert origins == [shop.table(second, "prices")] * 2, "of what was corrected, not of the snapshot before"


def test_the_choice_of_earlier_tables_stays(shop: Shop) -> None:
    assert shop.parent(1) == ""
    first = shop.compute(1)
    assert shop.parent(1) == "" and shop.parent(3) == first
    second = shop.compute(2, shop.parent(2))
    assert shop.parent(3) == first
    assert shop.parent(3, {"views/places.sql": QUERIES["views/places.sql"] + " WHERE true"}) == second


def test_a_view_that_doubles_its_rows_is_refused(shop: Shop) -> None:
    time = "TIMESTAMPTZ '2024-01-01' AS event_timestamp"
    doubled = f"SELECT 'x' AS shop, {time}, 1 AS price UNION ALL SELECT NULL, {time}, unnest([1, 2])"
    expected = r"views/prices\.sql: expected one row for each of shop, event_timestamp, known_from, found 1 more, first"
    with pytest.raises(ConfigurationError, match=expected + " shop None, event_timestamp 2024-01-01"):
        shop.compute(2, queries={"views/prices.sql": doubled})
