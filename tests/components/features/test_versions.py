"""Versions of a table: whatever is computed next, what was known stays, and from now on the newest is known."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.components.artifacts.manifest import FileEntry
from gatehouse.components.features.compute import compute_views, connect, set_time
from gatehouse.components.features.definitions import Available, FeatureView
from gatehouse.components.features.repository import View, read_repository
from gatehouse.components.features.touched import ALWAYS
from gatehouse.components.features.versions import Earlier, Written, first_table, next_table
from gatehouse.errors import ConfigurationError

START = datetime(2024, 1, 1, tzinfo=UTC)
VIEW = View(
    "prices",
    FeatureView(name="prices", entities=("shop",), available=Available("told"), features={"price": "numeric"}),
    "",
)
Row = tuple[str, int, int, float | None]
"""Shop, day of the event, day from which it is known, price."""


def rows_table(rows: Iterable[Row]) -> pa.Table:
    days = [
        {"shop": shop, "event_timestamp": day(event), "known_from": day(known), "price": price}
        for shop, event, known, price in sorted(rows, key=lambda row: row[:3])
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
        folder, table = self.folder / str(self.number), rows_table(computed)
        if self.paths:
            entries = {name: FileEntry(name, "", 0, None) for name in self.paths}
            earlier = Earlier(entries, self.paths, self.settled)
            written = next_table(self.connection, VIEW, earlier, [ALWAYS], table, day(as_of), folder)
        else:
            written = first_table(table, folder)
        self.paths, self.settled = self._paths(written), day(settled)
        found = pa.concat_tables([pq.read_table(path) for path in self.paths.values()]).to_pylist()
        return [
            (one["shop"], (one["event_timestamp"] - START).days, (one["known_from"] - START).days, one["price"])
            for one in found
        ]

    def _paths(self, written: Written) -> dict[str, Path]:
        return {name: one if isinstance(one, Path) else self.paths[name] for name, one in written.files.items()}


def standing(rows: Iterable[Row], at: int) -> dict[tuple[str, int], float | None]:
    """Of each event the newest version known at a moment."""
    return {row[:2]: row[3] for row in sorted(rows, key=lambda row: row[2]) if row[2] <= at}


def said(rows: Iterable[Row], at: int) -> dict[tuple[str, int], float | None]:
    """The same without those of nulls: they also stand for what is gone."""
    return {key: price for key, price in standing(rows, at).items() if price is not None}


@pytest.fixture(scope="module")
def connection() -> Iterable[duckdb.DuckDBPyConnection]:
    with connect() as opened:
        yield opened


def test_versions_that_a_view_emits_itself_are_not_added_again(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    history = History(connection, tmp_path)
    rows: list[Row] = [("a", 1, 1, 10.0), ("a", 1, 2, 20.0), ("a", 3, 3, 30.0)]
    history.add(rows, settled=4, as_of=5)
    assert history.add(rows, settled=6, as_of=7) == rows
    corrected: list[Row] = [("a", 1, 1, 11.0), ("a", 1, 2, 20.0), ("a", 3, 3, 30.0)]
    assert history.add(corrected, settled=8, as_of=9) == rows, "what was replaced before is known to nobody from now on"
    assert ("a", 1, 11, 21.0) in history.add([*corrected[::2], ("a", 1, 2, 21.0)], settled=10, as_of=11)


computed_rows = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 5)), st.sampled_from([None, 1.0, 2.0])
).map(lambda found: [(shop, event, event + lag, price) for (shop, event, lag), price in found.items()])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    steps=st.lists(st.tuples(computed_rows, st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=4),
)
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
                assert all(said(rows, at) == said(before, at) for at in range(was))
            for late in {*rows} - {*before} - {*computed}:
                assert standing({*rows} - {late}, as_of) != standing(rows, as_of), "a version that says nothing new"
            assert all(said(rows, at) == said(computed, at) for at in range(as_of, 12))
            before = rows


def test_a_view_that_doubles_its_rows_is_refused(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    (tmp_path / "definitions.py").write_text(
        "from gatehouse.components.features.definitions import *\n"
        "shop = Entity(name='shop')\n"
        "prices = FeatureView(name='prices', entities=('shop',), available=Available('told'),\n"
        "                     features={'price': 'numeric'})\n"
        "sold = LabelView(name='sold', entities=('shop',), arrives=Available('told'))\n"
    )
    for folder in ("views", "labels"):
        (tmp_path / folder).mkdir()
    day_of = "TIMESTAMPTZ '2024-01-01' AS event_timestamp, TIMESTAMPTZ '2024-01-02' AS told"
    one = "SELECT 'x' AS shop, 1 AS price, TIMESTAMPTZ '2024-01-01' AS event_timestamp, event_timestamp AS told"
    (tmp_path / "views" / "prices.sql").write_text(
        f"{one} UNION ALL SELECT shop, price, {day_of} FROM (VALUES (NULL, 1), (NULL, 2)) AS t (shop, price)"
    )
    (tmp_path / "labels" / "sold.sql").write_text("SELECT 1")
    repository = read_repository(tmp_path)
    set_time(connection, "as_of", day(9))
    expected = r"views/prices\.sql: expected one row for each of shop, event_timestamp, known_from, found 1 more, first"
    with pytest.raises(
        ConfigurationError, match=expected + r" shop None, event_timestamp 2024-01-01 .* Group the query"
    ):
        compute_views(connection, repository)
