"""What a model says of rows, as the columns that people read: the same for a table and for a request."""

from collections.abc import Sequence

import pyarrow as pa

from gatehouse.store.store import ArtifactStore
from gatehouse.training.scoring.predictor import Predictor
from gatehouse.training.scoring.usable import require_usable


def answers(predictor: Predictor, rows: pa.Table, classes: Sequence[str]) -> pa.Table:
    """A column or two for each task: its class and probability, or a number.

    `probability` and `positive` of two classes; `class` and `probabilities`, those of all classes in their order, of
    several; `prediction` of regression; `score` of ranking.

    Args:
        predictor: The model.
        rows: Its features, of any more columns.
        classes: Names of classes in the order of their numbers; empty where they have none.

    Raises:
        FeatureError: if a feature is missing, or not as it was in training.
        PredictionError: if the model gave NaN, or a number that is no probability.
    """
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
    learned = store.manifest(model).derived_from.get("training_set", "")
    return tuple(store.manifest(learned).details.get("classes", ())) if learned else ()
