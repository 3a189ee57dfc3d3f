"""`gatehouse data query` and `data head`: rows of artifacts, and no way to a hidden value or a file."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.store.manifest import Column
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


def _table(store: ArtifactStore, name: str, columns: dict[str, list[object]], *sensitive: str) -> Reference:
    table = pa.table(columns)
    with store.workspace() as workspace:
        pq.write_table(table.slice(0, 2), workspace / "0.parquet")
        pq.write_table(table.slice(2), workspace / "1.parquet")
        return store.publish(
            "datasets",
            name,
            {item.name: item for item in (workspace / "0.parquet", workspace / "1.parquet")},
            columns=[Column(field.name, str(field.type)) for field in table.schema],
            rows=table.num_rows,
            details={"sensitive": list(sensitive)} if sensitive else {},
        )


@pytest.fixture
def shop(store: ArtifactStore) -> Reference:
    """A snapshot of orders and of the people who made them, whose e-mail addresses are hidden."""
    orders = _table(store, "orders", {"id": [1, 2, 3], "person": [7, 7, 8], "note": ['a "b"', None, "x" * 90]})
    people = _table(store, "people", {"person": [7, 8], "email": ["anna@x.org", "zoe@x.org"]}, "email")
    return store.publish("snapshots", "shop", {}, derived_from={"orders": orders, "people": people})


def _run(store: ArtifactStore, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*arguments, "--store", store.address])
    assert result.exit_code == code, result.output
    return result


def test_a_filter_on_a_hidden_column_says_what_it_compares(store: ArtifactStore, shop: Reference) -> None:
    for column, end in (("person", []), ("count(*)", []), ("count(*)", ["--csv"])):
        sql = f"SELECT {column} FROM people WHERE email LIKE 'anna%'"
        assert "email: sensitive" in _run(store, "query", sql, "--on", str(shop), *end).stderr
    assert "sensitive" not in _run(store, "query", "SELECT email FROM people", "--on", str(shop)).output
    assert "sensitive" not in _run(store, "query", "SELECT 1 WHERE false", "--on", str(shop)).output


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM people",
        "SELECT upper(email), length(email), hash(email) FROM people",
        "SELECT max(email) || min(email) FROM people",
        "SELECT people FROM people",
        "SELECT list(email), count(DISTINCT email) FROM people GROUP BY person",
        "SELECT * FROM people WHERE email LIKE 'anna%'",
        'SELECT * FROM "artifact 1"',
        "SELECT * FROM duckdb_views()",
        "SUMMARIZE people",
    ],
)
def test_no_expression_brings_a_hidden_value_back(store: ArtifactStore, shop: Reference, sql: str) -> None:
    result = _run(store, "query", sql, "--on", str(shop), "--json")
    assert "anna" not in result.output.lower().replace("like 'anna%'", "") and "zoe" not in result.output.lower()
    if "LIKE" in sql:
        assert json.loads(result.stdout) == []


def test_the_first_rows_hide_what_is_sensitive(store: ArtifactStore, shop: Reference) -> None:
    output = _run(store, "head", "snapshots/shop", "-n", "1").output
    assert "orders  3 rows" in output and "people  2 rows" in output
    assert "***" in output and "anna" not in output
    result = json.loads(_run(store, "head", str(shop), "--json").output)
    assert [row["id"] for row in result["orders"]] == [1, 2, 3] and result["people"][1] == {"person": 8, "email": "***"}
    assert json.loads(_run(store, "head", "datasets/people", "--json").output)["people"][0]["email"] == "***"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM read_csv('{file}')", "file system operations are disabled"),
        ("SELECT * FROM '{file}'", "cannot be run"),
        ("COPY orders TO '{file}.copy'", "cannot be run"),
        ("SET enable_external_access = true", "cannot be run"),
        ("SELECT * FROM connection", "cannot be run"),
        ("SELECT * FROM nothing", "Tables that it may name: orders, people."),
        ('SELECT * FROM "datasets/none"', "datasets/none is not in the store"),
        ("select 1; select 2", "expected one query"),
        ("", "expected one query"),
    ],
)
def test_a_query_reaches_nothing_but_the_artifacts(
    store: ArtifactStore, shop: Reference, tmp_path: Path, sql: str, message: str
) -> None:
    (tmp_path / "secret.csv").write_text("a\nsecret\n")
    result = _run(store, "query", sql.format(file=tmp_path / "secret.csv"), "--on", str(shop), code=1)
    assert message in str(result.exception) and "secret\n" not in result.output
    assert not (tmp_path / "secret.csv.copy").exists()
