"""A drift detector on the daily loss: finds the day on which the model began to fail. Detectors are from `river`."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.data.splitting.parts import Part
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import judging_of
from gatehouse.metrics.metric import Metric, Predictions
from gatehouse.metrics.tasks import TASKS
from gatehouse.monitoring.finding import ALARM, DETECTOR, QUIET, UNKNOWN, Finding
from gatehouse.monitoring.rows import moments
from gatehouse.monitoring.spec import DetectorSpec, MissingLibraryError

_TITLES = {"adwin": "ADWIN", "page_hinkley": "Page-Hinkley"}
_LEAST_DAYS = 10
_TOLERATED = 0.5
"""Standard deviations by which the daily loss may rise in the Page-Hinkley test."""


def detector(spec: DetectorSpec, task: str, part: Part, predictions: Predictions, since: np.datetime64) -> Finding:
    """Read the loss day by day, and return the first day of the newest rows on which the detector sees a rise.

    Args:
        spec: Settings of the detector.
        task: Name of the task.
        part: All labelled rows after the last row that the champion was trained on.
        predictions: The champion's predictions for them.
        since: Start of the newest rows; earlier rises were reported before.

    Raises:
        MissingLibraryError: if `river` is not installed.
    """
    title = _TITLES[spec.kind]
    if not (row_loss := judging_of(TASKS[task]).row_loss):
        return Finding(DETECTOR, title, UNKNOWN, f"it reads a loss of single rows, which {task} has none of")
    metric = metric_named(row_loss)
    days, losses = daily_losses(metric, part, predictions)
    if len(days) < _LEAST_DAYS:
        return Finding(DETECTOR, title, UNKNOWN, f"expected {_LEAST_DAYS} days of losses at least, found {len(days)}")
    before = losses[days < since.astype("datetime64[D]")]
    usual = before if len(before) >= _LEAST_DAYS else losses[:_LEAST_DAYS]
    level, spread = float(usual.mean()), float(usual.std(ddof=1))
    risen = [
        (day, loss)
        for day, loss in zip(days, _risen(spec, losses, level, spread), strict=True)
        if loss is not None and day >= since.astype("datetime64[D]")
    ]
    if not risen:
        why = f"the daily {metric.name} of {len(days)} days shows no lasting rise above {level:.4f}"
        return Finding(DETECTOR, title, QUIET, why, measure=metric.name, expected=round(level, 9))
    day, loss = risen[0]
    why = f"the daily {metric.name} rose for good from {level:.4f} to {loss:.4f}, seen on {day}"
    return Finding(
        DETECTOR, title, ALARM, why, measure=metric.name, value=round(float(loss), 9), expected=round(level, 9)
    )


def daily_losses(
    metric: Metric, part: Part, predictions: Predictions
) -> tuple[npt.NDArray[np.datetime64], npt.NDArray[np.float64]]:
    """The days that have rows, in order, and the mean loss of each; shapes (days,)."""
    assert metric.by_row is not None, f"{metric.name} is the mean of a loss of each row"
    losses = metric.by_row(part.labels, predictions.form(metric.reads))
    days, of_row = np.unique(moments(part.table).astype("datetime64[D]"), return_inverse=True)
    return days, np.bincount(of_row, weights=losses) / np.bincount(of_row)


def _risen(spec: DetectorSpec, losses: Iterable[float], level: float, spread: float) -> Iterable[float | None]:
    """For each day the new level of the loss if the detector sees a rise, else None.

    The loss is given in standard deviations from its level, so that the settings mean the same for every loss.
    """
    reading, recent = _detector(spec), list[float]()
    for loss in losses:
        apart = (float(loss) - level) / (spread or 1.0)
        reading.update(apart)
        recent = [*recent, apart][-_LEAST_DAYS:]
        now = float(reading.estimation) if spec.kind == "adwin" else float(np.mean(recent))
        yield level + now * spread if reading.drift_detected and now > 0 else None


def _detector(spec: DetectorSpec) -> Any:
    try:
        from river import drift
    except ImportError:
        raise MissingLibraryError(
            "monitoring.detector: expected the library river, found none. Install it with "
            "`pip install gatehouse[monitoring]`, or set `detector: null`."
        ) from None
    if spec.kind == "adwin":
        return drift.ADWIN(delta=spec.delta, clock=1, grace_period=_LEAST_DAYS)
    return drift.PageHinkley(
        min_instances=_LEAST_DAYS, delta=_TOLERATED, threshold=spec.threshold, alpha=1.0, mode="up"
    )
