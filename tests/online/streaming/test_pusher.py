"""Pushers of one folder in turn: killed at the first start, started again with fewer streams, left alone."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import Repository, read_repository
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import online_view
from gatehouse.online.streaming.batch_folder import BatchFolder, BatchState
from gatehouse.online.streaming.pusher import Pusher, push_streams
from gatehouse.online.streaming.rows import Misfit
from gatehouse.online.streaming.start import Start
from gatehouse.online.streaming.stream import Message
from tests.online.streaming.test_micro_batches import Kept

NOON = datetime(2013, 1, 9, 12, tzinfo=UTC)
DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions import *

rides = Source(table="rides", event_time="ended")
walks = Source(table="walks", event_time="ended")
ride_messages = Stream(table="rides", key=("trip",))
walk_messages = Stream(table="walks", key=("trip",))
driver = Entity(name="driver", type="int64")
trips = FeatureView(name="trips", entities=("driver",), window=timedelta(hours=1),
    available=Available("event_timestamp", lag=timedelta(seconds=20)), features={"fares": "numeric"})
told = FeatureView(name="told", entities=("driver",), window=timedelta(hours=1),
    available=Available("event_timestamp", lag=timedelta(seconds=20)), features={"fare": "numeric"})
paid = LabelView(name="paid", entities=("driver",), arrives=Available("ended"))
pay = FeatureService(name="pay", views=("trips", "told"))
"""
HOUR = "PARTITION BY driver ORDER BY ended RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW"
FILES = {
    "definitions.py": DEFINITIONS,
    "views/trips.sql": f"SELECT driver, ended AS event_timestamp, sum(fare) OVER ({HOUR}) AS fares FROM "
    "(SELECT * FROM raw.rides UNION ALL SELECT * FROM raw.walks)",
    "views/told.sql": "SELECT driver, ended AS event_timestamp, fare FROM raw.rides "
    "WHERE ended + INTERVAL 20 SECOND <= getvariable('as_of')",
    "labels/paid.sql": "SELECT driver, ended AS decision_time, fare > 1 AS label, ended FROM raw.rides",
}
MOMENTS = pa.timestamp("us", "UTC")
RAW = pa.schema({"trip": pa.int64(), "driver": pa.int64(), "ended": MOMENTS, "fare": pa.int64()})
Trip = tuple[int, int, int, int]
"""Second of arrival, trip, second of its end, fare."""


class KilledError(BaseException):
    """Ends a pusher as a kill would."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    folder = tmp_path_factory.mktemp("repo")
    for name, body in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(body)
    return read_repository(folder)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """No trip yet at noon."""
    files = {}
    for view, feature in (("trips", "fares"), ("told", "fare")):
        columns = {"driver": pa.int64(), "event_timestamp": MOMENTS, "known_from": MOMENTS, feature: pa.float32()}
        pq.write_table(pa.schema(columns).empty_table(), tmp_path / f"{view}.parquet")
        files[view] = {"known-none.parquet": tmp_path / f"{view}.parquet"}
    pq.write_table(RAW.empty_table(), tmp_path / "raw.parquet")
    raw = {table: [tmp_path / "raw.parquet"] for table in ("rides", "walks")}
    return Start(f"feature-tables/trips/sha256-{'0' * 64}", NOON, raw, files)


class Pushers:
    """Pushers of one folder, one after the other."""

    def __init__(self, repository: Repository, start: Start, folder: Path) -> None:
        self.repository, self.start, self.batches = repository, start, BatchFolder(folder / "push")
        self.online = SqliteOnline(folder / "online.db", "trips")

    def push(self, now: int, views: Sequence[str] = ("trips",), **sent: Sequence[Trip]) -> BatchState:
        """Push messages, by table, until none is left; the clock stands at a second after noon."""
        pusher = Pusher(self.repository, self.start, self.batches, self.online, [*sent], views)
        return push_streams(
            pusher,
            lambda state: {
                table: _stream(messages, state.positions.get(table, {}).get("", (-1,)))
                for table, messages in sent.items()
            },
            interval=timedelta(seconds=10),
            wait=0.0,
            until_idle=True,
            clock=lambda: NOON + timedelta(seconds=now),
        )

    def rows(self, view: str) -> list[tuple[float, ...]]:
        """Second of the event, second from which it is known, and value."""
        found = pq.read_table(self.batches.folder / "current" / "tables" / view).to_pylist()
        return sorted(
            (*((row[name] - NOON).total_seconds() for name in ("event_timestamp", "known_from")), [*row.values()][-1])
            for row in found
        )


def _stream(messages: Sequence[Trip], after: tuple[int, ...]) -> Kept:
    stream = Kept([], 9)
    for place, (arrived, trip, ended, fare) in enumerate(messages):
        body = {"trip": trip, "driver": 1, "ended": (NOON + timedelta(seconds=ended)).isoformat(), "fare": fare}
        if (place,) > after:
            stream.left.append(Message("", (place,), NOON + timedelta(seconds=arrived), json.dumps(body).encode()))
    return stream


@pytest.fixture
def pushers(repository: Repository, start: Start, tmp_path: Path) -> Pushers:
    return Pushers(repository, start, tmp_path)


def test_what_arrived_in_another_stream_counts_where_it_is_not_read_any_more(pushers: Pushers) -> None:
    pushers.push(60, rides=[(20, 1, 10, 10)], walks=[(25, 7, 11, 100)])
    pushers.push(200, rides=[(20, 1, 10, 10), (120, 2, 110, 1)])
    assert pushers.rows("trips")[-1] == (110, 130, 111)


def test_what_becomes_known_while_streams_are_silent_is_served(pushers: Pushers) -> None:
    """A row that arrives at 20 is known at 30; started again, it is as well."""

    def served(now: int) -> list[float | None]:
        pushers.push(now, rides=[(20, 1, 10, 10)])
        view, asked = online_view(pushers.repository.views["trips"]), pa.table({"driver": [1]})
        return list(pushers.online.read([view], asked, NOON + timedelta(seconds=now))["fares"].to_pylist())

    assert [served(now) for now in (29, 30)] == [[None], [10.0]]
    assert pushers.batches.state() == pushers.push(60, rides=[(20, 1, 10, 10)])


def test_a_view_that_reads_as_of_has_the_rows_that_time_alone_tells(pushers: Pushers) -> None:
    pushers.push(8000, ["told"], rides=[(11, 1, 10, 10), (7300, 2, 7299, 1), (7400, 3, 7399, 1)])
    assert pushers.rows("told") == [(10, 30, 10), (7299, 7319, 1)]


def test_other_views_are_refused_where_the_first_start_was_killed(
    pushers: Pushers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(BatchFolder, "commit", killed)
        with pytest.raises(KilledError):
            pushers.push(60, rides=[])
    with pytest.raises(ConfigurationError, match="holds a push of the views trips, but trips, told were"):
        pushers.push(60, ["trips", "told"], rides=[])
    assert pushers.push(60, rides=[]).number == 0


def test_reasons_of_misfits_stay_and_a_line_cut_short_stays_by_itself(tmp_path: Path) -> None:
    batches = BatchFolder(tmp_path / "push")
    for number in range(4):
        state = BatchState(number, NOON, NOON, "tables", ("trips",))
        batches.store_rows(state, {}, {}, [Misfit("rides", "", (number,), "broken")] if number < 2 else [])
        batches.commit(number)
    path = batches.folder / "misfits.jsonl"
    with path.open("a") as file:
        file.write('{"table": "ri')
    batches.store_rows(BatchState(4, NOON, NOON, "tables", ("trips",)), {}, {}, [Misfit("rides", "", (4,), "broken")])
    lines = path.read_text().splitlines()
    assert [json.loads(line)["position"] for line in (*lines[:2], lines[3])] == [[0], [1], [4]]
