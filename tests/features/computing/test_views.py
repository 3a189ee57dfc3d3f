"""Feature tables: trailing windows against a direct count, and the same bytes on every run."""

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import compute_view, run, table_of
from gatehouse.features.computing.labels import entity_rows
from gatehouse.features.database import connect, set_time, write_parquet
from gatehouse.features.definitions.repository import Repository, read_repository
from gatehouse.store.hidden_values import hiding
from tests.features.flights import compute_views
from tests.features.shops import DEFINITIONS, write_repository


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


@pytest.mark.parametrize(
    ("broken", "message", "kind"),
    [
        ("SELECT CAST(who AS INT) AS n FROM raw.people", "", "ConversionException"),
        ("SELECT strptime(who, '%d') AS n FROM raw.people", "", "InvalidInputException"),
        ("SELECT error('found ' || who) AS n FROM raw.people", "", "InvalidInputException"),
        ("SELECT whom AS n FROM raw.people", 'Referenced column "whom" not found', ""),
    ],
)
@pytest.mark.parametrize("sensitive", [(), ("who",)])
def test_duckdb_quotes_no_row_where_a_column_is_sensitive(
    broken: str, message: str, kind: str, sensitive: tuple[str, ...]
) -> None:
    with connect() as connection, hiding(lambda: sensitive):
        connection.execute("CREATE TABLE raw.people AS SELECT 'Slartibartfast' AS who")
        for make in (run, table_of):
            query = f"CREATE TABLE staging.people AS\n{broken}" if make is run else broken
            with pytest.raises(ConfigurationError, match=r"people\.sql does not run") as caught:
                make(connection, query, "staging/people.sql")
            text = str(caught.value)
            assert message in text
            if kind and sensitive:
                assert f"{kind}, whose words are not shown, as columns are sensitive (who)" in text
            assert ("Slartibartfast" in text) == bool(kind and not sensitive)


@pytest.mark.parametrize(
    ("values", "kind", "refused"),
    [
        ("2125550100 + i", "numeric", True),
        ("(2125550100 + i)::DOUBLE", "numeric", True),
        ("2125550100 + i", "double", False),
        ("1e9 / (i + 7) + 0.25", "numeric", False),
        ("(16777216 + 2 * i)::VARCHAR", "numeric", False),
        ("i % 2 = 0", "numeric", False),
        ("1e30 * i", "numeric", False),
    ],
)
def test_whole_numbers_that_32_bits_would_merge_are_refused(
    tmp_path: Path, values: str, kind: str, refused: bool
) -> None:
    view = f"SELECT i AS shop, TIMESTAMPTZ '2024-01-01' AS event_timestamp, {values} AS turnover, 'r' AS region "
    queries = {"views/sales.sql": f"{view} FROM raw.trade", "staging/days.sql": "SELECT 1 AS n"}
    write_repository(tmp_path, **{"definitions.py": DEFINITIONS.replace('"numeric"', f'"{kind}"')}, **queries)
    repository = read_repository(tmp_path)
    with connect() as connection:
        connection.execute("CREATE TABLE raw.trade AS SELECT i FROM range(60) AS r(i)")
        if refused:
            with pytest.raises(ConfigurationError, match=r"views/sales\.sql.*turnover.*double"):
                compute_view(connection, repository, repository.views["sales"])
        else:
            assert compute_view(connection, repository, repository.views["sales"]).num_rows == 60


def test_doubles_are_added_to_the_same_bytes_in_staging_views_and_labels(tmp_path: Path) -> None:
    queries = {
        "macros.sql": "CREATE MACRO paid(amount) AS sum(amount);",
        "staging/days.sql": "SELECT shop, day, paid(amount) AS amount FROM raw.trade GROUP BY ALL",
        "views/sales.sql": "SELECT shop, day AS event_timestamp, amount AS turnover, 'r' AS region FROM staging.days",
        "labels/returned.sql": "SELECT shop, day AS decision_time, 1 AS label, sum(amount) OVER days AS amount, "
        "'eur' AS currency FROM staging.days WINDOW days AS (ORDER BY shop, day)",
    }
    write_repository(tmp_path, **{"definitions.py": DEFINITIONS.replace('"numeric"', '"double"')}, **queries)
    repository, computed = read_repository(tmp_path), []
    for threads, memory in ((1, "4GB"), (3, "4GB"), (1, "70MB")):
        with connect() as connection:
            connection.execute(f"SET threads = {threads}; SET memory_limit = '{memory}'")
            connection.execute(
                "CREATE TABLE raw.trade AS SELECT i % 7 AS shop, hash(i) / 1e9 AS amount, "
                "TIMESTAMPTZ '2024-01-01' + to_days((i % 9)::INT) AS day FROM range(400_000) AS r(i)"
            )
            set_time(connection, "as_of", datetime(2025, 1, 1, tzinfo=UTC))
            rows, _ = entity_rows(connection, repository)
            computed.append((rows, compute_view(connection, repository, repository.views["sales"])))
    assert computed[0] == computed[1] == computed[2]


def test_the_same_tables_give_the_same_bytes_whatever_the_threads(
    january: duckdb.DuckDBPyConnection, repository: Repository, tmp_path: Path
) -> None:
    digests: list[dict[str, str]] = []
    for threads in (1, 4):
        january.execute(f"SET threads = {threads}; DROP SCHEMA staging CASCADE; CREATE SCHEMA staging")
        digests.append({})
        for name, table in compute_views(january, repository).items():
            write_parquet(table, tmp_path / f"{name}.parquet")
            digests[-1][name] = hashlib.sha256((tmp_path / f"{name}.parquet").read_bytes()).hexdigest()
    assert digests[0] == digests[1]
    assert len(digests[0]) == len(repository.views)
