"""Cuts a stream of rows into runs of a fixed number, with one run in memory."""

from collections.abc import Iterable, Iterator

import pyarrow as pa


def runs(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Runs of exactly `rows` rows each, the last one shorter; where the tables end makes no difference."""
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        while count + table.num_rows >= rows:
            needed = rows - count
            yield pa.concat_tables([*held, table.slice(0, needed)]).combine_chunks()
            held, count, table = [], 0, table.slice(needed)
        if table.num_rows:
            held.append(table)
            count += table.num_rows
    if held:
        yield pa.concat_tables(held).combine_chunks()
