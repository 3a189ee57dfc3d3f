"""The point-in-time join: for every entity row the newest feature row that was known at its time. Does not use Feast.

A feature row may be used at time t only if it is about the past (event <= t) and was known then (created <= t, where a
view has a created timestamp and is not `event_time_only`). Among these rows the newest event wins, among equal events
the newest created, among full ties the last row of the table. The row counts as long as it is fresh: t - event <= ttl,
both ends included. An entity row without a usable feature row gets nulls; so does one whose key or time is null. The
result has every entity row once, in order. Times without a zone are UTC; they are compared to the nanosecond where a
column has nanoseconds, else to the microsecond.

Each row is read, sorted and searched once, however little memory there is: `pieces` says which rows are searched
together, and `search` says how.
"""

import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from gatehouse.features.point_in_time.pieces import Lookup, pieces_of, width_of
from gatehouse.features.point_in_time.search import matches
from gatehouse.features.point_in_time.times import Integers, times_of
from gatehouse.features.point_in_time.view_join import Joined

WORKERS = 2
MEMORY_BYTES = 256 << 20


@dataclass(frozen=True)
class _Found:
    """Features for the entity rows with numbers `rows`, ascending; None stands for all entity rows."""

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

    Args:
        connection: Where the tables of the views can be read; its time zone must be UTC.
        entity_rows: Any columns, among them the key columns and `time`.
        time: Column with the time of each entity row; a time without a zone is UTC.
        views: What to join; output names must not clash.
        folder: An empty directory for data that does not fit into memory. It must exist as long as the batches are
            used.
        memory: Limit in bytes for rows that are read together, searched together by one worker, or returned together.
            The rows of one key, and the rows of a view without keys, are never divided.

    Returns:
        Tables, at least one: the columns of `entity_rows`, unchanged and in order, then the features in the order of
        `views`.

    Raises:
        ConfigurationError: if a key of the entity rows cannot be compared with a view's key, or a table cannot be read.
    """
    times = times_of(entity_rows[time])
    found: list[list[_Found]] = [[] for _ in views]
    pending: deque[tuple[int, Future[_Found]]] = deque()
    outputs = width_of(entity_rows.schema) + 16 * sum(len(view.features) for view in views)
    keep = entity_rows.num_rows * outputs <= 2 * memory
    with ThreadPoolExecutor(WORKERS) as pool:
        for number, view in enumerate(views):
            place = folder / str(number)
            for piece, (rows, lookup) in enumerate(pieces_of(connection, view, entity_rows, times, place, memory)):
                if len(pending) == WORKERS:
                    _collect(pending, found)
                spool = None if keep else folder / f"{number}-{piece}.arrow"
                pending.append((number, pool.submit(_join_piece, view, lookup, rows, spool)))
        while pending:
            _collect(pending, found)
    size = max(1, memory // max(outputs, 1))
    for start in range(0, max(entity_rows.num_rows, 1), size):
        yield _put_together(entity_rows.slice(start, size), start, views, found)


def _collect(pending: deque[tuple[int, Future[_Found]]], found: list[list[_Found]]) -> None:
    number, future = pending.popleft()
    found[number].append(future.result())


def _put_together(rows: pa.Table, start: int, views: Sequence[Joined], found: list[list[_Found]]) -> pa.Table:
    """`rows` with their features; the first of these rows is entity row `start`."""
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


def _join_piece(view: Joined, lookup: Lookup, rows: pa.Table, spool: Path | None) -> _Found:
    """The features of some rows of a view for the entity rows of the piece; written to the file `spool`, if given."""
    chosen, matched = matches(view, lookup, rows)
    features = rows.select(list(view.features)).take(pa.array(chosen, mask=~matched))
    if spool is None:
        return _Found(lookup.rows, features)
    with pa.OSFile(str(spool), "wb") as sink, pa.ipc.new_file(sink, features.schema) as writer:
        writer.write_table(features)
    return _Found(lookup.rows, pa.ipc.open_file(pa.memory_map(str(spool))).read_all())
