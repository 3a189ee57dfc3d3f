"""What a candidate's own predictions are worth for other rows: who knows nothing of the rows loses nothing by it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gatehouse.evaluation.bootstrap import Units
from gatehouse.metrics.catalogue.metric import Array, Metric, Predictions

_FEWEST, _MOST, _ROWS = 5, 50, 2_000_000


def on_shuffled(
    metric: Metric, labels: Array, predictions: Predictions, units: Units, samples: int, seed: int
) -> tuple[float, Array]:
    """A metric of predictions that were dealt to other rows at random, of a ranking to other rows of the group.

    Returns:
        Its mean over the shuffles on all rows; and its value on each draw, shape (samples,), each of one of the
        shuffles. There are 50 of these, or fewer where their rows would be more than two million; five at least.

    Args:
        metric: What is measured.
        labels: Shape (rows,).
        predictions: For the rows.
        units: What is drawn.
        samples: Number of draws.
        seed: Of the draws, as of those that the candidate is measured on.
    """
    number = min(_MOST, max(_FEWEST, _ROWS // max(len(labels), 1)))
    measured = [metric.on_draws(labels, each) for each in shuffles(predictions, len(labels), number, seed)]
    all_rows = np.ones(len(labels))
    drawn = [measured[index % number](times) for index, times in enumerate(units.draws(samples, seed))]
    return float(np.mean([each(all_rows) for each in measured])), np.array(drawn)


def shuffles(predictions: Predictions, rows: int, number: int, seed: int) -> Iterator[Predictions]:
    """Predictions dealt to other rows, of a ranking to other rows of their group, as often as `number` says."""
    groups = np.zeros(rows, np.int64) if predictions.groups is None else predictions.groups
    places = np.argsort(groups, kind="stable")
    generator = np.random.default_rng([seed, number])  # Other numbers than those of the draws.
    for _ in range(number):
        taken = np.empty(rows, np.int64)
        taken[places] = np.lexsort((generator.random(rows), groups))
        yield replace(predictions.take(taken), groups=predictions.groups)
