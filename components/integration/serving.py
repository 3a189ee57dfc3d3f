"""A program that serves a candidate from the store alone, and writes what it answers and what that takes.

python -m gatehouse.components.integration.serving STORE MODEL ROWS ANSWERS
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tracking.latency import measure_latency
from gatehouse.components.training.scoring.predictor import Predictor
from gatehouse.errors import GatehouseError

Row = Mapping[str, object]


def main(address: str, model: str, rows: str, answers: str) -> None:
    """Load the model, ask it in every way in which clients ask, and write the answers as JSON."""
    predictor, table = Predictor.load(ArtifactStore.open(address), model), pq.read_table(rows)
    asked: list[Row] = table.select(list(predictor.features)).to_pylist()
    sent: list[Row] = [json.loads(json.dumps(row, default=float)) for row in asked]
    told: dict[str, Any] = {
        "predictions": {
            "as a batch": predictor.predict(table).tolist(),
            "row by row": _one_by_one(predictor, asked),
            "as JSON": _one_by_one(predictor, sent),
        },
        "schema": list(_unclear(predictor, asked[0])),
        "latency": measure_latency(lambda one: predictor.predict_online(one.to_pylist()), table),
        "memory_mb": _peak_mb(),
    }
    Path(answers).write_text(json.dumps(told))


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
        return "" if feature in str(error) else f"{error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"the prediction {scored.tolist()[0]}"


def _peak_mb() -> float:
    """Megabytes that this process held at most; unlike `ru_maxrss`, without those of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1000, 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
