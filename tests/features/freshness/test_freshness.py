"""Freshness: how old the newest event of a view is at a moment, what breaks its limit, and who hears of it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.errors import CorruptArtifactError
from gatehouse.features.definitions.changes import definition_of
from gatehouse.features.definitions.declarations import Available, FeatureView
from gatehouse.features.definitions.problems import problems_of_view
from gatehouse.features.definitions.repository import View, read_repository
from gatehouse.features.freshness.age import Freshness, freshness_of, newest_rows
from gatehouse.features.freshness.report import show
from gatehouse.features.freshness.stage import FreshnessRequest, FreshnessResult, freshness
from gatehouse.features.spec import FeaturesSpec
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
            "known_from": pa.array([known for _, known in rows], times),
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
    [found] = freshness_of(views, newest_rows(views, {"sales": {path.name: path}}, NOON), NOON)
    return found


def test_a_view_is_as_old_as_its_newest_event(tmp_path: Path) -> None:
    early, newest = NOON - 9 * HOUR, NOON - 6 * HOUR
    found = measured(tmp_path, (newest, newest + HOUR), (early, early))
    assert (found.age, found.known, found.ahead, found.stale) == (6 * HOUR, 5 * HOUR, 0, False)


def test_a_view_is_stale_once_it_is_older_than_allowed(tmp_path: Path) -> None:
    event = NOON - 6 * HOUR - timedelta(microseconds=1)
    found = measured(tmp_path, (event, event))
    assert found.stale
    assert found.reason == "sales: its newest event is more than 6 hours old, expected 6 hours at most"
    assert not measured(tmp_path, (event, event), allowed=None).stale


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (timedelta(days=885, hours=21, microseconds=5), "885 days old"),
        (timedelta(days=3, hours=20, minutes=9), "3 days 20 hours old"),
        (timedelta(days=3, seconds=2), "3 days 2 seconds old"),
    ],
)
def test_an_age_is_told_in_words(age: timedelta, said: str) -> None:
    stale = Freshness("sales", timedelta(days=3), age, age, 0)
    assert stale.reason == f"sales: its newest event is {said}, expected 3 days at most"


def test_a_late_correction_makes_no_view_fresh(tmp_path: Path) -> None:
    found = measured(tmp_path, (NOON - 8 * HOUR, NOON))
    assert (found.age, found.known, found.stale) == (8 * HOUR, timedelta(0), True)


def test_a_view_without_rows_is_stale_where_it_must_be_fresh(tmp_path: Path) -> None:
    found = measured(tmp_path)
    assert (found.age, found.stale) == (None, True)
    assert found.reason == "sales: no row is known, expected 6 hours at most"
    assert not measured(tmp_path, allowed=None).stale


def test_rows_of_the_future_make_no_view_fresh(tmp_path: Path) -> None:
    """The clock is behind: what it does not know yet is counted, and the age is never below zero."""
    old, coming = NOON - 7 * HOUR, NOON + HOUR
    found = measured(tmp_path, (old, old), (coming, coming), (old, coming))
    assert (found.age, found.ahead, found.stale) == (7 * HOUR, 2, True)
    assert found.reason.endswith("; 2 rows become known only later")
    only = measured(tmp_path, (coming, coming))
    assert (only.age, only.ahead, only.stale) == (None, 1, True)


def test_a_static_view_states_no_freshness() -> None:
    spec = FeatureView(name="planes", entities=("shop",), features={"n": "numeric"}, static=True)
    [problem] = problems_of_view(spec.model_copy(update={"freshness": HOUR}))
    assert "planes: is static and states a freshness" in problem


@pytest.fixture
def shop(tmp_path: Path) -> tuple[ArtifactStore, FreshnessRequest]:
    """Feature tables whose newest event is seven hours before noon, which is the time of the run."""
    return published(tmp_path, (NOON - 7 * HOUR, NOON - 7 * HOUR))


def published(folder: Path, *rows: tuple[datetime, datetime]) -> tuple[ArtifactStore, FreshnessRequest]:
    """Feature tables of one view and a static one, in a store."""
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


class Metrics:
    """Takes what KFP's Metrics takes."""

    def __init__(self) -> None:
        self.logged: dict[str, float] = {}

    def log_metric(self, metric: str, value: float) -> None:
        self.logged[metric] = value


def test_freshness_is_a_metric_and_a_verdict_at_the_time_of_the_run(
    shop: tuple[ArtifactStore, FreshnessRequest],
) -> None:
    store, request = shop
    result = freshness(request, store)
    assert result == FreshnessResult(
        hours={"sales": 7.0},
        stale=("sales",),
        verdict="fail",
        reasons=("sales: its newest event is 7 hours old, expected 6 hours at most",),
    )
    metrics = Metrics()
    show(result, metrics)
    assert metrics.logged == {"stale views": 1, "sales: hours old": 7.0}
    in_time = request.model_copy(update={"as_of": (NOON - HOUR).isoformat()})
    assert freshness(in_time, store).verdict == "pass"


def test_a_source_that_fell_silent_is_stale_by_the_clock_which_is_asked_by_default(
    shop: tuple[ArtifactStore, FreshnessRequest],
) -> None:
    """Its newest row is five hours older than all that the sources know, and years old."""
    store, request = shop
    silent = request.model_copy(update={"as_of": (NOON - 2 * HOUR).isoformat()})
    assert freshness(silent, store).verdict == "pass"
    before = list(store.references())
    result = freshness(FreshnessRequest(**silent.model_dump(exclude={"against"})), store)
    hours = result.hours["sales"]
    assert hours is not None and hours > 1000 and result.stale == ("sales",)
    assert FeaturesSpec(repo="features", service="shop").freshness_against == "clock"
    assert list(store.references()) == before
    assert any(
        b'"against": "clock"' in store.objects.get_bytes(key)
        for key in store.objects.list(f"measurements/{request.feature_tables}")
    )


def test_rows_that_were_all_known_are_not_read_again(shop: tuple[ArtifactStore, FreshnessRequest]) -> None:
    store, request = shop
    assert freshness(request, store).hours == {"sales": 7.0}
    for blob in (store.local_folder / "blobs").rglob("*"):
        if blob.is_file() and blob.read_bytes()[:4] == b"PAR1":
            blob.unlink()
    later = request.model_copy(update={"as_of": (NOON + HOUR).isoformat()})
    assert freshness(later, store).hours == {"sales": 8.0}
    with pytest.raises(CorruptArtifactError):
        freshness(request, store)


def test_rows_that_become_known_later_are_read_again(tmp_path: Path) -> None:
    store, request = published(tmp_path, (NOON - 7 * HOUR, NOON - 7 * HOUR), (NOON, NOON + HOUR))
    assert freshness(request, store).hours == {"sales": 7.0}
    later = request.model_copy(update={"as_of": (NOON + HOUR).isoformat()})
    assert freshness(later, store).hours == {"sales": 1.0}


def test_another_limit_makes_no_other_table(tmp_path: Path) -> None:
    for name, text in (
        ("views/sales.sql", "SELECT 1"),
        ("views/plans.sql", "SELECT 1"),
        ("labels/bought.sql", "SELECT 1"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    said = []
    for hours in (6, 7):
        (tmp_path / "definitions.py").write_text(DEFINITIONS.replace("hours=6", f"hours={hours}"))
        repository = read_repository(tmp_path)
        said.append(definition_of(repository, repository.views["sales"]))
    assert said[0] == said[1]
