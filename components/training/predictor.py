"""Scores rows with a published model: reads `model.json` and the weights, and needs nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from safetensors.torch import load_file

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.feature_columns import table_of_rows
from gatehouse.components.training.models import build_model
from gatehouse.components.training.row_blocks import fixed_shapes, score_rows
from gatehouse.components.training.transformation import Transformation


class Predictor:
    """A model that is ready to score raw features: tables in batch, rows online.

    Both ways run the same code, and a row has the same score, to the bit, whichever way it comes and whatever rows come
    with it.

    Example:
        >>> predictor = Predictor.load(store, "models/flights/sha256-…")                # doctest: +SKIP
        >>> predictor.predict(table)                                                    # doctest: +SKIP
        >>> predictor.predict_online([{"distance": 1400, "wind": None, "carrier": "UA"}])   # doctest: +SKIP
    """

    def __init__(self, description: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        self.description = description
        self._transformation = Transformation.from_json(description["transformation"])
        model = build_model(description["architecture"])
        model.load_state_dict(weights)
        self._model = fixed_shapes(model.eval())

    @classmethod
    def load(cls, store: ArtifactStore, model: Reference | str) -> "Predictor":
        """Load the model that `model` names, verified.

        Raises:
            MissingArtifactError, CorruptArtifactError: if it is not there or not what its reference says.
        """
        return cls(store.read_json(model, "model.json"), load_file(store.path(model, "weights.safetensors")))

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it reads."""
        return tuple(column.name for column in self._transformation.columns)

    def predict(self, table: pa.Table) -> npt.NDArray[np.float64]:
        """Probability of the positive label for every row, in order, shape (rows,).

        Raises:
            FeatureError: if a feature column is missing, is not of the kind it was in training, or holds an infinity.
        """
        numbers, ids = (torch.from_numpy(array) for array in self._transformation.apply(table))
        return np.asarray(score_rows(self._score, numbers, ids).numpy())

    def predict_online(self, rows: Sequence[Mapping[str, object]]) -> npt.NDArray[np.float64]:
        """Probability of the positive label for rows of features by name, as `predict`; None is a missing value.

        What an online store gives as an Arrow table goes into `predict` as it is.

        Raises:
            FeatureError: as `predict`; or if a row lacks a feature.
        """
        return self.predict(table_of_rows(rows, self.features))

    def _score(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self._model(numbers, ids).double())
