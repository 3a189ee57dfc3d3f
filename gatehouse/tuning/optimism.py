"""Estimates the selection bias of the best score: the best of many trials looks better than it is (winner's curse).

The bootstrap bias correction of Tsamardinos, Greasidou and Borboudakis (2018): rows are drawn with replacement, the
trial that is best on the drawn rows is scored on the rows that were not drawn, and the mean of these scores over many
draws estimates the score of a trial chosen in this way. No model is trained again.

The trial that is best on all rows is scored on the same out-of-draw rows. Its mean there is its own score. So only the
difference of the two is used, which removes the randomness of the draws that both share.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gatehouse.data.splitting.parts import Part, read_part
from gatehouse.evaluation.bootstrap import LEVEL, Units
from gatehouse.metrics.catalogue.metric import Array, Metric, OnDraw
from gatehouse.metrics.catalogue.watchable import WATCHABLE
from gatehouse.store.store import ArtifactStore
from gatehouse.training.scoring.predictor import Predictor
from gatehouse.tuning.data import TrialData
from gatehouse.tuning.spec import Objective
from gatehouse.tuning.trial import Trial

DRAWS = 200
CONTENDERS = 50
"""Number of trials compared in each draw: the best ones; trials far behind them are never best in a draw."""


@dataclass(frozen=True)
class Optimism:
    """The best score without the luck of being chosen.

    Attributes:
        best: The score of the best trial on all validation rows, on which it was chosen.
        corrected: The expected score, on other rows, of a trial chosen in this way.
        lower: Lower bound of the 95 % interval of the corrected score: a percentile of the draws.
        upper: Upper bound.
        draws: Number of draws.
    """

    best: float
    corrected: float
    lower: float
    upper: float
    draws: int

    def to_json(self) -> dict[str, Any]:
        """As JSON for the artifact."""
        return asdict(self)


def optimism(
    store: ArtifactStore,
    data: TrialData,
    objective: Objective,
    trials: Sequence[Trial],
    seed: int,
    resample_by: str = "",
) -> Optimism | None:
    """The correction of the best score of an experiment with one objective.

    Args:
        store: The artifact store.
        data: The data whose validation part the trials were chosen on.
        objective: The objective.
        trials: The candidates for the best trial, which have models.
        seed: Seed of the draws.
        resample_by: Units to resample, as in an evaluation: a column, `day`, or empty for rows, or for groups of a
            ranking.

    Returns:
        None if there are not several trials, or the objective is not a metric of predictions.
    """
    metric = WATCHABLE.get(objective.metric)
    if len(trials) < 2 or metric is None:  # One trial is no choice.
        return None
    sign = 1 if objective.minimize else -1
    contenders = sorted(trials, key=lambda trial: (sign * trial.values[objective.metric], trial.number))[:CONTENDERS]
    part, measures = _measures(store, data, metric, contenders)
    time = str(store.manifest(data.training_set).details.get("decision_time", ""))
    return corrected(measures, metric, Units.of(part, resample_by, time), len(part.rows), seed)


def corrected(measures: Sequence[OnDraw], metric: Metric, units: Units, rows: int, seed: int) -> Optimism:
    """The corrected score, from the scores of each trial on draws.

    Args:
        measures: For each trial the function from how often each row was drawn, shape (rows,), to its score.
        metric: The metric of the score.
        units: The units to resample.
        rows: Number of rows.
        seed: Seed of the draws.
    """
    winner, best = _best([measure(np.ones(rows)) for measure in measures], metric)
    drawn: Array = np.empty((DRAWS, 2))
    for draw, times in enumerate(units.draws(DRAWS, seed)):
        chosen, _ = _best([measure(times) for measure in measures], metric)
        left = (times == 0).astype(np.float64)
        drawn[draw] = measures[chosen](left), measures[winner](left)
    found = best + np.nanmean(drawn[:, 0] - drawn[:, 1])
    ends = np.nanquantile(drawn[:, 0], ((1 - LEVEL) / 2, (1 + LEVEL) / 2)) + found - np.nanmean(drawn[:, 0])
    return Optimism(float(best), float(found), float(ends[0]), float(ends[1]), DRAWS)


def _best(scores: Sequence[float], metric: Metric) -> tuple[int, float]:
    """Index and value of the best score; the first of equal ones."""
    sign = 1 if metric.better == "lower" else -1
    place = int(np.nanargmin(sign * np.asarray(scores))) if not np.isnan(scores).all() else 0
    return place, scores[place]


def _measures(
    store: ArtifactStore, data: TrialData, metric: Metric, trials: Sequence[Trial]
) -> tuple[Part, list[OnDraw]]:
    """The validation rows, and for each trial the function that scores its model on draws of them."""
    part: Part | None = None
    found = []
    for trial in trials:
        predictor = Predictor.load(store, trial.model)
        part = part or read_part(store, data.training_set, data.split, "validation", predictor.task)
        read = predictor.read(predictor.predict(part.table), part.groups)
        found.append(metric.on_draws(part.labels, read))
    assert part is not None, "there are several trials"
    return part, found
