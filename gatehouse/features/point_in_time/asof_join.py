"""The point-in-time join: for every entity row the newest feature row that was known at its time. Does not use Feast.

A feature row may be used at time t only if it is about the past (event <= t) and was known then (created <= t, where a
view has a created timestamp and is not `event_time_only`). Among these rows the newest event wins, among equal events
the newest created, among full ties the last row of the table. The row counts as long as it is fresh: t - event <= ttl,
both ends included. An entity row without a usable feature row gets nulls; so does one whose key or time is null. The
result has every entity row once, in order. Times without a zone are UTC; they are compared to the nanosecond where a
column has nanoseconds, else to the microsecond.

Each row is read, sorted and searched once. DuckDB reads the tables; if one does not fit into the allowed memory, entity
rows and view rows are divided by key, and the pieces are kept on disk until they are searched.

The search is one binary search on sorted 64-bit integers, each a key's number and a time. A row is usable from
`known = max(event, created)` on, so the best row at a time is the running maximum of the order (event, created,
position) along `known`: a correction does not hide the corrected row before the correction is known.
"""

import math
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import View
from gatehouse.features.exact import cast_column, row_of
from gatehouse.store.database import quoted
from gatehouse.store.hidden_values import error_words

Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]
WORKERS = 2
MEMORY_BYTES = 256 << 20
NEVER = np.iinfo(np.int64).min
"""The time of a null."""
_POSITION, _EVENT, _CREATED, _PIECE = "__position", "__event", "__created", "__piece"
_BATCH = 1 << 17
_MOST_PIECES = 256
"""Limit of the number of pieces: each is an open file while rows are divided."""
_CAPACITY = 2**63
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Joined:
    """One view of a join.

    Attributes:
        keys: Column of the entity rows by key column of the table; empty for a view without entities.
        features: Output name by feature column.
        created: Column with the created timestamp; empty for none. A null in it counts as known at the event.
        ttl: How long a row stays fresh; None or zero for ever.
        event_time_only: Use `created` only to order equal events, not as the time when a row became known.
    """

    table: str
    keys: dict[str, str]
    event: str
    features: dict[str, str] = field(default_factory=dict)
    created: str = ""
    ttl: timedelta | None = None
    event_time_only: bool = False


def joined(view: View, table: str, features: Sequence[str] = ()) -> Joined:
    """The join of a view whose rows are in `table`; `features` are by default all."""
    return Joined(
        table=table,
        keys={key: key for key in view.spec.entities},
        event=EVENT_TIMESTAMP,
        created=KNOWN_FROM,
        features={feature: feature for feature in features or view.spec.features},
        ttl=view.spec.ttl,
        event_time_only=view.spec.event_time_only,
    )


@dataclass(frozen=True)
class _Times:
    """Times as ticks since 1970 in UTC, shape (rows,); `NEVER` for a null. If `fine`, ticks are ns and not us."""

    ticks: Integers
    fine: bool = False

    def refined(self) -> Integers:
        """Ticks in nanoseconds, shape (rows,). Times outside the years 1677 to 2262 become the nearest possible one."""
        if self.fine:
            return self.ticks
        bound = np.iinfo(np.int64).max // 1000
        return np.where(self.ticks == NEVER, NEVER, np.clip(self.ticks, -bound, bound) * 1000)


@dataclass(frozen=True)
class _Lookup:
    """The entity rows that one search looks up."""

    rows: Integers | None
    times: _Times
    keys: dict[str, pa.ChunkedArray]


@dataclass(frozen=True)
class _Piece:
    """Features for the entity rows with numbers `rows`, ascending; None for all entity rows."""

    rows: Integers | None
    features: pa.Table

    def between(self, start: int, stop: int) -> tuple[Integers, pa.Table]:
        """The features for the entity rows from `start` to before `stop`."""
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
    """Join the features of `views` to `entity_rows`, in batches.

    `time` is the column with the time of each entity row; a time without a zone is UTC. `views` must not have
    clashing output names. `folder` is an empty directory for data that does not fit into memory. It must exist as long
    as the batches are used. `memory` is the limit in bytes for rows that are read together, searched together by one
    worker, or returned together. The rows of one key, and the rows of a view without keys, are never divided.

    Returns:
        Tables, at least one: the columns of `entity_rows`, unchanged and in order, then the features in the order of
        `views`.

    Raises ConfigurationError if a key cannot be compared with a view's key, or a table cannot be read.
    """
    times = _times_of(entity_rows[time])
    joined_pieces: list[list[_Piece]] = [[] for _ in views]
    pending: deque[tuple[int, Future[_Piece]]] = deque()

    def collect() -> None:
        number, future = pending.popleft()
        joined_pieces[number].append(future.result())

    outputs = _width_of(entity_rows.schema) + 16 * sum(len(view.features) for view in views)
    keep = entity_rows.num_rows * outputs <= 2 * memory
    with ThreadPoolExecutor(WORKERS) as pool:
        for number, view in enumerate(views):
            place = folder / str(number)
            for piece, (rows, lookup) in enumerate(_pieces_of(connection, view, entity_rows, times, place, memory)):
                if len(pending) == WORKERS:
                    collect()
                spool = None if keep else folder / f"{number}-{piece}.arrow"
                pending.append((number, pool.submit(_join_piece, view, lookup, rows, spool)))
        while pending:
            collect()
    size = max(1, memory // max(outputs, 1))
    for start in range(0, max(entity_rows.num_rows, 1), size):
        batch = entity_rows.slice(start, size)
        stop = start + batch.num_rows
        for view, pieces in zip(views, joined_pieces, strict=True):
            parts = [piece.between(start, stop) for piece in pieces]
            features = parts[0][1]
            if len(parts) > 1:
                order = np.argsort(np.concatenate([numbers for numbers, _ in parts]))
                features = pa.concat_tables([part for _, part in parts]).take(order)
            for column, name in view.features.items():
                batch = batch.append_column(name, features[column])
        yield batch


def _join_piece(view: Joined, lookup: _Lookup, rows: pa.Table, spool: Path | None) -> _Piece:
    """The features of some rows of a view for the entity rows of the piece; written to the file `spool`, if given."""
    chosen, matched = _matches(view, lookup, rows)
    features = rows.select(list(view.features)).take(pa.array(chosen, mask=~matched))
    if spool is None:
        return _Piece(lookup.rows, features)
    with pa.OSFile(str(spool), "wb") as sink, pa.ipc.new_file(sink, features.schema) as writer:
        writer.write_table(features)
    return _Piece(lookup.rows, pa.ipc.open_file(pa.memory_map(str(spool))).read_all())


def _pieces_of(
    connection: duckdb.DuckDBPyConnection,
    view: Joined,
    entity_rows: pa.Table,
    times: _Times,
    folder: Path,
    memory: int,
) -> Iterator[tuple[pa.Table, _Lookup]]:
    """The rows of a view that have an event time, with the entity rows that may get them, in one or more pieces.

    A piece takes at most `memory` bytes while it is searched; pieces are kept in `folder`, which it creates.
    """
    try:
        schema = connection.sql(f"SELECT * FROM {view.table} LIMIT 0").to_arrow_table().schema
        columns = {name: quoted(name) for name in [*view.keys, *view.features]}
        for name, alias in {view.event: _EVENT, **({view.created: _CREATED} if view.created else {})}.items():
            # A timestamp is read as it is: a cast in DuckDB rounds nanoseconds to the nearest microsecond.
            cast = "" if pa.types.is_timestamp(schema.field(name).type) else "::TIMESTAMPTZ"
            columns[alias] = f"{quoted(name)}{cast} AS {alias}"
        where = f"FROM {view.table} WHERE {quoted(view.event)} IS NOT NULL"
        select = f"SELECT {', '.join(columns.values())}"
        count = connection.execute(f"SELECT count(*) {where}").fetchall()[0][0] if len(times.ticks) else 0
        keys = {
            key: cast_column(entity_rows[own], schema.field(key).type, row_of(f"Entity key {own}"))
            for key, own in view.keys.items()
        }
        lookup = _Lookup(None, times, keys)
        # A search holds six integers per feature row and eight per entity row at the same time.
        taken = count * (_width_of(schema, columns) + 48) + len(times.ticks) * (_width_of(schema, view.features) + 64)
        pieces = min(math.ceil(taken / memory), _MOST_PIECES) if view.keys else 1
        if pieces <= 1:
            limit = "" if count else "LIMIT 0"
            yield connection.sql(f"{select} {where} {limit}").to_arrow_table(), lookup
        else:
            yield from _divided(connection, view, lookup, select, where, pieces, folder)
    except duckdb.OutOfMemoryException:
        raise  # The stage reports it: the table is not wrong.
    except duckdb.Error as error:
        raise ConfigurationError(f"A feature table cannot be read: {error_words(error)}") from error


def _divided(
    connection: duckdb.DuckDBPyConnection,
    view: Joined,
    lookup: _Lookup,
    select: str,
    where: str,
    pieces: int,
    folder: Path,
) -> Iterator[tuple[pa.Table, _Lookup]]:
    folder.mkdir()
    piece = f"(hash({', '.join(quoted(key) for key in view.keys)}) % {pieces})::UTINYINT AS {_PIECE}"
    connection.register("__lookup", pa.table(lookup.keys))
    places = connection.sql(f"SELECT {piece} FROM __lookup").to_arrow_table()[_PIECE].to_numpy()
    connection.unregister("__lookup")
    written = _spread(connection.sql(f"{select}, {piece} {where}").to_arrow_reader(_BATCH), pieces, folder)
    for number in np.unique(places):
        rows = np.flatnonzero(places == number)
        keys = {key: column.take(rows) for key, column in lookup.keys.items()}
        times = replace(lookup.times, ticks=lookup.times.ticks[rows])
        yield pa.ipc.open_file(pa.memory_map(written[number])).read_all(), _Lookup(rows, times, keys)


def _spread(rows: pa.RecordBatchReader, pieces: int, folder: Path) -> list[str]:
    """Write rows to one file per piece, with their positions; DuckDB's partitioned write is several times slower."""
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


def _width_of(schema: pa.Schema, names: Iterable[str] = ()) -> int:
    """Approximate bytes per row of the named columns; 64 for a text or a list, 8 for a time."""
    types = [schema.field(name).type if name in schema.names else pa.int64() for name in names or schema.names]
    return sum(max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else 64 for kind in types)


def _matches(view: Joined, lookup: _Lookup, rows: pa.Table) -> tuple[Integers, Truths]:
    """The number of each entity row's feature row, and whether it has one; both of shape (entity rows,)."""
    count = len(lookup.times.ticks)
    if rows.num_rows == 0 or count == 0:
        return np.zeros(count, np.int64), np.zeros(count, np.bool_)
    # Events, created times and the entity rows' times in one unit.
    all_times = [_times_of(rows[_EVENT]), _times_of(rows[_CREATED if view.created else _EVENT]), lookup.times]
    fine = any(times.fine for times in all_times)
    event, created, times = (times.refined() if fine else times.ticks for times in all_times)
    per_second = 10**9 if fine else 10**6
    created = _unless(created == NEVER, created, event)
    known_at = event if view.event_time_only else np.maximum(event, created)
    codes, looked_up = _codes(view, rows, lookup)
    position = _int64_of(rows[_POSITION]) if _POSITION in rows.column_names else None
    events, known_times, moments = _ticks(event, known_at, times, max(int(codes.max()), int(looked_up.max())) + 2)
    span = int(max(events.max(), known_times.max(), moments.max())) + 1
    places = _placed(codes, span, events)
    order = _argsort(places)
    places = places[order]
    # Only ties are sorted by created and position too, as they are few.
    tied = _tied(places)
    rows_tied = order[tied]
    order_of_rows = rows_tied if position is None else position[rows_tied]
    order[tied] = rows_tied[np.lexsort((order_of_rows, created[rows_tied], places[tied]))]
    if (known_at > event).any():
        places = _placed(codes, span, known_times)[order]
        along = _argsort(places)
        best = np.maximum.accumulate(along)
        places = places[along]
    else:
        best = np.arange(len(order))
    targets = np.maximum(_placed(looked_up, span, moments), 0)
    # Entity rows are looked up in order: random access would miss the cache at every step of the search.
    by_place = _argsort(targets)
    indices = np.empty(count, np.int64)
    indices[by_place] = np.searchsorted(places, targets[by_place], side="right") - 1
    matched = (indices >= 0) & (looked_up >= 0) & (times != NEVER)
    indices[~matched] = 0
    matched &= places[indices] // span == looked_up
    chosen = order[best[indices]]
    if view.ttl:
        # No matching event is later than its entity row, so ages are positive; unsigned, 300 years fit in nanoseconds.
        age = (times - event[chosen]).view(np.uint64)
        limit = view.ttl // timedelta(microseconds=1) * (per_second // 10**6)
        matched &= age <= np.uint64(min(limit, np.iinfo(np.uint64).max))
    return chosen, matched


def _placed(codes: Integers, span: int, ticks: Integers) -> Integers:
    """A key's number and a time in [0, span) as one integer."""
    places = codes * span
    places += ticks
    return places


def _argsort(values: Integers) -> Integers:
    """The stable order of non-negative integers: as numpy's argsort, in a third of its time.

    Sorting numbers is faster than sorting an index of them. So each number gets its position in its low bits. These
    replace bits of the number where 64 bits are not enough; the few numbers that differ only in replaced bits are
    sorted again.
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
    """Whether each sorted number equals one of its neighbours."""
    equal = ordered[1:] == ordered[:-1]
    return np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))


def _ticks(event: Integers, known_at: Integers, times: Integers, keys: int) -> tuple[Integers, Integers, Integers]:
    """Times as non-negative integers that keep their order and leave room for `keys` key numbers in 64 bits."""
    valid = times[times != NEVER]
    first = min(int(event.min()), int(valid.min())) if len(valid) else int(event.min())
    last = max(int(known_at.max()), int(valid.max())) if len(valid) else int(known_at.max())
    times = _unless(times == NEVER, times, first)
    if (last - first + 1) * keys < _CAPACITY:
        return event - first, known_at - first, times - first
    # Times are numbered. An entity row gets the number of the last feature time up to its own; 0 if there is none.
    moments = np.unique(np.concatenate([event, known_at]))
    return (
        np.searchsorted(moments, event) + 1,
        np.searchsorted(moments, known_at) + 1,
        np.searchsorted(moments, times, side="right"),
    )


def _codes(view: Joined, rows: pa.Table, lookup: _Lookup) -> tuple[Integers, Integers]:
    """A number for every key of the feature rows and the entity rows: equal keys, equal numbers; -1 for a null."""
    if not view.keys:
        return np.zeros(rows.num_rows, np.int64), np.zeros(len(lookup.times.ticks), np.int64)
    first, *further = view.keys
    together = _encoded(rows[first], lookup.keys[first])
    for key in further:
        more = _encoded(rows[key], lookup.keys[key])
        null = (together < 0) | (more < 0)
        _, together = np.unique(_placed(together, int(more.max(initial=0)) + 1, more), return_inverse=True)
        together = _unless(null, together, -1)
    codes, looked_up = together[: rows.num_rows], together[rows.num_rows :]
    # A feature row without a key matches no entity row: it gets a number that no entity row has.
    return _unless(codes < 0, codes, int(together.max(initial=0)) + 1), looked_up


def _encoded(feature_keys: pa.ChunkedArray, entity_keys: pa.ChunkedArray) -> Integers:
    """A non-negative number for every key, of the feature rows and then of the entity rows; -1 for a null.

    Integer keys that are near each other are numbered by their distance from the least, without a look-up.
    """
    keys = pa.chunked_array([*feature_keys.chunks, *entity_keys.chunks], feature_keys.type)
    limits = pc.min_max(keys).as_py() if pa.types.is_integer(keys.type) else {"min": None}
    least = limits["min"]
    if least is None or limits["max"] - least > 4 * len(keys):
        return _int64_of(keys.combine_chunks().dictionary_encode().indices, null=-1)
    widest = np.uint64 if pa.types.is_unsigned_integer(keys.type) else np.int64
    offsets = np.concatenate([chunk.fill_null(least).to_numpy() for chunk in keys.chunks], dtype=widest)
    offsets -= widest(least)
    return _unless(keys.is_null().to_numpy(), offsets.view(np.int64), -1)


def _times_of(column: pa.ChunkedArray) -> _Times:
    """The times of a column of timestamps or dates; a time without a zone is UTC."""
    if not pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    ticks, per_second = _int64_of(column.cast(pa.int64())), _PER_SECOND[column.type.unit]
    null = ticks == NEVER
    if per_second == 10**9 and (ticks[~null] % 1000).any():
        return _Times(ticks, fine=True)
    if per_second == 10**6:
        return _Times(ticks)
    scaled = ticks // 1000 if per_second == 10**9 else ticks * (10**6 // per_second)
    return _Times(_unless(null, scaled, NEVER))


def _int64_of(column: pa.ChunkedArray | pa.Array, null: int = NEVER) -> Integers:
    """A column of integers as an array of shape (rows,), with nulls replaced by `null`."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [np.asarray(chunk.fill_null(null).to_numpy(zero_copy_only=False)) for chunk in chunks]
    return np.concatenate([*parts, np.empty(0, np.int64)], dtype=np.int64)


def _unless(wrong: Truths, values: Integers, stand_ins: Integers | int) -> Integers:
    """`values`, replaced by `stand_ins` where `wrong` is true; shapes (rows,). Nothing is copied if none is wrong."""
    return np.where(wrong, stand_ins, values) if wrong.any() else values
