"""The lineage of features: sound on the example's SQL, exact on the forms that SQL has, and drawn."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import compute_views
from gatehouse.features.database import connect, set_time
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM, FeatureView
from gatehouse.features.definitions.repository import Repository, View
from gatehouse.features.lineage.columns import lineage_of
from gatehouse.features.lineage.graph import ROWS, VALUE, Column, Lineage
from gatehouse.features.lineage.picture import lineage_svg
from tests.features.flights import AS_OF


def traced(
    repository: Repository,
    sql: str,
    staging: Mapping[str, str] | None = None,
    macros: str = "",
    tables: Mapping[str, list[str]] | None = None,
) -> Lineage:
    """The lineage of the feature `f` of a view with this SQL over `raw.t (k, ts, a, b, c)` and `raw.u (k, d)`."""
    spec = FeatureView(name="v", entities=("k",), features={"f": "numeric"}, static=True)
    changed = replace(repository, macros=macros, staging=dict(staging or {}), views={"v": View("v", spec, sql)})
    known = {"t": ["k", "ts", "a", "b", "c"], "u": ["k", "d"]} if tables is None else tables
    return lineage_of(changed, changed.views["v"], ["f"], known)


def sources(found: Lineage) -> tuple[str, str]:
    """Names of the source columns by how they count, without `raw.`."""
    by = found.sources()
    return (
        " ".join(str(column)[4:] for column, how in by if how == VALUE),
        " ".join(str(column)[4:] for column, how in by if how == ROWS),
    )


CASES: dict[str, tuple[str, str | None, str | None]] = {
    "an expression": ("SELECT k, ts AS event_timestamp, a + b AS f FROM raw.t", "t.a t.b", "t.k t.ts"),
    "a table expression": (
        "WITH x AS (SELECT k, ts, a * 2 AS g FROM raw.t) SELECT k, ts AS event_timestamp, g AS f FROM x",
        "t.a",
        "t.k t.ts",
    ),
    "a filter": ("SELECT k, ts AS event_timestamp, a AS f FROM raw.t WHERE b > 0", "t.a", "t.b t.k t.ts"),
    "a grouping": (
        "SELECT k, max(ts) AS event_timestamp, sum(a) AS f FROM raw.t GROUP BY k HAVING max(c) > 1",
        "t.a",
        "t.c t.k t.ts",
    ),
    "grouping by all": (
        "SELECT k, b, max(ts) AS event_timestamp, sum(a) AS f FROM raw.t GROUP BY ALL",
        "t.a",
        "t.b t.k t.ts",
    ),
    "a filter of an aggregate": (
        "SELECT k, max(ts) AS event_timestamp, count(*) FILTER (b > 0) AS f FROM raw.t GROUP BY k",
        "",
        "t.b t.k t.ts",
    ),
    "a window": (
        "SELECT k, ts AS event_timestamp, lag(a) OVER (PARTITION BY b ORDER BY c) AS f FROM raw.t",
        "t.a",
        "t.b t.c t.k t.ts",
    ),
    "a named window": (
        "SELECT k, ts AS event_timestamp, sum(a) OVER w AS f FROM raw.t WINDOW w AS (PARTITION BY b ORDER BY c)",
        "t.a",
        "t.b t.c t.k t.ts",
    ),
    "the newest row": (
        "SELECT k, ts AS event_timestamp, a AS f FROM raw.t QUALIFY row_number() OVER (PARTITION BY k ORDER BY b) = 1",
        "t.a",
        "t.b t.k t.ts",
    ),
    "a join": (
        "SELECT t.k, ts AS event_timestamp, d AS f FROM raw.t LEFT JOIN raw.u ON u.k = t.b",
        "u.d",
        "t.b t.k t.ts u.k",
    ),
    "a join by name": (
        "SELECT k, ts AS event_timestamp, d AS f FROM raw.t JOIN raw.u USING (k)",
        "u.d",
        "t.k t.ts u.k",
    ),
    "an ASOF join": (
        "SELECT t.k, t.ts AS event_timestamp, u.d AS f FROM raw.t ASOF JOIN raw.u ON t.k = u.k AND t.ts >= u.d",
        "u.d",
        "t.k t.ts u.d u.k",
    ),
    "a scalar subquery": (
        "SELECT k, ts AS event_timestamp, a - (SELECT min(d) FROM raw.u) AS f FROM raw.t",
        "t.a u.d",
        "t.k t.ts",
    ),
    "a correlated subquery": (
        "SELECT k, ts AS event_timestamp, (SELECT max(d) FROM raw.u WHERE u.k = t.b) AS f FROM raw.t",
        "u.d",
        "t.b t.k t.ts u.k",
    ),
    "a list of others": (
        "SELECT k, ts AS event_timestamp, a AS f FROM raw.t WHERE b NOT IN (SELECT d FROM raw.u)",
        "t.a",
        "t.b t.k t.ts u.d",
    ),
    "a union, by place": (
        "SELECT k, ts AS event_timestamp, a AS f FROM raw.t UNION ALL SELECT k, NULL, d FROM raw.u",
        "t.a u.d",
        "t.k t.ts u.k",
    ),
    "a star": ("SELECT * EXCLUDE (a) REPLACE (b AS ts), ts AS event_timestamp, c AS f FROM raw.t", "t.c", "t.k t.ts"),
    "FROM first": ("FROM raw.t SELECT k, ts AS event_timestamp, a AS f", "t.a", "t.k t.ts"),
    "a column by another name": (
        "SELECT k, ts AS event_timestamp, g AS f FROM (SELECT k, ts, b FROM raw.t) AS x (k, ts, g)",
        "t.b",
        "t.k t.ts",
    ),
    "a recursive query": (
        "WITH RECURSIVE x AS (SELECT k, ts, a AS g FROM raw.t UNION ALL SELECT k, ts, g + 1 FROM x WHERE g < 9) "
        "SELECT k, ts AS event_timestamp, g AS f FROM x",
        "t.a",
        "t.k t.ts",
    ),
    "a union of different rows": (
        "SELECT k, ts AS event_timestamp, a AS f FROM raw.t UNION SELECT k, NULL, d FROM raw.u",
        "t.a u.d",
        "t.a t.k t.ts u.d u.k",
    ),
    "rows that others have": (
        "SELECT k, ts AS event_timestamp, 1 AS f FROM raw.t INTERSECT SELECT k, NULL, d FROM raw.u",
        "u.d",
        "t.k t.ts u.d u.k",
    ),
    "rows that others lack": (
        "SELECT k, f, ts AS event_timestamp FROM "
        "(SELECT k, ts, b, a AS f FROM raw.t EXCEPT ALL SELECT k, NULL, d, NULL FROM raw.u)",
        "t.a",
        "t.a t.b t.k t.ts u.d u.k",
    ),
    "a union by name": (
        "SELECT k, ts AS event_timestamp, a AS f FROM raw.t UNION ALL BY NAME SELECT d AS f, k FROM raw.u",
        "t.a u.d",
        "t.k t.ts u.k",
    ),
    "the first of a key": (
        "SELECT DISTINCT ON (k) k, ts AS event_timestamp, a AS f FROM raw.t ORDER BY k, b DESC",
        "t.a",
        "t.b t.k t.ts",
    ),
    "an offset": ("SELECT k, ts AS event_timestamp, a AS f FROM raw.t ORDER BY b OFFSET 1", "t.a", "t.b t.k t.ts"),
    "a limit from another table": (
        "SELECT k, ts AS event_timestamp, a AS f FROM raw.t LIMIT (SELECT max(d) FROM raw.u)",
        "t.a",
        "t.k t.ts u.d",
    ),
    "a semi join by name": (
        "SELECT k, ts AS event_timestamp, a AS f FROM raw.t SEMI JOIN raw.u USING (k)",
        "t.a",
        "t.k t.ts u.k",
    ),
    "an anti join": (
        "SELECT k, ts AS event_timestamp, a AS f FROM raw.t ANTI JOIN raw.u ON u.d = t.b",
        "t.a",
        "t.b t.k t.ts u.d",
    ),
    "bounds of a window": (
        "SELECT k, ts AS event_timestamp, "
        "sum(a) OVER (ORDER BY ts RANGE BETWEEN b PRECEDING AND CURRENT ROW) AS f FROM raw.t",
        "t.a",
        "t.b t.k t.ts",
    ),
    "a whole row": (
        "SELECT k, ts AS event_timestamp, hash(t) AS f FROM raw.t AS t",
        "t.a t.b t.c t.k t.ts",
        "t.k t.ts",
    ),
    "columns that a function chooses": (
        "SELECT k, ts AS event_timestamp, max(COLUMNS(lambda c: c = 'a')) AS f FROM raw.t GROUP BY ALL",
        "t.a t.b t.c t.k t.ts",
        "t.k t.ts",
    ),
    "a list of a parameter's own": (
        "SELECT k, ts AS event_timestamp, list_sum(list_transform([a], lambda x: x + b)) AS f FROM raw.t",
        "t.a t.b",
        "t.k t.ts",
    ),
    "a column named just before": (
        "SELECT k, ts AS event_timestamp, a + 1 AS g, g * 2 AS f FROM raw.t WHERE g > 0 ORDER BY g",
        "t.a",
        "t.a t.k t.ts",
    ),
    "a field of a structure": (
        "SELECT k, ts AS event_timestamp, s.x + struct_pack(y := b).y AS f FROM "
        "(SELECT k, ts, b, {'x': a, 'y': c} AS s FROM raw.t)",
        "t.a t.b t.c",
        "t.k t.ts",
    ),
    "a list taken apart": (
        "SELECT k, ts AS event_timestamp, x AS f FROM raw.t, unnest([a, b]) AS l(x)",
        None,
        None,
    ),
    "values, and a name in capitals": (
        "SELECT K, TS AS event_timestamp, A * w AS f FROM raw.t JOIN (VALUES (1, 2)) AS v(i, w) ON v.i = t.B",
        "t.a",
        "t.b t.k t.ts",
    ),
    "a table beside": (
        "SELECT k, ts AS event_timestamp, m AS f FROM raw.t, LATERAL (SELECT max(d) AS m FROM raw.u WHERE u.k = t.b)",
        "u.d",
        "t.b t.k t.ts u.k",
    ),
    "a number of the row": ("SELECT k, ts AS event_timestamp, rowid + a AS f FROM raw.t", None, None),
    "what decides as well": ("SELECT k, ts AS event_timestamp, a AS f FROM raw.t WHERE a > 0", "t.a", "t.a t.k t.ts"),
    "a case": ("SELECT k, ts AS event_timestamp, CASE WHEN b > 0 THEN a END AS f FROM raw.t", "t.a t.b", "t.k t.ts"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_sources_of_a_query(case: str, repository: Repository) -> None:
    sql, values, rows = CASES[case]
    found = sources(traced(repository, sql))
    assert values is None or found == (values, rows)


def test_every_case_runs_in_duckdb() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA raw; CREATE TABLE raw.u (k INT, d INT)")
        connection.execute("CREATE TABLE raw.t (k INT, ts INT, a INT, b INT, c INT)")
        for sql, _, _ in CASES.values():
            connection.execute(sql)


def test_staging_queries_and_macros_are_followed(repository: Repository) -> None:
    staging = {"s": "SELECT k, ts, twice(a, b) AS g FROM raw.t WHERE c > 0"}
    macros = "-- Twice the first.\nCREATE MACRO twice(one, other) AS one * 2;\nCREATE MACRO three() AS 3;"
    found = traced(repository, "SELECT k, ts AS event_timestamp, g + three() AS f FROM staging.s", staging, macros)
    assert sources(found) == ("t.a", "t.c t.k t.ts")
    assert found.before(Column("v", "f")) == [(Column("staging.s", "g"), VALUE), (Column("v"), ROWS)]
    assert (Column("raw.t", "c"), ROWS) in found.before(Column("staging.s"))


def test_names_keep_their_case_and_a_table_that_nobody_knows_is_followed_by_name(repository: Repository) -> None:
    sql = "SELECT K, Ts AS event_timestamp, a AS f FROM raw.t"
    assert sources(traced(repository, sql, tables={"t": ["K", "Ts", "A"]})) == ("t.A", "t.K t.Ts")
    assert sources(traced(repository, sql.lower(), tables={})) == ("t.a", "t.k t.ts")


def test_sql_that_cannot_be_followed_is_an_error_that_names_the_file(repository: Repository) -> None:
    with pytest.raises(ConfigurationError, match=r"views/v\.sql: the lineage cannot follow this SQL.*line 1"):
        traced(repository, "SELECT k FROM (raw.t")


@pytest.mark.parametrize(
    ("sql", "staging", "message"),
    [
        ("SELECT k, ts AS event_timestamp, sum(amout) AS f FROM raw.t GROUP BY ALL", "", r"views/v\.sql: .* amout"),
        ("SELECT k, ts AS event_timestamp, a AS f FROM raw.t AS x WHERE x.bb > 0", "", r"views/v\.sql: .*column: bb"),
        ("WITH x AS (SELECT k, ts FROM raw.t) SELECT k, ts AS event_timestamp, a AS f FROM x", "", r"column (x\.)?a:"),
        (
            "SELECT k, ts AS event_timestamp, (SELECT max(e) FROM raw.u WHERE u.k = t.k) AS f FROM raw.t",
            "",
            "column e:",
        ),
        ("SELECT k, ts AS event_timestamp, a AS g FROM raw.t", "", "expected a column f, found k, event_timestamp, g"),
        ("SELECT k, ts AS event_timestamp, g AS f FROM staging.s", "amout", r"staging/s\.sql: .* amout"),
    ],
)
def test_a_column_that_no_table_has_is_an_error_that_names_it(
    repository: Repository, sql: str, staging: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        traced(repository, sql, {"s": f"SELECT k, ts, {staging} AS g FROM raw.t"} if staging else {})


def test_a_table_macro_is_followed(repository: Repository) -> None:
    macro = "CREATE MACRO above(X) AS TABLE SELECT k, ts, a AS f FROM raw.t WHERE b > x;"
    for name in ("above(3)", "above(3) AS t"):
        found = traced(repository, f"SELECT k, ts AS event_timestamp, f FROM {name}", macros=macro)
        assert sources(found) == ("t.a", "t.b t.k t.ts")


@pytest.mark.parametrize(
    ("sql", "macro"),
    [
        ("SELECT k, one(a) AS f FROM raw.t", "CREATE MACRO one(x, y := 5) AS x + (SELECT max(d) FROM raw.u)"),
        ("SELECT k, week(a) AS f FROM raw.t", "CREATE MACRO week(x) AS x + (SELECT max(d) FROM raw.u)"),
        ("SELECT k, one(a) AS f FROM raw.t", "CREATE MACRO week(x) AS x; CREATE MACRO one(x) AS week(x)"),
        ("SELECT k, one(a) AS f FROM raw.t", "CREATE MACRO one(x) AS x, (x, y) AS x + (SELECT max(d) FROM raw.u)"),
        ("SELECT k, f FROM (UNPIVOT raw.t ON a, b INTO NAME n VALUE f)", ""),
        ("SELECT k, a AS f FROM raw.t UNPIVOT (a FOR n IN (b, c))", ""),
        ("SELECT k, (SELECT x FROM (PIVOT (SELECT a AS d) ON d IN (6) USING count(*)) AS p(x)) AS f FROM raw.t", ""),
        ("SELECT k, a AS f FROM query_table('raw.t')", ""),
    ],
)
def test_what_is_not_followed_is_refused_rather_than_left_out(repository: Repository, sql: str, macro: str) -> None:
    with pytest.raises(ConfigurationError, match=r"views/v\.sql: the lineage cannot follow this SQL"):
        traced(repository, sql, macros=macro)


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
        views = {name: repository.views[name] for name in VIEWS}
        whole = {name: lineage_of(repository, view, view.spec.features, columns) for name, view in views.items()}
        lineages = {
            (feature.table, feature.name): {column for column, _ in replace(found, features=(feature,)).sources()}
            for found in whole.values()
            for feature in found.features
        }
        changed = 0
        for name in COLUMNS:
            connection.register("rows", tables[name])
            for column in COLUMNS[name]:
                shuffled = connection.sql(SHUFFLED.format(column=column)).to_arrow_table()
                after = _computed({**tables, name: shuffled}, repository)
                for view, feature in lineages:
                    times_and_keys = (*views[view].spec.entities, EVENT_TIMESTAMP, KNOWN_FROM)
                    projected = [every[view].select([*times_and_keys, feature]) for every in (before, after)]
                    if not projected[0].equals(projected[1]):
                        changed += 1
                        assert Column(f"raw.{name}", column) in lineages[view, feature], f"{view}.{feature}: {column}"
    assert changed > 20


def test_the_picture_shows_every_table_and_column_and_is_well_formed(
    raw_tables: dict[str, Path], repository: Repository
) -> None:
    view = repository.views["carrier_traffic"]
    columns = {name: pq.read_schema(path).names for name, path in raw_tables.items()}
    found = lineage_of(repository, view, ["carrier_late_rate_3h"], columns)
    root = ElementTree.fromstring(lineage_svg(found, 'a < "b"', "of <late> flights"))
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    drawn = {column for edge in found.edges for column in (edge.before, edge.after)}
    assert {*texts} >= {column.name or "which rows" for column in drawn} | {column.table for column in drawn}
    assert 'a < "b"' in texts
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for node in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(node.get("x", "0")) + float(node.get("width", "0")) <= width
        assert float(node.get("y", "0")) + float(node.get("height", "0")) <= height
