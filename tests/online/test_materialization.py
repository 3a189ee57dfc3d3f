"""Materialization: incremental by known time, rewritten where the past changed, resumed after a kill, safe twice."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from gatehouse.errors import StoreError
from gatehouse.features.database import connect
from gatehouse.features.point_in_time.asof_join import Joined, asof_join
from gatehouse.online.materialization import Materialized, materialize_views
from gatehouse.online.redis import RedisOnline
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineStore, OnlineView, epoch_us
from tests.features.online_rows import TIME, VIEW, at, counted, counts


def run(
    online: OnlineStore,
    folder: Path,
    table: pa.Table,
    minute: float,
    view: OnlineView = VIEW,
    rewrite: bool = False,
    settled: float | None = None,
) -> Materialized:
    path = folder / f"{len(list(folder.glob('*.parquet')))}.parquet"
    pq.write_table(table, path)
    until = {} if settled is None else {view.name: at(settled)}
    return materialize_views(online, [view], {view.name: [path]}, at(minute), settled=until, rewrite=rewrite)[0]


def joined(table: pa.Table, keys: str, minute: float) -> list[int | None]:
    with connect() as connection:
        connection.register("offline", table)
        entities = pa.table({"carrier": list(keys), "time": pa.array([at(minute)] * len(keys), TIME)})
        view = Joined("offline", {"carrier": "carrier"}, "event", {"count": "count"}, "created", VIEW.ttl)
        result: list[int | None] = asof_join(connection, entities, "time", [view])["count"].to_pylist()
        return result


def test_only_what_became_known_since_is_written(online: OnlineStore, tmp_path: Path) -> None:
    past = [("A", 0, 0, 1), ("B", 1, 1, 2)]
    later = [("B", 5, 5, 3), ("C", 6, 6, 4)]
    first = run(online, tmp_path, counted(*past, *later), 4)
    assert (first.rows, first.changed, first.since, first.rewritten) == (2, 2, None, False)
    second = run(online, tmp_path, counted(*past, *later), 10)
    assert (second.rows, second.changed, second.since) == (2, 2, epoch_us(at(4)))
    assert counts(online, "ABC", at(10)) == [1, 3, 4]
    assert [run(online, tmp_path, counted(*past, *later), minute).rows for minute in (10, 11)] == [0, 0]


def test_a_changed_past_rewrites_the_view(online: OnlineStore, tmp_path: Path) -> None:
    """As where a static table is corrected: nothing about its times shows that it changed. C is removed."""
    run(online, tmp_path, counted(("A", 0, 0, 1), ("B", 3, 3, 2), ("C", 3, 3, 3)), 4)
    assert run(online, tmp_path, counted(("A", 0, 0, 7), ("B", 2, 2, 8)), 4).rewritten
    assert counts(online, "ABC", at(4)) == [7, 8, None]


KILLED = """
import logging, sys
from pathlib import Path
from gatehouse.online.materialization import materialize_views
from gatehouse.online.redis import RedisOnline, connect_redis
from gatehouse.online.sqlite import SqliteOnline
from tests.features.online_rows import VIEW, at
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
place, path = sys.argv[1:]
online = RedisOnline(connect_redis(place), "flights") if ":" in place else SqliteOnline(Path(place), "flights")
materialize_views(online, [VIEW], {"delays": [Path(path)]}, at(10), step=200)
"""


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
def test_after_a_kill_another_run_ends_as_one_whole_run(kind: str, server: Redis, tmp_path: Path) -> None:
    """The killed run wrote rows of keys that the next table does not have."""
    server.flushall()
    place = f"127.0.0.1:{server.port}" if kind == "redis" else str(tmp_path / "online.db")
    online = RedisOnline(server, "flights") if kind == "redis" else SqliteOnline(Path(place), "flights")
    names = [f"K{number:05d}" for number in range(8_000)]
    table = counted(*((name, 5, 5, number) for number, name in enumerate(names)))
    path = tmp_path / "killed.parquet"
    pq.write_table(table, path)
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, place, str(path)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(3)]
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert lines[-1] == "delays: 600 of 8000 rows\n" and online.state("delays").known is None
    result = run(online, tmp_path, table[100:], 10)
    assert (result.rows, result.rewritten) == (7_900, True)
    result = online.read([VIEW], pa.table({"carrier": names}), at(10))
    assert result["count"].to_pylist() == [None] * 100 + list(range(100, 8_000))


def test_of_runs_at_once_one_ends_and_its_rows_stay(online: OnlineStore, tmp_path: Path) -> None:
    names = [f"K{number:04d}" for number in range(1000)]
    path = tmp_path / "delays.parquet"
    for race in range(3):
        pq.write_table(counted(*((name, 5, 5, number + race) for number, name in enumerate(names))), path)
        start = threading.Barrier(3)

        def raced(start: threading.Barrier = start) -> list[Materialized]:
            start.wait(timeout=60)
            return materialize_views(online, [VIEW], {"delays": [path]}, at(10), step=100)

        with ThreadPoolExecutor(3) as pool:
            runs = [pool.submit(raced) for _ in range(3)]
            errors = [error for ended in runs if (error := ended.exception())]
        assert len(errors) < 3 and all(isinstance(error, StoreError) for error in errors)
        result = online.read([VIEW], pa.table({"carrier": names}), at(10))
        assert result["count"].to_pylist() == [number + race for number in range(1000)]
        assert materialize_views(online, [VIEW], {"delays": [path]}, at(10))[0].rows == 0


def test_a_run_that_was_overtaken_leaves_nothing(online: OnlineStore, tmp_path: Path) -> None:
    """B is only in the table of the run that is overtaken between its first and its second write."""
    run(online, tmp_path, counted(("A", 0, 0, 1)), 4)
    write, begun = online.write, []

    def overtaken(view: OnlineView, table: pa.Table, *how: Any) -> int:
        if not begun:
            begun.append(True)
            assert run(online, tmp_path, counted(("A", 0, 0, 8)), 6).rewritten
        return write(view, table, *how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online, "write", overtaken)
        with pytest.raises(StoreError, match="Another run began"):
            run(online, tmp_path, counted(("A", 0, 0, 1), ("B", 5, 5, 3)), 10)
    assert counts(online, "AB", at(10)) == [8, None]


minutes = st.integers(0, 8)
table_rows = st.lists(st.tuples(st.sampled_from("abc"), minutes, minutes), max_size=10, unique=True)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(listed=table_rows, removed=st.sets(st.integers(0, 9)), times=st.lists(st.integers(0, 45), max_size=3))
def test_any_sequence_of_runs_leaves_what_an_offline_join_gives(
    tmp_path_factory: pytest.TempPathFactory,
    server: Redis,
    listed: list[tuple[str, int, int]],
    removed: set[int],
    times: list[int],
) -> None:
    """After every run, whatever ran before and whatever history lost meanwhile."""
    server.flushall()
    folder = tmp_path_factory.mktemp("runs")
    numbered = [(*row, number) for number, row in enumerate(listed)]
    stores: list[OnlineStore] = [RedisOnline(server, "flights"), SqliteOnline(folder / "online.db", "flights")]
    for number, minute in enumerate(sorted(times)):
        kept = [row for row in numbered if number < 2 or row[3] not in removed]
        table = counted(*kept)
        for store in stores:
            run(store, folder, table, minute)
            assert counts(store, "abc", at(minute)) == joined(table, "abc", minute)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(days=st.lists(st.tuples(table_rows, table_rows, st.integers(0, 10)), min_size=2, max_size=4))
def test_any_sequence_of_tables_and_single_rows_leaves_what_an_offline_join_gives(
    tmp_path_factory: pytest.TempPathFactory,
    server: Redis,
    days: list[tuple[list[tuple[str, int, int]], list[tuple[str, int, int]], int]],
) -> None:
    """A table settles its older rows and replaces the rest; between two of them any single row may be written."""
    server.flushall()
    folder = tmp_path_factory.mktemp("days")
    stores: list[OnlineStore] = [RedisOnline(server, "flights"), SqliteOnline(folder / "online.db", "flights")]
    settled: list[tuple[str, float, float, int]] = []
    for day, (listed, single, length) in enumerate(days):
        # Day `day` covers what is known from minute 10 * day on; what is known in the last `length` minutes may change.
        start, as_of = 10 * day, 10 * day + 10
        fresh = [
            (key, start - 3 + event, start + max(delay, event - 3), 100 * day + number)
            for number, (key, event, delay) in enumerate(listed)
        ]
        provisional = [row for row in fresh if row[2] >= as_of - length]
        settled += [row for row in fresh if row[2] < as_of - length]
        table = counted(*settled, *provisional)
        for store in stores:
            result = run(store, folder, table, as_of, settled=as_of - length)
            assert not result.rewritten
            assert counts(store, "abc", at(as_of)) == joined(table, "abc", as_of)
            later = [
                (key, start + event, as_of + 1 + delay, -number) for number, (key, event, delay) in enumerate(single)
            ]
            if later:
                store.write(VIEW, counted(*later))
