"""Drift of the model's predictions: its scores, or with several classes the predicted class."""

from typing import Any

import pyarrow as pa

from gatehouse.metrics.metric import Predictions
from gatehouse.monitoring.bins import CategoryBins, NumericBins
from gatehouse.monitoring.checks.data_drift import alarm_of, judged
from gatehouse.monitoring.columns import movement
from gatehouse.monitoring.finding import ALARM, MOVED, PREDICTION, Finding
from gatehouse.monitoring.rows import Watched
from gatehouse.monitoring.spec import DataDriftSpec, PredictionDriftSpec


def prediction_drift(
    spec: PredictionDriftSpec,
    data: DataDriftSpec,
    rows: Watched,
    min_rows: int,
    before: Predictions,
    now: Predictions,
) -> Finding:
    """The finding for the predictions.

    Args:
        spec: Settings of the check.
        data: Settings of the features, whose bins, seasons and significance apply here too.
        rows: The rows to compare.
        min_rows: Minimum number of rows in a block of the reference.
        before: Predictions for the reference.
        now: Predictions for the newest rows.
    """
    several = before.scores.ndim == 2
    columns: list[Any] = [
        pa.chunked_array([pa.array(each.form("classes") if several else each.scores)]) for each in (before, now)
    ]
    bins = CategoryBins.fit(columns[0], data.categories) if several else NumericBins.fit(columns[0], data.bins)
    units = rows.units(data.significance.unit) if data.significance else None
    moved = movement(bins, columns[0], rows.blocks(min_rows), columns[1], "psi", units)
    alarm, value = alarm_of(spec.alarm, moved.seasonal, data.seasonal_margin), moved.distances.get("psi", 0.0)
    chance = moved.tested.chance if moved.tested else None
    state, why = judged("PSI", value, spec.alarm, alarm, moved, chance, data.significance)
    return Finding(
        PREDICTION,
        "class that the model predicts" if several else "score of the model",
        ALARM if state == MOVED else state,
        why,
        measure="psi",
        value=value,
        alarm=alarm,
        flat=spec.alarm,
        seasonal=moved.seasonal,
        chance=chance,
        effective=moved.tested.effective if moved.tested else None,
        others=moved.distances,
    )
