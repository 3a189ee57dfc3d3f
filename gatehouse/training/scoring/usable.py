"""Holds what a model gave against what its task allows, before anybody reads it: NaN is no answer."""

import numpy as np
import numpy.typing as npt

from gatehouse.errors import PredictionError
from gatehouse.metrics.tasks.outputs import EXPECTED, are_usable
from gatehouse.metrics.tasks.task import Task
from gatehouse.runtime.counting import counted


def require_usable(predicted: npt.NDArray[np.float64], task: Task) -> None:
    """Check that every row has a prediction that the task allows.

    Args:
        predicted: Shape (rows,), or (rows, classes).
        task: The model's.

    Raises:
        PredictionError: with the number of wrong predictions, and the first of them. The numbers are those of one call:
            a large table is scored in pieces.
    """
    wrong = np.flatnonzero(~are_usable(predicted, task.output))
    if len(wrong):
        raise PredictionError(
            f"The model gave wrong predictions for {len(wrong):,} of {counted(len(predicted), 'row')} that it scored "
            f"together, such as {predicted[wrong[0]]}; expected {EXPECTED[task.output]} for every row. Use another "
            "version of the model, or train it again with a lower learning rate."
        )
