"""The rows of one part of a job: arrays that all processes of a machine map into their memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

ARRAYS = ("numbers", "ids", "labels")
OPTIONAL_ARRAYS = ("weights", "groups")


@dataclass(frozen=True)
class Rows:
    """One part of the data.

    Attributes:
        numbers: float32, shape (rows, width).
        ids: Category ids, int64, shape (rows, columns).
        labels: float32, shape (rows,).
        weights: float32, shape (rows,); None where every row weighs one.
        groups: int64, shape (rows,), rising; None where rows stand alone.
    """

    numbers: Tensor
    ids: Tensor
    labels: Tensor
    weights: Tensor | None = None
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def load(cls, folder: Path) -> "Rows":
        """Map the arrays of one part into memory: the processes of one machine share the pages."""
        names = [*ARRAYS, *(name for name in OPTIONAL_ARRAYS if (folder / f"{name}.npy").exists())]
        # Copy on write, as torch takes no read-only arrays.
        return cls(**{name: torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c")) for name in names})
