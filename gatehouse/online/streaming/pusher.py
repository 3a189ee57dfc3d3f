"""The push path: micro-batches of a stream become versions of the feature tables, online and offline.

The steps for every batch are: store its rows; run the views' queries on the event times that the rows can affect; write
new rows to the online store; make the batch current; acknowledge its messages. If a pusher is killed between two steps,
the next one continues with the same batch. A repeated step has the same result.

Rows known at an earlier batch do not change. A row that arrives late adds versions known from its arrival on, so a join
at any past moment gives what the online store gave then. Only times of arrival matter, not how messages were read: a
batch is an interval of the streams' clock.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.messages.values import DoesNotFit, body_of
from gatehouse.errors import ConfigurationError
from gatehouse.features.database import connect, rows_of
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM, Source
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.exact import reader_of
from gatehouse.features.table_files import Files, feature_files, raw_tables
from gatehouse.online.store import OnlineStore, epoch_us, online_view
from gatehouse.online.streaming.batch_folder import COUNTS, BatchFolder, BatchState, Misfit
from gatehouse.online.streaming.micro_batch_tables import MICROSECOND, RawTables, new_rows, next_tables, streamed_views
from gatehouse.online.streaming.micro_batches import ArrivedMessage, MicroBatches
from gatehouse.online.streaming.stream import CLOCK_TOLERANCE, Message, MessageStream
from gatehouse.store.database import quoted, time_literal
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

INTERVAL = timedelta(seconds=1)
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Start:
    """The feature tables from which pushing starts, which know everything up to `as_of`."""

    reference: str
    as_of: datetime
    raw: Mapping[str, Sequence[Path]]
    tables: Mapping[str, Files]

    @property
    def group(self) -> str:
        """Name of the consumer group of these tables: each set of tables reads a stream at its own position."""
        reference = Reference.parse(self.reference)
        return f"gatehouse-{reference.name}-{reference.digest[:12]}"


def start_from(store: ArtifactStore, feature_tables: str) -> Start:
    """Start from the feature tables of a reference; their files and those of their snapshot are verified."""
    snapshot = store.manifest(feature_tables).derived_from["snapshot"]
    return Start(
        reference=feature_tables,
        as_of=datetime.fromisoformat(str(store.manifest(snapshot).details["as_of"])),
        raw=raw_tables(store, snapshot),
        tables=feature_files(store, feature_tables),
    )


class RowReader:
    """Reads the rows of one table from messages."""

    def __init__(self, source: Source, schema: pa.Schema, key: Sequence[str]) -> None:
        self._source, self._key = source, key
        if missing := sorted({*key, source.event_time} - {*schema.names}):
            raise ConfigurationError(
                f"definitions.py: Stream {source.table}: expected columns of the table as key and event time, found "
                f"{', '.join(missing)}; the table has {', '.join(schema.names)}."
            )
        what = f"The table {source.table} cannot be streamed: its column"
        self._readers = {column.name: reader_of(column.type, f"{what} {column.name}") for column in schema}

    def read(self, message: Message, arrived: datetime) -> dict[str, Any]:
        """The row of a message. Fields that the table lacks are ignored; columns that the message lacks are null.

        Raises DoesNotFit if it holds no row, or its event time is further after its arrival than the table allows.
        """
        body, typed = body_of(message.payload), isinstance(message.payload, bytes)
        row: dict[str, Any] = {}
        for column, reader in self._readers.items():
            value = body.get(column)
            try:
                row[column] = None if value is None else reader(value, typed)
            except ValueError as error:
                raise DoesNotFit(
                    f"column {column}: expected {error}, {unless_hidden(f'found {str(value)[:40]!r}')}"
                ) from None
        for column in self._key:
            if row[column] is None:
                raise DoesNotFit(f"column {column}: expected a value, as it is in the key, found none")
        event, latest = row[self._source.event_time], arrived + self._source.lead + CLOCK_TOLERANCE
        if event is not None and not _EARLIEST <= event <= latest:
            raise DoesNotFit(
                f"column {self._source.event_time}: expected a time from 1900 on and until {latest.isoformat()}, as it "
                f"arrived {arrived.isoformat()}, {unless_hidden(f'found {event.isoformat()}')}"
            )
        return row


@dataclass
class Pusher:
    """Pushes the views of a repository that read the streamed tables; `names` are by default all that can be pushed.

    The online store must be materialized up to the start.
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
        self.readers = {
            table: RowReader(self.repository.sources[table], schema, self.repository.streams[table].key)
            for table, schema in self.schemas.items()
        }

    def resume(self) -> BatchState:
        """The current state, after finishing a batch whose rows are stored and which is not current yet.

        The first call fills the folder with the tables from which the pusher starts. Raises ConfigurationError if other
        views were pushed in this folder.
        """
        names = tuple(view.name for view in self.views)
        state = self.batches.state()
        begun = state or self.batches.state(0)  # A first start that was killed may have left views.
        if begun is not None and begun.views != names:
            raise ConfigurationError(
                f"{self.batches.folder} holds a push of the views {', '.join(begun.views)}, but {', '.join(names)} "
                "were asked for. Push the same views, or compute newer feature tables and start from them."
            )
        if state is None:
            as_of, newest = self.start.as_of, {}
            with connect() as connection:
                for table in self.tables:
                    event = quoted(self.repository.sources[table].event_time)
                    query = f"SELECT max({event})::TIMESTAMPTZ FROM {rows_of(self.start.raw[table])}"
                    newest[table] = connection.execute(query).fetchall()[0][0]
            newest = {table: event for table, event in newest.items() if event is not None}
            state = BatchState(
                number=0,
                quiet_until=as_of,
                as_of=as_of,
                started_from=self.start.reference,
                views=names,
                newest=newest,
            )
            if begun is None:
                self.batches.store_rows(state, {}, {}, ())
            if not self.batches.has_tables(0):
                self.batches.keep_tables(0, {name: self.start.tables[name] for name in names})
            self._write_online(state, None, as_of)
            self.batches.commit(0)
        unfinished = self.batches.state(state.number + 1)
        return self._finish(state, unfinished) if unfinished else state

    def push(self, state: BatchState, arrived: Sequence[ArrivedMessage]) -> BatchState:
        """Push the messages of one interval, in the order of arrival; messages included already are skipped."""
        new = [
            message
            for message in arrived
            if message.position > state.positions.get(message.table, {}).get(message.partition, ())
        ]
        return self._finish(state, self._store(state, new)) if new else state

    def write_due(self, state: BatchState, since: datetime, until: datetime) -> None:
        """Write rows that become known in (since, until] to the online store; `since` is not before `as_of`."""
        if until > since:
            self._write_online(state, since, until)

    def _store(self, before: BatchState, messages: Sequence[ArrivedMessage]) -> BatchState:
        """Store the rows of a batch, of each key the last; returns the state after it."""
        positions = {table: dict(places) for table, places in before.positions.items()}
        counts = {table: dict(numbers) for table, numbers in before.counts.items()}
        newest, misfits = dict(before.newest), list[Misfit]()
        rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        for message in messages:
            table, partition, position = message.table, message.partition, message.position
            positions.setdefault(table, {})[partition] = position
            numbers = counts.setdefault(table, dict.fromkeys(COUNTS, 0))
            try:
                if message.flaw:
                    raise DoesNotFit(message.flaw)
                row = self.readers[table].read(message.message, message.time)
            except DoesNotFit as misfit:
                misfits.append(Misfit(table=table, partition=partition, position=position, reason=str(misfit)))
                numbers["misfits"] += 1
                continue
            stream = self.repository.streams[table]
            rows.setdefault(table, {})[tuple(row[name] for name in stream.key)] = row
            numbers["rows"] += 1
            numbers["repeated"] += 1
            event = row[self.repository.sources[table].event_time]
            if event is not None:
                latest = newest.setdefault(table, event)
                numbers["late"] += event < latest - stream.lateness
                newest[table] = max(latest, event)
        new, changed, raw = {}, {}, self._raw(before.number)
        for table, by_key in sorted(rows.items()):
            read = pa.Table.from_pylist([*by_key.values()], schema=self.schemas[table])
            new[table], changed[table] = new_rows(self.repository, raw, table, read)
            counts[table]["repeated"] -= new[table].num_rows
        state = BatchState(
            number=before.number + 1,
            quiet_until=max(messages[0].time - MICROSECOND, before.as_of),
            as_of=max(messages[-1].time, before.as_of + MICROSECOND),
            started_from=before.started_from,
            views=before.views,
            positions=positions,
            newest=newest,
            changed=changed,
            counts=counts,
        )
        # Rows that arrived in a stream count even if the stream is not read any more.
        keys = {name: stream.key for name, stream in self.repository.streams.items()}
        self.batches.store_rows(state, new, keys, misfits)
        self.step("stored")
        return state

    def _finish(self, before: BatchState, state: BatchState) -> BatchState:
        """Run all steps after the rows are stored; each can be repeated."""
        if not self.batches.has_tables(state.number):
            files: Mapping[str, Files] = {
                view.name: self.batches.table(before.number, view.name) for view in self.views
            }
            scratch = self.batches.scratch(state.number)
            # First for the time that passed before the first message, then for the messages.
            if state.quiet_until > before.as_of:
                raw, quiet = self._raw(before.number), state.quiet_until
                files = next_tables(self.repository, self.views, raw, files, {}, before.as_of, quiet, scratch / "quiet")
            raw = self._raw(state.number)
            files = next_tables(
                self.repository, self.views, raw, files, state.changed, state.quiet_until, state.as_of, scratch / "new"
            )
            self.batches.keep_tables(state.number, files)
        self.step("computed")
        self._write_online(state, before.as_of, state.as_of)
        self.step("online")
        self.batches.commit(state.number)
        self.step("committed")
        logger.info("batch %d: known until %s, %s", state.number, state.as_of.isoformat(), state.counts)
        return state

    def _raw(self, number: int) -> RawTables:
        return RawTables(self.start.raw, {table: self.batches.rows(number, table) for table in self.repository.streams})

    def _write_online(self, state: BatchState, since: datetime | None, until: datetime) -> None:
        """Write the newest fresh row of every key that became known in (since, until].

        The batch is noted in the store first, so that its rows are not compared with those of another batch.
        """
        for view in self.views:
            as_of = epoch_us(state.as_of)
            while (stored := self.online.state(view.name)).pushed is None or stored.pushed < as_of:
                if self.online.swap(view.name, stored, replace(stored, pushed=as_of)):
                    break
            conditions = [f"{KNOWN_FROM} <= {time_literal(until)}"]
            conditions += [f"{quoted(key)} IS NOT NULL" for key in view.spec.entities]
            conditions += [f"{KNOWN_FROM} > {time_literal(since)}"] if since else []
            conditions += [f"{EVENT_TIMESTAMP} >= {time_literal(until - view.spec.ttl)}"] if view.spec.ttl else []
            keys = ", ".join(map(quoted, view.spec.entities))
            files = [*self.batches.table(state.number, view.name).values()]
            with connect() as connection:
                rows = connection.sql(
                    f"SELECT * FROM {rows_of(files)} WHERE {' AND '.join(conditions)} QUALIFY row_number() OVER "
                    f"(PARTITION BY {keys} ORDER BY {EVENT_TIMESTAMP} DESC, {KNOWN_FROM} DESC) = 1"
                ).to_arrow_table()
            if rows.num_rows:
                self.online.write(online_view(view), rows)


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

    `open_streams` opens the streams, by table, after the messages included in a state. After `wait` seconds without a
    message the newest interval is over. Rows that become known in silence are written by the `clock`.

    Raises SourceError if a stream cannot be read, or has lost messages; StoreError if the online store cannot be
    reached, or another pusher works in the folder.
    """
    with pusher.batches.opened():
        state = pusher.resume()
        streams = open_streams(state)
        try:
            _acknowledge(streams, state)
            batches = MicroBatches(streams, state.as_of, interval, clock)
            idle, written = False, state.as_of
            while not (idle and until_idle):
                # If there is no batch, all messages until now are read, so rows known by now are settled.
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
