"""January's flights and weather as messages, in the order in which they became known; shops, streams and pushers."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from redis import Redis

from gatehouse.components.features.compute import connect, open_tables, run_macros, set_time
from gatehouse.components.features.repository import Repository
from gatehouse.components.features.streaming.landing import State
from gatehouse.components.features.streaming.stream import EventStream, open_stream

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
    """A message and when it was sent."""

    time: datetime
    table: str
    row: Mapping[str, Any]


def messages(raw: Mapping[str, Path], repository: Repository, since: datetime, until: datetime) -> list[Sent]:
    """What became known after `since` and until `until`, in that order."""
    found = []
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
            found += [Sent(row.pop("known").astimezone(UTC), table, row) for row in rows.to_pylist()]
    return sorted(found, key=lambda one: one.time)


def send(redis: Redis, sent: Sequence[Sent]) -> None:
    """Add messages to the streams `flights` and `weather`, each stamped with its time."""
    pipeline = redis.pipeline(transaction=False)
    for number, one in enumerate(sent):
        identity = f"{int(one.time.timestamp() * 1000)}-{number + 1}"
        pipeline.xadd(one.table, {"json": json.dumps(one.row, default=str)}, id=identity)
    pipeline.execute()
