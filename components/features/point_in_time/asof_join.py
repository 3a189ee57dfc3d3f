"""The point-in-time join: for every entity row the newest feature row that was known at its time. No Feast.

A feature row may be used at time t only if it is about the past (event <= t) and was known then (created <= t, where a
view has a created timestamp and is not `event_time_only`). Of those the newest event wins, among equal events the
newest created, among full ties the last row of the table. The row counts as long as it is fresh: t - event <= ttl, both
ends included. An entity row without a usable feature row keeps nulls; so does one whose key or time is null. Every
entity row comes out once, in order. Times without a zone are UTC; they are compared to the nanosecond where a column
has them, else to the microsecond.

A correction that was created later hides behind the older row it corrects until it is known. That needs no second
look: a row is usable from `known = max(event, created)` on, so the best row usable at t is the running maximum of the
order (event, created, position) along `known`, and one binary search on `known` finds it.

DuckDB reads the tables; the search runs on sorted 64-bit integers, each a key's number and a time in one. What is
larger than the memory it may take is divided by key first, entity rows and view alike, and waits on disk until the rows
are put together in their order. So each row is read, sorted and searched once, whatever the memory.
"""

import math
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.features.database import quoted
from gatehouse.errors import ConfigurationError

WORKERS = 2
MEMORY_BYTES = 256 << 20
_POSITION, _EVENT, _CREATED, _PIECE = "__position", "__event", "__created", "__piece"
_BATCH = 1 << 17
_MOST_PIECES = 256
"""Each is an open file while rows are divided."""
_CAPACITY = 2**63
_NEVER = np.iinfo(np.int64).min
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Joined:
    """One view of a join.

    Attributes:
        table: Name of its table in the connection, or any SQL that can follow FROM.
        keys: Column of the entity rows by key column of the table; empty where a view has no entity.
        event: Column with the event timestamp.
        features: Output name by feature column.
        created: Column with the created timestamp; empty for none. A null in it counts as known at the event.
        ttl: How long a row stays fresh; None or zero for ever.
        event_time_only: Take `created` for what it is among equal events only, not for when a row was known.
    """

    table: str
    keys: dict[str, str]
    event: str
    features: dict[str, str] = field(default_factory=dict)
    created: str = ""
    ttl: timedelta | None = None
    event_time_only: bool = False


@dataclass(frozen=True)
class _Times:
    """Times in UTC since 1970, in nanoseconds where `fine`, else in microseconds; a null is the least integer."""

    ticks: Integers
    fine: bool = False

    def refined(self) -> Integers:
        """In nanoseconds. Those beyond the years 1677 to 2262 become the first and the last of them."""
        if self.fine:
            return self.ticks
        bound = np.iinfo(np.int64).max // 1000
        return np.where(self.ticks == _NEVER, _NEVER, np.clip(self.ticks, -bound, bound) * 1000)

    def take(self, rows: Integers) -> "_Times":
        return _Times(self.ticks[rows], self.fine)


@dataclass(frozen=True)
class _Asked:
    """Entity rows as one view's search sees them: their numbers (None for all), their times, their keys."""

    rows: Integers | None
    times: _Times
    keys: dict[str, pa.ChunkedArray]


@dataclass(frozen=True)
class _Found:
    """Features for the entity rows `rows`, ascending; None for all of them."""

    rows: Integers | None
    features: pa.Table

    def between(self, start: int, stop: int) -> tuple[Integers, pa.Table]:
        """Those of the entity rows from `start` to before `stop`."""
        if self.rows is None:
            return np.arange(start, stop), self.features.slice(start, stop - start)
        first, last = (int(place) for place in np.searchsorted(self.rows, [start, stop]))
        return self.rows[first:last], self.features.slice(first, last - first)


def asof_join(
    connection: duckdb.DuckDBPyConnection,
    entity_rows: pa.Table,
    time: str,
    views: Sequence[Joined],
    memory: int = MEMORY_BYTES,
) -> pa.Table:
    """Join the features of `views` to `entity_rows`; as `asof_batches`, with the whole result in memory."""
    with tempfile.TemporaryDirectory() as folder:
        batches = list(asof_batches(connection, entity_rows, time, views, Path(folder), memory))
    return batches[0] if len(batches) == 1 else pa.concat_tables(batches)


def asof_batches(
    connection: duckdb.DuckDBPyConnection,
    entity_rows: pa.Table,
    time: str,
    views: Sequence[Joined],
    folder: Path,
    memory: int = MEMORY_BYTES,
) -> Iterator[pa.Table]:
    """Join the features of `views` to `entity_rows`, some rows after the other.

    Args:
        connection: Where the tables of the views can be read; its time zone must be UTC.
        entity_rows: Any columns, among them the key columns and `time`.
        time: Column with the time of each entity row; a time without a zone is UTC.
        views: What to join; output names must not clash.
        folder: An empty directory, for what does not fit into memory. It must last as long as the batches are used.
        memory: Bytes that rows read or given together may take; so much is read, and so much is searched by each of
            the workers. The rows of one key, and the rows of a view without keys, are never divided.

    Returns:
        Tables, at least one: the columns of `entity_rows`, untouched and in order, then the features in the order of
        `views`.

    Raises:
        ConfigurationError: if a key of the entity rows cannot be compared with the key of a view, or a table cannot be
            read.
    """
    times = _times(entity_rows[time])
    found: list[list[_Found]] = [[] for _ in views]
    pending: deque[tuple[int, Future[_Found]]] = deque()
    outputs = _width(entity_rows.schema) + 16 * sum(len(view.features) for view in views)
    keep = entity_rows.num_rows * outputs <= 2 * memory
    with ThreadPoolExecutor(WORKERS) as pool:
        for number, view in enumerate(views):
            place = folder / str(number)
            for piece, (rows, asked) in enumerate(_pieces(connection, view, entity_rows, times, place, memory)):
                if len(pending) == WORKERS:
                    _collect(pending, found)
                spool = None if keep else folder / f"{number}-{piece}.arrow"
                pending.append((number, pool.submit(_join_piece, view, asked, rows, spool)))
        while pending:
            _collect(pending, found)
    size = max(1, memory // max(outputs, 1))
    for start in range(0, max(entity_rows.num_rows, 1), size):
        yield _put_together(entity_rows.slice(start, size), start, views, found)


def _collect(pending: deque[tuple[int, Future[_Found]]], found: list[list[_Found]]) -> None:
    number, future = pending.popleft()
    found[number].append(future.result())


def _put_together(rows: pa.Table, start: int, views: Sequence[Joined], found: list[list[_Found]]) -> pa.Table:
    """`rows`, the first of which is entity row `start`, with the features that were found for them."""
    result = rows
    for view, pieces in zip(views, found, strict=True):
        parts = [piece.between(start, start + rows.num_rows) for piece in pieces]
        features = parts[0][1]
        if len(parts) > 1:
            order = np.argsort(np.concatenate([numbers for numbers, _ in parts]))
            features = pa.concat_tables([part for _, part in parts]).take(order)
        for column, name in view.features.items():
            result = result.append_column(name, features[column])
    return result


def _join_piece(view: Joined, asked: _Asked, rows: pa.Table, spool: Path | None) -> _Found:
    """The features of some rows of a view for the entity rows that may get them; on disk where `spool` names a file."""
    chosen, matched = _matches(view, asked, rows)
    features = rows.select(list(view.features)).take(pa.array(chosen, mask=~matched))
    if spool is None:
        return _Found(asked.rows, features)
    with pa.OSFile(str(spool), "wb") as sink, pa.ipc.new_file(sink, features.schema) as writer:
        writer.write_table(features)
    return _Found(asked.rows, pa.ipc.open_file(pa.memory_map(str(spool))).read_all())


def _matches(view: Joined, asked: _Asked, rows: pa.Table) -> tuple[Integers, Truths]:
    """For every entity row the number of the feature row that it gets, and whether it gets one."""
    wanted = len(asked.times.ticks)
    if rows.num_rows == 0 or wanted == 0:
        return np.zeros(wanted, np.int64), np.zeros(wanted, np.bool_)
    event, created, times, per_second = _in_one_unit(view, rows, asked.times)
    known = event if view.event_time_only else np.maximum(event, created)
    codes, asking = _codes(view, rows, asked)
    position = _int64(rows[_POSITION]) if _POSITION in rows.column_names else None
    events, knowns, asks = _ticks(event, known, times, max(int(codes.max()), int(asking.max())) + 2)
    span = int(max(events.max(), knowns.max(), asks.max())) + 1
    order, places = _order(_placed(codes, span, events), created, position)
    if (known > event).any():
        places = _placed(codes, span, knowns)[order]
        along = _argsort(places)
        best = np.maximum.accumulate(along)
        places = places[along]
    else:
        best = np.arange(len(order))
    questions = np.maximum(_placed(asking, span, asks), 0)
    # Looked up in order, as a binary search at random misses the cache at every step.
    by_place = _argsort(questions)
    found = np.empty(wanted, np.int64)
    found[by_place] = np.searchsorted(places, questions[by_place], side="right") - 1
    matched = (found >= 0) & (asking >= 0) & (times != _NEVER)
    found[~matched] = 0
    matched &= places[found] // span == asking
    chosen = order[best[found]]
    if view.ttl:
        # No event that matched is later than its time, so that unsigned an age of 300 years has room in nanoseconds.
        age = (times - event[chosen]).view(np.uint64)
        limit = view.ttl // timedelta(microseconds=1) * (per_second // 10**6)
        matched &= age <= np.uint64(min(limit, np.iinfo(np.uint64).max))
    return chosen, matched


def _in_one_unit(view: Joined, rows: pa.Table, times: _Times) -> tuple[Integers, Integers, Integers, int]:
    """Events, created times and the entity rows' times, and how many of their unit are a second."""
    event = _times(rows[_EVENT])
    created = _times(rows[_CREATED]) if view.created else event
    if event.fine or created.fine or times.fine:
        ticks, made, asks, per_second = event.refined(), created.refined(), times.refined(), 10**9
    else:
        ticks, made, asks, per_second = event.ticks, created.ticks, times.ticks, 10**6
    return ticks, _unless(made == _NEVER, made, ticks), asks, per_second


def _placed(codes: Integers, span: int, ticks: Integers) -> Integers:
    """A key's number and a time from 0 to before `span` in one integer."""
    places = codes * span
    places += ticks
    return places


def _unless(wrong: Truths, values: Integers, others: Integers | int) -> Integers:
    """`values`, and `others` where they are wrong. Where none is, nothing is copied: fresh memory is dear."""
    return np.where(wrong, others, values) if wrong.any() else values


def _order(places: Integers, created: Integers, position: Integers | None) -> tuple[Integers, Integers]:
    """Rows by place (key and event), then created, then position; and the places in that order.

    Ties are few, so only they are sorted by all three. Without `position` a row's is its number.
    """
    order = _argsort(places)
    ordered = places[order]
    tied = _tied(ordered)
    rows = order[tied]
    order[tied] = rows[np.lexsort((rows if position is None else position[rows], created[rows], ordered[tied]))]
    return order, ordered


def _argsort(values: Integers) -> Integers:
    """The stable order of integers from 0: as numpy's argsort, in a third of its time.

    Numbers are sorted faster than an index of them. So each gets its position in its low bits, in place of those of its
    own that 64 bits have no room for; the few that are told apart only by those are sorted again.
    """
    bits = max(len(values) - 1, 1).bit_length()
    cut = max(int(values.max(initial=0)).bit_length() + bits - 63, 0)
    packed = values >> cut
    packed <<= bits
    packed |= np.arange(len(values))
    packed.sort()
    order = packed & ((1 << bits) - 1)
    if cut:
        packed >>= bits
        tied = _tied(packed)
        rows = order[tied]
        order[tied] = rows[np.argsort(values[rows], kind="stable")]
    return order


def _tied(ordered: Integers) -> Integers:
    """Where a sorted number has an equal neighbour."""
    equal = ordered[1:] == ordered[:-1]
    return np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))


def _ticks(event: Integers, known: Integers, times: Integers, keys: int) -> tuple[Integers, Integers, Integers]:
    """Times as integers from 0 that keep their order and leave room for `keys` beside them in 64 bits."""
    valid = times[times != _NEVER]
    first = min(int(event.min()), int(valid.min())) if len(valid) else int(event.min())
    last = max(int(known.max()), int(valid.max())) if len(valid) else int(known.max())
    asked = _unless(times == _NEVER, times, first)
    if (last - first + 1) * keys < _CAPACITY:
        return event - first, known - first, asked - first
    moments = np.unique(np.concatenate([event, known]))
    # An entity row asks for what was known up to its time: the number of moments up to it, less one.
    return (
        np.searchsorted(moments, event) + 1,
        np.searchsorted(moments, known) + 1,
        np.searchsorted(moments, asked, side="right"),
    )


def _codes(view: Joined, rows: pa.Table, asked: _Asked) -> tuple[Integers, Integers]:
    """A number for every key, of the feature rows and of the entity rows: equal keys, equal numbers; -1 for a null."""
    if not view.keys:
        return np.zeros(rows.num_rows, np.int64), np.zeros(len(asked.times.ticks), np.int64)
    first, *others = view.keys
    together = _encoded(rows[first], asked.keys[first])
    for key in others:
        more = _encoded(rows[key], asked.keys[key])
        null = (together < 0) | (more < 0)
        _, together = np.unique(_placed(together, int(more.max(initial=0)) + 1, more), return_inverse=True)
        together = _unless(null, together, -1)
    codes, asking = together[: rows.num_rows], together[rows.num_rows :]
    # A feature row without a key is no entity's: it gets a number that nobody asks for.
    return _unless(codes < 0, codes, int(together.max(initial=0)) + 1), asking


def _encoded(here: pa.ChunkedArray, there: pa.ChunkedArray) -> Integers:
    """A number from 0 for every key, of the feature rows and then of the entity rows; -1 for a null."""
    together = pa.chunked_array([*here.chunks, *there.chunks], here.type)
    offsets = _offsets(together) if pa.types.is_integer(together.type) else None
    return _int64(together.combine_chunks().dictionary_encode().indices, null=-1) if offsets is None else offsets


def _offsets(keys: pa.ChunkedArray) -> Integers | None:
    """Whole numbers as they are, less the least: codes without a look-up, where they lie close together."""
    least, most = (bound.as_py() for bound in pc.min_max(keys).values())
    if least is None or most - least > 4 * len(keys):
        return None
    widest = np.uint64 if pa.types.is_unsigned_integer(keys.type) else np.int64
    offsets = np.concatenate([chunk.fill_null(least).to_numpy() for chunk in keys.chunks], dtype=widest)
    offsets -= widest(least)
    return _unless(keys.is_null().to_numpy(), offsets.view(np.int64), -1)


def _pieces(
    connection: duckdb.DuckDBPyConnection,
    view: Joined,
    entity_rows: pa.Table,
    times: _Times,
    folder: Path,
    memory: int,
) -> Iterator[tuple[pa.Table, _Asked]]:
    """The rows of a view that have an event time, with the entity rows that may get them: all, or divided by key."""
    try:
        schema = connection.sql(f"SELECT * FROM {view.table} LIMIT 0").to_arrow_table().schema
        columns, where = _columns(view, schema), f"FROM {view.table} WHERE {quoted(view.event)} IS NOT NULL"
        select = f"SELECT {', '.join(columns.values())}"
        count = connection.execute(f"SELECT count(*) {where}").fetchall()[0][0] if len(times.ticks) else 0
        asked = _Asked(None, times, {key: _cast(entity_rows, view, key, schema.field(key).type) for key in view.keys})
        # Six integers a feature row, and eight an entity row, are alive while they are searched.
        taken = count * (_width(schema, columns) + 48) + len(times.ticks) * (_width(schema, view.features) + 64)
        pieces = min(math.ceil(taken / memory), _MOST_PIECES) if view.keys else 1
        if pieces <= 1:
            limit = "" if count else "LIMIT 0"
            yield connection.sql(f"{select} {where} {limit}").to_arrow_table(), asked
        else:
            yield from _divided(connection, view, asked, select, where, pieces, folder)
    except duckdb.Error as error:
        raise ConfigurationError(f"A feature table cannot be read: {' '.join(str(error).split())}") from error


def _divided(
    connection: duckdb.DuckDBPyConnection,
    view: Joined,
    asked: _Asked,
    select: str,
    where: str,
    pieces: int,
    folder: Path,
) -> Iterator[tuple[pa.Table, _Asked]]:
    folder.mkdir()
    piece = f"(hash({', '.join(quoted(key) for key in view.keys)}) % {pieces})::UTINYINT AS {_PIECE}"
    connection.register("__asked", pa.table(asked.keys))
    places = connection.sql(f"SELECT {piece} FROM __asked").to_arrow_table()[_PIECE].to_numpy()
    connection.unregister("__asked")
    written = _spread(connection.sql(f"{select}, {piece} {where}").to_arrow_reader(_BATCH), pieces, folder)
    for number in np.unique(places):
        rows = np.flatnonzero(places == number)
        keys = {key: column.take(rows) for key, column in asked.keys.items()}
        yield pa.ipc.open_file(pa.memory_map(written[number])).read_all(), _Asked(rows, asked.times.take(rows), keys)


def _spread(rows: pa.RecordBatchReader, pieces: int, folder: Path) -> list[str]:
    """Write rows to a file for each piece, each row with its position; DuckDB's own takes several times as long."""
    names = [str(folder / f"{number}.arrow") for number in range(pieces)]
    schema = rows.schema.remove(rows.schema.get_field_index(_PIECE)).append(pa.field(_POSITION, pa.int64()))
    position = 0
    with ExitStack() as opened:
        sinks = [opened.enter_context(pa.OSFile(name, "wb")) for name in names]
        writers = [opened.enter_context(pa.ipc.new_file(sink, schema)) for sink in sinks]
        for batch in rows:
            piece = batch[_PIECE].to_numpy()
            order = np.argsort(piece, kind="stable")
            edges = np.searchsorted(piece[order], np.arange(pieces + 1))
            places = pa.array(np.arange(position, position + len(batch)))
            divided = pa.record_batch([*batch.drop_columns(_PIECE).columns, places], schema=schema).take(
                pa.array(order)
            )
            for writer, start, stop in zip(writers, edges, edges[1:], strict=False):
                if start < stop:
                    writer.write_batch(divided.slice(start, stop - start))
            position += len(batch)
    return names


def _columns(view: Joined, schema: pa.Schema) -> dict[str, str]:
    """What is read of a view: SQL by name of the column."""
    columns = {name: quoted(name) for name in [*view.keys, *view.features]}
    times = {view.event: _EVENT} | ({view.created: _CREATED} if view.created else {})
    for name, called in times.items():
        # As it is where it is a timestamp: DuckDB rounds nanoseconds to the nearest microsecond.
        cast = "" if pa.types.is_timestamp(schema.field(name).type) else "::TIMESTAMPTZ"
        columns[called] = f"{quoted(name)}{cast} AS {called}"
    return columns


def _cast(entity_rows: pa.Table, view: Joined, key: str, wanted: pa.DataType) -> pa.ChunkedArray:
    column = entity_rows[view.keys[key]]
    try:
        return column if column.type == wanted else column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(
            f"Entity key {view.keys[key]}: expected values of type {wanted}, as the feature view's {key} has, found "
            f"{column.type}: {error}. Cast the column."
        ) from error


def _times(column: pa.ChunkedArray) -> _Times:
    if not pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    ticks, per_second = _int64(column.cast(pa.int64())), _PER_SECOND[column.type.unit]
    null = ticks == _NEVER
    if per_second == 10**9 and (ticks[~null] % 1000).any():
        return _Times(ticks, fine=True)
    if per_second == 10**6:
        return _Times(ticks)
    scaled = ticks // 1000 if per_second == 10**9 else ticks * (10**6 // per_second)
    return _Times(_unless(null, scaled, _NEVER))


def _width(schema: pa.Schema, names: Iterable[str] = ()) -> int:
    """About how many bytes a row of the named columns takes; a text or a list is taken for 64, a time for 8."""
    types = [schema.field(name).type if name in schema.names else pa.int64() for name in names or schema.names]
    return sum(max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else 64 for kind in types)


def _int64(column: pa.ChunkedArray | pa.Array, null: int = _NEVER) -> Integers:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [np.asarray(chunk.fill_null(null).to_numpy(zero_copy_only=False)) for chunk in chunks]
    return np.concatenate([*parts, np.empty(0, np.int64)], dtype=np.int64)
