"""Sorts rows outside memory: for a source whose rows come in no order of their own."""

import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.ipc

from gatehouse.data.snapshot.spec import ColumnType, TableSpec
from gatehouse.data.sources.base import Part, Raw
from gatehouse.data.sources.declared import schema_of
from gatehouse.data.sources.runs import runs
from gatehouse.store.database import connect, quoted

_MEMORY = 256 << 20


def sorted_parts(parts: Iterable[Part], spec: TableSpec, workspace: Path, rows: int) -> Iterator[Part]:
    """All rows of some parts, sorted, in runs of `rows`; then the rejected ones as they came.

    Rejected rows lie on the disk until their turn, so that no number of them fills the memory.
    """
    delivered: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="sort-", dir=workspace) as folder:
        spilled = Path(folder) / "rejected.arrow"

        def tables() -> Iterator[pa.Table]:
            writer = None
            try:
                for part in parts:
                    raw = part.read()
                    delivered.update({name: kind for name, kind in (raw.columns or {}).items() if kind != "null"})
                    if raw.rejected is not None:
                        writer = writer or pa.ipc.new_file(spilled, raw.rejected.schema)
                        writer.write_table(raw.rejected.combine_chunks())
                    yield raw.table
            finally:
                if writer is not None:
                    writer.close()

        for run in sorted_rows(tables(), spec, Path(folder), rows):
            yield Part("", partial(Raw, run, None, delivered))
        if spilled.exists():
            nothing = schema_of(spec.columns).empty_table()
            with pa.OSFile(str(spilled)) as stream:
                reader = pa.ipc.open_file(stream)
                for index in range(reader.num_record_batches):
                    rejected = pa.Table.from_batches([reader.get_batch(index)])
                    yield Part("", partial(Raw, nothing, rejected, delivered))


def sorted_rows(tables: Iterable[pa.Table], spec: TableSpec, workspace: Path, rows: int) -> Iterator[pa.Table]:
    """All rows in the order of `order_by` and then of every other column, nulls last, in runs of `rows`.

    Text is ordered by its UTF-8 bytes. Of rows that are equal, those with -0.0 come after those with 0.0, since their
    digests differ. Rows that are the same in every column come side by side.
    """
    order = [*spec.order_by, *(column for column in spec.columns if column not in spec.order_by)]
    signed = [column for column in order if spec.columns[column] is ColumnType.double]
    schema = schema_of(spec.columns)
    database: duckdb.DuckDBPyConnection
    with connect(workspace / "sort.duckdb", spill=workspace / "sort", most=_MEMORY) as database:
        database.sql("SET TimeZone='UTC'")
        first = schema.empty_table()
        database.sql("CREATE TABLE rows AS SELECT * FROM first")
        for table in tables:
            database.register("piece", table)
            database.sql("INSERT INTO rows SELECT * FROM piece")
        del first
        keys = [f"{quoted(column)} ASC NULLS LAST" for column in order]
        keys += [f"signbit({quoted(column)})" for column in signed]
        result = database.sql(f"SELECT * FROM rows ORDER BY {', '.join(keys)}").to_arrow_reader(16_384)
        yield from runs((pa.Table.from_batches([batch]).cast(schema) for batch in result), rows)
