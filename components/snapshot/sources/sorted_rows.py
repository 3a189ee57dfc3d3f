"""Sorts rows outside memory: for a source whose rows come in no order of their own."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from gatehouse.components.snapshot.sources.declared import schema_of
from gatehouse.components.snapshot.sources.runs import runs
from gatehouse.components.snapshot.spec import TableSpec

_MEMORY = "256MB"


def sorted_rows(tables: Iterable[pa.Table], spec: TableSpec, workspace: Path, rows: int) -> Iterator[pa.Table]:
    """All rows in the order of `order_by` and then of every other column, nulls last, in runs of `rows`.

    Text is ordered by its UTF-8 bytes. Rows that are equal in every column come side by side.
    """
    order = [*spec.order_by, *(column for column in spec.columns if column not in spec.order_by)]
    schema = schema_of(spec.columns)
    with duckdb.connect(str(workspace / "sort.duckdb")) as database:
        database.sql(f"SET memory_limit='{_MEMORY}'; SET threads=2; SET TimeZone='UTC'")
        database.sql(f"SET temp_directory='{workspace / 'sort'}'")
        first = schema.empty_table()
        database.sql("CREATE TABLE rows AS SELECT * FROM first")
        for table in tables:
            database.register("piece", table)
            database.sql("INSERT INTO rows SELECT * FROM piece")
        del first
        keys = ", ".join(f'"{column.replace(chr(34), chr(34) * 2)}" ASC NULLS LAST' for column in order)
        result = database.sql(f"SELECT * FROM rows ORDER BY {keys}").to_arrow_reader(16_384)
        yield from runs((pa.Table.from_batches([batch]).cast(schema) for batch in result), rows)
