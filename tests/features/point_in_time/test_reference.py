"""Historical features through Feast against an obvious reference, and what docs/point-in-time.md says of stores."""

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, ValueType
from feast.types import Int64, String
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gatehouse
from tests.features.point_in_time.feast_stores import OURS, minute, opened, source, write

# The night in which New York has the hour from one to two twice.
NIGHT = datetime(2013, 11, 3, 5, 59, 59, tzinfo=UTC)
STEPS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 10**3}
ZONES = ("UTC", "America/New_York", None)
PAGE = Path(gatehouse.__file__).resolve().parents[1] / "docs" / "point-in-time.md"


@dataclass(frozen=True)
class Row:
    """A feature row; times in nanoseconds after `NIGHT`."""

    key: str | None
    event: int | None
    created: int | None
    value: int | None


def expected(key: str | None, time: int | None, rows: list[Row], ttl: int | None, event_time_only: bool) -> int | None:
    """The value for one entity row, in the words of the page."""
    usable = []
    for position, row in enumerate(rows):
        if key is None or time is None or row.key != key or row.event is None or row.event > time:
            continue
        created = row.event if row.created is None else row.created
        if event_time_only or created <= time:
            usable.append((row.event, created, position, row.value))
    if not usable or time is None:
        return None
    event, _, _, value = max(usable)
    return value if ttl is None or time - event <= ttl else None


VIEWS = {"forever": (None, False), "fresh": (2, False), "event_only": (2, True)}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FeatureStore]:
    """By precision, a store with three views of the same table: without and with a time-to-live, and by event alone."""
    found = {}
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
        found[unit] = opened(folder)
        found[unit].apply([key, *views])
    return found


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
    asked = [(key, moment(steps, off)) for key, steps, off in entities]
    frame = pd.DataFrame(
        {
            "key": pd.Series([key for key, _ in asked], dtype="object"),
            "event_timestamp": pd.Series(times([time for _, time in asked], "ns", entity_zone).to_pandas()),
            "row": range(len(asked)),
        }
    )
    names = [f"{view}:value" for view in VIEWS]
    found = stores[unit].get_historical_features(frame, names, full_feature_names=True).to_arrow()
    assert found["row"].to_pylist() == list(range(len(asked)))
    for view, (ttl, event_time_only) in VIEWS.items():
        fresh = None if ttl is None else ttl * step
        wanted = [expected(key, time, table, fresh, event_time_only) for key, time in asked]
        assert found[f"{view}__value"].to_pylist() == wanted, view


def test_the_picture_of_the_page(tmp_path: Path) -> None:
    rows = [("A", 1, 1), ("B", 3, 6), ("C", 4, 5), ("D", 4, 8)]
    columns = {
        "key": ["k"] * 4,
        "event_timestamp": minute(*(60 * event for _, event, _ in rows)),
        "created": minute(*(60 * known for _, _, known in rows)),
        "letter": [letter for letter, _, _ in rows],
    }
    write(tmp_path / "rows.parquet", columns)
    key = Entity(name="key", join_keys=["key"], value_type=ValueType.STRING)
    schema = [Field(name="key", dtype=String), Field(name="letter", dtype=String)]
    where = source(tmp_path / "rows.parquet")
    feast = opened(tmp_path)
    feast.apply([key, FeatureView(name="rows", entities=[key], ttl=timedelta(hours=10), schema=schema, source=where)])
    frame = pd.DataFrame({"key": "k", "event_timestamp": minute(0, 270, 300, 390, 480, 840, 855)})
    found = feast.get_historical_features(frame, ["rows:letter"]).to_arrow()
    assert found["letter"].to_pylist() == [None, "A", "C", "C", "D", "D", None]
    picture = (PAGE.parent / "images" / "point-in-time.svg").read_text()
    assert re.findall(r'"asked"[^>]*middle">(\w+)', picture) == ["null", "A", "C", "C", "D", "D", "null"]


# What the page says of three stores

STORES = {"dask": "dask", "DuckDB": "duckdb", "ours": OURS}
# Feast's DuckDB store is in the package that Feast's extra of that name installs.
INSTALLED = [name for name in STORES if name != "DuckDB" or importlib.util.find_spec("ibis")]


@dataclass(frozen=True)
class Case:
    """What is asked of a store, and how its answer is put into a word."""

    rows: list[tuple[Any, int]]
    says: Callable[[pd.DataFrame], str]
    options: dict[str, Any] = field(default_factory=dict)
    more: dict[str, list[Any]] = field(default_factory=dict)
    features: tuple[str, ...] = ("trips:trips",)
    shift: timedelta = timedelta()


def kept(found: pd.DataFrame) -> str:
    if found.empty:
        return "dropped"
    return "kept, null" if found["trips"].isna().all() else f"kept, {found['trips'].iloc[0]:.0f}"


def used(value: int) -> Callable[[pd.DataFrame], str]:
    return lambda found: "used" if found["trips"].tolist() == [value] else "not used"


def rows_of(found: pd.DataFrame) -> str:
    return {1: "merged into one", 2: "both kept"}[len(found)]


SHUFFLED = [(number % 60, number // 60) for number in (index * 389 % 600 for index in range(600))]

# By the first cell of their line on the page. The table is in `_apply`.
CASES = {
    "no feature row yet": Case([(1, -5)], kept),
    "only a row older than the time-to-live": Case([(1, 500)], kept),
    "unknown key": Case([(8, 5)], kept),
    "null key, and a feature row with a null key": Case([(None, 5)], kept),
    "entity row without a time": Case([(1, 0)], kept, shift=timedelta.max),
    "two equal entity rows": Case([(1, 5), (1, 5)], rows_of),
    "entity rows that differ in the key of another view only": Case(
        [(1, 5), (1, 5)], rows_of, more={"rider": [1, 2]}, features=("trips:trips", "rides:rides")
    ),
    "order of entity rows": Case(
        SHUFFLED, lambda found: "kept" if found["driver"].tolist() == [key for key, _ in SHUFFLED] else "changed"
    ),
    "feature row exactly at the entity time": Case([(1, 0)], used(10)),
    "feature row exactly as old as the time-to-live": Case([(1, 120)], used(10)),
    "feature row created after the entity time": Case([(2, 45)], used(21)),
    "the same, with `filter_by_created_timestamp`": Case([(2, 45)], used(21), {"filter_by_created_timestamp": True}),
    "equal events, told apart by created": Case(
        [(3, 30)], lambda found: "the later created" if found["trips"].tolist() == [31] else "wrong"
    ),
    "equal events and equal created": Case(
        [(4, 30)], lambda found: {40: "the first row", 41: "the last row"}[int(found["trips"].iloc[0])]
    ),
    "integers where one row has no value": Case(
        [(1, 5), (8, 5)], lambda found: "become floats" if found["trips"].dtype == "float64" else "stay integers"
    ),
    "no entity rows": Case([], lambda found: "no rows"),
    "entity time with nanoseconds": Case([(1, 5)], used(10), shift=timedelta(microseconds=-1)),
}


def _apply(folder: Path, store: str) -> FeatureStore:
    """Driver 2 has a correction of minute 30 created at 60; 3 and 4 have ties, the later created first."""
    drivers = [1, 2, 2, 3, 3, 4, 4, None]
    columns = {
        "driver": pa.array(drivers, pa.int64()),
        "event_timestamp": pa.array(minute(0, 0, 30, 0, 0, 0, 0, 0), pa.timestamp("us", "UTC")),
        "created": pa.array(minute(0, 0, 60, 20, 10, 0, 0, 0), pa.timestamp("us", "UTC")),
        "trips": pa.array([10, 20, 21, 31, 30, 40, 41, 99], pa.int64()),
    }
    write(folder / "trips.parquet", columns)
    rides = {"rider": [1, 2], "event_timestamp": minute(0, 0), "created": minute(0, 0), "rides": [100, 200]}
    write(folder / "rides.parquet", rides)
    applied = opened(folder, STORES[store])
    views: list[Any] = []
    for name, key in (("trips", "driver"), ("rides", "rider")):
        entity = Entity(name=key, join_keys=[key], value_type=ValueType.INT64)
        schema = [Field(name=key, dtype=Int64), Field(name=name, dtype=Int64)]
        where = source(folder / f"{name}.parquet")
        views += [
            entity,
            FeatureView(name=name, entities=[entity], ttl=timedelta(hours=2), schema=schema, source=where),
        ]
    applied.apply(views)
    return applied


@pytest.fixture(scope="module", params=INSTALLED)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, FeatureStore]:
    return request.param, _apply(tmp_path_factory.mktemp("store"), request.param)


def said(store: FeatureStore, case: Case) -> str:
    """What a store did, in a word; the name of the error where it failed."""
    moments = pd.Series(minute(*(at for _, at in case.rows)), dtype="datetime64[ns, UTC]")
    if case.shift == timedelta.max:
        moments = pd.Series([pd.NaT] * len(moments), dtype="datetime64[ns, UTC]")
    elif case.shift:
        moments = moments + pd.Timedelta(1, unit="ns")
    keys = pd.array([key for key, _ in case.rows], dtype="Int64" if None in [key for key, _ in case.rows] else "int64")
    frame = pd.DataFrame({"driver": keys, "event_timestamp": moments, **case.more})
    try:
        found = store.get_historical_features(frame, list(case.features), **case.options).to_arrow()
        # Whole numbers with nulls stay whole, so that what a store made of them is seen.
        return case.says(found.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get))
    except Exception as error:
        return type(error).__name__


def lines_of_the_page() -> dict[str, dict[str, str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip().strip("*") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    head = next(index for index, line in enumerate(cells) if line[0] == "case")
    return {line[0]: dict(zip(cells[head][1:], line[1:], strict=True)) for line in cells[head + 2 :] if len(line) == 4}


def test_the_page_has_a_line_for_each_case() -> None:
    found = lines_of_the_page()
    assert list(found) == list(CASES)
    assert all(list(line) == list(STORES) for line in found.values())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore")
def test_the_page_says_what_the_stores_do(case: str, store: tuple[str, FeatureStore]) -> None:
    name, feast = store
    assert said(feast, CASES[case]) == lines_of_the_page()[case][name]
