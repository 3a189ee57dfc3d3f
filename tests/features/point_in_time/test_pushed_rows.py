"""Feast's push API on a view with a push source: rows come into both stores, and offline each version once."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, PushSource, ValueType
from feast.data_source import PushMode
from feast.types import Int64

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.point_in_time.feast_definitions import feast_objects
from gatehouse.features.point_in_time.source_files import EVENT_DATE
from tests.features.point_in_time.feast_stores import TIME, minute, opened, source, write

DRIVER = Entity(name="driver", join_keys=["driver"], value_type=ValueType.INT64)
LAYOUTS = ("file", "folder", "days")


def rows(*listed: tuple[int, int, int | None, int]) -> dict[str, Any]:
    """Rows of (driver, event minute, created minute, trips)."""
    return {
        "driver": pa.array([row[0] for row in listed], pa.int64()),
        "event_timestamp": pa.array([minute(row[1])[0] for row in listed], TIME),
        "created": pa.array([None if row[2] is None else minute(row[2])[0] for row in listed], TIME),
        "trips": pa.array([row[3] for row in listed], pa.int64()),
    }


def store_of(folder: Path, layout: str) -> FeatureStore:
    """A view with a row of driver 1 at noon, in one file, in a folder of files, or in folders by date."""
    tags = {EVENT_DATE: "day"} if layout == "days" else {}
    path = folder / "trips"
    write(
        {"file": path, "folder": path / "a.parquet", "days": path / "day=2013-06-01" / "a.parquet"}[layout],
        rows((1, 0, 0, 10)),
    )
    batch = source(path, name="trips_table", tags=tags)
    view = FeatureView(
        name="trips",
        entities=[DRIVER],
        ttl=timedelta(days=3),
        schema=[Field(name="driver", dtype=Int64), Field(name="trips", dtype=Int64)],
        source=PushSource(name="trips_push", batch_source=batch),
    )
    store = opened(folder)
    store.apply([DRIVER, view])
    return store


def pushed(store: FeatureStore, *listed: tuple[int, int, int | None, int], to: PushMode = PushMode.OFFLINE) -> None:
    frame = pa.table(rows(*listed)).to_pandas()
    if store.get_feature_view("trips").batch_source.tags:
        frame["day"] = frame["event_timestamp"].dt.strftime("%Y-%m-%d")
    store.push("trips_push", frame, to=to)


def joined(store: FeatureStore, *asked: tuple[int, int]) -> list[Any]:
    frame = pd.DataFrame({"driver": [one[0] for one in asked], "event_timestamp": minute(*(one[1] for one in asked))})
    found: list[Any] = store.get_historical_features(frame, ["trips:trips"]).to_arrow()["trips"].to_pylist()
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pushed_rows_are_joined_by_when_they_were_about_and_known(tmp_path: Path, layout: str) -> None:
    store = store_of(tmp_path, layout)
    pushed(store, (1, 30, 60, 11), (2, 1500, 1500, 20))
    assert joined(store, (1, 59), (1, 60), (2, 1499), (2, 1500)) == [10, 11, None, 20]
    pushed(store, (1, 30, 90, 12))
    assert joined(store, (1, 60), (1, 90)) == [11, 12]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_rows_twice_are_there_once(tmp_path: Path, layout: str) -> None:
    store = store_of(tmp_path, layout)
    for _ in range(2):
        pushed(store, (1, 30, 60, 11), (1, 30, 60, 11), (1, 0, 0, 10))
    pushed(store, (1, 30, 60, 11), (2, 5, 5, 20))
    view = store.get_feature_view("trips")
    found = store._get_provider().offline_store.pull_all_from_table_or_query(
        store.config, view.batch_source, ["driver"], ["trips"], "event_timestamp", "created", None, None
    )
    assert sorted(found.to_arrow()["trips"].to_pylist()) == [10, 11, 20]


def test_both_stores_are_written(tmp_path: Path) -> None:
    store = store_of(tmp_path, "folder")
    pushed(store, (7, 30, 30, 70), to=PushMode.ONLINE_AND_OFFLINE)
    assert store.get_online_features(["trips:trips"], [{"driver": 7}]).to_dict()["trips"] == [70]
    assert joined(store, (7, 30)) == [70]


@pytest.mark.parametrize("other", [[(1, 0, 0, 99)], [(3, 5, 5, 1), (3, 5, 5, 2)]])
def test_a_row_that_contradicts_what_was_known_is_refused(tmp_path: Path, other: list[Any]) -> None:
    store = store_of(tmp_path, "folder")
    with pytest.raises(ConfigurationError, match="contradicts one with the same keys and times: driver"):
        pushed(store, *other)
    assert joined(store, (1, 5), (3, 5)) == [10, None]


def test_a_row_that_does_not_say_since_when_it_is_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="1 pushed row without created"):
        pushed(store_of(tmp_path, "folder"), (1, 30, None, 11))


@pytest.mark.parametrize(
    ("column", "value"),
    [("driver", 1.7), ("driver", "1"), ("driver", True), ("trips", 2.9), ("event_timestamp", "01/02/2013")],
)
def test_a_value_that_its_column_does_not_hold_is_refused(tmp_path: Path, column: str, value: Any) -> None:
    store = store_of(tmp_path, "folder")
    frame = pa.table(rows((1, 30, 60, 11))).to_pandas().assign(**{column: [value]})
    with pytest.raises(ConfigurationError, match=rf"trips_table.*{column} in row 1: .*{value}"):
        store.push("trips_push", frame, to=PushMode.OFFLINE)
    assert joined(store, (1, 60)) == [10]


def test_published_feature_tables_are_not_written(tmp_path: Path) -> None:
    store = store_of(tmp_path, "folder")
    (tmp_path / "trips").rename(tmp_path / "published")
    (tmp_path / "trips").symlink_to(tmp_path / "published")
    with pytest.raises(ConfigurationError, match="published feature tables, which never change"):
        pushed(store, (1, 30, 60, 11))


def test_views_that_read_a_stream_have_a_push_source(repository: Repository) -> None:
    objects = feast_objects(repository)
    pushes = {name: one.stream_source for name, one in objects.items() if isinstance(one, FeatureView)}
    assert pushes.pop("FeatureView_aircraft") is None
    assert {one.name for one in pushes.values() if one} == {f"{name[12:]}_push" for name in pushes}
