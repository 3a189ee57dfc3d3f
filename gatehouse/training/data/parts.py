"""The rows of one part of a split, read column by column or batch by batch: never as a whole table."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.splitting.parts import divided_set
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation.columns import FeatureError

AT_ONCE = 65_536
Numbers = npt.NDArray[np.int64]


class Part:
    """The rows of a training set that belong to a part (`train`, `validation` or `test`), in the part's order."""

    def __init__(self, paths: Sequence[Path], rows: Numbers) -> None:
        """Read from the training set's files the rows with these numbers."""
        self._paths, self._rows = paths, rows
        self.schema: pa.Schema = pq.read_schema(paths[0])

    @property
    def column_names(self) -> list[str]:
        """All columns of the training set."""
        return list(self.schema.names)

    @property
    def num_rows(self) -> int:
        """Rows of this part."""
        return len(self._rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """One column."""
        batches = list(self.batches([name]))
        chunks = [chunk for _, table in batches for chunk in table[name].chunks]
        column = pa.chunked_array(chunks, self.schema.field(name).type)
        places = np.concatenate([places for places, _ in batches]) if batches else np.zeros(0, np.int64)
        return column if _ascending(places) else column.take(pa.array(np.argsort(places)))

    def thinned(self, share: float) -> "Part":
        """An evenly spaced share of the rows; one at least."""
        count = max(1, round(self.num_rows * share))
        return Part(self._paths, self._rows[np.linspace(0, self.num_rows - 1, count).astype(np.int64)])

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[Numbers, pa.Table]]:
        """Every row once, as the files hold them: places in the part, shape (some,), and rows with these columns."""
        order = None if _ascending(self._rows) else np.argsort(self._rows, kind="stable")
        ascending = self._rows if order is None else self._rows[order]
        types = pa.schema([pa.field(name, self.schema.field(name).type) for name in columns])
        start = 0  # Number of the first row of a batch, or of a row group; groups of other parts are passed over.
        for path in self._paths:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    end = start + file.metadata.row_group(group).num_rows
                    if not np.diff(np.searchsorted(ascending, (start, end))):
                        start = end
                        continue
                    for batch in file.iter_batches(AT_ONCE, row_groups=[group], columns=list(columns)):
                        first, last = np.searchsorted(ascending, (start, start + batch.num_rows))
                        if first < last:
                            places = np.arange(first, last) if order is None else order[first:last]
                            table = pa.Table.from_batches([batch]).select(columns).cast(types)
                            yield places, table.take(pa.array(ascending[first:last] - start))
                        start += batch.num_rows
        if len(ascending) and not 0 <= ascending[0] <= ascending[-1] < start:
            rows = f"{ascending[0]} to {ascending[-1]}"
            raise FeatureError(f"The split has the rows {rows} of a training set of {start} rows. Split it again.")


def read_part(store: ArtifactStore, split: str, *parts: str) -> Part:
    """A part of a split (`train`, `validation` or `test`), or several of them one after another."""
    paths = store.paths(divided_set(store, split))
    rows = [pq.read_table(store.path(split, f"{part}.parquet"))["row"].to_numpy() for part in parts]
    return Part(paths, np.concatenate(rows))


def _ascending(numbers: Numbers) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())
