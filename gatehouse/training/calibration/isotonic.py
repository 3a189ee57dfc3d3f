"""Isotonic regression: the rising steps that are nearest to what came true."""

import numpy as np
import numpy.typing as npt

from gatehouse.training.calibration.errors import CalibrationError
from gatehouse.training.scoring.calibration import Isotonic

Floats = npt.NDArray[np.float64]


def fit_isotonic(probabilities: Floats, labels: Floats) -> Isotonic:
    """The rising function with the least squared error, by pooling adjacent violators (Ayer et al. 1955).

    Rows of one probability are one point. Sums of labels are whole numbers, so shares are compared exactly. Each share
    is kept between 1 / (rows + 2) and 1 less that: no number of rows shows that something never happens, and one such
    row would make the log loss infinite.

    Args:
        probabilities: Of the positive label, shape (rows,).
        labels: 0 or 1, shape (rows,); both occur.

    Returns:
        Breakpoints: between them the function is a straight line, beyond them constant.

    Raises:
        CalibrationError: if what came true does not rise with the probability anywhere.
    """
    scores, inverse, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    positives = np.bincount(inverse[labels > 0.5], minlength=len(scores))
    # Of each block: positive rows, all rows, and the first of its scores.
    blocks: list[tuple[int, int, int]] = []
    for first, (hits, rows) in enumerate(zip(positives.tolist(), counts.tolist(), strict=True)):
        start = first
        while blocks and blocks[-1][0] * rows >= hits * blocks[-1][1]:
            before_hits, before_rows, start = blocks.pop()
            hits, rows = hits + before_hits, rows + before_rows
        blocks.append((hits, rows, start))
    if len(blocks) == 1:
        raise CalibrationError(
            "isotonic: expected more positive labels at higher probabilities, found that they do not rise: on these "
            "rows the model is no better than chance. Train a better model, or remove `calibration`."
        )
    ends = [*(start - 1 for _, _, start in blocks[1:]), len(scores) - 1]
    least = 1.0 / (len(labels) + 2.0)
    points: list[tuple[float, float]] = []
    for (hits, rows, start), end in zip(blocks, ends, strict=True):
        value = min(max(hits / rows, least), 1.0 - least)
        points += [(float(scores[index]), value) for index in dict.fromkeys((start, end))]
    return Isotonic(tuple(score for score, _ in points), tuple(value for _, value in points))
