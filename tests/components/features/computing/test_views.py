"""Feature tables: trailing windows against a direct count, and the same bytes on every run."""

import hashlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

import duckdb
import pytest

from gatehouse.components.features.computing.compute import compute_views
from gatehouse.components.features.database import connect, write_parquet
from gatehouse.components.features.definitions.declarations import FeatureView
from gatehouse.components.features.definitions.repository import Repository, View
from gatehouse.errors import ConfigurationError, OutOfMemoryError


@pytest.mark.parametrize(
    ("view", "feature", "hours", "where"),
    [
        ("origin_traffic", "origin_late_rate_3h", 3, "origin = 'JFK'"),
        ("carrier_traffic", "carrier_late_rate_24h", 24, "carrier = 'UA'"),
        ("dest_traffic", "dest_late_rate_24h", 24, "dest = 'LAX'"),
    ],
)
def test_a_late_rate_counts_the_landings_of_exactly_its_window(
    january: duckdb.DuckDBPyConnection, repository: Repository, view: str, feature: str, hours: int, where: str
) -> None:
    january.register("computed", compute_views(january, repository, [view])[view])
    points = january.execute(
        f"SELECT event_timestamp, {feature} FROM computed WHERE {where} AND event_timestamp > '2013-01-03' "
        "USING SAMPLE 20 ROWS (reservoir, 7)"
    ).fetchall()
    for moment, rate in points:
        late, landed = january.execute(
            f"SELECT count(*) FILTER (arr_delay > 15), count(*) FROM staging.flights WHERE {where} "
            "AND landed_at > ?::TIMESTAMPTZ AND landed_at <= ?::TIMESTAMPTZ",
            [moment - timedelta(hours=hours), moment],
        ).fetchall()[0]
        assert rate == pytest.approx((late + 0.22 * 2) / (landed + 2), rel=1e-6)


def test_overdue_flights_have_not_left(january: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    january.register("computed", compute_views(january, repository, ["origin_traffic"])["origin_traffic"])
    points = january.execute(
        "SELECT event_timestamp, origin_overdue FROM computed WHERE origin = 'EWR' USING SAMPLE 30 ROWS (reservoir, 3)"
    ).fetchall()
    assert any(count > 0 for _, count in points)
    for moment, count in points:
        expected = january.execute(
            "SELECT count(*) FROM staging.flights, (SELECT $1::TIMESTAMPTZ AS now) WHERE origin = 'EWR' "
            "AND scheduled_at + INTERVAL 15 MINUTE <= now AND scheduled_at + INTERVAL 4 HOUR > now "
            "AND (departed_at IS NULL OR departed_at > now)",
            [moment],
        ).fetchall()[0][0]
        assert count == expected


def test_aircraft_without_a_record_stay_unknown(january: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    table = compute_views(january, repository, ["aircraft"])["aircraft"]
    january.register("computed", table)
    missing = january.execute(
        "SELECT count(DISTINCT tailnum) FROM raw.flights ANTI JOIN computed USING (tailnum) WHERE tailnum IS NOT NULL"
    ).fetchall()[0][0]
    assert missing > 100
    assert table["aircraft_built"].null_count > 0


@pytest.mark.parametrize(("value", "found"), [("'AA'", "text, such as 'AA'"), ("DATE '2013-01-01'", "DATE, such as")])
@pytest.mark.parametrize("kind", ["numeric", "double"])
def test_what_is_declared_a_number_and_is_none_is_named(
    repository: Repository, kind: Literal["numeric", "double"], value: str, found: str
) -> None:
    spec = FeatureView(name="v", entities=("carrier",), features={"n": kind, "f": kind}, static=True)
    query = f"SELECT '9E' AS carrier, now() AS event_timestamp, 1 AS n, {value} AS f"
    with connect() as connection, pytest.raises(ConfigurationError, match=f"v.sql: f: declared {kind}, found {found}"):
        compute_views(connection, replace(repository, views={"v": View("v", spec, query)}))


def test_memory_that_is_not_enough_for_a_view_is_no_mistake_in_it(repository: Repository) -> None:
    spec = FeatureView(name="v", entities=("carrier",), features={"n": "numeric"}, static=True)
    query = "SELECT '9E' AS carrier, now() AS event_timestamp, len(list(i)) AS n FROM range(20_000_000) AS t(i)"
    with connect(most=50_000_000) as connection, pytest.raises(OutOfMemoryError) as raised:
        compute_views(connection, replace(repository, views={"v": View("v", spec, query)}))
    told = str(raised.value)
    assert told.startswith("The feature repository's views/v.sql ran out of memory: this process may use ")
    assert "`resources` in project.yaml" in told and not raised.value.permanent


def test_the_same_tables_give_the_same_bytes_whatever_the_threads(
    january: duckdb.DuckDBPyConnection, repository: Repository, tmp_path: Path
) -> None:
    digests: list[dict[str, str]] = []
    for threads in (1, 4):
        january.execute(f"SET threads = {threads}; DROP SCHEMA staging CASCADE; CREATE SCHEMA staging")
        found: dict[str, str] = {}
        for name, table in compute_views(january, repository).items():
            write_parquet(table, tmp_path / f"{name}.parquet")
            found[name] = hashlib.sha256((tmp_path / f"{name}.parquet").read_bytes()).hexdigest()
        digests.append(found)
    assert digests[0] == digests[1]
    assert len(digests[0]) == len(repository.views)
