"""The offline store behind Feast's own API."""

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, RequestSource, ValueType
from feast.infra.offline_stores.file_source import SavedDatasetFileStorage
from feast.on_demand_feature_view import on_demand_feature_view
from feast.types import Int64

from gatehouse.errors import ConfigurationError
from gatehouse.features.point_in_time.asof_join import asof_batches
from gatehouse.features.point_in_time.retrieval_job import AsofRetrievalMetadata
from tests.features.point_in_time.feast_stores import NOON, TIME, minute, opened, source, write

DRIVER = Entity(name="driver", join_keys=["driver"], value_type=ValueType.INT64)


def trips_view(path: Path, **options: Any) -> FeatureView:
    """Driver 1 has a row at 0, and one at 30 that is known at 60; driver 2 one at 0."""
    rows: dict[str, Any] = {
        "driver": pa.array([1, 1, 2], pa.int64()),
        "event_timestamp": pa.array(minute(0, 30, 0), TIME),
        "created": pa.array(minute(0, 60, 0), TIME),
        "trips": pa.array([10, 11, 20], pa.int64()),
    }
    write(path / "trips.parquet", rows)
    schema = [Field(name="driver", dtype=Int64), Field(name="trips", dtype=Int64)]
    given = {"ttl": timedelta(hours=2), "source": source(path / "trips.parquet"), "schema": schema} | options
    return FeatureView(name="trips", entities=[DRIVER], **given)


@pytest.fixture
def feast(tmp_path: Path) -> FeatureStore:
    store = opened(tmp_path)
    store.apply([DRIVER, trips_view(tmp_path)])
    return store


def asked(*rows: tuple[int, int], **more: list[Any]) -> pd.DataFrame:
    """Entity rows of (driver, minute)."""
    return pd.DataFrame(
        {"driver": [row[0] for row in rows], "event_timestamp": minute(*(row[1] for row in rows)), **more}
    )


def test_materialization_takes_the_newest_row_known_at_its_end(feast: FeatureStore) -> None:
    def online() -> list[int | None]:
        rows = [{"driver": 1}, {"driver": 2}, {"driver": 3}]
        return list(feast.get_online_features(features=["trips:trips"], entity_rows=rows).to_dict()["trips"])

    feast.materialize(start_date=NOON - timedelta(days=1), end_date=NOON + timedelta(minutes=45))
    assert online() == [10, 20, None]
    feast.materialize(start_date=NOON - timedelta(days=1), end_date=NOON + timedelta(minutes=60))
    assert online() == [11, 20, None]


def test_a_query_runs_once_and_its_rows_come_back_as_they_are(feast: FeatureStore) -> None:
    query = (
        "SELECT (i % 3)::BIGINT AS driver, TIMESTAMPTZ '2013-06-01 12:05:00+00' AS event_timestamp, random() AS draw, "
        "sum(i) OVER (ORDER BY i) AS wide FROM range(5) t(i) ORDER BY i DESC;"
    )
    job = feast.get_historical_features(entity_df=query, features=["trips:trips"])
    found, again = job.to_arrow(), job.to_arrow()
    assert found.equals(again)
    assert found["wide"].type == pa.decimal128(38, 0)
    assert found["trips"].to_pylist() == [10, None, 20, 10, None]


# Without entity rows


def test_a_range_gives_every_key_once_at_its_end(feast: FeatureStore) -> None:
    def found(start: int, end: int) -> list[Any]:
        start_date, end_date = minute(start, end)
        job = feast.get_historical_features(features=["trips:trips"], start_date=start_date, end_date=end_date)
        rows = job.to_arrow()
        assert set(rows["event_timestamp"].to_pylist()) <= {end_date}
        return list(zip(rows["driver"].to_pylist(), rows["trips"].to_pylist(), strict=True))

    assert found(0, 45) == [(1, 10), (2, 20)]
    assert found(0, 60) == [(1, 11), (2, 20)]
    assert found(15, 60) == [(1, 11)], "driver 2 has no event in the range"
    assert found(15, 45) == [], "what was not known at the end is no event"


# The rule of time


def test_a_tag_makes_a_view_follow_the_event_time_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.apply([DRIVER, trips_view(tmp_path, tags={"gatehouse.point_in_time": "event-time-only"})])
    job = store.get_historical_features(entity_df=asked((1, 45)), features=["trips:trips"])
    assert job.to_arrow()["trips"].to_pylist() == [11]
    assert isinstance(job.metadata, AsofRetrievalMetadata)
    assert job.metadata.point_in_time == {"trips": "event-time-only"}
    strict = store.get_historical_features(asked((1, 45)), ["trips:trips"], filter_by_created_timestamp=True)
    assert strict.to_arrow()["trips"].to_pylist() == [10]
    assert isinstance(strict.metadata, AsofRetrievalMetadata)
    assert strict.metadata.point_in_time == {"trips": "bitemporal"}


# Names


def test_columns_of_a_source_may_be_mapped_to_other_names(tmp_path: Path) -> None:
    rows = {"drv": [1, 2], "happened": minute(0, 0), "entered": minute(0, 0), "n": pa.array([10, 20], pa.int64())}
    write(tmp_path / "raw.parquet", rows)
    mapping = {"drv": "driver", "n": "trips", "happened": "event_timestamp", "entered": "created"}
    store = opened(tmp_path)
    store.apply([DRIVER, trips_view(tmp_path, source=source(tmp_path / "raw.parquet", field_mapping=mapping))])
    found = store.get_historical_features(entity_df=asked((2, 5)), features=["trips:trips"]).to_arrow()
    assert found["trips"].to_pylist() == [20]
    store.materialize(start_date=NOON - timedelta(days=1), end_date=NOON + timedelta(minutes=45))
    online = store.get_online_features(features=["trips:trips"], entity_rows=[{"driver": 2}])
    assert online.to_dict()["trips"] == [20]


# On-demand views


@pytest.fixture
def on_demand(feast: FeatureStore) -> FeatureStore:
    @on_demand_feature_view(
        sources=[feast.get_feature_view("trips"), RequestSource(name="now", schema=[Field(name="extra", dtype=Int64)])],
        schema=[Field(name="total", dtype=Int64)],
        mode="pandas",
    )
    def totals(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"total": frame["trips"].fillna(0).astype("int64") + frame["extra"]})

    feast.apply([totals])
    return feast


# Batches and memory


def test_batches_hold_what_the_table_holds_and_leave_nothing_behind(
    feast: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    few = lambda *arguments: asof_batches(*arguments[:-1], 1 << 12)  # noqa: E731
    monkeypatch.setattr("gatehouse.features.point_in_time.offline_store.asof_batches", few)
    frame = asked(*((number % 3, number % 90) for number in range(1000)))
    job = feast.get_historical_features(entity_df=frame, features=["trips:trips"])
    reader = job.to_arrow_batches()
    first = reader.read_next_batch()
    assert 0 < first.num_rows < 1000
    assert any(folder.iterdir()), "what does not fit waits on disk"
    whole = pa.concat_tables([pa.Table.from_batches([first]), reader.read_all()])
    assert whole.equals(job.to_arrow())
    abandoned = job.to_arrow_batches()
    abandoned.read_next_batch()
    del abandoned, reader
    assert list(folder.iterdir()) == []
    trips = [None, 10, 20]
    expected = [11 if n % 3 == 1 and n % 90 >= 60 else trips[n % 3] for n in range(1000)]
    assert whole["trips"].to_pylist() == expected


# Saved datasets and validation references


def test_a_saved_dataset_comes_back(on_demand: FeatureStore, tmp_path: Path) -> None:
    frame = asked((2, 5), (1, 45), (2, 5), extra=[1, 2, 3])
    job = on_demand.get_historical_features(entity_df=frame, features=["trips:trips", "totals:total"])
    storage = SavedDatasetFileStorage(path="saved/trips.parquet")
    on_demand.create_saved_dataset(from_=job, name="first", storage=storage)
    found = on_demand.get_saved_dataset("first").to_df()
    assert found["driver"].tolist() == [2, 1, 2]
    assert found["trips"].tolist() == [20, 10, 20] and found["total"].tolist() == [21, 12, 23]
    assert pq.read_table(tmp_path / "saved" / "trips.parquet").column_names == [*frame, "trips", "total"]
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["trips.parquet"]
    with pytest.raises(ConfigurationError, match=r"The saved dataset trips\.parquet exists"):
        on_demand.create_saved_dataset(from_=job, name="second", storage=storage)
    on_demand.create_saved_dataset(from_=job, name="second", storage=storage, allow_overwrite=True)
