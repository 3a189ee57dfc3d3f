"""What a split's page shows: rows, label rates and times of parts and folds, and how far each column moved."""

from typing import Any

import numpy as np

from gatehouse.data.splitting.checks import Subject
from gatehouse.data.splitting.divide import PARTS, Rows

_BINS = 60
_DIGITS = 6
_MICROSECONDS_A_DAY = 86_400e6


def measures(subject: Subject) -> dict[str, Any]:
    """The measures of a split as plain JSON.

    - `rows`: rows of the training set; `left_out`: rows in no part, by reason.
    - `level`: what the level of labels is. `parts`, and of each of `folds`: by part, its `rows`, `level` with the ends
      `low` and `high` of its 95 % interval, and where there are decision times the `first` and `last`, to the minute in
      UTC.
    - `decisions`: `days` since the first decision (the edges of bins), and by part its share of rows in each bin.
    - `columns`: by column, `psi` from train to validation, from train to test and from validation to test; None where
      there are too few rows.
    """
    level = subject.training_set.task.level
    columns = {}
    for name, profile in subject.profiles().items():
        measured = (profile.psi(0, 1), profile.psi(0, 2), profile.psi(1, 2))
        columns[name] = {"psi": [None if psi is None else round(psi, _DIGITS) for psi in measured]}
    body: dict[str, Any] = {
        "rows": subject.training_set.rows,
        "left_out": dict(subject.partition.left_out),
        "level": {"title": level.title, "is_share": level.is_share},
        "parts": {name: _part(subject, subject.parts[name]) for name in PARTS},
        "folds": [
            {name: _part(subject, fold[name]) for name in ("train", "validation")}
            for _, fold in subject.partition.every_fold()
        ],
        "columns": columns,
    }
    if subject.decision is not None:
        body["decisions"] = _decisions(subject)
    return body


def _part(subject: Subject, rows: Rows) -> dict[str, Any]:
    level = subject.training_set.task.level
    value, low, high = (
        round(bound, _DIGITS) for bound in level.of(subject.labels[rows], subject.labels[~np.isnan(subject.labels)])
    )
    part: dict[str, Any] = {"rows": len(rows), "level": value, "low": low, "high": high}
    if subject.decision is not None:
        times = subject.decision[rows]
        part |= {"first": _minute(times.min()), "last": _minute(times.max())}
    return part


def _minute(moment: np.datetime64) -> str:
    return str(moment.astype("datetime64[m]")).replace("T", " ")


def _decisions(subject: Subject) -> dict[str, Any]:
    """Decision times of each part over the same bins, as shares of the part."""
    assert subject.decision is not None
    days = {name: subject.decision[subject.parts[name]].astype(np.int64) / _MICROSECONDS_A_DAY for name in PARTS}
    start = min(values.min() for values in days.values())
    edges = np.linspace(0.0, max(values.max() for values in days.values()) - start or 1.0, _BINS + 1)
    shares = {}
    for name in PARTS:
        counts = np.histogram(days[name] - start, edges)[0]
        shares[name] = (counts / max(1, counts.sum())).round(_DIGITS).tolist()
    return {"days": edges.round(_DIGITS).tolist(), "shares": shares}
