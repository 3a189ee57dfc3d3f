"""Feature tables of snapshots in turn: as from scratch where sources only grow, versions where they do not."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.features.flights import DAY, START, Flights


def test_day_by_day_gives_the_tables_that_from_scratch_gives(flights: Flights) -> None:
    parent = ""
    for until in (START + 2 * DAY, START + 3 * DAY, START + timedelta(days=9, hours=7)):
        snapshot = flights.snapshot(until, until + DAY)
        parent = flights.compute(snapshot, parent)
    assert flights.views(parent) == flights.views(flights.compute(snapshot))


def test_in_the_order_of_landing_nothing_that_was_known_changes(flights: Flights) -> None:
    """Rows are completed in place, as flights leave and land: no version is ever added to what was known."""
    parent = ""
    for cut in (timedelta(days=3, minutes=700), timedelta(days=3, minutes=915), timedelta(days=11, minutes=3)):
        snapshot = flights.known_at(START + cut)
        parent = flights.compute(snapshot, parent)
    assert flights.views(parent) == flights.views(flights.compute(snapshot))


@pytest.fixture(scope="module")
def corrected(flights: Flights) -> tuple[str, str, datetime, datetime]:
    """Tables of a snapshot, and those after one more day in which the delay of an early flight was corrected."""
    until = START + 8 * DAY
    first = flights.compute(flights.snapshot(until, until + DAY))
    later = until + 2 * DAY
    wrong = "arr_delay = 33 AND tailnum = 'N39463' OR arr_delay = 20 AND tailnum = 'N24211'"
    query = f"SELECT * REPLACE (if({wrong}, arr_delay + 100, arr_delay) AS arr_delay) FROM raw.flights"
    return first, flights.compute(flights.snapshot(until + DAY, later, {"flights": query}), first), until + DAY, later


def test_a_corrected_row_adds_versions_and_what_was_known_stays(
    flights: Flights, corrected: tuple[str, str, datetime, datetime]
) -> None:
    first, second, before, as_of = corrected
    for view in ("aircraft_last_leg", "origin_traffic", "flight_record"):
        late = f"known_from = '{as_of}' AND event_timestamp < '{as_of - 4 * DAY}'"
        added = flights.rows(second, view, late)
        assert added, view
        settled = f"known_from < '{before - 2 * DAY - timedelta(hours=2)}'"
        assert flights.rows(second, view, settled) == flights.rows(first, view, settled)
        for row in added:
            keys = flights.repository.views[view].spec.entities
            same = " AND ".join(f"{key} = '{row[key]}'" for key in keys)
            versions = flights.rows(second, view, f"{same} AND event_timestamp = '{row['event_timestamp']}'")
            assert len(versions) == 2 and versions[0]["known_from"] == row["event_timestamp"]


def test_files_that_nothing_changed_keep_their_bytes(flights: Flights) -> None:
    until = datetime(2013, 1, 6, 5, tzinfo=UTC)
    december = "SELECT * REPLACE (time_hour - INTERVAL 10 DAY AS time_hour) FROM raw.weather"
    first = flights.compute(flights.snapshot(until, until + DAY, {"weather": december}))
    second = flights.compute(flights.snapshot(until + DAY, until + 2 * DAY, {"weather": december}), first)
    files = [
        {entry.path: entry.sha256 for entry in flights.store.manifest(flights.views(tables)["origin_weather"]).files}
        for tables in (first, second)
    ]
    weeks = [f"known-{day}.parquet" for day in ("2012-12-17", "2012-12-24", "2012-12-31", "2013-01-07")]
    assert [*files[1]] == weeks
    assert [name for name in weeks if files[0].get(name) != files[1][name]] == weeks[2:]
