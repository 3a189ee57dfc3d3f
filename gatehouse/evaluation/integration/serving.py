"""A program that serves a candidate from the store alone, and writes its answers with their latency and memory.

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
from gatehouse.evaluation.spec import described
from gatehouse.metrics.performance import measure_latency, peak_memory_mb
from gatehouse.runtime.process import die_with_parent
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor

Row = Mapping[str, object]


def main(address: str, model: str, rows: str, answers: str) -> None:
    """Load the model, ask it in every way in which clients ask, and write the answers, or the error, as JSON."""
    die_with_parent()
    try:
        body = _answers(Predictor.load(ArtifactStore.open(address), model), pq.read_table(rows))
    except GatehouseError as error:
        body = {"error": described(error)}
    Path(answers).write_text(json.dumps(body))


def _answers(predictor: Predictor, table: pa.Table) -> dict[str, Any]:
    rows: list[Row] = table.select(list(predictor.features)).to_pylist()
    sent: list[Row] = [json.loads(json.dumps(row, default=float)) for row in rows]

    def one_by_one(rows: list[Row]) -> Any:
        return np.concatenate([predictor.predict_online([row]) for row in rows]).tolist()

    return {
        "predictions": {
            "as a batch": predictor.predict(table).tolist(),
            "row by row": one_by_one(rows),
            "as JSON": one_by_one(sent),
        },
        "schema": list(_unclear(predictor, rows[0])),
        "latency": measure_latency(lambda row: predictor.predict_online(row.to_pylist()), table),
        "memory_mb": peak_memory_mb(),
    }


def _unclear(predictor: Predictor, row: Row) -> Iterator[str]:
    """Invalid requests that the model accepts, or refuses without naming the feature."""
    numeric = {column.name for column in predictor.transformation.numeric}
    for feature in predictor.features:
        requests = {
            "missing": {name: value for name, value in row.items() if name != feature},
            "a list": {**row, feature: [1, 2]},
        }
        if feature in numeric:
            requests |= {"a text": {**row, feature: "much"}, "infinite": {**row, feature: math.inf}}
        for fault, request in requests.items():
            try:
                problem = f"the prediction {predictor.predict_online([request]).tolist()[0]}"
            except GatehouseError as error:
                if (named := getattr(error, "feature", "")) == feature:
                    continue
                problem = f"one that names {named or 'no feature'}: {error}"
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            yield f"{feature} {fault}: expected an error that names the feature, found {problem}"


if __name__ == "__main__":
    main(*sys.argv[1:])
