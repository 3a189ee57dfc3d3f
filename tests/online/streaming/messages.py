"""January's flights and weather as messages, in the order in which they became known; shops, streams and pushers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from redis import Redis

from gatehouse.data.messages.clients import moment_of
from gatehouse.features.computing.compute import run_macros
from gatehouse.features.database import connect, open_tables, set_time
from gatehouse.features.definitions.repository import Repository
from gatehouse.online.store import OnlineStore
from gatehouse.online.streaming.batch_folder import BatchFolder, BatchState
from gatehouse.online.streaming.pusher import Pusher, Start, push_streams
from gatehouse.online.streaming.stream import MessageStream, open_stream

TABLES = ("flights", "weather")
# Of a flight: its schedule, a day ahead; then as it left; then as it landed. Of the weather: an hour that is over.
_FLIGHTS = """
WITH timed AS (
    SELECT flights.*, time_hour + to_minutes(minute) AS scheduled_at,
        time_hour + to_minutes(minute + dep_delay) AS departed_at,
        CASE WHEN arr_delay IS NOT NULL THEN next_clock(time_hour + to_minutes(minute + dep_delay),
            coalesce(tzone, 'America/Puerto_Rico'), minutes_of_clock(arr_time)) END AS landed_at
    FROM source.flights LEFT JOIN source.airports ON airports.faa = flights.dest
), images AS (
    SELECT scheduled_at - INTERVAL 1 DAY AS known, * REPLACE (NULL AS tailnum, NULL AS dep_time, NULL AS dep_delay,
        NULL AS arr_time, NULL AS arr_delay, NULL AS air_time) FROM timed
    UNION ALL SELECT departed_at, * REPLACE (NULL AS arr_time, NULL AS arr_delay, NULL AS air_time) FROM timed
    WHERE departed_at IS NOT NULL
    UNION ALL SELECT landed_at, * FROM timed WHERE landed_at IS NOT NULL
)
SELECT * EXCLUDE (scheduled_at, departed_at, landed_at) FROM images
"""
_WEATHER = "SELECT time_hour + INTERVAL 1 HOUR AS known, * FROM source.weather"


@dataclass(frozen=True)
class Sent:
    time: datetime
    table: str
    row: Mapping[str, Any]


def messages(raw: Mapping[str, Path], repository: Repository, since: datetime, until: datetime) -> list[Sent]:
    """What became known after `since` and until `until`, in that order."""
    result = []
    with connect() as connection:
        open_tables(connection, {name: [path] for name, path in raw.items()}, "source")
        run_macros(connection, repository)
        for table, query in (("flights", _FLIGHTS), ("weather", _WEATHER)):
            set_time(connection, "from", since)
            set_time(connection, "until", until)
            rows: pa.Table = connection.sql(
                f"SELECT * FROM ({query}) WHERE known > getvariable('from') AND known <= getvariable('until') "
                "ORDER BY ALL"
            ).to_arrow_table()
            result += [Sent(row.pop("known").astimezone(UTC), table, row) for row in rows.to_pylist()]
    return sorted(result, key=lambda message: message.time)


def send(redis: Redis, sent: Sequence[Sent], number: int = 0) -> None:
    """Add messages to the streams `flights` and `weather`, each stamped with its time."""
    pipeline = redis.pipeline(transaction=False)
    for place, message in enumerate(sent, number + 1):
        identity = f"{int(message.time.timestamp() * 1000)}-{place}"
        pipeline.xadd(message.table, {"json": json.dumps(message.row, default=str)}, id=identity)
    pipeline.execute()


class KilledError(BaseException):
    """Ends a pusher at one of its steps, as a kill would: nothing of ours handles it."""


def killed_at(*steps: str) -> Callable[[str], None]:
    """Ends the pusher at each of these steps, one after the other."""
    left = list(steps)

    def step(name: str) -> None:
        if left and left[0] == name:
            left.pop(0)
            raise KilledError(name)

    return step


@dataclass
class Push:
    """A pusher of both tables, from the streams of one Redis, that can be opened again and again."""

    repository: Repository
    start: Start
    folder: Path
    url: str
    online: OnlineStore
    names: tuple[str, ...] = ()

    def run(self, interval: timedelta = timedelta(days=1), step: Callable[[str], None] = lambda _: None) -> BatchState:
        """Push what is there, in batches of an interval; a pusher that is killed on the way is started anew."""
        pusher = Pusher(self.repository, self.start, BatchFolder(self.folder), self.online, TABLES, self.names, step)
        try:
            return push_streams(
                pusher, self.streams, interval=interval, wait=0.01, until_idle=True, clock=self.newest_arrival
            )
        except KilledError:
            return self.run(interval, step)

    def streams(self, state: BatchState) -> dict[str, MessageStream]:
        start = self.start
        return {
            table: open_stream(self.url + table, start.group, start.as_of, state.positions.get(table, {}))
            for table in TABLES
        }

    def newest_arrival(self) -> datetime:
        """The clock of a world in which nothing happens after the last message."""
        with Redis.from_url(self.url.partition("?")[0]) as redis:
            newest = [redis.xrevrange(table, count=1) for table in TABLES]
        return max((moment_of(int(last[0][0].split(b"-")[0])) for last in newest if last), default=self.start.as_of)

    def rows(self, view: str, where: str = "true") -> list[dict[str, Any]]:
        files = sorted((self.folder / "current" / "tables" / view).glob("*.parquet"))
        with connect() as connection:
            open_tables(connection, {"pushed": files})
            result: pa.Table = connection.sql(f"FROM raw.pushed WHERE {where} ORDER BY ALL").to_arrow_table()
        return [dict(row) for row in result.to_pylist()]
