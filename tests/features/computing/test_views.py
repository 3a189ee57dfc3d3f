"""Feature tables: trailing windows against a direct count, and the same bytes on every run."""

import hashlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

import duckdb
import pytest

from gatehouse.errors import ConfigurationError, OutOfMemoryError
from gatehouse.features.computing.compute import compute_views, run, table_of
from gatehouse.features.database import connect, write_parquet
from gatehouse.features.definitions.declarations import FeatureView
from gatehouse.features.definitions.repository import Repository, View
from gatehouse.store.hidden_values import hiding


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


@pytest.mark.parametrize("sensitive", [(), ("name",)])
@pytest.mark.parametrize(("value", "found"), [("'AA'", "text in 2 rows"), ("DATE '2013-01-01'", "DATE in 2 rows")])
@pytest.mark.parametrize("kind", ["numeric", "double"])
def test_what_is_declared_a_number_and_is_none_is_named(
    repository: Repository, kind: Literal["numeric", "double"], value: str, found: str, sensitive: tuple[str, ...]
) -> None:
    spec = FeatureView(name="v", entities=("carrier",), features={"n": kind, "f": kind}, static=True)
    query = f"SELECT '9E' AS carrier, now() AS event_timestamp, 1 AS n, {value} AS f FROM range(2)"
    shown = (
        r"not shown, as columns are sensitive \(name\)\. Declare it"
        if sensitive
        else f"such as {value.removeprefix('DATE ')}"
    )
    told = f"v.sql: f: declared {kind}, found {found}, {shown}"
    with connect() as connection, hiding(lambda: sensitive), pytest.raises(ConfigurationError, match=told):
        compute_views(connection, replace(repository, views={"v": View("v", spec, query)}))


def test_a_value_that_a_cast_does_not_take_is_told_with_the_line_of_the_cast() -> None:
    with connect() as connection:
        connection.execute("CREATE TABLE raw.people AS SELECT 'Ford' AS who")
        told = r"Could not convert string 'Ford' .* source column who \(line 2: CAST\(who AS INTEGER\) AS n\)"
        with pytest.raises(ConfigurationError, match=told):
            run(connection, "CREATE TABLE x AS\nSELECT\n  CAST(who AS INTEGER) AS n\nFROM raw.people", "staging/x.sql")


@pytest.mark.parametrize(
    ("broken", "told", "kind"),
    [
        ("SELECT CAST(who AS INT) AS n FROM raw.people", "", "ConversionException"),
        ("SELECT strptime(who, '%d') AS n FROM raw.people", "", "InvalidInputException"),
        ("SELECT error('found ' || who) AS n FROM raw.people", "", "InvalidInputException"),
        ("SELECT whom AS n FROM raw.people", 'Referenced column "whom" not found', ""),
    ],
)
@pytest.mark.parametrize("sensitive", [(), ("who",)])
def test_duckdb_quotes_no_row_where_a_column_is_sensitive(
    broken: str, told: str, kind: str, sensitive: tuple[str, ...]
) -> None:
    with connect() as connection, hiding(lambda: sensitive):
        connection.execute("CREATE TABLE raw.people AS SELECT 'Slartibartfast' AS who")
        for make in (run, table_of):
            query = f"CREATE TABLE staging.people AS\n{broken}" if make is run else broken
            with pytest.raises(ConfigurationError, match=r"people\.sql does not run") as caught:
                make(connection, query, "staging/people.sql")
            said = str(caught.value)
            assert told in said
            if kind and sensitive:
                assert f"{kind}, whose words are not shown, as columns are sensitive (who)" in said
            assert ("Slartibartfast" in said) == bool(kind and not sensitive)


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
