"""Cuts rows into pieces at places that the rows alone decide, so that overlapping tables have pieces in common."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

USUAL, MOST = 1 << 15, 1 << 16
"""Rows of a piece: about, and at most."""


def pieces_of(paths: Sequence[Path], columns: Sequence[str], names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of Parquet files in order, in pieces; no more than a few pieces are held at once.

    A piece ends after a row whose hash says so, or with the `MOST` rows. Tables that have a stretch of rows in common
    are cut at the same places within it, except before the first such row.

    Args:
        paths: The files, in order.
        columns: What is read of them.
        names: The columns that tell rows apart.
    """
    held: pa.Table | None = None
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(MOST, columns=list(columns)):
                more = pa.Table.from_batches([batch])
                held = more if held is None else pa.concat_tables([held, more])
                while held.num_rows > MOST:
                    end = _end(held, names)
                    yield held.slice(0, end).combine_chunks()
                    held = held.slice(end)
    while held is not None and held.num_rows:
        end = _end(held, names)
        yield held.slice(0, end).combine_chunks()
        held = held.slice(end)


def _end(held: pa.Table, names: Sequence[str]) -> int:
    """How many rows the first piece has."""
    rows = held.slice(0, MOST).select(list(names)).to_pandas()
    ends = np.flatnonzero(pd.util.hash_pandas_object(rows, index=False).to_numpy() % USUAL == 0)
    return int(ends[0]) + 1 if len(ends) else len(rows)
