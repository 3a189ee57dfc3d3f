"""The table `orders` in a SQL database of each kind: how tests write it, declare it and read it."""

import sqlite3
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import duckdb

from gatehouse.data.sources.sql import SqlSource

ORDERS = {"id": "int64", "item": "string", "price": "double", "paid": "bool", "placed": "timestamp"}


def run(url: str, *statements: str) -> None:
    """Let another connection write."""
    if url.startswith("postgresql"):
        with adbc.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    elif url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
    else:
        with duckdb.connect(url.removeprefix("duckdb:///")) as opened:
            for statement in statements:
                opened.execute(statement)


def orders(url: str, start: int, stop: int) -> None:
    """Write orders `start` to `stop`, later keys first."""
    kind = "timestamptz" if not url.startswith("sqlite") else "text"
    numbers = ", ".join(
        f"({i}, 'té {i}', {i}.5, {'true' if i % 2 else 'false'}, '2024-03-01 12:00:{i % 60:02d}+00:00')"
        for i in reversed(range(start, stop))
    )
    create = (
        f"CREATE TABLE IF NOT EXISTS orders (id bigint, item text, price double precision, paid boolean, placed {kind})"
    )
    run(url, create, *([f"INSERT INTO orders VALUES {numbers}"] if start < stop else []))


def source(url: str, rows_per_part: int = 10, time_zone: str = "", **table: Any) -> SqlSource:
    declared = {"table": "orders", "columns": ORDERS, "order_by": ["id"]} | table
    if "query" in table:
        del declared["table"]
    if table.get("sort_on_ingest"):
        del declared["order_by"]
    return SqlSource.model_validate(
        {
            "name": "shop",
            "url": url,
            "rows_per_part": rows_per_part,
            "time_zone": time_zone,
            "tables": {"orders": declared},
        }
    )
