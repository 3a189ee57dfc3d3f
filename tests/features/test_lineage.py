"""Tests the lineage of features: values on forms of SQL, and no source column missing on the example's views."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import connect, set_time
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM, FeatureView
from gatehouse.features.definitions.repository import Repository, View
from gatehouse.features.lineage import Lineage, lineage_of
from tests.features.flights import AS_OF, compute_views


def traced(repository: Repository, sql: str, staging: str = "", macros: str = "") -> Lineage:
    """The lineage of the feature `f` of a view with this SQL over `raw.t (k, ts, a, b, c)` and `raw.u (k, d)`."""
    view = View("v", FeatureView(name="v", entities=("k",), features={"f": "numeric"}, static=True), sql)
    staged = {"s": staging} if staging else {}
    changed = replace(repository, macros=macros, staging=staged, views={"v": view})
    return lineage_of(changed, view, "f", {"t": ["k", "ts", "a", "b", "c"], "u": ["k", "d"]})


@pytest.mark.parametrize(
    ("sql", "values", "named"),
    [
        ("SELECT k, ts AS event_timestamp, a + b AS f FROM raw.t", "t.a t.b", "t.k t.ts"),
        ("WITH x AS (SELECT k, ts, a * 2 AS g FROM raw.t) SELECT k, ts, g AS f FROM x", "t.a", "t.k t.ts"),
        ("SELECT k, max(ts), sum(a) AS f FROM raw.t WHERE b GROUP BY k HAVING max(c) > 1", "t.a", "t.b t.c t.k t.ts"),
        ("SELECT t.k, ts, d AS f FROM raw.t LEFT JOIN raw.u ON u.k = t.b", "u.d", "t.b t.k t.ts u.k"),
        ("SELECT k, ts, a AS f FROM raw.t UNION ALL SELECT k, NULL, d FROM raw.u", "t.a u.d", "t.k t.ts u.k"),
        ("SELECT k, ts, a - (SELECT min(d) FROM raw.u) AS f FROM raw.t", "t.a u.d", "t.k t.ts u.k"),
        ("SELECT * EXCLUDE (a), c AS f FROM raw.t", "t.c", "t.a"),
        ("SELECT k, ts, count(*) AS f FROM raw.t GROUP BY ALL", "", "t.k t.ts"),
        ("SELECT k, ts AS event_timestamp, g AS f FROM staging.s", "t.a", "t.b t.k t.ts"),
        ("SELECT k, ts, twice(a) AS f FROM raw.t", "t.a", "t.k t.ts"),
    ],
)
def test_the_sources_of_a_query(repository: Repository, sql: str, values: str, named: str) -> None:
    lineage = traced(repository, sql, "SELECT k, ts, a AS g FROM raw.t WHERE b > 0", "CREATE MACRO twice(x) AS x * 2;")
    columns = [" ".join(name.removeprefix("raw.") for name in names) for names in (lineage.values, lineage.named)]
    assert columns == [values, named]


def test_sql_that_sqlglot_cannot_follow_gives_all_columns_or_an_error(repository: Repository) -> None:
    lineage = traced(repository, "SELECT k, ts, a AS g FROM raw.t")
    assert not lineage.exact and lineage.values == ("raw.t.a", "raw.t.b", "raw.t.c", "raw.t.k", "raw.t.ts")
    with pytest.raises(ConfigurationError, match=r"views/v\.sql"):
        traced(repository, "SELECT k FROM (raw.t")


VIEWS = ("flight_schedule", "aircraft", "aircraft_last_leg", "carrier_traffic")
COLUMNS = {
    "flights": ("minute", "carrier", "dest", "arr_time", "arr_delay", "dep_delay", "sched_arr_time", "dep_time"),
    "airports": ("tzone", "name"),
    "planes": ("tailnum", "seats"),
}
# Every other value in place of its own: types and ranges stay, so that all queries run.
SHUFFLED = (
    "SELECT * EXCLUDE (__a, __b) FROM (SELECT * EXCLUDE ({column}), row_number() OVER () AS __a FROM rows) "
    "JOIN (SELECT {column}, row_number() OVER (ORDER BY hash({column}::VARCHAR)) AS __b FROM rows) "
    "ON __a = __b"
)


def _computed(tables: dict[str, pa.Table], repository: Repository) -> dict[str, pa.Table]:
    with connect() as connection:
        for name, rows in tables.items():
            connection.register(f"{name}_rows", rows)
            connection.execute(f'CREATE TABLE raw."{name}" AS FROM {name}_rows')
        set_time(connection, "as_of", AS_OF)
        return compute_views(connection, repository, VIEWS)


def test_a_feature_changes_only_with_its_sources(raw_tables: dict[str, Path], repository: Repository) -> None:
    """One source column after the other is shuffled: each feature that has other values then names it."""
    with connect() as connection:
        tables = {
            name: connection.sql(
                f"FROM '{path}'" + (" WHERE month = 1 AND day = 1" if name in ("flights", "weather") else "")
            ).to_arrow_table()
            for name, path in raw_tables.items()
        }
        columns = {name: rows.column_names for name, rows in tables.items()}
        before = _computed(tables, repository)
        sources = {}
        for view in (repository.views[name] for name in VIEWS):
            for feature in view.spec.features:
                lineage = lineage_of(repository, view, feature, columns)
                sources[view.name, feature] = {*lineage.values, *lineage.named}
        changed = 0
        for table, column in ((table, column) for table, names in COLUMNS.items() for column in names):
            connection.register("rows", tables[table])
            shuffled = connection.sql(SHUFFLED.format(column=column)).to_arrow_table()
            after = _computed({**tables, table: shuffled}, repository)
            for (view, feature), names in sources.items():
                kept = [*repository.views[view].spec.entities, EVENT_TIMESTAMP, KNOWN_FROM, feature]
                if not before[view].select(kept).equals(after[view].select(kept)):
                    changed += 1
                    assert f"raw.{table}.{column}" in names, f"{view}.{feature}: {column}"
    assert changed > 20
