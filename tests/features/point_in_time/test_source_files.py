"""Where the offline store reads from: files, folders, object stores."""

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

from gatehouse.features.database import connect
from gatehouse.features.point_in_time.source_files import SourceFiles
from tests.features.point_in_time.feast_stores import NOON, opened, source, write
from tests.stand_ins.servers import BUCKET, gcs_server, s3_server

DAY = timedelta(days=1)


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
    rows = store.get_historical_features(entity_df=frame, features=["trips:trips"]).to_arrow()
    return list(rows["trips"].to_pylist())


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect() as opened_connection:
        yield opened_connection


def rows(connection: duckdb.DuckDBPyConnection, where: str | Path, **options: Any) -> list[int]:
    scan = SourceFiles(connection, None).scan(source(where, **options))
    return [value for (value,) in connection.sql(f"SELECT trips FROM {scan}").fetchall()]


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


def parquet(columns: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), stream)
    return stream.getvalue()


def put(protocol: str, path: str, content: bytes) -> None:
    if protocol == "gs":
        from google.cloud.storage import Client

        Client().bucket(BUCKET).blob(path).upload_from_string(content)
    else:
        fsspec.filesystem("s3", skip_instance_cache=True).pipe_file(f"{BUCKET}/{path}", content)


@pytest.mark.parametrize("protocol", ["s3", "gs"])
def test_an_object_store_is_listed_once(protocol: str, tmp_path: Path) -> None:
    """Ten days in folders of Hive, and one file of another kind beside them."""
    with (s3_server if protocol == "s3" else gcs_server)() as proxy, pytest.MonkeyPatch.context() as patch:
        for variable, value in proxy.environment.items():
            patch.setenv(variable, value)
        objects = {f"trips/{name(number)}": parquet(day(number)) for number in range(10)}
        objects |= {"trips/_SUCCESS": b"", "tripsandmore/part.parquet": parquet(day(99)), "other/a.csv": b"a\n1\n"}
        for path, content in objects.items():
            put(protocol, path, content)
        store = opened(tmp_path)
        store.apply(view(f"{protocol}://{BUCKET}/trips", ttl=2 * DAY))
        proxy.reset()
        assert trips(store, 5, 7.4) == [5, 7]
        assert proxy.count("HEAD") == 0, "the listing said all that HEAD would"
