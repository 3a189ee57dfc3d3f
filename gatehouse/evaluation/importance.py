"""Permutation importance: how much worse a model's objective is where a feature's values are dealt to other rows."""

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from gatehouse.data.splitting.parts import Part
from gatehouse.evaluation.bootstrap import LEVEL, Units, on_draws, percentiles
from gatehouse.evaluation.result import Importance
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.metric import all_on_draws
from gatehouse.training.predictor import Predictor

_ROWS, _MOST_SCORED = 2000, 400_000
_SHUFFLES, _DRAWS, _SEED, _DIGITS = 2, 200, 7, 9


def sampled(part: Part, features: Collection[str]) -> Part:
    """About 2,000 rows on which to measure importance, fewer for over a hundred features: a model scores 400,000."""
    return part.thinned(min(_ROWS, max(1, _MOST_SCORED // (_SHUFFLES * max(len(features), 1)))))


def permuted_importance(
    predictor: Predictor, part: Part, features: Collection[str], units: Units | None = None
) -> list[Importance]:
    """The importance of each feature, in their order: a mean over two shuffles (Breiman 2001, Random Forests).

    Features that say the same share their importance: without the one, the model still has the other.

    Args:
        units: The units of the rows, of which the bootstrap draws, both models on the same draws; None for no interval.
    """
    metric = metric_named(profile_of(predictor.task).objective)
    sign = 1.0 if metric.better == "lower" else -1.0
    rows = part.table
    read = predictor.read(predictor.predict(rows), part.groups)
    value, importances = metric.measure(part.labels, read), []
    for number, name in enumerate(features):
        random, shuffled = np.random.default_rng([number]), []
        for _ in range(_SHUFFLES):
            values = rows[name].take(pa.array(random.permutation(rows.num_rows)))
            table = rows.set_column(rows.column_names.index(name), name, values)
            shuffled.append(predictor.read(predictor.predict(table), part.groups))
        losses = [metric.worse_by(metric.measure(part.labels, other), value) for other in shuffled]
        interval = None
        if units:
            measured = [all_on_draws([metric], part.labels, other) for other in (read, *shuffled)]
            whole, *dealt = (on_draws(measure, units, range(_DRAWS), _SEED)[:, 0] for measure in measured)
            low, high = percentiles(sign * (np.mean(dealt, axis=0) - whole), (1 - LEVEL) / 2, units.number)
            interval = (round(low, _DIGITS), round(high, _DIGITS)) if np.isfinite([low, high]).all() else None
        importances.append(Importance(name, round(float(np.mean(losses)), _DIGITS), interval))
    return importances
