"""The same statistics on Apache Beam: workers measure files, and partials are merged in the same tree.

All workers must reach the artifact store, which they open by its address, and `--temp_location`, through which results
travel; without one, a local directory, which is enough if the runner works on this machine.
"""

# mypy: disable-error-code="no-untyped-call"
# Beam is typed, but not throughout.

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.columns import ColumnPlan, plans_of
from gatehouse.data.statistics.partial import OrderedMerge, Partial
from gatehouse.data.statistics.readout import read_out
from gatehouse.data.statistics.table import MeasuredTable, measure_file
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore

Place = tuple[str, int]
File = tuple[str, int, str, str]


def measure_on_beam(
    store: ArtifactStore,
    datasets: Mapping[str, str],
    sensitive: Mapping[str, Sequence[str]],
    baseline: Mapping[str, Mapping[str, Statistics]],
    options: Sequence[str],
) -> dict[str, MeasuredTable]:
    """Measure tables in one pipeline; the result equals `measure_table`, byte for byte.

    Datasets, columns of which no value may be kept, and statistics to compare with come by table; `options` are those
    of a pipeline, e.g. `--runner=FlinkRunner`.
    """
    files: list[File] = []
    lines: list[list[Any]] = []
    plans: dict[str, tuple[ColumnPlan, ...]] = {}
    for table, dataset in sorted(datasets.items()):
        names = [entry.path for entry in store.manifest(dataset).files]
        files += [(table, number, dataset, name) for number, name in enumerate(names)]
        if names:
            schema = pq.read_schema(store.path(dataset, names[0]))
            plans[table] = plans_of(schema, frozenset(sensitive.get(table, ())), baseline.get(table, {}))
    chosen = PipelineOptions(list(options))
    with tempfile.TemporaryDirectory() as local:
        folder = FileSystems.join(chosen.view_as(GoogleCloudOptions).temp_location or local, Path(local).name)
        FileSystems.mkdirs(folder)
        try:
            with beam.Pipeline(options=chosen) as pipeline:
                _ = (
                    pipeline
                    | "List the files" >> beam.Create(files)
                    | "Spread them over workers" >> beam.Reshuffle()
                    | "Measure" >> beam.ParDo(MeasureFile(store.address, plans))
                    | "Merge in order" >> beam.CombinePerKey(MergeInOrder())
                    | "Read out" >> beam.MapTuple(_line)
                    | "Write" >> beam.io.WriteToText(FileSystems.join(folder, "statistics"))
                )
            for match in FileSystems.match([FileSystems.join(folder, "*")]):
                for metadata in match.metadata_list:
                    with FileSystems.open(metadata.path) as stream:
                        lines += map(json.loads, stream.read().splitlines())
        finally:
            FileSystems.delete([folder])
    return {table: _table(plans.get(table, ()), lines, table) for table in sorted(datasets)}


class MeasureFile(beam.DoFn):
    """Measures a file; emits by table and column number the number of the file and its partial."""

    def __init__(self, address: str, plans: Mapping[str, Sequence[ColumnPlan]]) -> None:
        self._address, self._plans = address, plans

    def process(self, element: File) -> Iterator[tuple[Place, tuple[int, Partial]]]:
        """Measure one file, given as table, number, dataset and name."""
        table, number, dataset, name = element
        partials = measure_file(_store(self._address).path(dataset, name), self._plans[table])
        for column, partial in enumerate(partials):
            yield (table, column), (number, partial)


@cache
def _store(address: str) -> ArtifactStore:
    """One store a process, because it remembers which bytes it has verified."""
    return ArtifactStore.open(address)


class MergeInOrder(beam.CombineFn):
    """Merges the partials of a column by `OrderedMerge`, in any order of arrival."""

    def create_accumulator(self) -> OrderedMerge:
        """An empty merge."""
        return OrderedMerge()

    def add_input(self, accumulator: OrderedMerge, element: tuple[int, Partial]) -> OrderedMerge:
        """Take in the partial of one file."""
        accumulator.add(*element)
        return accumulator

    def merge_accumulators(self, accumulators: Sequence[OrderedMerge]) -> OrderedMerge:
        """Join the merges of several workers."""
        whole = OrderedMerge()
        for accumulator in accumulators:
            whole.join(accumulator)
        return whole

    def extract_output(self, accumulator: OrderedMerge) -> Partial:
        """All files as one."""
        return accumulator.result()


def _line(place: Place, partial: Partial) -> str:
    measured = read_out(partial)
    return canonical_json([*place, partial.rows, measured.statistics, measured.rebinned])


def _table(plans: Sequence[ColumnPlan], lines: Sequence[list[Any]], table: str) -> MeasuredTable:
    by_number = {line[1]: line[2:] for line in lines if line[0] == table}
    columns = [(plan.name, by_number[number]) for number, plan in enumerate(plans)]
    return MeasuredTable(
        rows=columns[0][1][0] if columns else 0,
        statistics={name: own for name, (_, own, _) in columns},
        rebinned={name: rebinned for name, (_, _, rebinned) in columns if rebinned is not None},
    )
