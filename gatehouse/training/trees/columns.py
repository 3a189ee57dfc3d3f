"""The columns that trees split: numbers and categories in one array, in training as in scoring."""

import numpy as np
import numpy.typing as npt

from gatehouse.training.transformation.fitted import FIRST_KNOWN


def columns(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """One array of numbers and categories, shape (rows, all columns); a missing or unknown category is NaN."""
    categories = np.where(ids < FIRST_KNOWN, np.nan, ids - FIRST_KNOWN).astype(np.float32)
    return np.column_stack([numbers, categories]) if ids.shape[1] else np.ascontiguousarray(numbers)


def column_types(width: int, categorical: int) -> list[str]:
    """XGBoost's letter for each column."""
    return ["q"] * width + ["c"] * categorical
