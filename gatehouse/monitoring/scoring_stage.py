"""The score stage: a registered model scores a table of rows, piece after piece."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError
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
PIECE = "score-piece"
"""The stage under which the memo keeps the predictions of a piece of rows."""
ROWS = 1 << 15
"""Rows of a piece."""


class ScoreRequest(StageModel):
    """A model, and the rows that it scores."""

    model: str
    rows: str
    version: int = 0


class ScoreResult(StageModel):
    """The predictions, and their number."""

    predictions: str
    rows: int


@stage("score", title="Score", pages={"predictions": CONTENTS})
def score(request: ScoreRequest, store: ArtifactStore) -> ScoreResult:
    """Score rows with a model: Parquet files of keys, decision time, predictions, model and version.

    Rows whose manifest names no keys and decision time, as those of a table of any origin, keep all their columns, with
    the predictions after them.

    Each piece is kept as soon as it is scored, under the digest of its rows: a run that was killed resumes after the
    last one, and a table that begins with the rows of an earlier one reuses its whole pieces.

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
    details = manifest.details
    keys = [*details["entity_keys"], details["decision_time"]] if _keyed(details) else []
    kept = keys or [column.name for column in manifest.columns]
    columns = [*dict.fromkeys([*kept, *predictor.features])]
    classes, files, done = classes_of(store, request.model), {}, 0
    schema: tuple[Column, ...] = ()
    for number, piece in enumerate(pieces_of(store.paths(request.rows), columns)):
        path = f"part-{number:05d}.parquet"
        files[path], schema = _scored(request, store, predictor, classes, piece, kept, bool(keys))
        done += piece.num_rows
        logger.info("%s: %d of %d rows", path, done, manifest.rows)
    published = store.publish(
        "predictions",
        Reference.parse(request.model).name,
        files,
        columns=schema,
        rows=done,
        derived_from={"model": request.model, "rows": request.rows},
        configuration={"version": request.version},
        details={
            **({"entity_keys": keys[:-1], "decision_time": keys[-1]} if keys else {}),
            "task": predictor.task.name,
            "classes": list(classes),
            "as_of": manifest.configuration.get("as_of", ""),
        },
    )
    return ScoreResult(predictions=str(published), rows=done)


def _keyed(details: Mapping[str, Any]) -> bool:
    """Whether the manifest of rows says what identifies a row: keys and a time."""
    return bool(details.get("entity_keys") and details.get("decision_time"))


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
    if _keyed(details) and keys != trained:
        raise ConfigurationError(f"{where}: expected rows with the entity keys {trained}, found {keys}.")
    present = [column.name for column in manifest.columns]
    if lacking := [name for name in predictor.features if name not in present]:
        raise ConfigurationError(
            f"{where}: expected the features of the model, found no {', '.join(lacking)}. It has {', '.join(present)}."
        )
    if not manifest.rows:
        raise ConfigurationError(f"{where}: expected rows to score, found none.")


def pieces_of(paths: Sequence[Path], columns: Sequence[str]) -> "Iterator[pa.Table]":
    """The rows of Parquet files in order, in pieces of `ROWS` rows, whatever the files; the last one may have fewer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rest = None
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS, columns=list(columns)):
                table = pa.Table.from_batches([batch])
                rest = table if rest is None else pa.concat_tables([rest, table])
                while rest.num_rows >= ROWS:
                    yield rest.slice(0, ROWS).combine_chunks()
                    rest = rest.slice(ROWS)
    if rest is not None and rest.num_rows:
        yield rest.combine_chunks()


def _scored(
    request: ScoreRequest,
    store: ArtifactStore,
    predictor: "Predictor",
    classes: tuple[str, ...],
    piece: "pa.Table",
    names: list[str],
    keyed: bool,
) -> tuple[FileEntry, tuple[Column, ...]]:
    """The file of a piece's predictions with its columns: one that the store has, or a new one."""
    import pyarrow as pa

    facts = {"model": request.model, "version": request.version, "names": names, "rows": sha256_bytes(_bytes_of(piece))}
    key = memo_key(PIECE, score.sources().digest, facts)
    if (kept := last(store, PIECE, key)) is not None:
        entry = FileEntry(**kept["file"])
        stat = store.objects.stat(entry.blob)
        if stat is not None and stat.bytes == entry.bytes:
            return entry, tuple(Column(**column) for column in kept["columns"])
    predictions, table = prediction_columns(predictor, piece, classes), piece.select(names)
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
    remember(store, PIECE, key, {"file": asdict(entry), "columns": [asdict(column) for column in columns]})
    return entry, columns


def _bytes_of(table: "pa.Table") -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd")
    return bytes(sink.getvalue())
