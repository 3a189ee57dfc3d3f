"""The push path: micro-batches of a stream become versions of the feature tables, online and offline.

For every batch: land its messages; run the views' queries on the event times that they touch; write what became known
to the online store; let the batch count; acknowledge its messages. A pusher that is killed anywhere in between takes
up the same batch again, and each step leaves what it left before.

What was known at an earlier batch stays as it was. A row that arrives late adds versions known from its arrival on,
so a join at any past moment gives what the online store gave then. What counts is when messages arrived, and never how
they were read: a batch is an interval of the streams' clock, and ends before a message that tells a row of it anew.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.components.features.database import connect, open_tables, quoted
from gatehouse.components.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.components.features.definitions.repository import Repository, View
from gatehouse.components.features.online.store import OnlineStore, online_view
from gatehouse.components.features.streaming.arrivals import Arrival, Arrivals
from gatehouse.components.features.streaming.landing import Landing, State
from gatehouse.components.features.streaming.pushed_table import (
    AHEAD,
    before_batch,
    first_parts,
    next_parts,
    next_rows,
    sql_time,
)
from gatehouse.components.features.streaming.rows import Misfit, RowReader
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
from gatehouse.components.messages.values import MisfitError
from gatehouse.errors import ConfigurationError

logger = logging.getLogger(__name__)

INTERVAL = timedelta(seconds=1)


@dataclass(frozen=True)
class Told:
    """What a message says: a row of its table, or why it says none."""

    arrival: Arrival
    row: dict[str, Any] | None
    misfit: str = ""


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
        self.schemas = {table: pq.read_schema(self.start.raw[table][0]).remove_metadata() for table in self.tables}
        for table, schema in self.schemas.items():
            named = {*self.repository.streams[table].key, self.repository.sources[table].event_time}
            if missing := sorted(named - {*schema.names}):
                raise ConfigurationError(
                    f"definitions.py: Stream {table}: expected columns of the table as key and event time, found "
                    f"{', '.join(missing)}; the table has {', '.join(schema.names)}."
                )
        self.readers = {
            table: RowReader(self.repository.sources[table], schema, self.repository.streams[table].key)
            for table, schema in self.schemas.items()
        }

    def state(self) -> State:
        """Where it stands. The first time, the folder is filled with the tables from which it starts.

        Raises:
            ConfigurationError: if other views were pushed in this folder.
        """
        names = tuple(view.name for view in self.views)
        state = self.landing.state()
        # A first start that was killed left views as well.
        begun = state or self.landing.landed(0)
        if begun is not None and begun.views != names:
            raise ConfigurationError(
                f"{self.landing.folder} holds the pushed views {', '.join(begun.views)}, found {', '.join(names)}. "
                "Push the same views, or compute newer feature tables and start from them."
            )
        if state is not None:
            return state
        state = State(
            0, self.start.as_of, self.start.as_of, self.start.reference, names, newest=self._newest_at_start()
        )
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
        self._write_online(state, None, state.as_of)
        self.landing.commit(0)
        return state

    def resume(self) -> State:
        """Finish a batch that was landed and does not count yet; returns where the pusher stands."""
        state = self.state()
        landed = self.landing.landed(state.number + 1)
        return self._apply(state, landed) if landed else state

    def push(self, state: State, arrivals: Sequence[Arrival]) -> State:
        """Take one interval in, in the order of arrival; messages that count already are passed over."""
        left = [self._told(each) for each in arrivals if each.position > _read(state, each)]
        while left:
            whole = self._once(left)
            state = self._apply(state, self._land(state, left[:whole]))
            left = left[whole:]
        return state

    def serve(self, state: State, since: datetime, until: datetime) -> None:
        """Write to the online store what the tables say to become known in (since, until], behind their `as_of`."""
        if until > since:
            self._write_online(state, since, until, [AHEAD])

    def _told(self, arrival: Arrival) -> Told:
        try:
            return Told(arrival, self.readers[arrival.table].read(arrival.event, arrival.time))
        except MisfitError as misfit:
            return Told(arrival, None, str(misfit))

    def _once(self, told: Sequence[Told]) -> int:
        """How many messages come before the moment in which a row is told anew, which counts from then on."""
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        moment = 0
        for place, each in enumerate(told):
            if each.arrival.time > told[moment].arrival.time:
                moment = place
            if each.row is None:
                continue
            key = self._key(each.arrival.table, each.row)
            if moment and rows.get(key, each.row) != each.row:
                return moment
            rows[key] = each.row
        return len(told)

    def _key(self, table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (table, *(row[name] for name in self.repository.streams[table].key))

    def _land(self, before: State, told: Sequence[Told]) -> State:
        first, last = told[0].arrival.time, told[-1].arrival.time
        state = replace(
            before,
            number=before.number + 1,
            quiet_until=max(first - MICROSECOND, before.as_of),
            as_of=max(last, before.as_of + MICROSECOND),
            positions={table: dict(found) for table, found in before.positions.items()},
            newest=dict(before.newest),
            changed={},
            counts={table: dict(found) for table, found in before.counts.items()},
        )
        misfits: list[Misfit] = []
        found: dict[str, list[dict[str, Any]]] = {}
        for each in told:
            table, partition, position = each.arrival.table, each.arrival.partition, each.arrival.position
            state.positions.setdefault(table, {})[partition] = position
            rows = found.setdefault(table, [])
            if each.row is None:
                misfits.append(Misfit(table, partition, position, each.misfit))
                state.count(table, misfits=1)
            else:
                rows.append(each.row)
        new = {table: self._new_rows(state, table, rows) for table, rows in sorted(found.items())}
        self.landing.land(state, new, {name: one.key for name, one in self.repository.streams.items()}, misfits)
        self.step("landed")
        return state

    def _new_rows(self, state: State, table: str, found: list[dict[str, Any]]) -> pa.Table:
        """The row of every key that says something new; counts what arrived."""
        spec, event = self.repository.streams[table], self.repository.sources[table].event_time
        once = {self._key(table, row): row for row in found}
        rows = pa.Table.from_pylist([*once.values()], schema=self.schemas[table])
        new, state.changed[table] = new_rows(self.repository, self._raw(state.number - 1), table, rows)
        mark = Watermark(state.newest.get(table), spec.lateness).advanced(row[event] for row in found)
        state.count(table, rows=len(found), repeated=len(found) - new.num_rows, late=mark.late)
        if mark.newest is not None:
            state.newest[table] = mark.newest
        return new

    def _apply(self, before: State, state: State) -> State:
        """All steps behind the landing; safe to repeat."""
        if not self.landing.has_tables(state.number):
            self.landing.keep_tables(state.number, self._compute(before, state))
        self.step("computed")
        self._write_online(state, before.as_of, state.as_of)
        self.step("online")
        self.landing.commit(state.number)
        self.step("committed")
        logger.info("batch %d: known until %s, %s", state.number, state.as_of.isoformat(), state.counts)
        return state

    def _compute(self, before: State, state: State) -> dict[str, dict[str, Path]]:
        """The parts of every view's table after the batch: first time passes, and then its messages arrive."""
        files = {view.name: self.landing.table(before.number, view.name) for view in self.views}
        pushed = {name: before_batch(found) for name, found in files.items()}
        steps: tuple[tuple[int, Mapping[str, Sequence[datetime] | None], datetime, datetime], ...] = (
            (before.number, {}, before.as_of, state.quiet_until),
            (state.number, state.changed, state.quiet_until, state.as_of),
        )
        with connect() as connection:
            for number, changed, since, until in steps:
                if until == since:
                    continue
                plans = {one.name: spans_of(self.repository, one, changed, since + MICROSECOND) for one in self.views}
                computed = compute_spans(self.repository, self._raw(number), plans, until)
                for view in self.views:
                    name = view.name
                    pushed[name] = next_rows(
                        connection, view, files[name], pushed[name], plans[name], computed.get(name), since, until
                    )
        scratch = self.landing.scratch(state.number)
        return {name: next_parts(files[name], rows, state.number, scratch / name) for name, rows in pushed.items()}

    def _raw(self, number: int) -> RawTables:
        # What a stream landed counts as well where it is not read any more.
        return RawTables(self.start.raw, {table: self.landing.rows(number, table) for table in self.repository.streams})

    def _write_online(
        self, state: State, since: datetime | None, until: datetime, parts: Sequence[str] | None = None
    ) -> None:
        """Write what became known in (since, until], by these parts: of every key the newest that is not expired."""
        with connect() as connection:
            for view in self.views:
                found = self.landing.table(state.number, view.name)
                files = [path for name, path in found.items() if parts is None or name in parts]
                rows = _known_between(connection, view, files, since, until) if files else None
                if rows:
                    self.online.write(online_view(view), rows)

    def _newest_at_start(self) -> dict[str, datetime]:
        found = {}
        with connect() as connection:
            for table in self.tables:
                open_tables(connection, {table: self.start.raw[table]})
                event = quoted(self.repository.sources[table].event_time)
                query = f"SELECT max({event})::TIMESTAMPTZ FROM raw.{quoted(table)}"
                newest = connection.execute(query).fetchall()[0][0]
                if newest is not None:
                    found[table] = newest
        return found


def push_streams(
    pusher: Pusher,
    open_streams: Callable[[State], Mapping[str, EventStream]],
    *,
    interval: timedelta = INTERVAL,
    wait: float = 1.0,
    until_idle: bool = False,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Callable[[State], None] = lambda _: None,
) -> State:
    """Push micro-batches until the process ends, or, where `until_idle`, until nothing arrives for `wait` seconds.

    Args:
        pusher: The pusher.
        open_streams: The streams by table, read on behind what counts in the given state.
        interval: What arrives within one, by the streams' own clock, is a micro-batch.
        wait: Seconds without a message after which the newest interval is over.
        until_idle: Whether to end when there are no more.
        clock: Tells what comes from the future, and while streams are silent what is known by now.
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
            arrivals = Arrivals(streams, state.as_of, interval, clock)
            idle, served = False, state.as_of
            while not (idle and until_idle):
                # All that arrived until now is read before `take` gives nothing, so what is known by now is settled.
                now = clock()
                taken = arrivals.take(wait)
                idle = not taken
                if taken:
                    state = pusher.push(state, taken)
                    served = state.as_of
                    _acknowledge(streams, state)
                    pusher.step("acknowledged")
                    progress(state)
                else:
                    pusher.serve(state, served, now)
                    served = max(served, now)
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
    files: Sequence[Path],
    since: datetime | None,
    until: datetime,
) -> pa.Table:
    """Of every key the newest row that became known in (since, until] and is not expired then."""
    conditions = [f"{KNOWN_FROM} <= {sql_time(until)}", *(f"{quoted(key)} IS NOT NULL" for key in view.spec.entities)]
    conditions += [f"{KNOWN_FROM} > {sql_time(since)}"] if since else []
    conditions += [f"{EVENT_TIMESTAMP} >= {sql_time(until - view.spec.ttl)}"] if view.spec.ttl else []
    keys = ", ".join(map(quoted, view.spec.entities))
    open_tables(connection, {"rows": files})
    return connection.sql(
        f"SELECT * FROM raw.rows WHERE {' AND '.join(conditions)} QUALIFY row_number() OVER "
        f"(PARTITION BY {keys} ORDER BY {EVENT_TIMESTAMP} DESC, {KNOWN_FROM} DESC) = 1"
    ).to_arrow_table()
