"""Scores rows with a published model: reads `model.json`, the weights and its calibration, and needs nothing else.

It does not import how models are trained, so a change of the optimizer leaves evaluations valid.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gatehouse.errors import ConfigurationError, PredictionError
from gatehouse.metrics.metric import Predictions
from gatehouse.metrics.tasks import EXPECTED, Task, are_usable, task_of_loss
from gatehouse.runtime.plural import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training.calibration import FILE, Calibration
from gatehouse.training.model_spec import weights_file
from gatehouse.training.transformation import FIRST_KNOWN, Transformation, table_of_rows

Score = Callable[[npt.NDArray[np.float32], npt.NDArray[np.int64]], npt.NDArray[np.float64]]
"""Predictions for numbers (rows, width) and category ids (rows, columns): (rows,), or (rows, classes) for classes.

A row's prediction depends on that row alone, to the bit.
"""


def read_weights(architecture: str, path: Path) -> Any:
    """The weights of a file, as the framework of an architecture reads them; PyTorch reads all but `xgboost`."""
    if architecture == "xgboost":
        import xgboost

        return xgboost.Booster({"nthread": 1}, model_file=bytearray(path.read_bytes()))
    from safetensors.torch import load_file

    return load_file(path)


def scorer(architecture: dict[str, Any], weights: Any) -> Score:
    """The function that scores rows with the weights of `read_weights`, for an architecture of `model.json`."""
    if architecture["model"]["architecture"] != "xgboost":
        from gatehouse.training.network_scoring import network_scorer

        return network_scorer(architecture, weights)
    output = task_of_loss(architecture["loss"]).output

    def score(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        rows = tree_columns(numbers, ids)
        if len(rows) == 0:
            # XGBoost refuses an empty array; a row of missing values shows the shape of the predictions.
            return score(np.full((1, numbers.shape[1]), np.nan, np.float32), np.zeros((1, ids.shape[1]), np.int64))[:0]
        margins = np.asarray(weights.inplace_predict(rows, predict_type="margin"), dtype=np.float64)
        if output == "probability":
            return np.asarray(1.0 / (1.0 + np.exp(-np.clip(margins, -700, 700))))
        if output == "probabilities":
            powers = np.exp(margins - margins.max(axis=1, keepdims=True))
            return np.asarray(powers / powers.sum(axis=1, keepdims=True))
        return margins

    return score


def tree_columns(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Numbers and categories in one array, shape (rows, all columns); a missing or unknown category is NaN."""
    categories = np.where(ids < FIRST_KNOWN, np.nan, ids - FIRST_KNOWN).astype(np.float32)
    return np.column_stack([numbers, categories]) if ids.shape[1] else np.ascontiguousarray(numbers)


class Predictor:
    """A model that is ready to score raw features: tables in batch, rows online.

    Both ways run the same code: a row has the same score, to the bit, either way and among any other rows.
    """

    def __init__(self, description: dict[str, Any], weights: Any, calibration: Calibration | None = None) -> None:
        """Make it from `model.json`, the weights as `read_weights` returns them, and the calibration if any."""
        self.description = description
        self.calibration = calibration
        self.transformation = Transformation.from_json(description["transformation"])
        self.task = task_of_loss(description["architecture"]["loss"])
        self._score = scorer(description["architecture"], weights)

    @classmethod
    def load(cls, store: ArtifactStore, model: Reference | str) -> "Predictor":
        """Load the model of a reference, verified. Raises ConfigurationError if Gatehouse did not train it."""
        if store.manifest(model).entry("model.json") is None:
            raise ConfigurationError(
                f"{model}: expected a model that Gatehouse trained, found files of another program, which it never "
                "loads. Score the rows in a component of your own, and give their scores to evaluate."
            )
        description = store.read_json(model, "model.json")
        architecture = description["architecture"]["model"]["architecture"]
        weights = read_weights(architecture, store.path(model, weights_file(architecture)))
        if store.manifest(model).entry(FILE) is None:
            return cls(description, weights)
        return cls(description, weights, Calibration.from_json(store.read_json(model, FILE)))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it reads."""
        return tuple(column.name for column in self.transformation.columns)

    def predict(self, table: pa.Table) -> npt.NDArray[np.float64]:
        """Probability of the positive label for every row, in order, shape (rows,).

        For several classes, their probabilities, shape (rows, classes); for other losses, the prediction itself. Raises
        `FeatureError` if a feature column is missing, is not of the kind it was in training, or holds an infinity.
        """
        predicted = self._score(*self.transformation.apply(table))
        return predicted if self.calibration is None else self.calibration.apply(predicted)

    def read(self, predicted: npt.NDArray[np.float64], groups: npt.NDArray[np.int64] | None = None) -> Predictions:
        """Predictions in the forms that metrics read; of two classes, positive from the model's threshold on."""
        read = self.task.read(predicted, groups)
        return read if self.calibration is None else read.decided(self.calibration.threshold)

    def predict_online(self, rows: Sequence[Mapping[str, object]]) -> npt.NDArray[np.float64]:
        """As `predict`, for rows of features by name; None is a missing value, and a missing name an error."""
        return self.predict(table_of_rows(rows, self.features))


def require_usable(predicted: npt.NDArray[np.float64], task: Task) -> None:
    """Check that every row has a prediction that the task allows; NaN is none. Raises `PredictionError`."""
    wrong = np.flatnonzero(~are_usable(predicted, task.output))
    if len(wrong):
        raise PredictionError(
            f"The model gave wrong predictions for {len(wrong):,} of {counted(len(predicted), 'row')} that it scored "
            f"together, such as {predicted[wrong[0]]}; expected {EXPECTED[task.output]}. Use another model."
        )
