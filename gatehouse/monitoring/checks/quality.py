"""Quality of the features: missing values, categories not seen in training, numbers outside the training range."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.monitoring.bins import numbers_of
from gatehouse.monitoring.finding import ALARM, QUALITY, QUIET, Finding
from gatehouse.monitoring.rows import Watched
from gatehouse.monitoring.spec import QualitySpec

_DIGITS = 9


def quality(spec: QualitySpec, rows: Watched) -> list[Finding]:
    """One finding for each breach, or one quiet finding."""
    found = []
    for name, kind in rows.features.items():
        then, now = rows.trained[name], rows.current[name]
        before, missing = _missing(then, kind), _missing(now, kind)
        if missing - before > spec.max_missing_rise:
            limit = before + spec.max_missing_rise
            why = f"{missing:.1%} are missing, {before:.1%} were in training; the alarm is {limit:.1%}"
            found.append(_breach(name, kind, "missing", missing, limit, why))
        share, what, limit = (
            (_outside(then, now, spec.margin), "far beyond the least or greatest number of training", spec.max_outside)
            if kind == "numeric"
            else (_new(then, now), "categories that training never saw", spec.max_new)
        )
        if share > limit:
            why = f"{share:.1%} are {what}; the alarm is {limit:.0%}"
            found.append(_breach(name, kind, "outside" if kind == "numeric" else "new", share, limit, why))
    if not found:
        return [Finding(QUALITY, "", QUIET, f"no breach in {len(rows.features)} features")]
    return sorted(found, key=lambda each: (-(each.value or 0.0), each.name))


def _breach(name: str, kind: str, measure: str, value: float, alarm: float, why: str) -> Finding:
    value, alarm = round(value, _DIGITS), round(alarm, _DIGITS)
    return Finding(QUALITY, name, ALARM, why, kind=kind, measure=measure, value=value, alarm=alarm)


def _missing(column: pa.ChunkedArray, kind: str) -> float:
    """The share of nulls, and of non-finite numbers."""
    known = np.isfinite(numbers_of(column)) if kind == "numeric" else column.is_valid().to_numpy()
    return 1.0 - float(np.mean(known))


def _outside(then: pa.ChunkedArray, now: pa.ChunkedArray, margin: float) -> float:
    trained, numbers = (each[np.isfinite(each)] for each in (numbers_of(then), numbers_of(now)))
    if not len(trained) or not len(numbers):
        return 0.0
    low, high = trained.min(), trained.max()
    beyond = margin * (high - low)
    return float(np.mean((numbers < low - beyond) | (numbers > high + beyond)))


def _new(then: pa.ChunkedArray, now: pa.ChunkedArray) -> float:
    known = pc.unique(pc.cast(then, pa.string()))
    values = pc.drop_null(pc.cast(now, pa.string()))
    return float(pc.mean(pc.invert(pc.is_in(values, value_set=known))).as_py() or 0.0)
