"""Scores of the test rows by the models of an evaluation: a piece is a range of rows that one model scores."""

import io
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.splitting.parts import FileRows, Part, files_with
from gatehouse.data.statistics.linear_model import LinearModel
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.evaluation.result import ScoringError
from gatehouse.metrics.metric import Array
from gatehouse.metrics.tasks import TaskName
from gatehouse.pieces.piece import KIND, ROWS, piece, run_pieces
from gatehouse.store.identity import operational
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor

_FILE = "scores.npy"


class ScorerRequest(StageModel):
    """What scores rows: a model of a task, or the model in the file `linear` of a baseline; `role` is for errors."""

    model: str
    task: TaskName
    linear: str = ""
    role: str = operational("")


class RangeRequest(ScorerRequest):
    """The same, and the rows: the file of the artifact `rows` holds their numbers in the training set."""

    training_set: str
    rows: str
    file: str


class RangeResult(StageModel):
    """The artifact with the score of each row, in the order of their numbers."""

    scores: str


def part_scores(
    store: ArtifactStore, training_set: str, part: Part, scorers: Mapping[str, ScorerRequest]
) -> dict[str, Array]:
    """What models give for each row of a part, shape (rows,) or (rows, outputs), by the names of `scorers`.

    Few rows are scored in this process. Raises ScoringError if a model cannot score the rows.
    """
    starts = range(0, len(part.rows), ROWS)
    if len(starts) <= 1:
        return {name: _scores(store, scorer, part) for name, scorer in scorers.items()}
    files = {f"{start // ROWS:05d}.parquet": _packed(part.rows[start : start + ROWS]) for start in starts}
    rows = str(store.publish(KIND, "rows", files, derived_from={"training_set": training_set}))
    where = [{"training_set": training_set, "rows": rows, "file": file} for file in files]
    requests = [RangeRequest(**scorer.model_dump(), **place) for scorer in scorers.values() for place in where]
    results = iter(run_pieces(store, [(score_rows, request) for request in requests]))
    return {
        name: np.concatenate([np.load(store.path(next(results).scores, _FILE), mmap_mode="r") for _ in where])
        for name in scorers
    }


@piece
def score_rows(request: RangeRequest, store: ArtifactStore) -> RangeResult:
    """Score a range of rows. Raises as `part_scores`."""
    rows = pq.read_table(store.path(request.rows, request.file))["row"].to_numpy()
    paths, before = files_with(store, request.training_set, int(rows.min()), int(rows.max()))
    part, sink = Part(rows, FileRows(paths, rows - before), np.empty(0)), io.BytesIO()
    np.save(sink, _scores(store, request, part), allow_pickle=False)
    inputs = {"rows": request.rows, "model": request.model}
    published = store.publish(KIND, "scores", {_FILE: sink.getvalue()}, derived_from=inputs)
    return RangeResult(scores=str(published))


def _scores(store: ArtifactStore, request: ScorerRequest, part: Part) -> Array:
    try:
        if request.linear:
            linear = LinearModel.from_json(store.read_json(request.model, request.linear))
            columns = [number.name for number in linear.design.numeric]
            columns += [group.name for group in linear.design.categorical]
            return part.scored(linear.predict, columns)
        model = Predictor.load(store, request.model)
        if model.task.name != request.task:
            raise ConfigurationError(f"Its task is {model.task.name}, expected {request.task}.")
        return part.scored(model.predict, model.features)
    except GatehouseError as error:
        floor = request.role == "floor"
        advice = " Archive its version with `gatehouse models archive`, and evaluate again." if floor else ""
        raise ScoringError(f"The {request.role} {request.model} cannot score the test rows. {error}{advice}") from error


def _packed(rows: Array) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"row": rows}), sink, compression="zstd")
    return bytes(sink.getvalue())
