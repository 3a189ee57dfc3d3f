"""The score stage: a registered model scores a table of rows; a piece is a range of them, scored block by block."""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError
from gatehouse.pieces.piece import KIND, piece, run_pieces
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.manifest import Column, FileEntry, Manifest
from gatehouse.store.memo import last, memo_key, remember
from gatehouse.store.reference import Reference
from gatehouse.store.stage import CONTENTS, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa

    from gatehouse.training.predictor import Predictor

logger = logging.getLogger(__name__)
BLOCK = "score-block"
"""The stage under which the memo keeps the predictions of a block of rows."""
ROWS = 1 << 15
"""Rows of a block."""
BLOCKS = 16
"""Blocks of a piece."""


class ScoreRequest(StageModel):
    """A model, and the rows that it scores."""

    model: str
    rows: str
    version: int = 0


class ScoreResult(StageModel):
    """The predictions, and their number."""

    predictions: str
    rows: int


class RangeRequest(ScoreRequest):
    """The same, from the row `start` on: at most `blocks` blocks, each of `size` rows."""

    start: int
    size: int
    blocks: int


class RangeResult(StageModel):
    """The artifact with the predictions: a file for each block."""

    predictions: str


@stage("score", title="Score", pages={"predictions": CONTENTS})
def score(request: ScoreRequest, store: ArtifactStore) -> ScoreResult:
    """Score rows with a model: Parquet files of keys, decision time, predictions, model and version.

    Rows whose manifest names no keys and decision time, as those of a table of any origin, keep all their columns, with
    the predictions after them.

    Each block is kept as soon as it is scored, under the digest of its rows: a run that was killed resumes after the
    last one, and a table that begins with the rows of an earlier one reuses its whole blocks.

    Raises:
        ConfigurationError: if the table has no rows, lacks a feature, is of another task or has other keys than the
            model's training set, its features were computed differently, or a column has the name of a prediction.
        FeatureError: if a feature is not as it was in training.
    """
    from gatehouse.features.definitions.changes import require_same_features
    from gatehouse.training.predictor import Predictor

    manifest, predictor = store.manifest(request.rows), Predictor.load(store, request.model)
    training_set = store.manifest(store.manifest(request.model).derived_from["training_set"])
    _require_fit(manifest, predictor, training_set)
    trained, current = (artifact.derived_from.get("definitions", "") for artifact in (training_set, manifest))
    if trained and current:
        require_same_features(store, str(training_set.configuration["service"]), trained, current)
    keys, rows = _keys(manifest.details), manifest.rows or 0
    ranges = [
        (score_range, RangeRequest(**request.model_dump(), start=start, size=ROWS, blocks=BLOCKS))
        for start in range(0, rows, ROWS * BLOCKS)
    ]
    parts = store.manifests(result.predictions for result in run_pieces(store, ranges))
    published = store.publish(
        "predictions",
        Reference.parse(request.model).name,
        {entry.path: entry for part in parts for entry in part.files},
        columns=parts[0].columns,
        rows=rows,
        derived_from={"model": request.model, "rows": request.rows},
        configuration={"version": request.version},
        details={
            **({"entity_keys": keys[:-1], "decision_time": keys[-1]} if keys else {}),
            "task": predictor.task.name,
            "classes": list(classes_of(store, request.model)),
            "as_of": manifest.configuration.get("as_of", ""),
        },
    )
    return ScoreResult(predictions=str(published), rows=rows)


@piece
def score_range(request: RangeRequest, store: ArtifactStore) -> RangeResult:
    """Score a range of rows. Raises as `score`."""
    from gatehouse.data.splitting.parts import files_with
    from gatehouse.training.predictor import Predictor

    manifest, predictor = store.manifest(request.rows), Predictor.load(store, request.model)
    keys, classes = _keys(manifest.details), classes_of(store, request.model)
    kept = keys or [column.name for column in manifest.columns]
    columns = [*dict.fromkeys([*kept, *predictor.features])]
    paths, before = files_with(store, request.rows, request.start, request.start + request.size * request.blocks - 1)
    skipped = [request.start - before, *[0] * (len(paths) - 1)]
    blocks = blocks_of(zip(paths, skipped, strict=True), columns, request.size)
    files, schema, done = dict[str, FileEntry](), tuple[Column, ...](), request.start
    for block in islice(blocks, request.blocks):
        path = f"part-{done // request.size:05d}.parquet"
        files[path], schema = _scored(request, store, predictor, classes, block, kept, bool(keys))
        done += block.num_rows
        logger.info("%s: %d of %d rows", path, done, manifest.rows)
    origin = {"model": request.model, "rows": request.rows}
    return RangeResult(predictions=str(store.publish(KIND, "predictions", files, columns=schema, derived_from=origin)))


def _keys(details: Mapping[str, Any]) -> list[str]:
    """The columns that identify a row, keys and a time, if the manifest of rows says so."""
    keyed = details.get("entity_keys") and details.get("decision_time")
    return [*details["entity_keys"], details["decision_time"]] if keyed else []


def prediction_columns(predictor: "Predictor", rows: "pa.Table", classes: Sequence[str]) -> "pa.Table":
    """The columns `probability` and `positive` for two classes; `class` and `probabilities` for several.

    `probabilities` has all classes in their order. Regression has `prediction`, and ranking has `score`.

    Raises:
        FeatureError: if a feature is missing, or not as it was in training.
        PredictionError: if the model gave NaN, or a number that is no probability.
    """
    import pyarrow as pa

    from gatehouse.training.predictor import require_usable

    predicted = predictor.predict(rows)
    require_usable(predicted, predictor.task)
    read = predictor.read(predicted)
    output = predictor.task.output
    if output == "probability":
        return pa.table({"probability": read.form("probabilities"), "positive": read.form("classes")})
    if output == "probabilities":
        chances, numbers = read.form("probabilities"), read.form("classes")
        named = pa.array(classes).take(pa.array(numbers)) if classes else pa.array(numbers, pa.int64())
        of_all = pa.FixedSizeListArray.from_arrays(pa.array(chances.reshape(-1)), chances.shape[1])
        return pa.table({"class": named, "probabilities": of_all})
    return pa.table({output: read.scores})


def classes_of(store: ArtifactStore, model: str) -> tuple[str, ...]:
    """Names of the classes that a model learned, in the order of their numbers; empty where they have none."""
    training_set = store.manifest(model).derived_from.get("training_set", "")
    return tuple(store.manifest(training_set).details.get("classes", ())) if training_set else ()


def _require_fit(manifest: Manifest, predictor: "Predictor", training_set: Manifest) -> None:
    details, where = manifest.details, str(manifest.reference)
    if (task := details.get("task", predictor.task.name)) != predictor.task.name:
        raise ConfigurationError(f"{where}: expected rows of the task {predictor.task.name}, found {task}.")
    trained, keys = (", ".join(side.details.get("entity_keys", ())) for side in (training_set, manifest))
    if _keys(details) and keys != trained:
        raise ConfigurationError(f"{where}: expected rows with the entity keys {trained}, found {keys}.")
    present = [column.name for column in manifest.columns]
    if lacking := [name for name in predictor.features if name not in present]:
        raise ConfigurationError(
            f"{where}: expected the features of the model, found no {', '.join(lacking)}. It has {', '.join(present)}."
        )
    if not manifest.rows:
        raise ConfigurationError(f"{where}: expected rows to score, found none.")


def blocks_of(files: "Iterable[tuple[Path, int]]", columns: Sequence[str], size: int) -> "Iterator[pa.Table]":
    """The rows of Parquet files in order, in blocks of `size` rows, whatever the files; the last one may have fewer.

    Each file comes with the number of rows at its beginning that are left out.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rest = None
    for path, skipped in files:
        with pq.ParquetFile(path) as file:
            ends = [*accumulate(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))]
            first = bisect_right(ends, skipped)
            skipped -= ends[first - 1] if first else 0
            for batch in file.iter_batches(size, row_groups=range(first, len(ends)), columns=list(columns)):
                table = pa.Table.from_batches([batch]).slice(skipped)
                skipped = max(skipped - batch.num_rows, 0)
                rest = table if rest is None else pa.concat_tables([rest, table])
                while rest.num_rows >= size:
                    yield rest.slice(0, size).combine_chunks()
                    rest = rest.slice(size)
    if rest is not None and rest.num_rows:
        yield rest.combine_chunks()


def _scored(
    request: ScoreRequest,
    store: ArtifactStore,
    predictor: "Predictor",
    classes: tuple[str, ...],
    block: "pa.Table",
    names: list[str],
    keyed: bool,
) -> tuple[FileEntry, tuple[Column, ...]]:
    """The file of a block's predictions with its columns: one that the store has, or a new one."""
    import pyarrow as pa

    facts = {"model": request.model, "version": request.version, "names": names, "rows": sha256_bytes(_bytes_of(block))}
    key = memo_key(BLOCK, score.sources().digest, facts)
    if (kept := last(store, BLOCK, key)) is not None:
        entry = FileEntry(**kept["file"])
        stat = store.objects.stat(entry.blob)
        if stat is not None and stat.bytes == entry.bytes:
            return entry, tuple(Column(**column) for column in kept["columns"])
    predictions, table = prediction_columns(predictor, block, classes), block.select(names)
    if repeated := [name for name in predictions.column_names if name in names]:
        raise ConfigurationError(
            f"{request.rows} has columns with names of predictions: {', '.join(repeated)}. Rename them."
        )
    for name in predictions.column_names:
        table = table.append_column(name, predictions[name])
    if keyed:
        table = table.append_column("model", pa.repeat(request.model, len(table)))
        table = table.append_column("model_version", pa.repeat(request.version, len(table)))
    columns = tuple(Column(field.name, str(field.type), field.nullable) for field in table.schema)
    entry = store.keep("predictions.parquet", _bytes_of(table), table.num_rows)
    remember(store, BLOCK, key, {"file": asdict(entry), "columns": [asdict(column) for column in columns]})
    return entry, columns


def _bytes_of(table: "pa.Table") -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd")
    return bytes(sink.getvalue())
