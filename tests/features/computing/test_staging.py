"""The traps of the flights data: each one once, on the real rows of January 2013 or on rows made for it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import stage_tables
from gatehouse.features.computing.labels import entity_rows
from gatehouse.features.database import connect, set_time
from gatehouse.features.definitions.declarations import Available, LabelView
from gatehouse.features.definitions.repository import Repository

COLUMNS = (
    "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay flight air_time distance "
    "hour minute"
)


def one_flight(repository: Repository, **fields: Any) -> dict[str, Any]:
    """The staged row of one made-up flight, JFK to Los Angeles unless said otherwise."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS.split(), 0)
    row |= {"year": 2013, "month": 1, "day": 5, "carrier": "AA", "tailnum": "N1", "origin": "JFK", "dest": "LAX"}
    row |= {"sched_arr_time": 1200, "arr_time": 1200, **fields}
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


@pytest.mark.parametrize(
    ("flight", "landed_at"),
    [
        ({"time_hour": utc(2013, 1, 5, 14), "arr_time": 1215}, utc(2013, 1, 5, 20, 15)),
        *(
            # These airports of the Caribbean are missing from the table.
            ({"dest": airport, "time_hour": utc(2013, 7, 5, 13), "arr_time": 1300}, utc(2013, 7, 5, 17))
            for airport in ("SJU", "BQN", "PSE", "STT")
        ),
        ({"dest": "BOS", "hour": 23, "time_hour": utc(2013, 1, 6, 4), "arr_time": 15}, utc(2013, 1, 6, 5, 15)),
        ({"dest": "BOS", "hour": 22, "time_hour": utc(2013, 1, 6, 3), "arr_time": 2400}, utc(2013, 1, 6, 5)),
    ],
)
def test_arrivals_are_clock_times_at_the_destination(
    repository: Repository, flight: dict[str, Any], landed_at: datetime
) -> None:
    assert one_flight(repository, **flight)["landed_at"] == landed_at


@pytest.mark.parametrize(
    ("declared", "values", "message"),
    [
        ({}, "(0.0), (0.35), (1.0)", "1 of 3 rows with other values, such as 0.35"),
        ({}, "('yes'), ('no'), ('yes')", "3 of 3 rows with other values, such as yes, no"),
        ({}, "('nan'::DOUBLE), (1)", "1 of 2 rows with other values, such as nan"),
        ({"task": "regression"}, "('12 km'), ('3')", r"expected finite numbers .* 1 of 2 .*, such as 12 km"),
        ({"task": "regression"}, "('inf'::FLOAT), (3)", "such as inf"),
        ({"task": "multiclass"}, "(0), (1.5), (-1)", r"whole numbers from 0 .* 2 of 3 .* such as -1.0, 1.5"),
        ({"task": "multiclass", "classes": ("a", "b")}, "('a'), ('c')", "expected one of a, b .* such as c"),
        ({"task": "ranking", "group": "origin"}, "(-1), (2)", "from 0 up .* such as -1"),
    ],
)
def test_a_label_that_is_not_of_its_task_is_refused(
    repository: Repository, declared: Any, values: str, message: str
) -> None:
    label = LabelView(name="sold", entities=("origin",), arrives=Available("arrived"), **declared)
    query = (
        "SELECT 'JFK' AS origin, TIMESTAMPTZ '2013-01-02' AS decision_time, decision_time AS arrived, "
        f"label FROM (VALUES {values}) AS labels (label)"
    )
    declared_repository = replace(repository, label=label, entity_rows=query, on_demand={})
    with connect() as connection:
        set_time(connection, "as_of", utc(2013, 2, 1))
        with pytest.raises(ConfigurationError, match=message):
            entity_rows(connection, declared_repository)


def test_a_row_without_a_time_of_decision_is_refused_where_rows_are_divided_by_it(repository: Repository) -> None:
    query = (
        "SELECT 'JFK' AS origin, NULL::TIMESTAMPTZ AS decision_time, TIMESTAMPTZ '2013-01-02' AS arrived, true AS label"
    )
    with connect() as connection:
        set_time(connection, "as_of", utc(2013, 2, 1))
        for window in (None, timedelta(0)):
            label = LabelView(name="sold", entities=("origin",), arrives=Available("arrived"), window=window)
            declared = replace(repository, label=label, entity_rows=query, on_demand={})
            if window is None:
                assert entity_rows(connection, declared)[1] == {"no decision time": 1}
                connection.execute("DROP SCHEMA staging CASCADE; CREATE SCHEMA staging")
                continue
            with pytest.raises(ConfigurationError, match=r"labels/sold\.sql: expected a decision_time in every row"):
                entity_rows(connection, declared)


def test_a_label_counts_when_it_has_arrived_and_its_horizon_is_over(repository: Repository) -> None:
    label = LabelView(
        name="sold", entities=("origin",), arrives=Available("arrived", timedelta(days=1)), horizon=timedelta(days=3)
    )
    query = (
        "SELECT 'JFK' AS origin, day AS decision_time, day AS arrived, true AS label "
        "FROM generate_series(TIMESTAMPTZ '2013-01-01', TIMESTAMPTZ '2013-01-05', INTERVAL 1 DAY) AS t (day)"
    )
    with connect() as connection:
        set_time(connection, "as_of", utc(2013, 1, 5))
        rows, set_aside = entity_rows(connection, replace(repository, label=label, entity_rows=query))
    assert rows["decision_time"].to_pylist() == [utc(2013, 1, 1), utc(2013, 1, 2)]
    assert set_aside == {"label not known yet": 1, "label younger than its horizon": 2}
