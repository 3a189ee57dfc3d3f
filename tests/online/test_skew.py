"""The check after materializing: it takes the keys that go wrong, and counts what differs."""

import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.online.materialization import materialize_views
from gatehouse.online.report import skew_page
from gatehouse.online.skew import Skew, measure_skew, skew_reasons
from gatehouse.online.stage import report_body
from gatehouse.online.store import OnlineStore, epoch_us
from tests.features.online_rows import VIEW, at, counted

# A: ordinary. C: corrected with the same event time. L: late, below the first watermark. E: expired by minute 60.
TABLE = counted(("A", 50, 50, 1), ("C", 50, 50, 2), ("C", 50, 55, 3), ("L", 35, 58, 4), ("E", 20, 20, 5))
RECENT = pa.table({"carrier": pa.array(["A", "A", None, "Z"], pa.string())})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "delays.parquet"
    pq.write_table(TABLE, path)
    return path


def measure(online: OnlineStore, path: Path) -> Skew:
    return measure_skew(online, [VIEW], {"delays": [path]}, RECENT, at(60), {"delays": epoch_us(at(52))})


def differing(skew: Skew, kind: str) -> int:
    return sum(
        comparison.differing
        for comparison in skew.compared
        if comparison.kind == kind and comparison.feature == "count"
    )


def test_a_store_that_was_materialized_has_no_skew_in_any_kind_of_key(online: OnlineStore, path: Path) -> None:
    for minute in (25, 52, 60):
        materialize_views(online, [VIEW], {"delays": [path]}, at(minute))
    skew = measure(online, path)
    compared = {comparison.kind: comparison.cells for comparison in skew.compared if comparison.feature == "count"}
    assert compared == {"fresh": 3, "recent": 2, "corrected": 1, "late": 2, "expired": 1}
    assert (skew.differing, skew.share) == ({}, 0.0)
    # Of the recent keys Z has no row, and what is expired is null on both sides.
    assert skew.cells == 9 * len(VIEW.features) and skew.values == 7 * len(VIEW.features)


@pytest.mark.parametrize(("missing", "kinds"), [(2, [1, 1, 1, 0]), (3, [0, 0, 1, 0])])
def test_a_correction_or_late_row_that_did_not_arrive_is_skew(
    online: OnlineStore, path: Path, missing: int, kinds: list[int]
) -> None:
    online.write(VIEW, TABLE.filter(pa.array([row != missing for row in range(5)])))
    skew = measure(online, path)
    assert [differing(skew, kind) for kind in ("fresh", "corrected", "late", "expired")][1:] == kinds[1:]
    assert skew.share == sum(skew.differing.values()) / skew.values > 0


def test_a_row_that_became_known_later_is_no_skew_of_a_view_by_event_time(online: OnlineStore, tmp_path: Path) -> None:
    view, path = replace(VIEW, event_time_only=True), tmp_path / "corrected.parquet"
    pq.write_table(counted(("A", 50, 50, 1), ("A", 50, 70, 2)), path)
    materialize_views(online, [view], {"delays": [path]}, at(60))
    assert measure_skew(online, [view], {"delays": [path]}, RECENT, at(60), {}).share == 0.0


def test_an_expired_value_that_is_served_is_skew(online: OnlineStore, path: Path) -> None:
    """A reader that keeps expired values, as Feast's does."""
    online.write(VIEW, TABLE)
    reader: Any = copy.copy(online)
    reader.read = lambda views, keys, now: online.read(views, keys, at(20))
    skew = measure(reader, path)
    assert [differing(skew, kind) for kind in ("recent", "corrected", "late", "expired")] == [0, 0, 0, 1]


def test_a_view_without_a_value_fails_and_its_page_names_it(online: OnlineStore, path: Path) -> None:
    weather = replace(VIEW, name="weather", ttl=timedelta(minutes=1))
    tables = {"delays": [path], "weather": [path]}
    materialize_views(online, [VIEW, weather], tables, at(60))
    skew = measure_skew(online, [VIEW, weather], tables, RECENT, at(60), {})
    assert (skew.share, skew.unseen) == (0.0, ("weather",))
    (reason,) = reasons = skew_reasons(skew, [VIEW, weather], 0.5)
    assert "weather: no value was compared" in reason and "ttl 0:01:00" in reason
    assert skew_reasons(skew, [VIEW, weather], 1.0) == []
    assert "weather: no value of it was compared" in skew_page("delay", report_body(at(60), 0.0, skew, reasons, [], ()))
    assert measure_skew(online, [weather], tables, RECENT, at(60), {}).share == 1.0
