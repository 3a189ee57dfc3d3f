"""The pieces of statistics: each measures some files, and publishes a partial for each column of each file.

A partial is packed as a row of Arrow: its numbers as JSON, and counted values and sketches as bytes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tfx_bsl.sketches import KmvSketch, MisraGriesSketch, QuantilesSketch  # type: ignore[import-untyped]  # no stubs

from gatehouse.data.piece_files import PieceFiles, file_batches
from gatehouse.data.statistics.columns import (
    ColumnPlan,
    CountedNumbers,
    CountedTexts,
    Counts,
    Moments,
    NumberSummary,
    TextSummary,
)
from gatehouse.data.statistics.partial import (
    MeasuredTable,
    Partial,
    SketchedNumbers,
    SketchedTexts,
    Values,
    measured_files,
    merged_table,
    plans_of,
)
from gatehouse.data.statistics.stage import measurement
from gatehouse.pieces.piece import KIND, ROWS, piece, run_pieces
from gatehouse.store.identity import Unordered
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

_FILE = "partials.arrow"


class PartialsRequest(StageModel):
    """The files to measure, without `sensitive` columns by table; `baseline` has statistics to compare with, if any."""

    files: tuple[PieceFiles, ...]
    sensitive: dict[str, Unordered]
    baseline: str = ""


class PartialsResult(StageModel):
    """The artifact with the partials, by file, then by column."""

    partials: str


@piece
def measure_files(request: PartialsRequest, store: ArtifactStore) -> PartialsResult:
    """Measure files. Raises ConfigurationError if the baseline's statistics are of another version."""
    baseline, partials = measurement(store, request.baseline).statistics, list[Partial]()
    for files in request.files:
        paths, sensitive = store.paths(files.dataset, files.paths), request.sensitive.get(files.table, ())
        plans = plans_of(paths[0], sensitive, baseline.get(files.table, {}))
        shown = [plan for plan in plans if not plan.sensitive]
        partials += [partial for file in measured_files(paths, shown) for partial in file]
    table, sink = packed(partials), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    inputs = {f"dataset {files.table}": files.dataset for files in request.files}
    inputs |= {"baseline": request.baseline} if request.baseline else {}
    written = {_FILE: bytes(sink.getvalue())}
    return PartialsResult(partials=str(store.publish(KIND, "statistics", written, derived_from=inputs)))


def measured_tables(
    store: ArtifactStore, datasets: Mapping[str, str], sensitive: Mapping[str, Sequence[str]], baseline: str
) -> dict[str, MeasuredTable]:
    """The statistics of tables, in pieces of some files each; they are merged in the order of files.

    A partial has values of its column, and of sensitive columns none may be kept: this process measures these.
    """
    requests = [
        PartialsRequest(files=batch, sensitive=sensitive, baseline=baseline)
        for batch in file_batches(store, datasets, ROWS)
    ]
    results = run_pieces(store, [(measure_files, request) for request in requests])
    paths = store.paths_of([result.partials for result in results], _FILE)
    rows = (row for path in paths for row in _rows(path))
    before, tables = measurement(store, baseline).statistics, dict[str, MeasuredTable]()
    for name, dataset in sorted(datasets.items()):
        if not (of := store.manifest(dataset).files):
            tables[name] = MeasuredTable(0, {}, {})
            continue
        plans = plans_of(store.path(dataset, of[0].path), sensitive.get(name, ()), before.get(name, {}))
        shown, hidden = ([plan for plan in plans if plan.sensitive == secret] for secret in (False, True))
        own = measured_files(store.paths(dataset), hidden) if hidden else ([] for _ in of)
        read = ([unpacked(row, plan) for plan, row in zip(shown, islice(rows, len(shown)), strict=True)] for _ in of)
        tables[name] = merged_table([*first, *second] for first, second in zip(read, own, strict=True))
    return tables


def _rows(partials: Path) -> Iterator[pa.Table]:
    """The rows of the file of a piece, each as a batch."""
    with pa.memory_map(str(partials)) as source:
        table = pa.ipc.open_file(source).read_all()
        yield from (table.slice(number, 1) for number in range(table.num_rows))


def packed(partials: Sequence[Partial]) -> pa.Table:
    """Partials as a table, a row for each."""
    facts, blobs, texts, ends = list[str](), list[list[bytes]](), [pa.array([], pa.large_string())], [0]
    for partial in partials:
        words, numbers, arrays, sketches = texts[0], list[Any](), list[npt.NDArray[Any]](), list[Any]()
        match values := partial.values:
            case CountedNumbers():
                numbers, arrays = [values.values.dtype.str], [values.values, values.counts]
            case CountedTexts():
                words, arrays = values.values, [values.counts]
            case SketchedNumbers(summary=of):
                numbers = [of.low, of.high, of.zeros, [*vars(of.moments).values()]]
                arrays, sketches = [of.up_to, of.below], [values.hashes, values.quantiles]
            case SketchedTexts(summary=texts_of):
                *numbers, listed = vars(texts_of).values()
                arrays, sketches = [listed], [values.hashes, values.heavy]
        about = {"rows": partial.rows, "nulls": partial.nulls, "not_finite": partial.not_finite}
        facts.append(json.dumps([about, type(values).__name__, numbers]))
        blobs.append([array.tobytes() for array in arrays] + [sketch.__getstate__() for sketch in sketches])
        texts.append(words)
        ends.append(ends[-1] + len(words))
    lists = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), pa.concat_arrays(texts))
    return pa.table([facts, pa.array(blobs, pa.list_(pa.large_binary())), lists], ["facts", "bytes", "texts"])


def unpacked(row: pa.Table, plan: ColumnPlan) -> Partial:
    """The partial of a column from its row of `packed`."""
    about, kind, numbers = json.loads(row["facts"][0].as_py())
    blobs: list[bytes] = row["bytes"][0].as_py()
    values: Values | None = None
    match kind:
        case "CountedNumbers":
            values = CountedNumbers(np.frombuffer(blobs[0], numbers[0]), _counts(blobs[1]))
        case "CountedTexts":
            values = CountedTexts(row["texts"].chunk(0).flatten(), _counts(blobs[0]))
        case "SketchedNumbers":
            low, high, zeros, moments = numbers
            summary = NumberSummary(low, high, zeros, Moments(*moments), *map(_counts, blobs[:2]))
            values = SketchedNumbers(summary, _sketch(KmvSketch, blobs[2]), _sketch(QuantilesSketch, blobs[3]))
        case "SketchedTexts":
            described = TextSummary(*numbers, _counts(blobs[0]))  # type: ignore[call-arg]  # All but the counts are numbers.
            values = SketchedTexts(described, _sketch(KmvSketch, blobs[1]), _sketch(MisraGriesSketch, blobs[2]))
    return Partial(plan=plan, values=values, **about)


def _counts(blob: bytes) -> Counts:
    return np.frombuffer(blob, np.int64)


def _sketch(kind: Any, state: bytes) -> Any:
    """A sketch from its state, a protocol buffer; that of quantiles has no other way back."""
    sketch = kind.__new__(kind)
    sketch.__setstate__(state)
    return sketch
