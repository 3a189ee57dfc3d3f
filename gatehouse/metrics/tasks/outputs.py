"""What a model must give for a row, by the output of its task."""

from typing import TYPE_CHECKING

from gatehouse.metrics.tasks.task import Output

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Array
    from gatehouse.metrics.tasks.task import Mask

EXPECTED: dict[Output, str] = {
    "probability": "a number from 0 to 1",
    "probabilities": "numbers from 0 to 1 whose sum is 1",
    "prediction": "a finite number",
    "score": "a finite number",
}
_ROUNDING = 1e-6


def are_usable(predicted: "Array", output: Output) -> "Mask":
    """Which of a model's predictions are what `EXPECTED` says, shape (rows,); NaN never is.

    Args:
        predicted: Shape (rows,), or (rows, classes) for `probabilities`.
        output: Of the task.
    """
    if output in ("prediction", "score"):
        finite: Mask = abs(predicted) < float("inf")
        return finite
    shares: Mask = (predicted >= 0) & (predicted <= 1)
    if output == "probability":
        return shares
    whole: Mask = shares.all(axis=1) & (abs(predicted.sum(axis=1) - 1) < _ROUNDING)
    return whole
