"""The winner's curse: of trials that differ by luck alone the correction takes the luck away."""

import numpy as np
import pytest

from gatehouse.evaluation.bootstrap import Units
from gatehouse.metrics.catalogue.metric import Predictions
from gatehouse.metrics.catalogue.watchable import watchable_metric
from gatehouse.tuning.optimism import DRAWS, Optimism, corrected

ROWS = 400


def _optimism(metric: str, trials: int, skill: float, seed: int = 1, units: Units | None = None) -> Optimism:
    """Trials that all are as good as each other: their predictions differ in noise."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, ROWS).astype(np.float64)
    measure = watchable_metric(metric)
    measures = []
    for _ in range(trials):
        probabilities = 1 / (1 + np.exp(-(skill * (labels - 0.5) + draw.normal(size=ROWS))))
        read = Predictions(probabilities, probabilities, probabilities >= 0.5)
        measures.append(measure.on_draws(labels, read))
    return corrected(measures, measure, units or Units("row", ROWS), ROWS, seed)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_many_guesses_is_corrected_to_a_guess(seed: int) -> None:
    found = _optimism("roc_auc", 30, 0.0, seed)
    assert found.best > 0.53, "the best of thirty guesses looks better than a guess"
    assert abs(found.corrected - 0.5) < found.best - 0.5
    assert found.lower < 0.5 < found.upper and found.draws == DRAWS


def test_where_one_trial_always_wins_nothing_is_taken_off() -> None:
    draw = np.random.default_rng(1)
    errors = draw.gamma(2.0, size=ROWS)
    measures = [lambda times, worse=worse: float(times @ (errors + worse) / times.sum()) for worse in (0.3, 0.0, 0.1)]
    found = corrected(measures, watchable_metric("log_loss"), Units("row", ROWS), ROWS, 3)
    assert found.corrected == pytest.approx(found.best, abs=1e-12) and found.best == pytest.approx(errors.mean())
    assert found.lower < found.best < found.upper


def test_a_metric_that_is_better_below_is_corrected_upwards() -> None:
    found = _optimism("log_loss", 30, 0.5)
    assert found.best < found.corrected and found.lower < found.corrected < found.upper


def test_the_same_seed_gives_the_same_numbers_and_groups_are_drawn_whole() -> None:
    assert _optimism("roc_auc", 5, 1.0) == _optimism("roc_auc", 5, 1.0)
    groups = Units("group", ROWS // 40, np.arange(ROWS) // 40)
    whole, single = _optimism("roc_auc", 5, 1.0, units=groups), _optimism("roc_auc", 5, 1.0)
    assert whole.best == single.best and whole.corrected != single.corrected
