"""What a split's page shows of parts and folds, and how far each feature moved, which the gate may limit."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.distances import population_stability
from gatehouse.data.splitting.checks import Subject
from gatehouse.data.splitting.divide import PARTS, Parts, Rows
from gatehouse.data.splitting.training_set import TrainingSet

MIN_ROWS = 500
_MOST_ROWS = 200_000

_QUANTILES, _CATEGORIES, _BINS = 32, 30, 60
_DIGITS = 6


def measures(subject: Subject) -> dict[str, Any]:
    """The measures of a split as plain JSON.

    - `rows`: rows of the training set; `left_out`: rows in no part, by reason.
    - `level`: what the level of labels is. `parts`, and of each of `folds`: by part, its `rows`, `level` with the ends
      `low` and `high` of its 95 % interval, and where there are decision times the `first` and `last`, to the minute in
      UTC.
    - `psi`: by feature, as `feature_psi` gives it.
    """
    level = subject.training_set.task.level
    return {
        "rows": subject.training_set.rows,
        "left_out": dict(subject.partition.left_out),
        "level": {"title": level.title, "is_share": level.is_share},
        "parts": {name: _part(subject, subject.parts[name]) for name in PARTS},
        "folds": [
            {name: _part(subject, fold[name]) for name in ("train", "validation")}
            for _, fold in subject.partition.every_fold()
        ],
        "psi": {name: feature_psi(subject.training_set, name, subject.parts) for name in subject.training_set.features},
    }


def feature_psi(training_set: TrainingSet, name: str, parts: Parts) -> float | None:
    """Population stability index of a feature from train to test; None where one has fewer than `MIN_ROWS` rows.

    Missing values, zeros, the quantiles of other numbers in train, its frequent categories and all others are bins. At
    most 200,000 rows of a part are counted, evenly spaced.
    """
    train, test = (parts[part][:: max(1, -(-len(parts[part]) // _MOST_ROWS))] for part in ("train", "test"))
    if min(len(train), len(test)) < MIN_ROWS:
        return None
    placed: list[npt.NDArray[np.int64]] = []
    if name in training_set.categorical:
        column = training_set.column(name)
        texts = [pc.cast(column.take(rows), pa.large_string()) for rows in (train, test)]
        ranked = sorted((-row["counts"], row["values"]) for row in pc.value_counts(texts[0].drop_null()).to_pylist())
        frequent = pa.array([category for _, category in ranked[:_CATEGORIES]], pa.large_string())
        for values in texts:
            codes = pc.fill_null(pc.index_in(values, value_set=frequent), -1).to_numpy()
            placed.append(np.where(values.is_valid().to_numpy(), codes + 2, 0))
    else:
        numbers = training_set.numbers(name)
        fitted = numbers[train]
        fitted = fitted[np.isfinite(fitted) & (fitted != 0)]
        levels = np.linspace(0, 1, _QUANTILES + 1)[1:-1]
        edges = np.unique(np.quantile(fitted, levels, method="lower")) if len(fitted) else np.empty(0)
        for rows in (train, test):
            sample = numbers[rows]
            between = np.searchsorted(edges, sample, side="right") + 2
            placed.append(np.where(~np.isfinite(sample), 0, np.where(sample == 0, 1, between)))
    size = max(int(bins.max()) for bins in placed) + 1
    before, now = (np.bincount(bins, minlength=size) for bins in placed)
    return round(population_stability(before, now), _DIGITS)


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
