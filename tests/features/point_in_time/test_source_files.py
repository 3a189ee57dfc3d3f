"""Where the offline store reads from: files, folders divided by date, object stores; nothing is left out unsaid."""

import io
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, ValueType
from feast.types import Int64

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import connect
from gatehouse.features.point_in_time.source_files import EVENT_DATE, SourceFiles
from tests.features.point_in_time.feast_stores import NOON, opened, source, write
from tests.stand_ins.servers import BUCKET, Proxy, gcs_server, s3_server

DAY = timedelta(days=1)
BY_DATE = {EVENT_DATE: "date"}


def day(number: int) -> dict[str, Any]:
    """One row, so many days after `NOON`, with its own number as value."""
    moment = [NOON + number * DAY]
    return {"driver": [1], "event_timestamp": moment, "created": moment, "trips": pa.array([number], pa.int64())}


def name(number: int) -> str:
    return f"date={(NOON + number * DAY).date()}/part.parquet"


def view(where: str | Path, ttl: timedelta | None = None, **options: Any) -> list[Any]:
    driver = Entity(name="driver", join_keys=["driver"], value_type=ValueType.INT64)
    schema = [Field(name="driver", dtype=Int64), Field(name="trips", dtype=Int64)]
    return [
        driver,
        FeatureView(name="trips", entities=[driver], ttl=ttl, schema=schema, source=source(where, **options)),
    ]


def trips(store: FeatureStore, *days: float) -> list[int | None]:
    frame = pd.DataFrame({"driver": [1] * len(days), "event_timestamp": [NOON + number * DAY for number in days]})
    found = store.get_historical_features(entity_df=frame, features=["trips:trips"]).to_arrow()
    return list(found["trips"].to_pylist())


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect() as opened_connection:
        yield opened_connection


def rows(connection: duckdb.DuckDBPyConnection, where: str | Path, **options: Any) -> list[int]:
    scan = SourceFiles(connection, None).scan(source(where, **options))
    return [found for (found,) in connection.sql(f"SELECT trips FROM {scan}").fetchall()]


def test_a_folder_is_read_with_all_that_is_below_it_in_the_order_of_names(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    for number, place in enumerate(["b.parquet", "a/d.PARQUET", "a/b/c.pq", "c.parquet"]):
        write(tmp_path / "trips" / place, day(number))
    (tmp_path / "trips" / "_SUCCESS").touch()
    (tmp_path / "trips" / ".c.parquet.crc").touch()
    assert rows(connection, tmp_path / "trips") == [2, 1, 0, 3]
    assert rows(connection, tmp_path / "trips" / "*.parquet") == [0, 3]
    assert rows(connection, tmp_path / "trips" / "**" / "c.p*") == [2, 3]


# Folders divided by date


def test_files_that_cannot_count_are_not_opened(tmp_path: Path) -> None:
    """They lie before the first entity time less the time-to-live, or after the last entity time."""
    for number in range(10):
        write(tmp_path / "trips" / name(number), day(number))
    for number in (0, 1, 2, 8, 9):
        (tmp_path / "trips" / name(number)).write_bytes(b"not Parquet")
    store = opened(tmp_path)
    store.apply(view(tmp_path / "trips", ttl=2 * DAY, tags=BY_DATE))
    assert trips(store, 5, 7.4, 5.9, 6.99) == [5, 7, 5, 6]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (name(1), "rows whose event is not on the UTC date of their folder's date"),
        ("part.parquet", "says that folders are named date=<YYYY-MM-DD>, found"),
        ("date=May/part.parquet", "says that folders are named date=<YYYY-MM-DD>, found"),
    ],
)
def test_a_row_that_is_not_of_its_folders_date_is_an_error(place: str, message: str, tmp_path: Path) -> None:
    """Otherwise rows would be missed, for example in a folder of local dates or of dates of arrival."""
    write(tmp_path / "trips" / name(0), day(0))
    write(tmp_path / "trips" / place, day(2))
    store = opened(tmp_path)
    store.apply(view(tmp_path / "trips", tags=BY_DATE))
    with pytest.raises(ConfigurationError, match=message):
        trips(store, 3)


# Object stores


def parquet(columns: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), stream)
    return stream.getvalue()


@pytest.fixture(scope="module", params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest) -> Iterator[tuple[str, Proxy]]:
    """Ten days in an object store, and one file of another kind beside them; the server that has them."""
    with (s3_server if request.param == "s3" else gcs_server)() as proxy, pytest.MonkeyPatch.context() as patch:
        for variable, value in proxy.environment.items():
            patch.setenv(variable, value)
        objects = {f"trips/{name(number)}": parquet(day(number)) for number in range(10)}
        objects |= {"trips/_SUCCESS": b"", "tripsandmore/part.parquet": parquet(day(99)), "other/a.csv": b"a\n1\n"}
        for path, content in objects.items():
            put(request.param, path, content)
        yield f"{request.param}://{BUCKET}", proxy


def put(protocol: str, path: str, content: bytes) -> None:
    if protocol == "gs":
        from google.cloud.storage import Client

        Client().bucket(BUCKET).blob(path).upload_from_string(content)
    else:
        fsspec.filesystem("s3", skip_instance_cache=True).pipe_file(f"{BUCKET}/{path}", content)


def downloads(proxy: Proxy) -> set[str]:
    """Dates of the objects whose bytes were asked for."""
    asked = [exchange for exchange in proxy.exchanges if exchange.method == "GET" and "part.parquet" in exchange.url]
    return {exchange.url.split("date=")[1][:10] for exchange in asked}


def test_an_object_store_is_read_and_pruned(bucket: tuple[str, Proxy], tmp_path: Path) -> None:
    address, proxy = bucket
    store = opened(tmp_path)
    store.apply(view(f"{address}/trips", ttl=2 * DAY, tags=BY_DATE))
    proxy.reset()
    assert trips(store, 5, 7.4) == [5, 7]
    assert downloads(proxy) == {str((NOON + number * DAY).date()) for number in (3, 4, 5, 6, 7)}
    assert proxy.count("HEAD") == 0, "the listing said all that HEAD would"
