"""Scores rows with a published model: reads `model.json`, the weights and its calibration, and needs nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gatehouse.metrics.metric import Predictions
from gatehouse.metrics.tasks.found import task_of_loss
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training.models.weights_file import weights_file
from gatehouse.training.scoring.calibration import FILE, Calibration
from gatehouse.training.scoring.frameworks import framework_of
from gatehouse.training.transformation.columns import table_of_rows
from gatehouse.training.transformation.fitted import Transformation


class Predictor:
    """A model that is ready to score raw features: tables in batch, rows online.

    Both ways run the same code, and a row has the same score, to the bit, whichever way it comes and whatever rows come
    with it.

    Example:
        >>> predictor = Predictor.load(store, "models/flights/sha256-…")                # doctest: +SKIP
        >>> predictor.predict(table)                                                    # doctest: +SKIP
        >>> predictor.predict_online([{"distance": 1400, "wind": None, "carrier": "UA"}])   # doctest: +SKIP
    """

    def __init__(self, description: dict[str, Any], weights: Any, calibration: Calibration | None = None) -> None:
        """Make it from `model.json`, what the framework reads from its weights, and the calibration where there is."""
        self.description = description
        self.calibration = calibration
        self.transformation = Transformation.from_json(description["transformation"])
        architecture = description["architecture"]
        self.task = task_of_loss(architecture["loss"])
        self._score = framework_of(architecture["model"]["architecture"]).scorer(architecture, weights)

    @classmethod
    def load(cls, store: ArtifactStore, model: Reference | str) -> "Predictor":
        """Load the model that `model` names, verified.

        Raises:
            MissingArtifactError, CorruptArtifactError: if it is not there or not what its reference says.
        """
        description = store.read_json(model, "model.json")
        architecture = description["architecture"]["model"]["architecture"]
        path = store.path(model, weights_file(architecture))
        weights = framework_of(architecture).read(path)
        if store.manifest(model).entry(FILE) is None:
            return cls(description, weights)
        return cls(description, weights, Calibration.from_json(store.read_json(model, FILE)))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it reads."""
        return tuple(column.name for column in self.transformation.columns)

    def predict(self, table: pa.Table) -> npt.NDArray[np.float64]:
        """Probability of the positive label for every row, in order, shape (rows,).

        Of several classes, the probability of each, shape (rows, classes); of other losses, the prediction itself.

        Raises:
            FeatureError: if a feature column is missing, is not of the kind it was in training, or holds an infinity.
        """
        predicted = self._score(*self.transformation.apply(table))
        return predicted if self.calibration is None else self.calibration.apply(predicted)

    def read(self, predicted: npt.NDArray[np.float64], groups: npt.NDArray[np.int64] | None = None) -> Predictions:
        """What `predict` gave in the forms that metrics read: of two classes, positive from the model's threshold on.

        Args:
            predicted: Shape (rows,), or (rows, classes).
            groups: For a ranking the number of each row's group, shape (rows,).
        """
        read = self.task.read(predicted, groups)
        return read if self.calibration is None else read.decided(self.calibration.threshold)

    def predict_online(self, rows: Sequence[Mapping[str, object]]) -> npt.NDArray[np.float64]:
        """As `predict`, shape (rows,) or (rows, classes), for rows of features by name; None is a missing value.

        What an online store gives as an Arrow table goes into `predict` as it is.

        Raises:
            FeatureError: as `predict`; or if a row lacks a feature.
        """
        return self.predict(table_of_rows(rows, self.features))
