"""Runs of rows: batches of typed files, runs of any stream of tables, and rows sorted outside memory."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from gatehouse.data.snapshot.spec import ColumnType, TableSpec
from gatehouse.data.sources.base import Part, Raw
from gatehouse.data.sources.declared import SCHEMA, schema_of
from gatehouse.data.sources.raw_file import RawFile
from gatehouse.errors import SourceError
from gatehouse.store.database import connect, quoted

_MEMORY = 256 << 20


def runs_in_pieces(tables: Iterable[pa.Table], rows: int) -> Iterator[list[pa.Table]]:
    """Runs of exactly `rows` rows as the pieces that they came in, whose types may differ; the last run is shorter."""
    pieces: list[pa.Table] = []
    count = 0
    for table in tables:
        while count + table.num_rows >= rows:
            needed = rows - count
            yield [*pieces, table.slice(0, needed)]
            pieces, count, table = [], 0, table.slice(needed)
        if table.num_rows:
            pieces.append(table)
            count += table.num_rows
    if pieces:
        yield pieces


def regrouped(raws: Iterable[Raw], rows: int) -> Iterator[Raw]:
    """The rows in runs of exactly `rows`, the last one shorter; rejected rows go where their piece begins."""
    rejected: list[pa.Table] = []
    columns: dict[str, str] = {}
    nothing: list[pa.Table] = []

    def tables() -> Iterator[pa.Table]:
        for raw in raws:
            known = (raw.columns or {}).items()
            columns.update({name: kind for name, kind in known if kind != "null" or name not in columns})
            rejected.extend([raw.rejected] if raw.rejected is not None else [])
            nothing[:] = [raw.table.slice(0, 0)]
            yield raw.table

    def run(pieces: list[pa.Table]) -> Raw:
        aside = pa.concat_tables(rejected) if rejected else None
        rejected.clear()
        return Raw(pa.concat_tables(pieces).combine_chunks(), aside, dict(columns))

    yield from map(run, runs_in_pieces(tables(), rows))
    if rejected:
        yield run(nothing)


def row_batches(name: str, file: RawFile) -> Iterator[pa.Table]:
    """The rows of a Parquet or Arrow file, a batch at a time. Raises SourceError if it is gone or not intact."""
    kind = "Parquet" if file.suffix == ".parquet" else "an Arrow file"
    try:
        with _opened(file) as (schema, batches):
            yield schema.empty_table()
            yield from (pa.Table.from_batches([batch], schema) for batch in batches)
    except (FileNotFoundError, PermissionError) as error:
        raise SourceError(
            f"Table {name}: {file.name} cannot be read: {error.strerror}. Run again when it is."
        ) from error
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"Table {name}: {file.name} is not intact {kind}: {error}. Fetch it again.") from error


@contextmanager
def _opened(file: RawFile) -> Iterator[tuple[pa.Schema, Any]]:
    with file.open() as stream:
        if file.suffix == ".parquet":
            # Without pre-buffering a row group of any size is read page by page.
            parquet = pq.ParquetFile(stream, pre_buffer=False, buffer_size=2**20)
            yield parquet.schema_arrow, parquet.iter_batches(batch_size=16_384, use_threads=False)
            return
        magic = stream.read(6)
        stream.seek(0)
        if magic == b"ARROW1":
            reader = pa.ipc.open_file(stream)
            yield reader.schema, (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            flow = pa.ipc.open_stream(stream)
            yield flow.schema, flow


def sorted_parts(parts: Iterable[Part], spec: TableSpec, workspace: Path, rows: int) -> Iterator[Part]:
    """All rows of some parts in the order of `order_by` and then of every other column, nulls last, in runs of `rows`.

    Text is ordered by its UTF-8 bytes, and -0.0 comes after 0.0, since the digests of the two differ. Rejected rows
    follow in their own order; both are on disk until their turn.
    """
    order = [*spec.order_by, *(column for column in spec.columns if column not in spec.order_by)]
    values = {
        column: f"nullif({quoted(column)}, 'NaN'::DOUBLE)" if spec.takes_nan_for_missing(column) else quoted(column)
        for column in order
    }
    keys = [f"{values[column]} ASC NULLS LAST" for column in order]
    keys += [f"signbit({quoted(column)})" for column in order if spec.columns[column] is ColumnType.double]
    nothing, delivered = schema_of(spec.columns).empty_table(), {}
    with (
        tempfile.TemporaryDirectory(prefix="sort-", dir=workspace) as folder,
        connect(Path(folder, "sort.duckdb"), spill=Path(folder, "sort"), most=_MEMORY) as database,
    ):
        database.sql("SET TimeZone='UTC'")
        for name, empty in (("rows", nothing), ("rejected", SCHEMA.empty_table())):
            database.register("piece", empty)
            database.sql(f"CREATE TABLE {name} AS SELECT * FROM piece")
        for part in parts:
            raw = part.read()
            delivered.update({name: kind for name, kind in (raw.columns or {}).items() if kind != "null"})
            for name, table in (("rows", raw.table), ("rejected", raw.rejected)):
                if table is not None:
                    database.register("piece", table)
                    database.sql(f"INSERT INTO {name} SELECT * FROM piece")
        ordered = database.sql(f"SELECT * FROM rows ORDER BY {', '.join(keys)}").to_arrow_reader(16_384)
        sorted_rows = (Raw(pa.Table.from_batches([batch]).cast(nothing.schema), None, delivered) for batch in ordered)
        for raw in regrouped(sorted_rows, rows):
            yield Part("", partial(Raw, raw.table, None, delivered))
        for batch in database.sql("SELECT * FROM rejected").to_arrow_reader(4096):
            rejected = pa.Table.from_batches([batch]).cast(SCHEMA)
            yield Part("", partial(Raw, nothing, rejected, delivered))
