"""Divides a join into pieces: rows of a view with the entity rows that may get them, all together or divided by key.

DuckDB reads the tables. If a table does not fit into the allowed memory, entity rows and view rows are divided by key,
and the pieces are kept on disk until they are searched.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import quoted
from gatehouse.features.exact import cast_column, row_of
from gatehouse.features.point_in_time.times import Integers, Times
from gatehouse.features.point_in_time.view_join import Joined
from gatehouse.store.hidden_values import said_by

POSITION, EVENT, CREATED = "__position", "__event", "__created"
"""Extra columns of a view's rows: the position in the table, the event time, and the created time."""
_PIECE = "__piece"
_BATCH = 1 << 17
_MOST_PIECES = 256
"""Limit of the number of pieces: each is an open file while rows are divided."""


@dataclass(frozen=True)
class Lookup:
    """The entity rows that one search looks up.

    Attributes:
        rows: Their row numbers, ascending, shape (rows looked up,); None for all entity rows.
        times: The times of these rows.
        keys: The keys of these rows, by key column of the view.
    """

    rows: Integers | None
    times: Times
    keys: dict[str, pa.ChunkedArray]


def pieces_of(
    connection: duckdb.DuckDBPyConnection,
    view: Joined,
    entity_rows: pa.Table,
    times: Times,
    folder: Path,
    memory: int,
) -> Iterator[tuple[pa.Table, Lookup]]:
    """The rows of a view that have an event time, with the entity rows that may get them, in one or more pieces.

    Args:
        connection: Where the table of the view can be read.
        view: How the view is joined.
        entity_rows: The entity rows, with any columns.
        times: The times of the entity rows, shape (entity rows,).
        folder: Where pieces are kept on disk; it is created when needed.
        memory: Bytes that one piece may use while it is searched.

    Raises:
        ConfigurationError: if the table cannot be read, or a key cannot be compared with the view's key.
    """
    try:
        schema = connection.sql(f"SELECT * FROM {view.table} LIMIT 0").to_arrow_table().schema
        columns, where = _columns(view, schema), f"FROM {view.table} WHERE {quoted(view.event)} IS NOT NULL"
        select = f"SELECT {', '.join(columns.values())}"
        count = connection.execute(f"SELECT count(*) {where}").fetchall()[0][0] if len(times.ticks) else 0
        keys = {key: _key(entity_rows, own, schema.field(key).type) for key, own in view.keys.items()}
        lookup = Lookup(None, times, keys)
        # A search holds six integers per feature row and eight per entity row at the same time.
        taken = count * (width_of(schema, columns) + 48) + len(times.ticks) * (width_of(schema, view.features) + 64)
        pieces = min(math.ceil(taken / memory), _MOST_PIECES) if view.keys else 1
        if pieces <= 1:
            limit = "" if count else "LIMIT 0"
            yield connection.sql(f"{select} {where} {limit}").to_arrow_table(), lookup
        else:
            yield from _divided(connection, view, lookup, select, where, pieces, folder)
    except duckdb.OutOfMemoryException:
        raise  # The stage reports it: the table is not wrong.
    except duckdb.Error as error:
        raise ConfigurationError(f"A feature table cannot be read: {said_by(error)}") from error


def _divided(
    connection: duckdb.DuckDBPyConnection,
    view: Joined,
    lookup: Lookup,
    select: str,
    where: str,
    pieces: int,
    folder: Path,
) -> Iterator[tuple[pa.Table, Lookup]]:
    folder.mkdir()
    piece = f"(hash({', '.join(quoted(key) for key in view.keys)}) % {pieces})::UTINYINT AS {_PIECE}"
    connection.register("__lookup", pa.table(lookup.keys))
    places = connection.sql(f"SELECT {piece} FROM __lookup").to_arrow_table()[_PIECE].to_numpy()
    connection.unregister("__lookup")
    written = _spread(connection.sql(f"{select}, {piece} {where}").to_arrow_reader(_BATCH), pieces, folder)
    for number in np.unique(places):
        rows = np.flatnonzero(places == number)
        keys = {key: column.take(rows) for key, column in lookup.keys.items()}
        yield pa.ipc.open_file(pa.memory_map(written[number])).read_all(), Lookup(rows, lookup.times.take(rows), keys)


def _spread(rows: pa.RecordBatchReader, pieces: int, folder: Path) -> list[str]:
    """Write rows to one file per piece, with their positions; DuckDB's partitioned write is several times slower."""
    names = [str(folder / f"{number}.arrow") for number in range(pieces)]
    schema = rows.schema.remove(rows.schema.get_field_index(_PIECE)).append(pa.field(POSITION, pa.int64()))
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
    """The columns to read of a view: SQL by name of the column."""
    columns = {name: quoted(name) for name in [*view.keys, *view.features]}
    times = {view.event: EVENT} | ({view.created: CREATED} if view.created else {})
    for name, called in times.items():
        # A timestamp is read as it is: a cast in DuckDB rounds nanoseconds to the nearest microsecond.
        cast = "" if pa.types.is_timestamp(schema.field(name).type) else "::TIMESTAMPTZ"
        columns[called] = f"{quoted(name)}{cast} AS {called}"
    return columns


def _key(entity_rows: pa.Table, name: str, wanted: pa.DataType) -> pa.ChunkedArray:
    return cast_column(entity_rows[name], wanted, row_of(f"Entity key {name}"))


def width_of(schema: pa.Schema, names: Iterable[str] = ()) -> int:
    """Approximate bytes per row of the named columns; 64 for a text or a list, 8 for a time."""
    types = [schema.field(name).type if name in schema.names else pa.int64() for name in names or schema.names]
    return sum(max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else 64 for kind in types)
