"""Databases in memory: they begin empty, so all that can be read there is what a query reads from elsewhere."""

from collections.abc import Iterable
from urllib.parse import urlsplit


def is_in_memory(url: str) -> bool:
    """Whether a URL of DuckDB or SQLite names no file."""
    return urlsplit(url).path.removeprefix("/") in ("", ":memory:")


def nothing_to_read(url: str, tables: Iterable[str]) -> str:
    """Why a database has no rows to read, as it is in memory; empty where it may have some.

    Args:
        url: Of the database.
        tables: The tables that are read by their name, and not by a query.
    """
    scheme, named = urlsplit(url).scheme.partition("+")[0], ", ".join(tables)
    if scheme not in ("sqlite", "duckdb") or not is_in_memory(url):
        return ""
    if scheme == "sqlite":
        return (
            "an SQLite database in memory is empty, and SQLite reads no other files. Expected a file, e.g. "
            "sqlite:///data/shop.db, or duckdb:///:memory: for a query of CSV or Parquet files"
        )
    return (
        f"a DuckDB database in memory has no tables: expected a query of files, found table ({named})" if named else ""
    )
