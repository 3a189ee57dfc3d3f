"""Cuts a stream of rows into runs of a fixed number, with one run in memory."""

from collections.abc import Iterable, Iterator

import pyarrow as pa


def runs(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Runs of exactly `rows` rows each, the last one shorter; where the tables end makes no difference."""
    for pieces in runs_in_pieces(tables, rows):
        yield pa.concat_tables(pieces).combine_chunks()


def runs_in_pieces(tables: Iterable[pa.Table], rows: int) -> Iterator[list[pa.Table]]:
    """The same runs as the pieces that they came in, whose types may differ from each other."""
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
