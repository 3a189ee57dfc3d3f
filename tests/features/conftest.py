"""The real tables of January 2013 and the example project's feature repository, for the tests of the feature stages."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

import gatehouse
from gatehouse.features.database import connect, open_tables, set_time
from gatehouse.features.definitions.repository import Repository, read_repository
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineStore
from tests.features.flights import AS_OF, Flights
from tests.features.online_rows import redis_server

if TYPE_CHECKING:
    from redis import Redis

REPOSITORY = Path(gatehouse.__file__).parent / "feature_repo"


@pytest.fixture(scope="session")
def repository() -> Repository:
    return read_repository(REPOSITORY)


@pytest.fixture
def january(raw_tables: dict[str, Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reads 1 to 21 January 2013, with the staging queries not run yet."""
    with connect() as connection:
        open_tables(connection, {name: [path] for name, path in raw_tables.items()})
        set_time(connection, "as_of", AS_OF)
        yield connection


@pytest.fixture(scope="session")
def raw_tables(flights_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Parquet file by raw table: flights and weather of 1 to 21 January 2013, the other tables whole."""
    folder = tmp_path_factory.mktemp("raw")
    tables: dict[str, Path] = {}
    with tarfile.open(flights_archive) as archive, duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        names = {Path(name).name: name for name in archive.getnames()}
        for table in ("flights", "weather", "planes", "airports", "airlines"):
            packed = f"{table}.csv.zip" if table == "flights" else f"{table}.csv"
            data = archive.extractfile(names[packed]).read()
            if packed.endswith(".zip"):
                with zipfile.ZipFile(io.BytesIO(data)) as zipped:
                    data = zipped.read(next(name for name in zipped.namelist() if name.endswith(f"{table}.csv")))
            (folder / f"{table}.csv").write_bytes(data)
            tables[table] = folder / f"{table}.parquet"
            rows = f"read_csv('{folder / table}.csv', nullstr = ['NA', ''], sample_size = -1)"
            timed = "time_hour" in connection.sql(f"FROM {rows}").columns
            span = f"SELECT * REPLACE (time_hour::TIMESTAMPTZ AS time_hour) FROM {rows} WHERE month = 1 AND day <= 21"
            connection.execute(f"COPY ({span if timed else f'FROM {rows}'}) TO '{tables[table]}' (FORMAT parquet)")
    return tables


@pytest.fixture(scope="session")
def flights(raw_tables: dict[str, Path], repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Flights:
    """A store to which snapshots of January are brought; tests add to it and change nothing."""
    return Flights(tmp_path_factory.mktemp("flights"), raw_tables, repository)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Redis]":
    """A Redis server; each test empties it first."""
    with redis_server(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture(params=["redis", "sqlite"])
def online(request: pytest.FixtureRequest, server: "Redis", tmp_path: Path) -> OnlineStore:
    from gatehouse.online.redis import RedisOnline

    server.flushall()
    if request.param == "redis":
        return RedisOnline(server, "flights")
    return SqliteOnline(tmp_path / "online.db", "flights")
