"""The versions of a pushed table, held against what stands at every moment."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.features.computing.spans import ALL_TIME
from gatehouse.features.database import connect, write_parquet
from gatehouse.features.definitions.declarations import Available, FeatureView
from gatehouse.features.definitions.repository import View
from gatehouse.online.streaming.pushed_table import PushedRows, next_rows

NOON = datetime(2013, 1, 9, 12, tzinfo=UTC)
SINCE, UNTIL, LATEST = 4, 6, 10
QUOTED = 'the "fare"'
VIEW = View(
    "trips",
    FeatureView.model_construct(
        name="trips",
        entities=("driver",),
        features={QUOTED: "numeric"},
        available=Available("event_timestamp"),
        static=False,
    ),
    "",
)
Version = tuple[int, int, int | None]
"""Driver, minute from which it is known, and value."""


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def table(versions: list[Version]) -> pa.Table:
    moments = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "driver": pa.array([str(one[0]) for one in versions], pa.string()),
            "event_timestamp": pa.array([NOON] * len(versions), moments),
            "known_from": pa.array([at(one[1]) for one in versions], moments),
            QUOTED: pa.array([one[2] for one in versions], pa.float32()),
        }
    )


def versions_of(found: pa.Table) -> list[Version]:
    minutes = [(known - NOON) // timedelta(minutes=1) for known in found["known_from"].to_pylist()]
    return list(zip(map(int, found["driver"].to_pylist()), minutes, found[QUOTED].to_pylist(), strict=True))


def stands(versions: list[Version], driver: int, minute: int) -> int | None:
    """The value of the newest version; None where there is none, as where it is one of nulls."""
    known = sorted((one for one in versions if one[0] == driver and one[1] <= minute), key=lambda one: one[1])
    return known[-1][2] if known else None


class Shelf:
    """A table of which some versions are known and some are ahead, as minutes pass and rows are computed anew."""

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path, self.connection = folder / "known.parquet", connection

    def next(
        self, known: list[Version], ahead: list[Version], computed: list[Version], since: int, until: int
    ) -> tuple[list[Version], list[Version]]:
        write_parquet(table(known), self.path)
        before, files = PushedRows(table([]), table(ahead)), {self.path.name: self.path}
        told = table(computed)
        pushed = next_rows(self.connection, VIEW, files, before, [ALL_TIME], told, at(since), at(until))
        return versions_of(pushed.known), versions_of(pushed.later)


def listed(first: int, last: int) -> st.SearchStrategy[list[Version]]:
    one = st.tuples(st.integers(0, 1), st.integers(first, last), st.one_of(st.none(), st.integers(0, 2)))
    return st.lists(one, max_size=5, unique_by=lambda version: version[:2])


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    with connect() as connection:
        yield Shelf(tmp_path_factory.mktemp("shelf"), connection)


@settings(max_examples=25, deadline=None)
@given(known=listed(0, SINCE), ahead=listed(SINCE + 1, LATEST), computed=listed(0, LATEST))
def test_what_was_known_stays_and_from_then_on_stands_what_is_computed(
    shelf: Shelf, known: list[Version], ahead: list[Version], computed: list[Version]
) -> None:
    added, later = shelf.next(known, ahead, computed, SINCE, UNTIL)
    assert all(SINCE < one[1] <= UNTIL for one in added) and all(one[1] > UNTIL for one in later)
    whole = known + added + later
    assert len({one[:2] for one in whole}) == len(whole)
    for driver in (0, 1):
        own = [one for one in computed if one[0] == driver]
        for minute in range(UNTIL, LATEST + 1):
            # A version that becomes known only later leaves what stands until then.
            early = own and min(one[1] for one in own) > minute
            expected = stands(known, driver, SINCE) if early else stands(own, driver, minute)
            assert stands(whole, driver, minute) == expected
    again = shelf.next(known + added, later, computed, UNTIL, UNTIL + 1)
    assert sorted(again[0] + again[1], key=str) == sorted(later, key=str)


def test_several_versions_of_an_event_are_added_once(shelf: Shelf) -> None:
    told: list[Version] = [(1, 1, 5), (1, 3, 7), (1, 8, 9)]
    assert shelf.next(told[:2], told[2:], told, SINCE, UNTIL) == ([], told[2:])


def test_a_version_that_says_nothing_new_is_none(shelf: Shelf) -> None:
    told: list[Version] = [(1, 1, 5), (1, 5, 5), (1, 8, 6), (1, 9, 6)]
    assert shelf.next(told[:1], [], told, SINCE, UNTIL) == ([], [(1, 8, 6)])


def test_a_row_that_is_gone_is_a_version_of_nulls(shelf: Shelf) -> None:
    assert shelf.next([(1, 1, 5)], [], [], SINCE, UNTIL) == ([(1, UNTIL, None)], [])
