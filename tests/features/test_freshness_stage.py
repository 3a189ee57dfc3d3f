"""Freshness: how old the newest event of a view is at a moment, what breaks its limit, and who hears of it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.features.definitions.declarations import Available, FeatureView
from gatehouse.features.definitions.repository import View
from gatehouse.features.freshness_stage import (
    Freshness,
    FreshnessRequest,
    FreshnessResult,
    freshness,
    freshness_of,
    show,
)
from gatehouse.store.store import ArtifactStore
from tests.features.publishing import publish_definitions

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions.declarations import Available, Entity, FeatureView, LabelView

shop = Entity(name="shop")
sales = FeatureView(name="sales", entities=("shop",), available=Available("event_timestamp"), features={"n": "numeric"},
                    freshness=timedelta(hours=6))
plans = FeatureView(name="plans", entities=("shop",), features={"m": "numeric"}, static=True)
bought = LabelView(name="bought", entities=("shop",), arrives=Available("decision_time"))
"""


def table(*rows: tuple[datetime, datetime]) -> pa.Table:
    times = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "shop": pa.array(["a"] * len(rows), pa.string()),
            "event_timestamp": pa.array([event for event, _ in rows], times),
            "known_from": pa.array([known_from for _, known_from in rows], times),
            "n": pa.array([1.0] * len(rows), pa.float32()),
        }
    )


def measured(folder: Path, *rows: tuple[datetime, datetime], allowed: timedelta | None = 6 * HOUR) -> Freshness:
    path = folder / "sales.parquet"
    pq.write_table(table(*rows), path)
    spec = FeatureView(
        name="sales",
        entities=("shop",),
        available=Available("event_timestamp"),
        features={"n": "numeric"},
        freshness=allowed,
    )
    views = [View("sales", spec, "")]
    [age] = freshness_of(views, {"sales": {path.name: path}}, NOON)
    return age


OLD, COMING = NOON - 7 * HOUR, NOON + HOUR
LATE = NOON - 6 * HOUR - timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("rows", "age", "ahead", "reason"),
    [
        ([(NOON - 6 * HOUR, NOON - 5 * HOUR), (NOON - 9 * HOUR, NOON - 9 * HOUR)], 6 * HOUR, 0, ""),
        ([(LATE, LATE)], NOON - LATE, 0, "its newest event is 6:00:00 old, expected 6:00:00 at most"),
        ([], None, 0, "no row is known, expected 6:00:00 at most"),
        # The clock is behind: rows that it does not know yet are counted, and no age is below zero.
        ([(OLD, OLD), (COMING, COMING), (OLD, COMING)], 7 * HOUR, 2, "at most; 2 rows become known only later"),
        ([(COMING, COMING)], None, 1, "at most; 1 rows become known only later"),
    ],
)
def test_a_view_is_stale_if_its_newest_known_event_is_older_than_allowed(
    tmp_path: Path, rows: list[tuple[datetime, datetime]], age: timedelta | None, ahead: int, reason: str
) -> None:
    view = measured(tmp_path, *rows)
    assert (view.age, view.ahead, view.stale) == (age, ahead, bool(reason))
    assert not reason or view.reason.endswith(reason)
    assert not measured(tmp_path, *rows, allowed=None).stale


def published(folder: Path, *rows: tuple[datetime, datetime]) -> tuple[ArtifactStore, FreshnessRequest]:
    store = ArtifactStore.open(folder / "store")
    files = {
        "definitions.py": DEFINITIONS,
        "views/sales.sql": "SELECT shop, event_timestamp, n FROM raw.sales",
        "views/plans.sql": "SELECT shop, m FROM raw.plans",
        "labels/bought.sql": "SELECT shop, decision_time, label FROM raw.sales",
    }
    definitions = publish_definitions(store, "shop-features", files)
    path = folder / "part.parquet"
    pq.write_table(table(*rows), path)
    view = store.publish("features", "sales", {"known-2024-05.parquet": path})
    tables = store.publish("feature-tables", "shop", {}, derived_from={"view:sales": view, "definitions": definitions})
    return store, FreshnessRequest(
        feature_tables=str(tables), definitions=str(definitions), as_of=NOON.isoformat(), against="as_of"
    )


def test_freshness_is_a_metric_and_a_verdict_at_the_time_of_the_run(tmp_path: Path) -> None:
    store, request = published(tmp_path, (NOON - 7 * HOUR, NOON - 7 * HOUR))
    result = freshness(request, store)
    assert result == FreshnessResult(
        hours={"sales": 7.0},
        stale=("sales",),
        verdict="fail",
        reasons=("sales: its newest event is 7:00:00 old, expected 6:00:00 at most",),
    )
    logged: dict[str, float] = {}
    show(result, SimpleNamespace(log_metric=logged.__setitem__))
    assert logged == {"stale views": 1, "sales: hours old": 7.0}
    in_time = request.model_copy(update={"as_of": (NOON - HOUR).isoformat()})
    assert freshness(in_time, store).verdict == "pass"
