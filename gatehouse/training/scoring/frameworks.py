"""How the weights of each framework are read and score rows. How they are trained stands in `loop` and `trees`.

What imports this to score does not import how models are trained: a change of the optimizer leaves evaluations valid.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gatehouse.metrics.tasks.found import task_of_loss

Score = Callable[[npt.NDArray[np.float32], npt.NDArray[np.int64]], npt.NDArray[np.float64]]
"""Predictions for numbers (rows, width) and category ids (rows, columns): (rows,), or (rows, classes) for classes."""


class Framework(Protocol):
    """One kind of weights."""

    def read(self, path: Path) -> Any:
        """What the weights file holds."""

    def scorer(self, architecture: dict[str, Any], weights: Any) -> Score:
        """A function that scores rows: a row's score depends on that row alone, to the bit.

        Args:
            architecture: Of `model.json`.
            weights: As `read` gives them.

        Returns:
            A function of numbers, shape (rows, width), and category ids, shape (rows, columns), to predictions, shape
            (rows,), or (rows, classes) for several classes.
        """


class Torch:
    """Neural networks, also those of builders of one's own."""

    def read(self, path: Path) -> Any:
        """Tensors by name."""
        from safetensors.torch import load_file

        return load_file(path)

    def scorer(self, architecture: dict[str, Any], weights: Any) -> Score:
        """The module, computed in blocks of fixed shape."""
        from gatehouse.training.scoring.networks import scorer

        return scorer(architecture, weights)


class XGBoost:
    """Gradient-boosted trees."""

    def read(self, path: Path) -> Any:
        """A booster."""
        from gatehouse.training.scoring.trees import read_booster

        return read_booster(path.read_bytes())

    def scorer(self, architecture: dict[str, Any], weights: Any) -> Score:
        """All trees, one row after another."""
        from gatehouse.training.scoring.trees import scorer

        return scorer(weights, task_of_loss(architecture["loss"]).output)


FRAMEWORKS: dict[str, Framework] = {"xgboost": XGBoost()}
_NETWORKS: Framework = Torch()


def framework_of(architecture: str) -> Framework:
    """The framework of an architecture by its name: PyTorch where no other has it."""
    return FRAMEWORKS.get(architecture, _NETWORKS)
