"""Historical features through Feast against a simple reference implementation."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, ValueType
from feast.types import Int64, String
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.features.point_in_time.feast_stores import Row, expected, opened, source, write

# The night in which New York has the hour from one to two twice.
NIGHT = datetime(2013, 11, 3, 5, 59, 59, tzinfo=UTC)
STEPS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 10**3}
ZONES = ("UTC", "America/New_York", None)


VIEWS = {"forever": (None, False), "fresh": (2, False), "event_only": (2, True)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FeatureStore]:
    """By precision, a store with three views of the same table: without and with a time-to-live, and by event alone."""
    stores = {}
    for unit, step in STEPS.items():
        folder = tmp_path_factory.mktemp(unit)
        write_rows(folder, unit, "UTC", [])
        key = Entity(name="key", join_keys=["key"], value_type=ValueType.STRING)
        views = [
            FeatureView(
                name=name,
                entities=[key],
                ttl=ttl and timedelta(microseconds=ttl * step // 1000),
                schema=[Field(name="key", dtype=String), Field(name="value", dtype=Int64)],
                source=source(folder / "rows.parquet", name=name),
                tags={"gatehouse.point_in_time": "event-time-only"} if event_time_only else {},
            )
            for name, (ttl, event_time_only) in VIEWS.items()
        ]
        stores[unit] = opened(folder)
        stores[unit].apply([key, *views])
    return stores


def times(moments: list[int | None], unit: str, zone: str | None) -> pa.Array:
    nanoseconds = [None if moment is None else int(NIGHT.timestamp()) * 10**9 + moment for moment in moments]
    return pa.array(nanoseconds, pa.timestamp("ns")).cast(pa.timestamp(unit)).cast(pa.timestamp(unit, zone))


def write_rows(folder: Path, unit: str, zone: str | None, rows: list[Row]) -> None:
    columns = {
        "key": pa.array([row.key for row in rows], pa.string()),
        "event_timestamp": times([row.event for row in rows], unit, zone),
        "created": times([row.created for row in rows], unit, zone),
        "value": pa.array([row.value for row in rows], pa.int64()),
    }
    write(folder / "rows.parquet", columns)


# Few values, so that most examples meet the boundaries.
keys = st.sampled_from(["a", "a", "a", "b", None])
count = st.sampled_from([0, 1, 1, 2, 2, 3, 3, 4, None])


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    unit=st.sampled_from(list(STEPS)),
    zone=st.sampled_from(ZONES),
    entity_zone=st.sampled_from(ZONES),
    entities=st.lists(st.tuples(keys, count, st.sampled_from([0, 1, -1])), max_size=7),
    rows=st.lists(st.tuples(keys, count, count, st.sampled_from([0, 1]), st.integers(0, 99)), max_size=10),
)
def test_agrees_with_the_reference(
    stores: dict[str, FeatureStore],
    unit: str,
    zone: str | None,
    entity_zone: str | None,
    entities: list[tuple[str | None, int | None, int]],
    rows: list[tuple[str | None, int | None, int | None, int, int]],
) -> None:
    """Ties, duplicates, late rows, nulls, precisions, zones, and entity times a nanosecond off every boundary."""
    step, fine = STEPS[unit], unit == "ns"

    def moment(steps: int | None, off: int) -> int | None:
        return None if steps is None else steps * step + off

    table = [
        Row(key, moment(event, off * fine), moment(made, off * fine), value) for key, event, made, off, value in rows
    ]
    write_rows(Path(stores[unit].config.repo_path or ""), unit, zone, table)
    entity_rows = [(key, moment(steps, off)) for key, steps, off in entities]
    frame = pd.DataFrame(
        {
            "key": pd.Series([key for key, _ in entity_rows], dtype="object"),
            "event_timestamp": pd.Series(times([time for _, time in entity_rows], "ns", entity_zone).to_pandas()),
            "row": range(len(entity_rows)),
        }
    )
    names = [f"{view}:value" for view in VIEWS]
    joined = stores[unit].get_historical_features(frame, names, full_feature_names=True).to_arrow()
    assert joined["row"].to_pylist() == list(range(len(entity_rows)))
    for view, (ttl, event_time_only) in VIEWS.items():
        fresh = None if ttl is None else ttl * step
        reference = [expected(key, time, table, fresh, event_time_only) for key, time in entity_rows]
        assert joined[f"{view}__value"].to_pylist() == reference, view
