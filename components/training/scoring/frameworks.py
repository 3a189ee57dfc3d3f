"""The seam between training and its frameworks: how one trains in a worker, and how its weights score rows.

Everything around it is the same for all: the job's arrays, launchers, checkpoints, metrics, tuning, gate, serving. A
framework is one class here and one row in `FRAMEWORKS`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gatehouse.components.launchers.worker.heartbeat import Heartbeat
from gatehouse.components.training.spec import TrainSpec

Score = Callable[[npt.NDArray[np.float32], npt.NDArray[np.int64]], npt.NDArray[np.float64]]
"""Predictions for numbers (rows, width) and category ids (rows, columns): (rows,), or (rows, classes) for classes."""


class Framework(Protocol):
    """One way to train.

    Attributes:
        weights: Name of the file in a model's artifact; of a format that holds data and no code.
    """

    weights: str

    def train(
        self, spec: TrainSpec, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None
    ) -> dict[str, Any] | None:
        """Train on the current process group, from the last checkpoint, and write the weights file of the job.

        Returns:
            `history` (one row an epoch: `epoch`, `train_<loss>` and the validation metrics), `best_epoch`, and
            `weights_sha256` on rank 0; None where the run was preempted, and its checkpoint is written.
        """

    def read(self, path: Path) -> Any:
        """What the weights file holds."""

    def scorer(self, architecture: dict[str, Any], weights: Any) -> Score:
        """A function that scores rows: a row's score depends on that row alone, to the bit."""


class Torch:
    """Neural networks, also those of builders of one's own."""

    weights = "weights.safetensors"

    def train(
        self, spec: TrainSpec, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None
    ) -> dict[str, Any] | None:
        """See `trainer`."""
        from gatehouse.components.training.loop.trainer import train

        return train(spec, architecture, directory, heartbeat)

    def read(self, path: Path) -> Any:
        """Tensors by name."""
        from safetensors.torch import load_file

        return load_file(path)

    def scorer(self, architecture: dict[str, Any], weights: Any) -> Score:
        """The module, computed in blocks of fixed shape."""
        import torch

        from gatehouse.components.training.loss.losses import predictions
        from gatehouse.components.training.models.building import build_model
        from gatehouse.components.training.scoring.row_blocks import fixed_shapes, score_rows

        model = build_model(architecture)
        model.load_state_dict(weights)
        fixed = fixed_shapes(model.eval())
        loss = TrainSpec.model_validate(architecture["spec"]).loss

        def predicted(numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return predictions(loss, fixed(numbers, ids).double())

        return lambda numbers, ids: np.asarray(
            score_rows(predicted, torch.from_numpy(numbers), torch.from_numpy(ids)).numpy()
        )


class XGBoost:
    """Gradient-boosted trees."""

    weights = "weights.ubj"

    def train(
        self, spec: TrainSpec, architecture: dict[str, Any], directory: Path, heartbeat: Heartbeat | None
    ) -> dict[str, Any] | None:
        """See `boosting`."""
        from gatehouse.components.training.trees.trainer import train

        return train(spec, architecture, directory, heartbeat)

    def read(self, path: Path) -> Any:
        """A booster."""
        from gatehouse.components.training.trees.booster import read_booster

        return read_booster(path.read_bytes())

    def scorer(self, architecture: dict[str, Any], weights: Any) -> Score:
        """All trees, one row after another."""
        from gatehouse.components.training.trees.booster import scorer

        return scorer(weights, TrainSpec.model_validate(architecture["spec"]).loss)


FRAMEWORKS: dict[str, Framework] = {"xgboost": XGBoost()}
_NETWORKS: Framework = Torch()


def framework_of(spec: TrainSpec) -> Framework:
    """The framework that trains a spec's architecture: PyTorch where no other has it."""
    return FRAMEWORKS.get(spec.architecture, _NETWORKS)
