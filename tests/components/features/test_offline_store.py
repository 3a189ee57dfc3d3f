"""The offline store behind Feast's own API."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.types import Int64

from gatehouse.errors import ConfigurationError

NOON = datetime(2013, 6, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


def minute(*minutes: int) -> list[datetime]:
    return [NOON + timedelta(minutes=number) for number in minutes]


@pytest.fixture
def feast(tmp_path: Path) -> FeatureStore:
    """A store with one view: driver 1 has a row at 0, corrected at 30 with knowledge of minute 60."""
    rows = {
        "driver": pa.array([1, 1, 2], pa.int64()),
        "event_timestamp": pa.array(minute(0, 30, 0), TIME),
        "created": pa.array(minute(0, 60, 0), TIME),
        "trips": pa.array([10, 11, 20], pa.int64()),
    }
    pq.write_table(pa.table(rows), tmp_path / "trips.parquet")
    config = RepoConfig(
        project="test",
        provider="local",
        registry=str(tmp_path / "registry.db"),
        offline_store={"type": "gatehouse.components.features.offline_store.AsofOfflineStore"},
        online_store={"type": "sqlite", "path": str(tmp_path / "online.db")},
        entity_key_serialization_version=3,
        repo_path=tmp_path,
    )
    driver = Entity(name="driver", join_keys=["driver"], value_type=ValueType.INT64)
    view = FeatureView(
        name="trips",
        entities=[driver],
        ttl=timedelta(hours=2),
        schema=[Field(name="driver", dtype=Int64), Field(name="trips", dtype=Int64)],
        source=FileSource(
            path=str(tmp_path / "trips.parquet"), timestamp_field="event_timestamp", created_timestamp_column="created"
        ),
    )
    store = FeatureStore(config=config)
    store.apply([driver, view])
    return store


def test_a_frame_keeps_its_rows_and_their_order(feast: FeatureStore) -> None:
    frame = pd.DataFrame({"driver": [2, 1, 2, 3, 1], "event_timestamp": minute(5, 45, 5, 5, 60)})
    found = feast.get_historical_features(entity_df=frame, features=["trips:trips"]).to_arrow()
    assert found["driver"].to_pylist() == [2, 1, 2, 3, 1]
    assert found["trips"].to_pylist() == [20, 10, 20, None, 11]
    assert found["trips"].type == pa.int64()


def test_nanoseconds_and_other_zones_are_understood(feast: FeatureStore) -> None:
    times = pd.to_datetime(minute(45)).tz_convert("America/New_York").as_unit("ns")
    frame = pd.DataFrame({"driver": [1], "event_timestamp": times})
    assert feast.get_historical_features(entity_df=frame, features=["trips:trips"]).to_arrow()["trips"].to_pylist() == [
        10
    ]


def test_entity_rows_may_be_a_query(feast: FeatureStore) -> None:
    query = "SELECT 1 AS driver, TIMESTAMPTZ '2013-06-01 14:31:00+00' AS decided"
    found = feast.get_historical_features(entity_df=query, features=["trips:trips"]).to_df()
    assert found["trips"].isna().tolist() == [True]


def test_full_feature_names(feast: FeatureStore) -> None:
    frame = pd.DataFrame({"driver": [1], "event_timestamp": minute(1)})
    found = feast.get_historical_features(entity_df=frame, features=["trips:trips"], full_feature_names=True).to_arrow()
    assert found["trips__trips"].to_pylist() == [10]


def test_no_entity_rows_is_no_error(feast: FeatureStore) -> None:
    frame = pd.DataFrame({"driver": pd.array([], "int64"), "event_timestamp": pd.to_datetime([], utc=True)})
    assert feast.get_historical_features(entity_df=frame, features=["trips:trips"]).to_arrow().num_rows == 0


def test_two_times_without_the_usual_name_are_refused(feast: FeatureStore) -> None:
    query = "SELECT 1 AS driver, now() AS one, now() AS other"
    with pytest.raises(ConfigurationError, match="expected a column 'event_timestamp' or one timestamp"):
        feast.get_historical_features(entity_df=query, features=["trips:trips"]).to_arrow()


def test_materialization_takes_the_newest_row_known_at_its_end(feast: FeatureStore) -> None:
    def online() -> list[int | None]:
        rows = [{"driver": 1}, {"driver": 2}, {"driver": 3}]
        return list(feast.get_online_features(features=["trips:trips"], entity_rows=rows).to_dict()["trips"])

    feast.materialize(start_date=NOON - timedelta(days=1), end_date=NOON + timedelta(minutes=45))
    assert online() == [10, 20, None]
    feast.materialize(start_date=NOON - timedelta(days=1), end_date=NOON + timedelta(minutes=60))
    assert online() == [11, 20, None]
