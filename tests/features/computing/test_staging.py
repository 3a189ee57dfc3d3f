"""The traps of the flights data: each one once, on the real rows of January 2013 or on rows made for it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import compute_views, stage_tables
from gatehouse.features.computing.labels import entity_rows
from gatehouse.features.database import connect, quoted, set_time
from gatehouse.features.definitions.declarations import Available, LabelView
from gatehouse.features.definitions.repository import Repository

COLUMNS = (
    "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay flight air_time distance "
    "hour minute"
)


def one_flight(repository: Repository, **given: Any) -> dict[str, Any]:
    """The staged row of one made-up flight, JFK to Los Angeles unless said otherwise."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS.split(), 0)
    row |= {"year": 2013, "month": 1, "day": 5, "carrier": "AA", "tailnum": "N1", "origin": "JFK", "dest": "LAX"}
    row |= {"sched_arr_time": 1200, "arr_time": 1200, **given}
    airports = pa.table(
        {"faa": ["LAX", "PHX", "BOS"], "tzone": ["America/Los_Angeles", "America/Phoenix", "America/New_York"]}
    )
    with connect() as connection:
        connection.register("flights_rows", pa.Table.from_pylist([row]))
        connection.register("airports_rows", airports)
        connection.execute(
            "CREATE VIEW raw.flights AS FROM flights_rows; CREATE VIEW raw.airports AS FROM airports_rows"
        )
        set_time(connection, "as_of", datetime(2014, 1, 1, tzinfo=UTC))
        stage_tables(connection, repository, ["FROM staging.flights"])
        staged = connection.sql("FROM staging.flights").to_arrow_table().to_pylist()
    assert len(staged) == 1
    return dict(staged[0])


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc]  # the parts of a date are few


def test_the_scheduled_departure_is_the_utc_hour_and_its_minute(repository: Repository) -> None:
    winter = one_flight(repository, hour=9, minute=40, time_hour=utc(2013, 1, 5, 14))
    summer = one_flight(repository, month=7, hour=9, minute=40, time_hour=utc(2013, 7, 5, 13))
    assert winter["scheduled_at"] == utc(2013, 1, 5, 14, 40)
    assert winter["decision_time"] == utc(2013, 1, 5, 12, 40)
    assert summer["scheduled_at"] == utc(2013, 7, 5, 13, 40)


def test_arrivals_are_clock_times_at_the_destination(repository: Repository) -> None:
    found = one_flight(repository, time_hour=utc(2013, 1, 5, 14), arr_time=1215)
    assert found["landed_at"] == utc(2013, 1, 5, 20, 15)


def test_phoenix_keeps_its_clock_in_summer(repository: Repository) -> None:
    found = one_flight(repository, dest="PHX", month=7, time_hour=utc(2013, 7, 5, 13), arr_time=1100)
    assert found["landed_at"] == utc(2013, 7, 5, 18)


@pytest.mark.parametrize("airport", ["SJU", "BQN", "PSE", "STT"])
def test_the_caribbean_airports_missing_from_the_table_have_their_zone(repository: Repository, airport: str) -> None:
    found = one_flight(repository, dest=airport, time_hour=utc(2013, 7, 5, 13), arr_time=1300)
    assert found["landed_at"] == utc(2013, 7, 5, 17)


def test_an_arrival_past_midnight_is_on_the_next_day(repository: Repository) -> None:
    found = one_flight(repository, dest="BOS", hour=23, time_hour=utc(2013, 1, 6, 4), arr_time=15, sched_arr_time=10)
    assert found["landed_at"] == utc(2013, 1, 6, 5, 15)
    assert found["scheduled_block"] == 70


def test_2400_is_the_midnight_that_ends_the_day(repository: Repository) -> None:
    found = one_flight(repository, dest="BOS", hour=22, time_hour=utc(2013, 1, 6, 3), arr_time=2400)
    assert found["landed_at"] == utc(2013, 1, 6, 5)


def test_daylight_saving_ends_between_departure_and_arrival(repository: Repository) -> None:
    found = one_flight(repository, month=11, day=2, hour=23, dest="BOS", time_hour=utc(2013, 11, 3, 3), arr_time=400)
    assert found["landed_at"] == utc(2013, 11, 3, 9)


def test_every_landing_leaves_a_plausible_time_for_taxiing(
    january: duckdb.DuckDBPyConnection, repository: Repository
) -> None:
    stage_tables(january, repository, ["FROM staging.flights"])
    low, high, count = january.execute(
        "SELECT min(taxi), max(taxi), count(*) FROM ("
        "SELECT date_diff('minute', f.departed_at, f.landed_at) - r.air_time AS taxi "
        "FROM staging.flights f JOIN raw.flights r "
        "ON r.carrier = f.carrier AND r.flight = f.flight AND r.origin = f.origin "
        "AND r.time_hour + to_minutes(r.minute) = f.scheduled_at WHERE r.air_time IS NOT NULL)"
    ).fetchall()[0]
    assert count > 17_000
    assert low >= 1
    assert high <= 240


def test_a_wind_of_1048_is_unknown(january: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    january.execute(
        "CREATE OR REPLACE VIEW raw.weather AS "
        "SELECT 'EWR' AS origin, TIMESTAMPTZ '2013-02-12 08:00:00+00' AS time_hour, "
        "39.0 AS temp, 27.0 AS dewp, 61.6 AS humid, 260 AS wind_dir, 1048.36 AS wind_speed, 0.01 AS precip, "
        "1008.3 AS pressure, 10.0 AS visib"
    )
    table = compute_views(january, repository, ["origin_weather"])["origin_weather"].to_pylist()
    assert table[0]["wind_speed"] is None
    assert table[0]["wind_north"] is None
    assert table[0]["humidity"] is not None


def test_an_hour_of_weather_is_known_when_it_is_over(
    january: duckdb.DuckDBPyConnection, repository: Repository
) -> None:
    table = compute_views(january, repository, ["origin_weather"])["origin_weather"]
    january.register("computed", table)
    query = (
        "SELECT count(*) FROM computed c JOIN raw.weather w ON w.origin = c.origin "
        "AND w.time_hour + INTERVAL 1 HOUR = c.event_timestamp AND w.humid::FLOAT = c.humidity"
    )
    assert january.execute(query).fetchall()[0][0] == table.num_rows > 1000


def test_the_repeated_local_hour_stays_two_hours(january: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    january.execute(
        "CREATE OR REPLACE VIEW raw.weather AS "
        "SELECT 'JFK' AS origin, TIMESTAMPTZ '2013-11-03 05:00:00+00' + to_hours(i) "
        "AS time_hour, 1 AS hour, 50.0 + i AS temp, 40.0 AS dewp, 60.0 AS humid, 90 AS wind_dir, 5.0 AS wind_speed, "
        "0.0 AS precip, 1010.0 AS pressure, 10.0 AS visib FROM range(2) AS hours (i)"
    )
    rows = compute_views(january, repository, ["origin_weather"])["origin_weather"].to_pylist()
    assert [row["dew_point_spread"] for row in rows] == [10.0, 11.0]


def test_cancelled_and_diverted_flights_are_set_aside(
    january: duckdb.DuckDBPyConnection, repository: Repository
) -> None:
    set_time(january, "as_of", utc(2013, 2, 1))
    rows, set_aside = entity_rows(january, repository)
    cancelled, diverted, total = january.execute(
        "SELECT count(*) FILTER (dep_time IS NULL), count(*) FILTER (dep_time IS NOT NULL AND arr_delay IS NULL), "
        "count(*) FROM raw.flights"
    ).fetchall()[0]
    assert set_aside == {"cancelled": cancelled, "diverted": diverted}
    assert rows.num_rows + cancelled + diverted == total


def test_columns_that_the_label_keeps_stay_beside_it(
    january: duckdb.DuckDBPyConnection, repository: Repository
) -> None:
    set_time(january, "as_of", utc(2013, 2, 1))
    label = repository.label.model_copy(update={"keeps": ("no_outcome",)})
    rows, _ = entity_rows(january, replace(repository, label=label))
    assert rows.column_names[-2:] == ["label_time", "no_outcome"] and rows["no_outcome"].null_count == rows.num_rows


def test_no_entity_row_lacks_its_tail_number(january: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    rows, _ = entity_rows(january, repository)
    assert rows["tailnum"].null_count == 0
    assert january.execute("SELECT count(*) FROM raw.flights WHERE tailnum IS NULL").fetchall()[0][0] > 0


def test_labels_not_known_yet_are_set_aside(january: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    cut = utc(2013, 1, 10)
    set_time(january, "as_of", cut)
    rows, set_aside = entity_rows(january, repository)
    assert set_aside["label not known yet"] > 5000
    assert set_aside["label younger than its horizon"] > 100
    assert max(rows["label_time"].to_pylist()) <= cut


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ("(0.0), (0.35), (1.0)", r"1 of 3 rows with other values \(DECIMAL\(3,2\)\), such as 0.35"),
        ("(0), (2), (2)", r"2 of 3 rows with other values \(INTEGER\), such as 2"),
        ("('yes'), ('no'), ('yes')", r"3 of 3 rows with other values \(VARCHAR\), such as yes, no"),
        ("('nan'::DOUBLE), (1)", r"1 of 2 rows with other values \(DOUBLE\), such as nan"),
    ],
)
def test_a_label_that_is_no_class_is_never_rounded_to_one(repository: Repository, values: str, found: str) -> None:
    with connect() as connection, pytest.raises(ConfigurationError, match=found):
        _labelled(connection, repository, values)


@pytest.mark.parametrize("values", ["(true), (false)", "(1.0), (0.0)", "('1'), ('0')", "(1::UTINYINT), (0)"])
def test_a_label_of_any_type_that_is_zero_or_one_is_taken(repository: Repository, values: str) -> None:
    with connect() as connection:
        rows = _labelled(connection, repository, values)
    assert rows["label"].type == pa.int8() and rows["label"].to_pylist() == [1, 0]


@pytest.mark.parametrize(
    ("declared", "values", "kind", "expected"),
    [
        ({"task": "regression"}, "(-1.5), (2)", pa.float64(), [2, -1.5]),
        ({"task": "multiclass"}, "(0), (12)", pa.int32(), [12, 0]),
        ({"task": "multiclass", "classes": ("it's", "b")}, "('it''s'), ('b')", pa.int32(), [1, 0]),
        ({"task": "multiclass", "classes": ("10", "20")}, "(10), (20)", pa.int32(), [1, 0]),
        ({"task": "ranking", "group": "origin"}, "(0), (2.5)", pa.float64(), [2.5, 0]),
    ],
)
def test_labels_have_the_type_of_their_task(
    repository: Repository, declared: Any, values: str, kind: pa.DataType, expected: list[float]
) -> None:
    with connect() as connection:
        rows = _labelled(connection, repository, values, **declared)
    assert rows["label"].type == kind and sorted(rows["label"].to_pylist(), reverse=True) == expected


@pytest.mark.parametrize(
    ("declared", "values", "found"),
    [
        ({"task": "regression"}, "('12 km'), ('3')", r"expected finite numbers .* 1 of 2 .*\(VARCHAR\), such as 12 km"),
        (
            {"task": "regression"},
            "('inf'::FLOAT), (3)",
            r'such as inf; first origin JFK\. .*: if\(isfinite\("label"\), "label", NULL\) AS "label"\.',
        ),
        ({"task": "multiclass"}, "(0), (1.5), (-1)", r"whole numbers from 0 .* 2 of 3 .* such as -1.0, 1.5"),
        ({"task": "multiclass", "classes": ("a", "b")}, "('a'), ('c')", "expected one of a, b .* such as c"),
        ({"task": "ranking", "group": "origin"}, "(-1), (2)", "from 0 up .* such as -1"),
    ],
)
def test_a_label_that_is_not_of_its_task_is_refused(
    repository: Repository, declared: Any, values: str, found: str
) -> None:
    with connect() as connection, pytest.raises(ConfigurationError, match=found):
        _labelled(connection, repository, values, **declared)


@pytest.mark.parametrize("values", ["('inf'), ('nan'), ('12 km'), ('3')", "('inf'::FLOAT), ('nan'::FLOAT), (3)"])
def test_the_advised_query_gives_no_label_that_is_refused(repository: Repository, values: str) -> None:
    with connect() as connection:
        with pytest.raises(ConfigurationError) as caught:
            _labelled(connection, repository, values, task="regression", label="the order")
        advised = str(caught.value).rpartition(": ")[2].removesuffix(' AS "the order".')
        rows = _labelled(connection, repository, values, advised, task="regression", label="the order")
    assert rows["label"].to_pylist() == [3.0]


def _labelled(
    connection: duckdb.DuckDBPyConnection, repository: Repository, values: str, value: str = "", **declared: Any
) -> pa.Table:
    label = LabelView(name="sold", entities=("origin",), arrives=Available("told"), horizon=timedelta(0), **declared)
    column = quoted(label.label)
    query = (
        "SELECT 'JFK' AS origin, TIMESTAMPTZ '2013-01-02' AS decision_time, decision_time AS told, "
        f"{value or column} AS {column} FROM (VALUES {values}) AS labels ({column})"
    )
    set_time(connection, "as_of", utc(2013, 2, 1))
    return entity_rows(connection, replace(repository, label=label, entity_rows=query, on_demand={}))[0]


@pytest.mark.parametrize("name", ["other", "arrived", "mature", "decided", "reason"])
def test_no_column_of_the_label_query_makes_a_label_mature_early(repository: Repository, name: str) -> None:
    """A column may have any name, also a word of the computation itself."""
    label = LabelView(
        name="sold", entities=("origin",), arrives=Available("told", timedelta(days=1)), horizon=timedelta(days=3)
    )
    query = (
        f"SELECT 'JFK' AS origin, day AS decision_time, day AS told, true AS label, TIMESTAMPTZ '2000-01-01' AS {name} "
        "FROM generate_series(TIMESTAMPTZ '2013-01-01', TIMESTAMPTZ '2013-01-05', INTERVAL 1 DAY) AS t (day)"
    )
    with connect() as connection:
        set_time(connection, "as_of", utc(2013, 1, 5))
        rows, set_aside = entity_rows(connection, replace(repository, label=label, entity_rows=query))
    assert rows["decision_time"].to_pylist() == [utc(2013, 1, 1), utc(2013, 1, 2)]
    assert set_aside == {"label not known yet": 1, "label younger than its horizon": 2}


def test_every_decision_precedes_its_label(january: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    rows, _ = entity_rows(january, repository)
    times = zip(rows["decision_time"].to_pylist(), rows["label_time"].to_pylist(), strict=True)
    assert all(decided < known for decided, known in times)


def test_only_legs_from_new_york_are_seen_and_only_once_landed(
    january: duckdb.DuckDBPyConnection, repository: Repository
) -> None:
    table = compute_views(january, repository, ["aircraft_last_leg"])["aircraft_last_leg"]
    january.register("computed", table)
    unexplained = january.execute(
        "SELECT count(*) FROM computed c ANTI JOIN staging.flights f ON f.tailnum = c.tailnum AND f.landed_at = "
        "c.event_timestamp AND f.arr_delay = c.last_leg_delay AND f.origin IN ('EWR', 'JFK', 'LGA')"
    ).fetchall()[0][0]
    assert unexplained == 0
    assert table.num_rows > 10_000


@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_of_two_legs_that_landed_together_the_order_of_rows_says_nothing(repository: Repository, order: str) -> None:
    with connect() as connection:
        connection.execute(
            "CREATE TABLE staging.flights AS SELECT 'N1' AS tailnum, now() AS landed_at, arr_delay, distance "
            f"FROM (VALUES (5, 100), (5, 300), (4, 900)) AS t (arr_delay, distance) ORDER BY distance {order}"
        )
        found = connection.execute(repository.views["aircraft_last_leg"].query).fetchall()
    assert [row[2:] for row in found] == [(5, 300)]
