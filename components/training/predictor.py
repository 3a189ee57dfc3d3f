"""Scores rows with a published model: reads `model.json` and the weights, and needs nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from safetensors.torch import load_file

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.models import build_model
from gatehouse.components.training.transformation import Transformation

_BATCH = 16_384


class Predictor:
    """A model that is ready to score tables of raw features.

    Example:
        >>> predictor = Predictor.load(store, "models/flights/sha256-…")   # doctest: +SKIP
        >>> predictor.predict(table)                                       # doctest: +SKIP
    """

    def __init__(self, description: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        self.description = description
        self._transformation = Transformation.from_json(description["transformation"])
        self._model = build_model(description["architecture"])
        self._model.load_state_dict(weights)
        self._model.eval()

    @classmethod
    def load(cls, store: ArtifactStore, model: Reference | str) -> "Predictor":
        """Load the model that `model` names, verified.

        Raises:
            MissingArtifactError, CorruptArtifactError: if it is not there or not what its reference says.
        """
        return cls(store.read_json(model, "model.json"), load_file(store.path(model, "weights.safetensors")))

    @torch.no_grad()
    def predict(self, table: pa.Table) -> npt.NDArray[np.float64]:
        """Probability of the positive label for every row, in order, shape (rows,).

        Raises:
            FeatureError: if a feature column is missing or holds an infinity.
        """
        numbers, ids = self._transformation.apply(table)
        with _one_thread():
            parts = [
                self._model(torch.from_numpy(numbers[at : at + _BATCH]), torch.from_numpy(ids[at : at + _BATCH]))
                for at in range(0, table.num_rows, _BATCH)
            ]
        logits = torch.cat(parts) if parts else torch.empty(0)
        return np.asarray(torch.sigmoid(logits.double()).numpy())


@contextmanager
def _one_thread() -> Iterator[None]:
    """The number of threads changes the order of sums, and so the last bits of a score: fix it at one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
