"""The versions that a stream makes: the same however it is read, and each known from when its message arrived."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gatehouse.features.definitions.repository import Repository, read_repository
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.streaming.batch_folder import BatchFolder
from gatehouse.online.streaming.pusher import Pusher, push_streams
from gatehouse.online.streaming.start import Start
from gatehouse.online.streaming.stream import Message, Position
from tests.online.streaming.messages import KilledError, killed_at

NOON = datetime(2013, 1, 9, 12, tzinfo=UTC)
DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions import *

rides = Source(table="trips", event_time="ended")
ride_messages = Stream(table="trips", key=('the "ride"',))
driver = Entity(name="driver", type="int64")
trips = FeatureView(name="trips", entities=("driver",), window=timedelta(hours=1),
    available=Available("event_timestamp", lag=timedelta(seconds=20)), features={"fares": "numeric"})
paid = LabelView(name="paid", entities=("driver",), arrives=Available("ended"))
pay = FeatureService(name="pay", views=("trips",))
"""
# A ride that is told anew after it is known; another one; and one that comes a minute late, twice, and is told anew.
MESSAGES = ((20, 1, 10, 10), (31, 1, 10, 15), (31.5, 2, 30, 1), (90, 3, 29, 4), (90.5, 3, 29, 4), (91, 3, 29, 6))
"""Second of arrival, ride, second of its end, fare."""
VERSIONS = [(10, 30, 10), (10, 31.5, 15), (29, 90.5, 19), (29, 91, 21), (30, 50, 16), (30, 90.5, 20), (30, 91, 22)]
"""Second of the event, second from which it is known, fares of the hour until then."""


class Burst:
    """A stream that gives its messages `size` at a time."""

    def __init__(self, size: int, after: Position) -> None:
        self.size = size
        self.left = [
            Message("", (place,), NOON + timedelta(seconds=at), json.dumps(body).encode())
            for place, (at, ride, end, fare) in enumerate(MESSAGES)
            if (place,) > after
            for body in [
                {
                    'the "ride"': ride,
                    "driver": 1,
                    "ended": (NOON + timedelta(seconds=end)).isoformat(),
                    "fare": fare,
                }
            ]
        ]

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        given, self.left = self.left[: self.size], self.left[self.size :]
        return given

    @property
    def behind(self) -> frozenset[str]:
        return frozenset([""] if self.left else [])

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    folder = tmp_path_factory.mktemp("repo")
    hour = "PARTITION BY driver ORDER BY ended RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW"
    files = {
        "definitions.py": DEFINITIONS,
        "views/trips.sql": f"SELECT driver, ended AS event_timestamp, sum(fare) OVER ({hour}) AS fares FROM raw.trips",
        "labels/paid.sql": "SELECT driver, ended AS decision_time, fare > 1 AS label, ended FROM raw.trips",
    }
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(body)
    return read_repository(folder)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """No ride yet at noon."""
    folder = tmp_path_factory.mktemp("start")
    moments = pa.timestamp("us", "UTC")
    raw = pa.schema({'the "ride"': pa.int64(), "driver": pa.int64(), "ended": moments, "fare": pa.int64()})
    table = pa.schema({"driver": pa.int64(), "event_timestamp": moments, "known_from": moments, "fares": pa.float32()})
    pq.write_table(raw.empty_table(), folder / "trips.parquet")
    pq.write_table(table.empty_table(), folder / "known-none.parquet")
    files = {"trips": {"known-none.parquet": folder / "known-none.parquet"}}
    return Start(f"feature-tables/rides/sha256-{'0' * 64}", NOON, {"trips": [folder / "trips.parquet"]}, files)


@settings(
    max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate]
)
@given(size=st.integers(1, 6), steps=st.lists(st.sampled_from(("landed", "online", "acknowledged")), max_size=2))
def test_read_in_any_bursts_and_killed_anywhere_the_versions_are_the_same(
    repository: Repository, start: Start, tmp_path_factory: pytest.TempPathFactory, size: int, steps: list[str]
) -> None:
    """In intervals of ten seconds: a ride that is told anew within one counts from its own arrival on."""
    folder = tmp_path_factory.mktemp("push")
    online, killed = SqliteOnline(folder / "online.db", "rides"), killed_at(*steps)
    while True:
        pusher = Pusher(repository, start, BatchFolder(folder / "push"), online, ["trips"], step=killed)
        try:
            state = push_streams(
                pusher,
                lambda state: {"trips": Burst(size, state.positions.get("trips", {}).get("", (-1,)))},
                interval=timedelta(seconds=10),
                wait=0.0,
                until_idle=True,
            )
            break
        except KilledError:
            continue
    rows = pa.concat_tables(
        pq.read_table(path) for path in BatchFolder(folder / "push").table(state.number, "trips").values()
    )
    found = [
        ((row["event_timestamp"] - NOON).total_seconds(), (row["known_from"] - NOON).total_seconds(), row["fares"])
        for row in rows.to_pylist()
    ]
    assert sorted(found) == VERSIONS
    assert state.counts["trips"] == {"rows": 6, "repeated": 1, "late": 3, "misfits": 0}
