"""The push path: micro-batches of a stream become versions of the feature tables, online and offline.

For every batch: land its messages; run the views' queries on the event times that they touch; write what became known
to the online store; let the batch count; acknowledge its messages. A pusher that is killed anywhere in between takes
up the same batch again, and each step leaves what it left before.

What was known at an earlier batch stays as it was. A row that arrives late adds versions known from its arrival on,
so a join at any past moment gives what the online store gave then.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gatehouse.components.features.compute import connect, open_tables
from gatehouse.components.features.definitions import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.components.features.online import OnlineStore, online_view
from gatehouse.components.features.repository import Repository, View
from gatehouse.components.features.streaming.arrivals import Arrival, Arrivals
from gatehouse.components.features.streaming.landing import Landing, State
from gatehouse.components.features.streaming.pushed_table import first_parts, next_parts, next_rows
from gatehouse.components.features.streaming.rows import Misfit, read_rows
from gatehouse.components.features.streaming.start import Start
from gatehouse.components.features.streaming.stream import EventStream
from gatehouse.components.features.streaming.views import (
    MICROSECOND,
    RawTables,
    compute_spans,
    new_rows,
    spans_of,
    streamed_views,
)
from gatehouse.components.features.streaming.watermark import Watermark
from gatehouse.errors import ConfigurationError

logger = logging.getLogger(__name__)

LIMIT = 1000
_COUNTS = ("rows", "repeated", "late", "misfits")


@dataclass
class Pusher:
    """Pushes the views of a repository that read the streamed tables.

    Args:
        repository: The definitions.
        start: The feature tables from which it starts; what arrived since is in the landing folder.
        landing: That folder.
        online: The online store; it has to be materialized up to the start.
        names: Views to push; all that can be where there are none.
        step: Called with the name of each step after it; tests end the process there.
    """

    repository: Repository
    start: Start
    landing: Landing
    online: OnlineStore
    tables: Sequence[str]
    names: Sequence[str] = ()
    step: Callable[[str], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        self.views = streamed_views(self.repository, self.tables, self.names)
        self.schemas = {table: _schema(self.start.raw[table]) for table in self.tables}
        for table, schema in self.schemas.items():
            named = {*self.repository.streams[table].key, self.repository.sources[table].event_time}
            if missing := sorted(named - {*schema.names}):
                raise ConfigurationError(
                    f"definitions.py: Stream {table}: expected columns of the table as key and event time, found "
                    f"{', '.join(missing)}; the table has {', '.join(schema.names)}."
                )

    def state(self) -> State:
        """Where it stands. The first time, the folder is filled with the tables from which it starts.

        Raises:
            ConfigurationError: if other views were pushed in this folder.
        """
        names = tuple(view.name for view in self.views)
        state = self.landing.state()
        if state is not None and state.views != names:
            raise ConfigurationError(
                f"{self.landing.folder} holds the pushed views {', '.join(state.views)}, found {', '.join(names)}. "
                "Push the same views, or compute newer feature tables and start from them."
            )
        if state is not None:
            return state
        state = State(0, self.start.as_of, self.start.reference, names, newest=self._newest_at_start())
        if self.landing.landed(0) is None:
            self.landing.land(state, {}, {}, ())
        if not self.landing.has_tables(0):
            scratch, files = self.landing.scratch(0), self.start.tables
            with connect() as connection:
                tables = {
                    view.name: first_parts(connection, files[view.name], state.as_of, scratch / view.name)
                    for view in self.views
                }
            self.landing.keep_tables(0, tables)
        self._write_online(state, None)
        self.landing.commit(0)
        return state

    def resume(self) -> State:
        """Finish a batch that was landed and does not count yet; returns where the pusher stands."""
        state = self.state()
        landed = self.landing.landed(state.number + 1)
        return self._apply(state, landed) if landed else state

    def push(self, arrivals: Sequence[Arrival]) -> State:
        """Take one micro-batch in, in the order of arrival; messages that count already are passed over."""
        before = self.state()
        fresh = [each for each in arrivals if each.position > _read(before, each)]
        return self._apply(before, self._land(before, fresh)) if fresh else before

    def _land(self, before: State, arrivals: Sequence[Arrival]) -> State:
        rows: dict[str, pa.Table] = {}
        misfits: list[Misfit] = []
        state = replace(
            before,
            number=before.number + 1,
            as_of=max(max(each.time for each in arrivals), before.as_of + MICROSECOND),
            positions={table: dict(found) for table, found in before.positions.items()},
            newest=dict(before.newest),
            counts={table: dict(found) for table, found in before.counts.items()},
        )
        for each in arrivals:
            state.positions.setdefault(each.table, {})[each.partition] = each.position
        for table in sorted({each.table for each in arrivals}):
            events = [each.event for each in arrivals if each.table == table]
            found, unfit = read_rows(table, events, self.schemas[table], self.repository.streams[table].key)
            misfits += unfit
            rows[table] = self._new_rows(state, table, found, len(unfit))
        self.landing.land(state, rows, {name: one.key for name, one in self.repository.streams.items()}, misfits)
        self.step("landed")
        return state

    def _new_rows(self, state: State, table: str, found: list[dict[str, Any]], misfits: int) -> pa.Table:
        """The newest row of every key that says something new; counts what arrived."""
        spec, event = self.repository.streams[table], self.repository.sources[table].event_time
        newest = {tuple(row[name] for name in spec.key): row for row in found}
        rows = pa.Table.from_pylist([*newest.values()], schema=self.schemas[table])
        new, _ = new_rows(self._raw(state.number - 1), table, rows, spec.key, event)
        counts = state.counts.setdefault(table, dict.fromkeys(_COUNTS, 0))
        mark = Watermark(_moment(state.newest.get(table)), spec.lateness).advanced(row[event] for row in found)
        counts["rows"] += len(found)
        counts["repeated"] += len(found) - new.num_rows
        counts["late"] += mark.late
        counts["misfits"] += misfits
        if mark.newest is not None:
            state.newest[table] = mark.newest.isoformat()
        return new

    def _apply(self, before: State, state: State) -> State:
        """All steps behind the landing; safe to repeat."""
        if not self.landing.has_tables(state.number):
            self.landing.keep_tables(state.number, self._compute(before, state))
        self.step("computed")
        self._write_online(state, before.as_of)
        self.step("online")
        self.landing.commit(state.number)
        self.step("committed")
        logger.info("batch %d: known until %s, %s", state.number, state.as_of.isoformat(), state.counts)
        return state

    def _compute(self, before: State, state: State) -> dict[str, dict[str, Path]]:
        """The parts of every view's table after the batch."""
        raw = self._raw(state.number)
        hours = {table: self._hours(state.number, table) for table in self.tables}
        plans = {view.name: spans_of(self.repository, view, hours, before.as_of + MICROSECOND) for view in self.views}
        computed = compute_spans(self.repository, raw, plans, state.as_of)
        scratch = self.landing.scratch(state.number)
        found = {}
        with connect() as connection:
            for view in self.views:
                files = self.landing.table(before.number, view.name)
                pushed = next_rows(
                    connection,
                    view,
                    files,
                    plans[view.name],
                    computed.get(view.name),
                    before.as_of,
                    state.as_of,
                )
                found[view.name] = next_parts(files, pushed, state.number, scratch / view.name)
        return found

    def _hours(self, number: int, table: str) -> list[datetime] | None:
        """The hours of event time that the rows of a batch change."""
        parts = [path for path in self.landing.rows(number, table) if int(path.stem) == number]
        if not parts:
            return []
        import pyarrow.parquet as pq

        spec, event = self.repository.streams[table], self.repository.sources[table].event_time
        return new_rows(self._raw(number - 1), table, pq.read_table(parts[0]), spec.key, event)[1]

    def _raw(self, number: int) -> RawTables:
        return RawTables(self.start.raw, {table: self.landing.rows(number, table) for table in self.tables})

    def _write_online(self, state: State, since: datetime | None) -> None:
        """Write what became known after `since`: of every key the newest that is not expired."""
        with connect() as connection:
            for view in self.views:
                files = self.landing.table(state.number, view.name)
                rows = _known_between(connection, view, files, since, state.as_of)
                if rows.num_rows:
                    self.online.write(online_view(view), rows)

    def _newest_at_start(self) -> dict[str, str]:
        found = {}
        with connect() as connection:
            for table in self.tables:
                open_tables(connection, {table: self.start.raw[table]})
                event = self.repository.sources[table].event_time
                newest = connection.execute(f'SELECT max("{event}")::TIMESTAMPTZ FROM raw."{table}"').fetchall()[0][0]
                if newest is not None:
                    found[table] = newest.isoformat()
        return found


def push_streams(
    pusher: Pusher,
    open_streams: Callable[[State], Mapping[str, EventStream]],
    *,
    limit: int = LIMIT,
    wait: float = 1.0,
    until_idle: bool = False,
    progress: Callable[[State], None] = lambda _: None,
) -> State:
    """Push micro-batches until the process ends, or, where `until_idle`, until nothing arrives for `wait` seconds.

    Args:
        pusher: The pusher.
        open_streams: The streams by table, read on behind what counts in the given state.
        limit: Messages in a micro-batch, about: it ends between two moments of arrival.
        wait: Seconds to wait for messages.
        until_idle: Whether to end when there are no more.
        progress: Called after every batch.

    Raises:
        SourceError: if a stream cannot be read, or has lost messages.
        StoreError: if the online store cannot be reached, or another pusher works in the folder.
    """
    with pusher.landing.opened():
        state = pusher.resume()
        streams = open_streams(state)
        try:
            _acknowledge(streams, state)
            arrivals = Arrivals(streams, state.as_of)
            while (taken := arrivals.take(limit, wait)) or not until_idle:
                if taken:
                    state = pusher.push(taken)
                    _acknowledge(streams, state)
                    pusher.step("acknowledged")
                    progress(state)
        finally:
            for stream in streams.values():
                stream.close()
    return state


def _acknowledge(streams: Mapping[str, EventStream], state: State) -> None:
    for table, stream in streams.items():
        stream.acknowledge(state.positions.get(table, {}))


def _read(state: State, arrival: Arrival) -> tuple[int, ...]:
    return state.positions.get(arrival.table, {}).get(arrival.partition, ())


def _known_between(
    connection: duckdb.DuckDBPyConnection,
    view: View,
    files: Mapping[str, Path],
    since: datetime | None,
    until: datetime,
) -> pa.Table:
    """Of every key the newest row that became known in (since, until] and is not expired then."""
    keys = ", ".join(f'"{key}"' for key in view.spec.entities)
    conditions = [f"\"{KNOWN_FROM}\" <= TIMESTAMPTZ '{until.isoformat()}'"]
    conditions += [f"\"{KNOWN_FROM}\" > TIMESTAMPTZ '{since.isoformat()}'"] if since else []
    if view.spec.ttl:
        conditions.append(f"\"{EVENT_TIMESTAMP}\" >= TIMESTAMPTZ '{(until - view.spec.ttl).isoformat()}'")
    conditions += [f'"{key}" IS NOT NULL' for key in view.spec.entities]
    open_tables(connection, {"rows": [*files.values()]})
    return connection.sql(
        f"SELECT * FROM raw.rows WHERE {' AND '.join(conditions)} QUALIFY row_number() OVER "
        f'(PARTITION BY {keys} ORDER BY "{EVENT_TIMESTAMP}" DESC, "{KNOWN_FROM}" DESC) = 1'
    ).to_arrow_table()


def _schema(files: Iterable[Path]) -> pa.Schema:
    import pyarrow.parquet as pq

    return pq.read_schema(next(iter(files))).remove_metadata()


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
