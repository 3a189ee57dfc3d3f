"""A program that serves a candidate from the store alone, and writes what it answers and what that takes.

python -m gatehouse.evaluation.integration.serving STORE MODEL ROWS ANSWERS
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.errors import GatehouseError
from gatehouse.evaluation.integration.child import described
from gatehouse.runtime.process import die_with_parent
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.performance import measure_latency, peak_memory_mb
from gatehouse.training.scoring.predictor import Predictor

Row = Mapping[str, object]


def main(address: str, model: str, rows: str, answers: str) -> None:
    """Load the model, ask it in every way in which clients ask, and write the answers, or the error, as JSON."""
    die_with_parent()
    try:
        told = _asked(Predictor.load(ArtifactStore.open(address), model), pq.read_table(rows))
    except GatehouseError as error:
        told = {"error": described(error)}
    Path(answers).write_text(json.dumps(told))


def _asked(predictor: Predictor, table: pa.Table) -> dict[str, Any]:
    asked: list[Row] = table.select(list(predictor.features)).to_pylist()
    sent: list[Row] = [json.loads(json.dumps(row, default=float)) for row in asked]
    return {
        "predictions": {
            "as a batch": predictor.predict(table).tolist(),
            "row by row": _one_by_one(predictor, asked),
            "as JSON": _one_by_one(predictor, sent),
        },
        "schema": list(_unclear(predictor, asked[0])),
        "latency": measure_latency(lambda one: predictor.predict_online(one.to_pylist()), table),
        "memory_mb": peak_memory_mb(),
    }


def _one_by_one(predictor: Predictor, rows: list[Row]) -> Any:
    return np.concatenate([predictor.predict_online([row]) for row in rows]).tolist()


def _unclear(predictor: Predictor, row: Row) -> Iterator[str]:
    """Requests that are no request of this model and that it takes, or refuses without naming the feature."""
    for feature in predictor.features:
        wrong = {
            "missing": {name: value for name, value in row.items() if name != feature},
            "a list": {**row, feature: [1, 2]},
        }
        if feature in {column.name for column in predictor.transformation.numeric}:
            wrong |= {"a text": {**row, feature: "much"}, "infinite": {**row, feature: math.inf}}
        for what, asked in wrong.items():
            if problem := _not_refused(predictor, asked, feature):
                yield f"{feature} {what}: expected an error that names the feature, found {problem}"


def _not_refused(predictor: Predictor, row: Row, feature: str) -> str:
    try:
        scored = predictor.predict_online([row])
    except GatehouseError as error:
        named = getattr(error, "feature", "")
        return "" if named == feature else f"one that names {named or 'no feature'}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"the prediction {scored.tolist()[0]}"


if __name__ == "__main__":
    main(*sys.argv[1:])
