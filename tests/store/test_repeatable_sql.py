"""Aggregates of doubles have the same bytes with any threads and memory; they equal DuckDB's, and exact arithmetic."""

import math
from collections.abc import Iterator
from contextlib import ExitStack
from fractions import Fraction

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.store.database import connect
from gatehouse.store.repeatable_sql import _FORMS, _ORDERED, _PAIRED, repeatable

LIMITS = [(1, 4 << 30), (3, 4 << 30), (1, 70 << 20), (2, 100 << 20)]
"""Threads, and bytes of memory."""
MACROS = (
    "CREATE MACRO total(x) AS sum(x); CREATE MACRO scaled(x, times) AS 1 + total(x) * times;"
    "CREATE MACRO spread(x FLOAT) AS stddev(x), (x FLOAT, y) AS covar_pop(x, y);"
    "CREATE MACRO by_place(least) AS TABLE SELECT place, sum(v) AS s FROM t WHERE n > least GROUP BY place;"
    "CREATE MACRO draw(seed) AS seed + random(); CREATE MACRO defaulted(x, times := 2) AS sum(x) * times;"
    "CREATE MACRO later(n) AS n + 1;"
)
Connections = list[duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connections]:
    """Connections with `LIMITS` to a table of four row groups, which threads divide."""
    folder = tmp_path_factory.mktemp("limits")
    with ExitStack() as opened:
        connections = [opened.enter_context(connect(threads=threads, most=memory)) for threads, memory in LIMITS]
        connections[0].execute(
            "COPY (SELECT i AS n, hash(i) % 3 AS place, hash(i + 7) % 2000 AS who, i % 5 = 0 AS rare, "
            "(hash(i * 3) % 1000000007) / 997.0 * 10.0 ** ((hash(i + 1) % 9)::INT - 4) * (i % 7 - 3) AS v, "
            "if(i % 11 = 0, NULL, hash(i * 13) / 1e18) AS w, (hash(i * 5) / 1e19)::FLOAT AS f, hash(i) % 99 AS whole, "
            f"whole::DECIMAL(9, 2) AS d FROM range(400_000) AS r(i)) TO '{folder}/t.parquet'"
        )
        for connection in connections:
            connection.execute(f"CREATE VIEW t AS FROM '{folder}/t.parquet'; {MACROS}")
        yield connections


def digest(connection: duckdb.DuckDBPyConnection, query: str) -> object:
    """A digest of the rows of a query, whatever their order."""
    return connection.execute(f"SELECT count(*), sum(hash(r)::HUGEINT) FROM ({query}\n) AS r").fetchall()


def test_duckdb_alone_gives_other_bytes(limited: Connections) -> None:
    assert len({str(digest(each, "SELECT place, sum(v) FROM t GROUP BY 1")) for each in limited for _ in range(9)}) > 1


SHAPES = (
    "SELECT place, {a} AS a FROM t GROUP BY place",
    "SELECT who, {a} AS a, sum(whole) AS b FROM t GROUP BY ALL",
    "SELECT sum(a) AS b FROM (SELECT who, {a} AS a FROM t GROUP BY who HAVING {a} IS NOT NULL)",
    "WITH c AS MATERIALIZED (SELECT who, {a} AS a FROM t GROUP BY who) SELECT avg(a) OVER (ORDER BY who) AS b FROM c",
    "SELECT n, {a} OVER (PARTITION BY who % 40 ORDER BY n ROWS 5 PRECEDING) AS a FROM t WHERE n % 9 = 0",
    "SELECT n, {a} OVER (PARTITION BY place ORDER BY n) AS a FROM t WHERE n % 99 = 0",
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query with an aggregate of doubles somewhere."""
    name, values = draw(st.sampled_from([*_FORMS, *_ORDERED])), st.sampled_from(["v", "w", "f", "v * w", "whole / 7"])
    arguments = ", ".join(draw(values) for _ in range(1 + (name in _PAIRED)))
    distinct = "DISTINCT " if name not in _PAIRED and draw(st.booleans()) and draw(st.booleans()) else ""
    chosen = draw(st.sampled_from(["", " FILTER (WHERE rare)"]))
    return draw(st.sampled_from(SHAPES)).format(a=f"{name}({distinct}{arguments}){chosen}")


@settings(max_examples=15, deadline=None, derandomize=True)
@given(query=queries())
@example(query=SHAPES[0].format(a="sum(v)"))
@example(query=SHAPES[4].format(a="stddev(v)"))
def test_threads_and_memory_change_no_byte(limited: Connections, query: str) -> None:
    digests = {str(digest(connection, repeatable(connection, query, "q", MACROS))) for connection in limited}
    assert len(digests) == 1


numbers = st.floats(-1e12, 1e12) | st.floats(1e9, 1e9 + 60) | st.floats(-1e-6, 1e-6) | st.integers(-9, 9).map(float)


@settings(max_examples=25, deadline=None)
@given(xs=st.lists(numbers, min_size=2, max_size=40))
def test_sums_and_moments_are_those_of_exact_arithmetic(limited: Connections, xs: list[float]) -> None:
    query = "SELECT sum(x) AS s, avg(x) AS m, var_samp(x) AS v FROM numbers"
    limited[0].execute("CREATE OR REPLACE TEMP TABLE numbers AS SELECT unnest(?::DOUBLE[]) AS x", [xs])
    total, mean, variance = limited[0].execute(repeatable(limited[0], query, "q")).fetchall()[0]
    assert abs(total - math.fsum(xs)) <= 2 * math.ulp(math.fsum(xs)) + len(xs) * 2.0**-100
    assert mean == total / len(xs)
    exact_mean, largest = sum(map(Fraction, xs)) / len(xs), max(map(abs, xs))
    squares = sum((Fraction(x) - exact_mean) ** 2 for x in xs)
    error = abs(Fraction(variance * (len(xs) - 1)) - squares)
    assert error <= 1e-14 * float(squares) + len(xs) * (largest**2 * 2.0**-70 + 2.0**-95)


def same(one: object, other: object) -> bool:
    return one == (pytest.approx(other, rel=1e-9, abs=1e-12, nan_ok=True) if isinstance(other, float) else other)


@pytest.mark.parametrize("name", [*_FORMS, *_ORDERED])
def test_an_aggregate_means_what_it_means_in_duckdb(limited: Connections, name: str) -> None:
    arguments = "a, b" if name in _PAIRED else "a"
    # Of infinite values, DuckDB has an error or a null for some.
    finite = "WHERE isfinite(a)" if name in (*_ORDERED, "favg") else ""
    query = f"SELECT edge, {name}({arguments}) AS x FROM edges {finite} GROUP BY edge ORDER BY edge"
    limited[1].execute(
        "CREATE OR REPLACE TEMP TABLE edges (edge VARCHAR, a DOUBLE, b DOUBLE); INSERT INTO edges VALUES "
        "('one', 3, 4), ('none', NULL, 1), ('holes', 1, NULL), ('holes', 2, 3), ('holes', 4, 9), ('holes', 8, 1), "
        "('equal', 0.1, 1), ('equal', 0.1, 2), ('equal', 0.1, 4), ('equal too', 1, 0.1), ('equal too', 2, 0.1), "
        "('infinite', 1, 2), ('infinite', 'inf', 3), ('both', '-inf', 3), ('both', 'inf', 2), ('not', 1, 2), "
        "('not', 'nan', 3), ('apart', 1e5, 2), ('apart', 1e5 + 1, 3), ('apart', 1e5 + 3, -1)"
    )
    rewritten = repeatable(limited[1], query, "q")
    assert rewritten != query
    rows, expected = limited[1].execute(rewritten).fetchall(), limited[1].execute(query).fetchall()
    unlike = [(row, other) for row, other in zip(rows, expected, strict=True) if not same(row[1], other[1])]
    assert not unlike


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(v), (avg(v)), sum(v)/2, -- é\n sum(v) AS s, avg(f) m FROM t",
        'SELECT "sum(v)" FROM (SELECT sum(v) FROM t)',
        "SELECT place, sum(sum(v)) OVER (ORDER BY place) AS s FROM t GROUP BY place",
        "SELECT sum(COLUMNS(['v', 'whole', 'd'])), v.sum(), SUM(t.v), main.sum(v) FROM t",
        "SELECT place FROM t GROUP BY ALL HAVING stddev(v) > 1 ORDER BY corr(v, w) DESC, sum(v)",
        "SELECT who, n FROM t WHERE n < 99 WINDOW w AS (PARTITION BY place ORDER BY n) QUALIFY sum(v) OVER w > 9",
        "FROM (SELECT place, v FROM t) PIVOT (sum(v) FOR place IN (1, 2))",
        "SELECT n, (SELECT sum(b.v) FROM t AS b WHERE b.n < a.n) AS s FROM t AS a WHERE n < 9",
        "SELECT total(v), scaled(v, 2), spread(whole), spread(f, v), geomean(w), later(1) FROM t",
        "SELECT n, total(v) OVER (PARTITION BY place ORDER BY n ROWS 1 PRECEDING) AS s FROM t WHERE n < 9",
        "FROM by_place(9) AS b(p, s)",
        f"SELECT sum(v){' + 1' * 300} AS s FROM t",
        "SELECT sum(v ORDER BY n DESC), sum(v) FILTER (rare), avg(whole::UHUGEINT) FROM t",
    ],
)
def test_a_query_keeps_its_names_types_and_values(limited: Connections, query: str) -> None:
    rewritten = repeatable(limited[0], query, "q", MACROS)
    assert rewritten != query
    assert rewritten.count("\n") == query.count("\n")
    assert repeatable(limited[0], f"{query}  -- again", "q", MACROS) == f"{rewritten}  -- again"
    assert limited[0].execute(f"DESCRIBE {rewritten}").fetchall() == limited[0].execute(f"DESCRIBE {query}").fetchall()
    rows, expected = (sorted(limited[0].execute(each).fetchall(), key=str) for each in (rewritten, query))
    assert all(
        same(one, two) for row, other in zip(rows, expected, strict=True) for one, two in zip(row, other, strict=True)
    )


@pytest.mark.parametrize(
    "aggregate",
    [
        *("first(who)", "any_value(who) FILTER (n % 7 = 0)", "last(who ORDER BY whole)", "mode(who % 50)", "list(d)"),
        *("string_agg(who::VARCHAR, '-' ORDER BY whole)", "arg_max(n, whole)", "min_by(n, whole, 3)", "kept(n)"),
        *("arg_max(whole, (rare, whole))", "list(DISTINCT who)", "array_agg({'a': n, 'b': v} ORDER BY who)[5].a"),
    ],
)
def test_the_order_of_rows_chooses_no_value(limited: Connections, aggregate: str) -> None:
    digests = set()
    for connection in limited[:2]:
        connection.execute("CREATE OR REPLACE MACRO kept(x) AS any_value(x)")
        for order in ("hash(n)", "hash(n, 3)"):
            query = f"SELECT who % 5 AS g, {aggregate} AS a FROM (FROM t WHERE n < 30000 ORDER BY {order}) GROUP BY g"
            digests.add(str(digest(connection, repeatable(connection, query, "q", "CREATE MACRO any_value"))))
    assert len(digests) == 1


TIES = (
    "SELECT g, n FROM s ORDER BY {o} LIMIT 9",
    "SELECT * FROM s ORDER BY {o} LIMIT 9 OFFSET 2",
    "WITH c AS (SELECT n, g FROM s ORDER BY {o} DESC LIMIT 10%) SELECT g, sum(n) AS a FROM c GROUP BY g",
    "SELECT g, (SELECT max(m) FROM (SELECT r.n AS m FROM s AS r WHERE r.g = s.g ORDER BY {o} LIMIT 2)) AS a FROM s",
    "(SELECT n, o, p FROM s) UNION ALL (SELECT n + 1, o, p FROM s) ORDER BY {o} LIMIT 5",
    "SELECT DISTINCT ON (g) g, n FROM s ORDER BY g, {o}",
    "SELECT DISTINCT ON (g) * FROM s ORDER BY g, {o}",
    "SELECT g, n AS a FROM s QUALIFY row_number() OVER (PARTITION BY g ORDER BY {o} NULLS FIRST) = 1",
    "SELECT * FROM s QUALIFY row_number() OVER (PARTITION BY g ORDER BY {o}) = 1",
    "SELECT g, n, row_number() OVER (PARTITION BY g ORDER BY {o}) AS place FROM s QUALIFY place < 3",
    "SELECT a.*, b.n AS m FROM s AS a JOIN s AS b USING (g) QUALIFY lead(m) OVER (PARTITION BY g ORDER BY a.o) = 2",
    "SELECT *, row_number() OVER (PARTITION BY g ORDER BY {o}) FROM s",
    "SELECT *, row_number() OVER (PARTITION BY g IS NULL ORDER BY {o}) AS a FROM s",
    "SELECT *, row_number() OVER (ORDER BY {o}) AS a FROM s AS n",
    "SELECT g, row_number() OVER (PARTITION BY g ORDER BY {o}) AS a, ntile(9) OVER (ORDER BY t, {o}) AS b FROM s",
    "SELECT n, lag(n) OVER w AS a, lead(n, 2, 0) OVER w AS b, ntile(3) OVER w AS c FROM s WINDOW w AS (ORDER BY {o})",
    "SELECT lower(t) AS t, row_number() OVER (ORDER BY {o}) AS a, n FROM s",
    "SELECT g, n, sum(n) OVER (PARTITION BY g ORDER BY {o} ROWS 1 PRECEDING) AS a FROM s",
    "SELECT g, n, max(n) OVER (PARTITION BY g ORDER BY {o} ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW) AS a FROM s",
    "SELECT n, sum(n / 8) OVER (PARTITION BY g ORDER BY {o} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a FROM s",
    "SELECT g, first_value(n) OVER (PARTITION BY g ORDER BY o RANGE 2 PRECEDING) AS a FROM s",
    "SELECT n, last_value(n IGNORE NULLS) OVER (PARTITION BY g ORDER BY {o}) AS a FROM s",
    "SELECT n, nth_value(n, 2 ORDER BY {o}) OVER (PARTITION BY g) AS a FROM s",
    "SELECT g, list(n) OVER (PARTITION BY g ORDER BY o) AS a FROM s",
    "SELECT n % 200 AS m, row_number() OVER (ORDER BY count(*)) AS a FROM s GROUP BY 1",
    "SELECT n, ranked(o) AS a FROM s",
    "SELECT n, lag(n ORDER BY {o}) OVER (PARTITION BY g ORDER BY {o} ROWS 1 PRECEDING) AS a FROM s",
    "SELECT * FROM ev ORDER BY {o} LIMIT 2",
    "SELECT DISTINCT ev.o, g, ev.p, n FROM ev ORDER BY G, {o} LIMIT 2",
)
"""Queries that choose among the rows that the order `{o}` leaves equal."""


@pytest.mark.parametrize("query", TIES)
def test_rows_that_an_order_leaves_equal_have_one_order(limited: Connections, query: str) -> None:
    macro = "CREATE OR REPLACE MACRO ranked(x) AS row_number() OVER (ORDER BY x)"
    plain, digests = set(), set()
    for connection, seed in [(connection, seed) for connection in limited[:2] for seed in range(3)]:
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE s AS SELECT n, n % 5 AS g, n % 3 AS o, n % 3 AS p, (n % 20)::VARCHAR AS t "
            f"FROM range(900) AS r(n) ORDER BY hash(n, {seed}); {macro};"
            "CREATE OR REPLACE TEMP TABLE ev AS SELECT *, {'a': 1} AS ev FROM s"
        )
        plain.add(str(digest(connection, query.format(o="o, p"))))
        digests.add(str(digest(connection, repeatable(connection, query.format(o="o, p"), "q", macro))))
        total = query.format(o="o, n")
        if "ORDER BY o, n" in total:
            assert digest(connection, repeatable(connection, total, "q", macro)) == digest(connection, total)
    assert len(digests) == 1 < len(plain)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT n, rank() OVER (ORDER BY place), sum(n) OVER (ORDER BY place), count(*) OVER () FROM t",
        "SELECT place, n, row_number() OVER (PARTITION BY place ORDER BY n) FROM t",
        "SELECT n FROM t ORDER BY ALL LIMIT 3",
        "SELECT row_number() OVER ()",
        "SELECT place, sum(n) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING EXCLUDE GROUP) FROM t",
        "SELECT histogram(place) FROM t",
        "SELECT n FROM t GROUP BY 7",
        "SELECT first(n) OVER (ORDER BY n), count(*) AS last FROM t",
        "SELECT sum(whole), avg(n), sum(d), avg(d), max(v), median(v), 'random()' AS \"now\" FROM t -- sum(v)",
        "SELECT sum(sum(whole)) OVER (), total(n), avg(n) OVER (ORDER BY n), sum(TIME '01:00' - TIME '00:30') FROM t",
        "SELECT sum(nowhere) FROM t",
        "SELEC sum(v)",
        "SELECT getvariable('as_of'), date_part('year', DATE '2024-01-01') AS age FROM t",
    ],
)
def test_a_query_without_doubles_to_add_stays_as_it_is(limited: Connections, query: str) -> None:
    rewritten = repeatable(limited[0], query, "q", MACROS)
    assert rewritten == query


@pytest.mark.parametrize(
    ("query", "problems"),
    [
        ("SELECT n,\n random() AS r, now(), current_date,\n uuid() FROM t", ["q:2", "q:2", "q:2", "q:3"]),
        ("SELECT n FROM t\nTABLESAMPLE 10%", ["q:1"]),
        ("FROM (SUMMARIZE t)", ["q:1"]),
        ("SELECT 1,\n draw(n) FROM t", ["q:2"]),
        ("SELECT n FROM (SELECT approx_quantile(v, 0.5) AS n,\n approx_top_k(who, 3) FROM t)", ["q:1", "q:2"]),
        ("SELECT\n age(TIMESTAMP '2024-01-01')", ["q:2"]),
        ("SELECT\n defaulted(v) FROM t", ["q:2"]),
        ("FROM (PIVOT t ON place USING sum(v))", ["q"]),
        ("SELECT ((sum(v) + 1)) FROM t", ["q"]),
        ("SELECT n FROM (SELECT n FROM t ORDER BY v) LIMIT 2", ["q:1"]),
        ("SELECT DISTINCT ON (who) who, n FROM t", ["q:1"]),
        ("SELECT n,\n row_number() OVER (PARTITION BY who) AS r, first_value(n) OVER () AS f FROM t", ["q:2", "q:2"]),
        ("SELECT sum(n) OVER (ORDER BY who ROWS 1 PRECEDING EXCLUDE TIES) FROM t", ["q:1"]),
        ("SELECT who, last_value(n) OVER (ORDER BY who ROWS UNBOUNDED PRECEDING EXCLUDE GROUP) FROM t", ["q:1"]),
        ("SELECT list(n) OVER (PARTITION BY who ROWS 1 PRECEDING) FROM t", ["q:1"]),
        ("SELECT lag(n ORDER BY n) OVER (PARTITION BY who ROWS 1 PRECEDING) FROM t", ["q:1"]),
        ("SELECT DISTINCT who FROM t ORDER BY n, who LIMIT 2", ["q:1"]),
        ("SELECT DISTINCT a.n FROM t AS a JOIN t AS b USING (n) ORDER BY b.n LIMIT 2", ["q:1"]),
        ("SELECT *, unnest([n, v]) AS x FROM t ORDER BY n LIMIT 2", ["q:1"]),
        ("SELECT DISTINCT * FROM t ORDER BY n LIMIT 2", ["q:1"]),
        ("SELECT n FROM t UNION BY NAME SELECT n FROM t ORDER BY n LIMIT 2", ["q:1"]),
        ("SELECT who, count(*) AS c, row_number() OVER (ORDER BY count(*)) AS r FROM t GROUP BY ALL", ["q"]),
        ("SELECT * FROM t AS who QUALIFY row_number() OVER (ORDER BY place) = 1", ["q"]),
        ("SELECT * FROM range(3), (SELECT 1), (SELECT 2) QUALIFY ntile(2) OVER (ORDER BY 1) = 1", ["q"]),
    ],
)
def test_what_cannot_be_repeated_is_refused_with_its_line(
    limited: Connections, query: str, problems: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        repeatable(limited[0], query, "q", MACROS)
    assert [problem.split(": ")[0] for problem in str(caught.value).split("\n  - ")] == problems


@pytest.mark.parametrize(("aggregate", "value"), [("sum", 1e26), ("sum", -1e300), ("stddev", 1e13)])
def test_a_double_too_large_to_add_is_an_error(limited: Connections, aggregate: str, value: float) -> None:
    query = f"SELECT {aggregate}(x) AS s FROM (VALUES (1::DOUBLE), ({value!r})) AS v(x)"
    with pytest.raises(duckdb.InvalidInputException, match="expected doubles"):
        limited[0].execute(repeatable(limited[0], query, "q")).fetchall()
