"""Cuts a stream of rows into runs of a fixed number, with one run in memory."""

from collections.abc import Iterable, Iterator

import pyarrow as pa


def runs(tables: Iterable[pa.Table], rows: int) -> Iterator[list[pa.Table]]:
    """Runs of exactly `rows` rows each, the last one shorter, as the pieces that they came in."""
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        while count + table.num_rows >= rows:
            needed = rows - count
            yield [*held, table.slice(0, needed)]
            held, count, table = [], 0, table.slice(needed)
        if table.num_rows:
            held.append(table)
            count += table.num_rows
    if held:
        yield held
