"""The predictions of a model as columns that people read: the same for a table and for a request."""

from collections.abc import Sequence

import pyarrow as pa

from gatehouse.store.store import ArtifactStore
from gatehouse.training.scoring.predictor import Predictor, require_usable


def answers(predictor: Predictor, rows: pa.Table, classes: Sequence[str]) -> pa.Table:
    """The columns `probability` and `positive` for two classes; `class` and `probabilities` for several.

    `probabilities` has all classes in their order. Regression has `prediction`, and ranking has `score`.

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
    training_set = store.manifest(model).derived_from.get("training_set", "")
    return tuple(store.manifest(training_set).details.get("classes", ())) if training_set else ()
