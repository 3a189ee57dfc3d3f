"""Every declaration in docs/sources.md, taken as a snapshot from a real source."""

import importlib
import json
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config

from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.store.store import ArtifactStore

PAGE = Path(__file__).parents[3] / "docs" / "sources.md"
EXAMPLES, READERS = (
    re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for language in ("yaml", "python")
)
PLACED = datetime(2024, 3, 1, 12, tzinfo=UTC)
ORDERS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "placed": pa.array([PLACED, PLACED], pa.timestamp("us", tz="UTC")),
        "price": pa.array([1.5, None], pa.float64()),
        "note": pa.array(["té", None], pa.string()),
    }
)


def files(_request: pytest.FixtureRequest, folder: Path) -> None:
    (folder / "data").mkdir()
    text = "id;placed;price;note\n1;01.03.2024 13:00;1,5;té\n2;01.03.2024 13:00;-;NA\n"
    (folder / "data" / "orders-1.csv").write_bytes(text.encode("cp1252"))


def without_times(_request: pytest.FixtureRequest, folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "orders.csv").write_text("id,price,note\n1,1.5,té\n2,,\n", encoding="utf-8")


def without_keys(_request: pytest.FixtureRequest, folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "orders.csv").write_text("price;note\n1.5;té\n;\n", encoding="utf-8")


def with_signs(_request: pytest.FixtureRequest, folder: Path) -> None:
    (folder / "data").mkdir()
    text = "id,placed,price,note\n1,2024-03-01 12:00:00,$1.50,té\n2,2024-03-01 12:00:00,,\n"
    (folder / "data" / "orders.csv").write_text(text, encoding="utf-8")


def postgres(request: pytest.FixtureRequest, _folder: Path) -> None:
    url = request.getfixturevalue("postgres")
    with adbc.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id bigint PRIMARY KEY, placed timestamptz, price numeric, note text)")
        cursor.execute(
            "INSERT INTO orders VALUES (2, '2024-03-01 12:00Z', NULL, NULL), (1, '2024-03-01 12:00Z', 1.5, 'té')"
        )
        cursor.execute("CREATE TABLE customers (id int, city text, deleted bool, changed timestamptz)")
        cursor.execute("INSERT INTO customers VALUES (1, 'Rome', false, now()), (2, 'Oslo', true, now())")
    request.getfixturevalue("monkeypatch").setenv("SHOP_URL", url)


def sqlite(_request: pytest.FixtureRequest, folder: Path) -> None:
    with sqlite3.connect(folder / "shop.db") as connection:
        connection.execute("CREATE TABLE orders (id integer, placed text, price real, note text)")
        connection.execute("INSERT INTO orders VALUES (2, '2024-03-01 13:00', NULL, NULL)")
        connection.execute("INSERT INTO orders VALUES (1, '2024-03-01 13:00', 1.5, 'té')")
    connection.close()


def delta(_request: pytest.FixtureRequest, folder: Path) -> None:
    deltalake.write_deltalake(str(folder / "lake" / "orders"), ORDERS)


def iceberg(request: pytest.FixtureRequest, folder: Path) -> None:
    uri, warehouse = f"sqlite:///{folder / 'catalog.db'}", f"file://{folder}"
    monkeypatch = request.getfixturevalue("monkeypatch")
    for key, value in (("TYPE", "sql"), ("URI", uri), ("WAREHOUSE", warehouse)):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MAIN__{key}", value)
    # The environment is read when pyiceberg is imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalog = SqlCatalog("main", uri=uri, warehouse=warehouse)
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", schema=ORDERS.schema).append(ORDERS)


def kafka(request: pytest.FixtureRequest, _folder: Path) -> dict[str, Any]:
    """The place of a broker, which knows no passwords."""
    broker = request.getfixturevalue("broker")
    broker.send("orders", [order | {"placed": order["placed"].isoformat()} for order in ORDERS.to_pylist()])
    return {"servers": broker.address, "options": {}, "options_env": {}}


def own(request: pytest.FixtureRequest, folder: Path) -> None:
    (reader,) = READERS
    (folder / "shop_sources.py").write_text(reader)
    (folder / "data").mkdir()
    for order in ORDERS.to_pylist():
        body = json.dumps([order | {"placed": order["placed"].isoformat()}])
        (folder / "data" / f"{order['id']}.json").write_text(body)
    request.getfixturevalue("monkeypatch").syspath_prepend(folder)
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("example", "fill"),
    list(
        zip(
            EXAMPLES,
            [files, without_times, without_keys, with_signs, postgres, sqlite, delta, iceberg, kafka, own],
            strict=True,
        )
    ),
    ids=[
        "files",
        "without times",
        "without keys",
        "with signs",
        "postgresql",
        "sqlite",
        "delta",
        "iceberg",
        "kafka",
        "own",
    ],
)
def test_the_declaration_takes_a_snapshot(
    example: str,
    fill: Callable[[pytest.FixtureRequest, Path], dict[str, Any] | None],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: ArtifactStore,
) -> None:
    monkeypatch.chdir(tmp_path)
    body: dict[str, Any] = yaml.safe_load(example)
    body |= fill(request, tmp_path) or {}
    result = snapshot(SnapshotRequest(source=parse_source(body)), store)
    datasets = store.manifest(result.snapshot).derived_from
    assert set(datasets) == set(body["tables"])
    orders = pa.concat_tables([pq.read_table(path) for path in store.paths(datasets["orders"])])
    assert orders.select(ORDERS.column_names).to_pylist() == ORDERS.to_pylist()
    if "customers" in datasets:
        [customers] = store.paths(datasets["customers"])
        assert pq.read_table(customers).to_pylist() == [{"id": 1, "city": "rome"}]
