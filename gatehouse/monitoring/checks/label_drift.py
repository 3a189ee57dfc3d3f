"""Drift of the labels: their rate, their mean, or the share of the most frequent class."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.metrics.arithmetic.intervals import NORMAL
from gatehouse.metrics.tasks import TASKS
from gatehouse.monitoring.bins import blocks_of
from gatehouse.monitoring.checks.data_drift import alarm_of
from gatehouse.monitoring.clusters import mean_error
from gatehouse.monitoring.finding import ALARM, CHANCE, LABEL, QUIET, SEASON, UNKNOWN, Finding
from gatehouse.monitoring.rows import Watched, moments, units_of
from gatehouse.monitoring.spec import DataDriftSpec, LabelDriftSpec


def label_drift(spec: LabelDriftSpec, data: DataDriftSpec, rows: Watched, min_rows: int) -> Finding:
    """The finding for the known labels.

    Args:
        spec: Settings of the check.
        data: Settings of the features, whose seasons and significance apply here too.
        rows: The rows to compare.
        min_rows: Minimum number of rows with a known label, and of rows in a block of the reference.
    """
    level = TASKS[rows.task].level
    if rows.labelled.num_rows < min_rows:
        why = f"expected at least {min_rows:,} rows with a known label to judge, found {rows.labelled.num_rows:,}"
        return Finding(LABEL, level.title, UNKNOWN, why)
    then, now = (pc.cast(each[rows.label], pa.float64()).to_numpy() for each in (rows.reference, rows.labelled))
    before, found = level.by_row(then, then), level.by_row(now, then)
    span = moments(rows.labelled)
    blocks = blocks_of(moments(rows.reference), span.max() - span.min(), min_rows)
    inside, mean, value = blocks >= 0, float(before.mean()), float(found.mean())
    counts, sums = np.bincount(blocks[inside]), np.bincount(blocks[inside], weights=before[inside])
    seasonal = round(float(np.abs(sums / counts - mean).max(initial=0.0)), 9)
    flat = round(spec.alarm if level.is_share else spec.mean_alarm * float(before.std()), 9)
    alarm, apart = alarm_of(flat, seasonal, data.seasonal_margin), abs(value - mean)
    unit = data.significance.unit if data.significance else ""
    error = mean_error(found, units_of(rows.labelled, unit))
    spread = math.hypot(error, mean_error(before, units_of(rows.reference, unit)))
    chance = math.erfc(apart / spread / math.sqrt(2)) if spread else float(apart == 0)
    said = f"expected {mean:.3g} within {alarm:.3g}, found {value:.3g}"
    state, why = ALARM, said
    if apart <= flat:
        state = QUIET
    elif apart <= alarm:
        state, why = (
            SEASON,
            (
                f"{value:.3g} is further from {mean:.3g} than the alarm of {flat:.3g} and rang none, as its season "
                f"alone reaches {seasonal:.3g}, which raised the alarm to {alarm:.3g}"
            ),
        )
    elif data.significance and chance >= data.significance.level:
        state, why = CHANCE, f"{said}, which chance alone may do (p = {chance:.2g})"
    return Finding(
        LABEL,
        level.title,
        state,
        why,
        measure="share" if level.is_share else "mean",
        value=round(value, 9),
        alarm=alarm,
        flat=flat,
        seasonal=seasonal,
        expected=round(mean, 9),
        low=round(value - NORMAL * error, 9) if math.isfinite(error) else None,
        high=round(value + NORMAL * error, 9) if math.isfinite(error) else None,
        chance=round(chance, 9),
    )
