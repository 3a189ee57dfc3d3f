"""The offline store behind Feast's own API."""

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, RequestSource, ValueType
from feast.on_demand_feature_view import on_demand_feature_view
from feast.types import Int64

from gatehouse.features.point_in_time.asof_join import asof_batches
from gatehouse.features.point_in_time.offline_store import AsofRetrievalMetadata
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
    fields = {"ttl": timedelta(hours=2), "source": source(path / "trips.parquet"), "schema": schema} | options
    return FeatureView(name="trips", entities=[DRIVER], **fields)


@pytest.fixture
def feast(tmp_path: Path) -> FeatureStore:
    store = opened(tmp_path)
    store.apply([DRIVER, trips_view(tmp_path)])
    return store


def entity_rows(*rows: tuple[int, int], **more: list[Any]) -> pd.DataFrame:
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
    rows = job.to_arrow()
    assert rows.equals(job.to_arrow())
    assert rows["wide"].type == pa.decimal128(38, 0)
    assert rows["trips"].to_pylist() == [10, None, 20, 10, None]


# The rule of time


def test_a_tag_makes_a_view_follow_the_event_time_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.apply([DRIVER, trips_view(tmp_path, tags={"gatehouse.point_in_time": "event-time-only"})])
    job = store.get_historical_features(entity_df=entity_rows((1, 45)), features=["trips:trips"])
    assert job.to_arrow()["trips"].to_pylist() == [11]
    assert isinstance(job.metadata, AsofRetrievalMetadata)
    assert job.metadata.point_in_time == {"trips": "event-time-only"}
    strict = store.get_historical_features(entity_rows((1, 45)), ["trips:trips"], filter_by_created_timestamp=True)
    assert strict.to_arrow()["trips"].to_pylist() == [10]
    assert isinstance(strict.metadata, AsofRetrievalMetadata)
    assert strict.metadata.point_in_time == {"trips": "bitemporal"}


# Names


def test_columns_of_a_source_may_be_mapped_to_other_names(tmp_path: Path) -> None:
    columns = {"drv": [1, 2], "happened": minute(0, 0), "entered": minute(0, 0), "n": pa.array([10, 20], pa.int64())}
    write(tmp_path / "raw.parquet", columns)
    mapping = {"drv": "driver", "n": "trips", "happened": "event_timestamp", "entered": "created"}
    store = opened(tmp_path)
    store.apply([DRIVER, trips_view(tmp_path, source=source(tmp_path / "raw.parquet", field_mapping=mapping))])
    rows = store.get_historical_features(entity_df=entity_rows((2, 5)), features=["trips:trips"]).to_arrow()
    assert rows["trips"].to_pylist() == [20]
    store.materialize(start_date=NOON - timedelta(days=1), end_date=NOON + timedelta(minutes=45))
    online = store.get_online_features(features=["trips:trips"], entity_rows=[{"driver": 2}])
    assert online.to_dict()["trips"] == [20]


# Batches and memory


def test_batches_have_features_of_on_demand_views(feast: FeatureStore) -> None:
    @on_demand_feature_view(
        sources=[feast.get_feature_view("trips"), RequestSource(name="now", schema=[Field(name="extra", dtype=Int64)])],
        schema=[Field(name="total", dtype=Int64)],
        mode="pandas",
    )
    def totals(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"total": frame["trips"].fillna(0).astype("int64") + frame["extra"]})

    feast.apply([totals])
    frame = entity_rows((2, 5), (1, 45), (2, 5), extra=[1, 2, 3])
    job = feast.get_historical_features(entity_df=frame, features=["trips:trips", "totals:total"])
    assert job.to_arrow_batches().read_all()["total"].to_pylist() == [21, 12, 23]


def test_batches_hold_what_the_table_holds_and_leave_nothing_behind(
    feast: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    few = lambda *arguments: asof_batches(*arguments[:-1], 1 << 12)  # noqa: E731
    monkeypatch.setattr("gatehouse.features.point_in_time.offline_store.asof_batches", few)
    frame = entity_rows(*((number % 3, number % 90) for number in range(1000)))
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
