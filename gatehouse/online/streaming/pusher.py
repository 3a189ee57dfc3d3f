"""The push path: micro-batches of a stream become versions of the feature tables, online and offline.

The steps for every batch are: store its rows; run the views' queries on the event times that the rows can affect; write
new rows to the online store; make the batch current; acknowledge its messages. If a pusher is killed between two steps,
the next one continues with the same batch. A repeated step has the same result.

Rows known at an earlier batch do not change. A row that arrives late adds versions known from its arrival on, so a join
at any past moment gives what the online store gave then. Only times of arrival matter, not how messages were read: a
batch is an interval of the streams' clock, which ends before a message that replaces a row of the batch.
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

from gatehouse.data.messages.values import DoesNotFit
from gatehouse.errors import ConfigurationError
from gatehouse.features.database import connect, open_tables, quoted, time_literal
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import Repository, View
from gatehouse.online.store import OnlineStore, epoch_us, online_view
from gatehouse.online.streaming.batch_folder import BatchFolder, BatchState
from gatehouse.online.streaming.micro_batches import ArrivedMessage, MicroBatches
from gatehouse.online.streaming.pushed_table import LATER, first_parts, next_parts, next_rows, rows_before
from gatehouse.online.streaming.rows import Misfit, RowReader
from gatehouse.online.streaming.start import Start
from gatehouse.online.streaming.stream import MessageStream
from gatehouse.online.streaming.views import MICROSECOND, RawTables, compute_spans, new_rows, spans_of, streamed_views
from gatehouse.online.streaming.watermark import Watermark

logger = logging.getLogger(__name__)

INTERVAL = timedelta(seconds=1)


@dataclass(frozen=True)
class ReadMessage:
    """A message with its row, or with the reason why it has none."""

    arrived: ArrivedMessage
    row: dict[str, Any] | None
    misfit: str = ""


@dataclass
class Pusher:
    """Pushes the views of a repository that read the streamed tables.

    Args:
        repository: The definitions.
        start: The feature tables from which it starts.
        batches: The folder with the rows that arrived since then.
        online: The online store; it must be materialized up to the start.
        tables: The raw tables whose messages are pushed.
        names: Names of the views to push; if empty, all views that can be pushed.
        step: Called after each step with its name; tests end the process there.
    """

    repository: Repository
    start: Start
    batches: BatchFolder
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

    def state(self) -> BatchState:
        """The current state. The first call fills the folder with the tables from which the pusher starts.

        Raises:
            ConfigurationError: if other views were pushed in this folder.
        """
        names = tuple(view.name for view in self.views)
        state = self.batches.state()
        # A first start that was killed may have left views.
        begun = state or self.batches.stored(0)
        if begun is not None and begun.views != names:
            raise ConfigurationError(
                f"{self.batches.folder} holds a push of the views {', '.join(begun.views)}, but {', '.join(names)} "
                "were asked for. Push the same views, or compute newer feature tables and start from them."
            )
        if state is not None:
            return state
        state = BatchState(
            0, self.start.as_of, self.start.as_of, self.start.reference, names, newest=self._newest_at_start()
        )
        if self.batches.stored(0) is None:
            self.batches.store_rows(state, {}, {}, ())
        if not self.batches.has_tables(0):
            scratch, files = self.batches.scratch(0), self.start.tables
            with connect() as connection:
                tables = {
                    view.name: first_parts(connection, files[view.name], state.as_of, scratch / view.name)
                    for view in self.views
                }
            self.batches.keep_tables(0, tables)
        self._write_online(state, None, state.as_of)
        self.batches.commit(0)
        return state

    def resume(self) -> BatchState:
        """Finish a batch whose rows are stored and which is not current yet; returns the state after it."""
        state = self.state()
        unfinished = self.batches.stored(state.number + 1)
        return self._finish(state, unfinished) if unfinished else state

    def push(self, state: BatchState, arrived: Sequence[ArrivedMessage]) -> BatchState:
        """Push the messages of one interval, in the order of arrival; messages included already are skipped."""
        left = [self._read(each) for each in arrived if each.position > _position(state, each)]
        while left:
            count = self._until_replaced(left)
            state = self._finish(state, self._store(state, left[:count]))
            left = left[count:]
        return state

    def write_due(self, state: BatchState, since: datetime, until: datetime) -> None:
        """Write rows that become known in (since, until] to the online store; `since` is not before `as_of`."""
        if until > since:
            self._write_online(state, since, until, [LATER])

    def _read(self, arrived: ArrivedMessage) -> ReadMessage:
        try:
            return ReadMessage(arrived, self.readers[arrived.table].read(arrived.message, arrived.time))
        except DoesNotFit as misfit:
            return ReadMessage(arrived, None, str(misfit))

    def _until_replaced(self, messages: Sequence[ReadMessage]) -> int:
        """Number of messages before the first arrival at which a message replaces a row of an earlier one."""
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        first_of_moment = 0
        for place, each in enumerate(messages):
            if each.arrived.time > messages[first_of_moment].arrived.time:
                first_of_moment = place
            if each.row is None:
                continue
            key = self._key(each.arrived.table, each.row)
            if first_of_moment and rows.get(key, each.row) != each.row:
                return first_of_moment
            rows[key] = each.row
        return len(messages)

    def _key(self, table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (table, *(row[name] for name in self.repository.streams[table].key))

    def _store(self, before: BatchState, messages: Sequence[ReadMessage]) -> BatchState:
        """Store the rows of a batch; returns the state after it."""
        first, last = messages[0].arrived.time, messages[-1].arrived.time
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
        for each in messages:
            table, partition, position = each.arrived.table, each.arrived.partition, each.arrived.position
            state.positions.setdefault(table, {})[partition] = position
            rows = found.setdefault(table, [])
            if each.row is None:
                misfits.append(Misfit(table, partition, position, each.misfit))
                state.count(table, misfits=1)
            else:
                rows.append(each.row)
        new = {table: self._new_rows(state, table, rows) for table, rows in sorted(found.items())}
        self.batches.store_rows(state, new, {name: one.key for name, one in self.repository.streams.items()}, misfits)
        self.step("stored")
        return state

    def _new_rows(self, state: BatchState, table: str, found: list[dict[str, Any]]) -> pa.Table:
        """The last row of every key, if it says something new; counts the messages."""
        spec, event = self.repository.streams[table], self.repository.sources[table].event_time
        last = {self._key(table, row): row for row in found}
        rows = pa.Table.from_pylist([*last.values()], schema=self.schemas[table])
        new, state.changed[table] = new_rows(self.repository, self._raw(state.number - 1), table, rows)
        mark = Watermark(state.newest.get(table), spec.lateness).advanced(row[event] for row in found)
        state.count(table, rows=len(found), repeated=len(found) - new.num_rows, late=mark.late)
        if mark.newest is not None:
            state.newest[table] = mark.newest
        return new

    def _finish(self, before: BatchState, state: BatchState) -> BatchState:
        """Run all steps after the rows are stored; each can be repeated."""
        if not self.batches.has_tables(state.number):
            self.batches.keep_tables(state.number, self._compute(before, state))
        self.step("computed")
        self._write_online(state, before.as_of, state.as_of)
        self.step("online")
        self.batches.commit(state.number)
        self.step("committed")
        logger.info("batch %d: known until %s, %s", state.number, state.as_of.isoformat(), state.counts)
        return state

    def _compute(self, before: BatchState, state: BatchState) -> dict[str, dict[str, Path]]:
        """The files of every view's table after the batch: first for the time that passed, then for its messages."""
        files = {view.name: self.batches.table(before.number, view.name) for view in self.views}
        pushed = {name: rows_before(found) for name, found in files.items()}
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
        scratch = self.batches.scratch(state.number)
        return {name: next_parts(files[name], rows, state.number, scratch / name) for name, rows in pushed.items()}

    def _raw(self, number: int) -> RawTables:
        # Rows that arrived in a stream count even if the stream is not read any more.
        return RawTables(self.start.raw, {table: self.batches.rows(number, table) for table in self.repository.streams})

    def _write_online(
        self, state: BatchState, since: datetime | None, until: datetime, parts: Sequence[str] | None = None
    ) -> None:
        """Write the newest row of every key that became known in (since, until]; `parts` are files, by default all.

        The store is told the batch first, so that its rows are not compared with those of another batch.
        """
        with connect() as connection:
            for view in self.views:
                self._note_batch(view.name, epoch_us(state.as_of))
                found = self.batches.table(state.number, view.name)
                files = [path for name, path in found.items() if parts is None or name in parts]
                rows = _known_between(connection, view, files, since, until) if files else None
                if rows:
                    self.online.write(online_view(view), rows)

    def _note_batch(self, view: str, as_of: int) -> None:
        while (state := self.online.state(view)).pushed is None or state.pushed < as_of:
            if self.online.swap(view, state, replace(state, pushed=as_of)):
                return

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
    open_streams: Callable[[BatchState], Mapping[str, MessageStream]],
    *,
    interval: timedelta = INTERVAL,
    wait: float = 1.0,
    until_idle: bool = False,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    progress: Callable[[BatchState], None] = lambda _: None,
) -> BatchState:
    """Push micro-batches until the process ends; with `until_idle`, until nothing arrives for `wait` seconds.

    Args:
        pusher: The pusher.
        open_streams: Opens the streams, by table, after the messages included in the given state.
        interval: Length of a micro-batch by the streams' own clock.
        wait: Seconds without a message after which the newest interval is over.
        until_idle: Whether to end when nothing more arrives.
        clock: Gives the time now, to detect messages with a future time, and to write rows that become known in
            silence.
        progress: Called after every batch.

    Raises:
        SourceError: if a stream cannot be read, or has lost messages.
        StoreError: if the online store cannot be reached, or another pusher works in the folder.
    """
    with pusher.batches.opened():
        state = pusher.resume()
        streams = open_streams(state)
        try:
            _acknowledge(streams, state)
            batches = MicroBatches(streams, state.as_of, interval, clock)
            idle, written = False, state.as_of
            while not (idle and until_idle):
                # If `next_batch` is empty, all messages that arrived until now are read, so rows known by now are
                # settled.
                now = clock()
                arrived = batches.next_batch(wait)
                idle = not arrived
                if arrived:
                    state = pusher.push(state, arrived)
                    written = state.as_of
                    _acknowledge(streams, state)
                    pusher.step("acknowledged")
                    progress(state)
                else:
                    pusher.write_due(state, written, now)
                    written = max(written, now)
        finally:
            for stream in streams.values():
                stream.close()
    return state


def _acknowledge(streams: Mapping[str, MessageStream], state: BatchState) -> None:
    for table, stream in streams.items():
        stream.acknowledge(state.positions.get(table, {}))


def _position(state: BatchState, arrived: ArrivedMessage) -> tuple[int, ...]:
    """The position of the last message included from the message's partition; the lowest position if there is none."""
    return state.positions.get(arrived.table, {}).get(arrived.partition, ())


def _known_between(
    connection: duckdb.DuckDBPyConnection,
    view: View,
    files: Sequence[Path],
    since: datetime | None,
    until: datetime,
) -> pa.Table:
    """The newest row of every key that became known in (since, until] and is not expired at `until`."""
    conditions = [
        f"{KNOWN_FROM} <= {time_literal(until)}",
        *(f"{quoted(key)} IS NOT NULL" for key in view.spec.entities),
    ]
    conditions += [f"{KNOWN_FROM} > {time_literal(since)}"] if since else []
    conditions += [f"{EVENT_TIMESTAMP} >= {time_literal(until - view.spec.ttl)}"] if view.spec.ttl else []
    keys = ", ".join(map(quoted, view.spec.entities))
    open_tables(connection, {"rows": files})
    return connection.sql(
        f"SELECT * FROM raw.rows WHERE {' AND '.join(conditions)} QUALIFY row_number() OVER "
        f"(PARTITION BY {keys} ORDER BY {EVENT_TIMESTAMP} DESC, {KNOWN_FROM} DESC) = 1"
    ).to_arrow_table()
