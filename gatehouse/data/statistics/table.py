"""Measures the columns of a table file by file, on the threads of one machine."""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.columns import ColumnPlan, Kind
from gatehouse.data.statistics.partial import OrderedMerge, Partial
from gatehouse.data.statistics.readout import read_out
from gatehouse.runtime.limits import processors

# Rows of one column that each thread reads at once; fewer if the rows are large.
_ROWS = 131_072
_BYTES = 64 * 2**20


@dataclass(frozen=True)
class MeasuredTable:
    """Statistics by column; and, of columns that the baseline has, in the baseline's bins and values."""

    rows: int
    statistics: Mapping[str, Statistics]
    rebinned: Mapping[str, Statistics]


def measure_table(
    files: Sequence[Path], sensitive: frozenset[str], baseline: Mapping[str, Statistics], threads: int = 0
) -> MeasuredTable:
    """Measure a table in one pass on threads, whose number (0: one per core, at most 8) changes no result.

    No value of `sensitive` columns is kept. `baseline` holds statistics by column to compare with; empty for none.
    """
    if not files:
        return MeasuredTable(0, {}, {})
    schema = pq.read_schema(files[0])
    plans = [ColumnPlan.of(field, field.name in sensitive, baseline.get(field.name, {})) for field in schema]
    threads = threads or min(8, processors())
    whole = [OrderedMerge() for _ in plans]
    with ThreadPoolExecutor(threads) as pool:
        for file in _measured_files(pool, files, plans, 2 * threads):
            _add(whole, file)
    partials = [merge.result() for merge in whole]
    measured = {partial.plan.name: read_out(partial) for partial in partials}
    return MeasuredTable(
        rows=partials[0].rows if partials else 0,
        statistics={name: column.statistics for name, column in measured.items()},
        rebinned={name: column.rebinned for name, column in measured.items() if column.rebinned is not None},
    )


def _measured_files(
    pool: ThreadPoolExecutor, files: Sequence[Path], plans: Sequence[ColumnPlan], most: int
) -> Iterator[list[Partial]]:
    """The merged row groups of each file, in order; at most `most` groups are measured or wait."""
    waiting: deque[tuple[_Part, Future[list[Partial]]]] = deque()
    merges = [OrderedMerge() for _ in plans]
    parts = itertools.chain.from_iterable(map(_parts_of, files))
    while True:
        for part in itertools.islice(parts, most - len(waiting)):
            waiting.append((part, pool.submit(part.measure, plans)))
        if not waiting:
            return
        part, measured = waiting.popleft()
        _add(merges, measured.result())
        if part.last:
            yield [merge.result() for merge in merges]
            merges = [OrderedMerge() for _ in plans]


def _add(merges: Sequence[OrderedMerge], partials: Sequence[Partial]) -> None:
    for merge, partial in zip(merges, partials, strict=True):
        merge.add(partial)


@dataclass(frozen=True)
class _Part:
    """One row group of a file; a file without any is one part without rows."""

    path: Path
    group: int
    footer: pq.FileMetaData

    @property
    def last(self) -> bool:
        return bool(self.group >= self.footer.num_row_groups - 1)

    def measure(self, plans: Sequence[ColumnPlan]) -> list[Partial]:
        """Measure a column at a time and a slice of it at once, so that memory stays small."""
        texts = [plan.name for plan in plans if plan.kind is Kind.TEXT]
        # Local pages need no buffering ahead, which would only add a copy.
        options = {"memory_map": True, "pre_buffer": False, "read_dictionary": texts}
        with pq.ParquetFile(self.path, metadata=self.footer, **options) as file:
            sizes: dict[str, int] = {}
            if self.group < self.footer.num_row_groups:
                group = self.footer.row_group(self.group)
                columns = (group.column(index) for index in range(group.num_columns))
                # A nested column, of which only nulls are counted, has another path and no size here.
                sizes = {column.path_in_schema: column.total_uncompressed_size for column in columns}
            return [self._column(file, plan, sizes.get(plan.name, 0)) for plan in plans]

    def _column(self, file: pq.ParquetFile, plan: ColumnPlan, size: int) -> Partial:
        merge = OrderedMerge()
        if self.group < file.num_row_groups:
            rows = max(1, min(_ROWS, _BYTES * self.footer.row_group(self.group).num_rows // max(1, size)))
            for batch in file.iter_batches(rows, row_groups=[self.group], columns=[plan.name], use_threads=False):
                merge.add(Partial.of(batch.column(plan.name), plan))
        if not merge.levels:
            merge.add(Partial.of(pa.array([], file.schema_arrow.field(plan.name).type), plan))
        return merge.result()


def _parts_of(path: Path) -> Iterator[_Part]:
    footer = pq.read_metadata(path)
    for group in range(max(1, footer.num_row_groups)):
        yield _Part(path, group, footer)
