"""The point-in-time join: for every entity row the newest feature row that was known at its time. No Feast.

A feature row may be used at time t only if it is about the past (event <= t) and was known then (created <= t, where a
view has a created timestamp). Of those the newest event wins, among equal events the newest created, among full ties
the last row of the table. The row counts as long as it is fresh: t - event <= ttl, both ends included. An entity row
without a usable feature row keeps nulls; so does one whose key or time is null. Every entity row comes out once, in
order.

A correction that was created later hides behind the older row it corrects until it is known. That needs no second
look: a row is usable from `known = max(event, created)` on, so the best row usable at t is the running maximum of the
order (event, created, position) along `known`, and one binary search on `known` finds it.

DuckDB reads the tables; the search runs on sorted 64-bit integers, each a key's number and a time in one. A table that
is larger than the memory it may take is divided by key first, on disk.
"""

import math
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError

WORKERS = 2
MEMORY_BYTES = 256 << 20
_POSITION, _EVENT, _CREATED, _PIECE = "__position", "__event", "__created", "__piece"
_CAPACITY = 2**63
_NEVER = np.iinfo(np.int64).min
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
    """

    table: str
    keys: dict[str, str]
    event: str
    features: dict[str, str] = field(default_factory=dict)
    created: str = ""
    ttl: timedelta | None = None


def asof_join(
    connection: duckdb.DuckDBPyConnection,
    entity_rows: pa.Table,
    time: str,
    views: Sequence[Joined],
    memory: int = MEMORY_BYTES,
) -> pa.Table:
    """Join the features of `views` to `entity_rows`.

    Args:
        connection: Where the tables of the views can be read; its time zone must be UTC.
        entity_rows: Any columns, among them the key columns and `time`.
        time: Column with the time of each entity row; a time without a zone is UTC.
        views: What to join; output names must not clash.
        memory: Bytes that rows read together may take; so much is read, and so much is searched by each of the workers.

    Returns:
        The columns of `entity_rows`, untouched and in order, then the features in the order of `views`.

    Raises:
        ConfigurationError: if a key of the entity rows cannot be compared with the key of a view.
    """
    times = _microseconds(entity_rows[time])
    found: list[list[pa.ChunkedArray]] = [[] for _ in views]
    pending: deque[tuple[int, Future[tuple[list[pa.ChunkedArray], Truths]]]] = deque()

    def take() -> None:
        number, future = pending.popleft()
        columns, matched = future.result()
        if found[number]:
            # A key is in one piece only: what another piece found for an entity row stays.
            pairs = zip(columns, found[number], strict=True)
            columns = [pc.if_else(pa.array(matched), new, before) for new, before in pairs]
        found[number] = columns

    with ThreadPoolExecutor(WORKERS) as pool:
        for number, view in enumerate(views):
            for rows in _pieces(connection, view, memory):
                if len(pending) == WORKERS:
                    take()
                pending.append((number, pool.submit(_join_piece, view, entity_rows, times, rows)))
        while pending:
            take()
    result = entity_rows
    for view, columns in zip(views, found, strict=True):
        for name, column in zip(view.features.values(), columns, strict=True):
            result = result.append_column(name, column)
    return result


def _join_piece(
    view: Joined, entity_rows: pa.Table, times: Integers, rows: pa.Table
) -> tuple[list[pa.ChunkedArray], Truths]:
    """The features of some rows of a view for every entity row, and which entity rows matched."""
    chosen, matched = _matches(view, entity_rows, times, rows)
    indices = pa.array(chosen, mask=~matched)
    return [rows[name].take(indices) for name in view.features], matched


def _matches(view: Joined, entity_rows: pa.Table, times: Integers, rows: pa.Table) -> tuple[Integers, Truths]:
    """For every entity row the number of the feature row that it gets, and whether it gets one."""
    wanted = len(times)
    if rows.num_rows == 0 or wanted == 0:
        return np.zeros(wanted, np.int64), np.zeros(wanted, np.bool_)
    event = _int64(rows[_EVENT])
    created = _int64(rows[_CREATED]) if view.created else event
    known = np.maximum(event, created)
    codes, asked = _codes(view, rows, entity_rows)
    position = _int64(rows[_POSITION]) if _POSITION in rows.column_names else np.arange(rows.num_rows)
    events, knowns, asks = _ticks(event, known, times, max(int(codes.max()), int(asked.max())) + 2)
    span = int(max(events.max(), knowns.max(), asks.max())) + 1
    order = _order(codes * span + events, created, position)
    if (known > event).any():
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        places = codes * span + knowns
        along = np.argsort(places)
        best = np.maximum.accumulate(rank[along])
        places = places[along]
    else:
        best = np.arange(len(order))
        places = (codes * span + events)[order]
    questions = asked * span + asks
    # Looked up in order, as a binary search at random misses the cache at every step.
    by_place = np.argsort(questions)
    found = np.empty(wanted, np.int64)
    found[by_place] = np.searchsorted(places, questions[by_place], side="right") - 1
    matched = (found >= 0) & (asked >= 0) & (times != _NEVER)
    found[~matched] = 0
    matched &= places[found] // span == asked
    chosen = order[best[found]]
    if view.ttl:
        matched &= times - event[chosen] <= view.ttl // timedelta(microseconds=1)
    return chosen, matched


def _order(places: Integers, created: Integers, position: Integers) -> Integers:
    """Rows by key and event, then created, then position. Ties are few, so only they are sorted by all three."""
    order = np.argsort(places)
    ordered = places[order]
    equal = ordered[1:] == ordered[:-1]
    tied = np.flatnonzero(np.append(equal, False) | np.insert(equal, 0, False))
    rows = order[tied]
    order[tied] = rows[np.lexsort((position[rows], created[rows], ordered[tied]))]
    return order


def _ticks(event: Integers, known: Integers, times: Integers, keys: int) -> tuple[Integers, Integers, Integers]:
    """Times as integers from 0 that keep their order and leave room for `keys` beside them in 64 bits."""
    valid = times[times != _NEVER]
    first = min(int(event.min()), int(valid.min())) if len(valid) else int(event.min())
    last = max(int(known.max()), int(valid.max())) if len(valid) else int(known.max())
    asked = np.where(times == _NEVER, first, times)
    if (last - first + 1) * keys < _CAPACITY:
        return event - first, known - first, asked - first
    moments = np.unique(np.concatenate([event, known]))
    # An entity row asks for what was known up to its time: the number of moments up to it, less one.
    return (
        np.searchsorted(moments, event) + 1,
        np.searchsorted(moments, known) + 1,
        np.searchsorted(moments, asked, side="right"),
    )


def _codes(view: Joined, rows: pa.Table, entity_rows: pa.Table) -> tuple[Integers, Integers]:
    """A number for every key, of the feature rows and of the entity rows: equal keys, equal numbers; -1 for a null."""
    codes, asked = np.zeros(rows.num_rows, np.int64), np.zeros(entity_rows.num_rows, np.int64)
    for key, column in view.keys.items():
        here, there = _encoded(key, rows[key], column, entity_rows[column])
        size = max(int(here.max(initial=0)), int(there.max(initial=0))) + 1
        codes, asked = _combined(codes, here, size), _combined(asked, there, size)
        if len(view.keys) > 1:
            _, dense = np.unique(np.concatenate([codes, asked]), return_inverse=True)
            null = np.concatenate([codes, asked]) < 0
            dense = np.where(null, -1, dense)
            codes, asked = dense[: len(codes)], dense[len(codes) :]
    # A feature row without a key is no entity's: it gets a number that nobody asks for.
    codes = np.where(codes < 0, max(int(codes.max(initial=0)), int(asked.max(initial=0))) + 1, codes)
    return codes, asked


def _combined(codes: Integers, more: Integers, size: int) -> Integers:
    return np.where((codes < 0) | (more < 0), -1, codes * size + more)


def _encoded(key: str, here: pa.ChunkedArray, column: str, there: pa.ChunkedArray) -> tuple[Integers, Integers]:
    if there.type != here.type:
        try:
            there = there.cast(here.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ConfigurationError(
                f"Entity key {column}: expected values of type {here.type}, as the feature view's {key} has, found "
                f"{there.type}: {error}. Cast the column."
            ) from error
    together = pa.chunked_array([*here.chunks, *there.chunks], here.type).combine_chunks()
    indices = together.dictionary_encode().indices
    codes = pc.fill_null(indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes[: len(here)], codes[len(here) :]


def _pieces(connection: duckdb.DuckDBPyConnection, view: Joined, memory: int) -> Iterator[pa.Table]:
    """The rows of a view that have an event time: in one table, or divided by key where they do not fit."""
    event = f"{_name(view.event)}::TIMESTAMPTZ"
    keys = [_name(key) for key in view.keys]
    columns = [
        *keys,
        f"epoch_us({event}) AS {_EVENT}",
        *(_name(name) for name in view.features if name not in view.keys),
    ]
    if view.created:
        columns.append(f"epoch_us(coalesce({_name(view.created)}::TIMESTAMPTZ, {event})) AS {_CREATED}")
    where = f"FROM {view.table} WHERE {_name(view.event)} IS NOT NULL"
    rows = connection.execute(f"SELECT count(*) {where}").fetchall()[0][0]
    # Six integers a row are alive while it is searched.
    pieces = math.ceil(rows * (len(columns) + 6) * 8 / memory) if keys else 1
    if pieces <= 1:
        yield connection.sql(f"SELECT {', '.join(columns)} {where}").to_arrow_table()
        return
    columns += [f"row_number() OVER () AS {_POSITION}", f"(hash({', '.join(keys)}) % {pieces})::INTEGER AS {_PIECE}"]
    with tempfile.TemporaryDirectory() as directory:
        connection.execute(
            f"COPY (SELECT {', '.join(columns)} {where}) TO '{directory}' (FORMAT parquet, PARTITION_BY {_PIECE})"
        )
        for folder in sorted(Path(directory).iterdir()):
            files = f"read_parquet('{folder}/*.parquet', hive_partitioning = false)"
            yield connection.sql(f"SELECT * FROM {files}").to_arrow_table()


def _microseconds(column: pa.ChunkedArray) -> Integers:
    """Times as microseconds since 1970 in UTC, rounded down; a null is the least integer."""
    if not pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    ticks = _int64(column.cast(pa.int64()))
    if column.type.unit == "us":
        return ticks
    scaled = ticks // 1000 if column.type.unit == "ns" else ticks * {"s": 1_000_000, "ms": 1000}[column.type.unit]
    return np.where(ticks == _NEVER, _NEVER, scaled)


def _int64(column: pa.ChunkedArray) -> Integers:
    filled = pc.fill_null(column.combine_chunks(), _NEVER)
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
