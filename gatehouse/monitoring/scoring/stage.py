"""The score stage: a registered model scores a table of rows, piece after piece."""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.manifest import Column, FileEntry, Manifest
from gatehouse.store.memo import last, memo_key, remember
from gatehouse.store.reference import Reference
from gatehouse.store.stage import CONTENTS, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa

    from gatehouse.training.scoring.predictor import Predictor

logger = logging.getLogger(__name__)
PIECE = "score-piece"
"""Under this name stands in the memo what was scored of a piece of rows."""


class ScoreRequest(StageModel):
    """A model, and the rows that it scores.

    Attributes:
        model: Reference of the model.
        rows: Reference of the rows: decisions, or a training set.
        version: Number under which the model is registered; 0 where it is not.
    """

    model: str
    rows: str
    version: int = 0


class ScoreResult(StageModel):
    """The predictions, and how many they are."""

    predictions: str
    rows: int


@stage("score", title="Score", resources=Resources(cpu="2", memory="4G"), pages={"predictions": CONTENTS})
def score(request: ScoreRequest, store: ArtifactStore) -> ScoreResult:
    """Score rows with a model: Parquet files of keys, decision time, predictions, model and version.

    Each piece is kept as soon as it is scored, under the digest of its rows: a run that was killed goes on after the
    last one, and a table that holds rows of an earlier one takes the pieces that they have in common.

    Raises:
        ConfigurationError: if the table has no rows, lacks a feature or does not say its keys, is of another task or
            has other keys than what the model learned from, or its features were computed differently.
        FeatureError: if a feature is not as it was in training.
    """
    from gatehouse.monitoring.scoring.answers import classes_of
    from gatehouse.monitoring.scoring.pieces import pieces_of
    from gatehouse.training.scoring.predictor import Predictor

    manifest, predictor = store.manifest(request.rows), Predictor.load(store, request.model)
    training_set = store.manifest(store.manifest(request.model).derived_from["training_set"])
    _require_fit(manifest, predictor, training_set.details)
    _require_same_features(store, training_set, manifest)
    names = [*manifest.details["entity_keys"], manifest.details["decision_time"]]
    columns = [*dict.fromkeys([*names, *predictor.features])]
    classes, files, done = classes_of(store, request.model), {}, 0
    schema: tuple[Column, ...] = ()
    for number, piece in enumerate(pieces_of(store.paths(request.rows), columns, names)):
        path = f"part-{number:05d}.parquet"
        files[path], schema = _scored(request, store, predictor, classes, piece, names)
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
            "entity_keys": names[:-1],
            "decision_time": names[-1],
            "task": predictor.task.name,
            "classes": list(classes),
            "as_of": manifest.configuration.get("as_of", ""),
        },
    )
    return ScoreResult(predictions=str(published), rows=done)


def _require_fit(manifest: Manifest, predictor: "Predictor", learned: Mapping[str, Any]) -> None:
    details, where = manifest.details, str(manifest.reference)
    if "entity_keys" not in details or "decision_time" not in details:
        raise ConfigurationError(
            f"{where}: expected decisions or a training set, whose manifest names keys and decision time."
        )
    if (task := details.get("task", predictor.task.name)) != predictor.task.name:
        raise ConfigurationError(
            f"{where}: expected rows of the task {predictor.task.name}, which the model has, found {task}."
        )
    if details["entity_keys"] != learned["entity_keys"]:
        told, found = (", ".join(each["entity_keys"]) for each in (learned, details))
        raise ConfigurationError(
            f"{where}: expected rows with the entity keys {told}, as in the training set of the model, found rows with "
            f"{found}. Score decisions with the same keys."
        )
    held = {column.name for column in manifest.columns}
    if lacking := [name for name in predictor.features if name not in held]:
        raise ConfigurationError(
            f"{where}: expected the {len(predictor.features)} features of the model, found no {', '.join(lacking)}. "
            "Retrieve them with the feature service that the model was trained on."
        )
    if not manifest.rows:
        raise ConfigurationError(f"{where}: expected rows to score, found none.")


def _require_same_features(store: ArtifactStore, training_set: Manifest, rows: Manifest) -> None:
    """Where both say of which definitions they are, hold these against each other."""
    from gatehouse.features.definitions.same_features import require_same_features

    learned, given = (each.derived_from.get("definitions", "") for each in (training_set, rows))
    if learned and given:
        require_same_features(store, str(training_set.configuration["service"]), learned, given)


def _scored(
    request: ScoreRequest,
    store: ArtifactStore,
    predictor: "Predictor",
    classes: tuple[str, ...],
    piece: "pa.Table",
    names: list[str],
) -> tuple[FileEntry, tuple[Column, ...]]:
    """The stored file of a piece's predictions with its columns: the one that is there, or a new one."""
    import pyarrow as pa

    from gatehouse.monitoring.scoring.answers import answers

    asked = {"model": request.model, "version": request.version, "names": names, "rows": sha256_bytes(_bytes_of(piece))}
    key = memo_key(PIECE, score.code_here(), asked)
    known = last(store, PIECE, key)
    if known is not None:
        entry = FileEntry(**known["file"])
        held = store.objects.stat(entry.blob)
        if held is not None and held.bytes == entry.bytes:
            return entry, tuple(Column(**column) for column in known["columns"])
    found = answers(predictor, piece, classes)
    table = piece.select(names)
    for name in found.column_names:
        table = table.append_column(name, found[name])
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
