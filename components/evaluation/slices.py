"""Metrics by the values of a column: where a good average hides a bad corner."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.evaluation.spec import EvaluationSpec
from gatehouse.components.metrics.binary import log_loss, roc_auc
from gatehouse.errors import ConfigurationError

MOST_VALUES = 40
NULL, OTHER = "(null)", "(other)"


@dataclass(frozen=True)
class Slice:
    """One value of one column.

    Attributes:
        name: `column=value`.
        rows: Test rows with this value.
        label_rate: Share of them whose label is 1.
        log_loss: Of the candidate.
        roc_auc: Of the candidate; None where the slice has one class only. Likewise its bounds and the champion's.
        low, high: 95 % interval of the candidate's ROC AUC.
        champion_roc_auc: None also where there is no champion.
        judged: Whether the slice is large enough for the gate, and has both classes.
    """

    name: str
    rows: int
    label_rate: float
    log_loss: float
    roc_auc: float | None
    low: float | None
    high: float | None
    champion_roc_auc: float | None
    judged: bool


def slice_metrics(
    table: pa.Table, labels: Any, candidate: Any, spec: EvaluationSpec, champion: Any = None
) -> list[Slice]:
    """One entry a value of each slice column, largest first within a column.

    Nulls are a slice of their own; of a column with more than 40 values the rarest are taken together as `(other)`.

    Args:
        table: The test rows.
        labels: 0 or 1, shape (rows,).
        candidate: Its probabilities, shape (rows,).
        spec: Which columns, and from how many rows on a slice is judged.
        champion: The champion's probabilities, or None.

    Raises:
        ConfigurationError: if the training set has no such column.
    """
    missing = [column for column in spec.slices if column not in table.column_names]
    if missing:
        raise ConfigurationError(
            f"evaluation.slices: the training set has no column {', '.join(missing)}; it has "
            f"{', '.join(table.column_names)}."
        )
    found: list[Slice] = []
    for column in spec.slices:
        names, members = group(table[column])
        entries = [
            _slice(f"{column}={name}", np.flatnonzero(members == index), labels, candidate, champion, spec)
            for index, name in enumerate(names)
        ]
        found.extend(sorted(entries, key=lambda entry: (-entry.rows, entry.name)))
    return found


def group(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Names of the groups of a column's values, the most frequent first, and the number of the group of every row."""
    text = pc.fill_null(pc.cast(column, pa.string()), NULL)
    encoded = text.combine_chunks().dictionary_encode()
    names, members = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    counts = np.bincount(members, minlength=len(names))
    order = sorted(range(len(names)), key=lambda index: (-counts[index], names[index]))
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    if len(names) <= MOST_VALUES:
        return [names[index] for index in order], place[members]
    kept = [names[index] for index in order[: MOST_VALUES - 1]]
    return [*kept, OTHER], np.minimum(place, MOST_VALUES - 1)[members]


def _slice(name: str, chosen: Any, labels: Any, candidate: Any, champion: Any, spec: EvaluationSpec) -> Slice:
    ours, rows = labels[chosen], len(chosen)
    ones = int(ours.sum())
    both = 0 < ones < rows
    area = roc_auc(ours, candidate[chosen]) if both else None
    low, high = roc_auc_interval(area, ones, rows - ones) if area is not None else (None, None)
    return Slice(
        name=name,
        rows=rows,
        label_rate=ones / rows,
        log_loss=log_loss(ours, candidate[chosen]),
        roc_auc=area,
        low=low,
        high=high,
        champion_roc_auc=roc_auc(ours, champion[chosen]) if both and champion is not None else None,
        judged=both and rows >= spec.min_slice_rows,
    )


def roc_auc_interval(area: float, ones: int, zeros: int) -> tuple[float, float]:
    """95 % interval of a ROC AUC, from the standard error of Hanley and McNeil (1982), equations 1 and 2.

    Args:
        area: The ROC AUC.
        ones: Positive rows, at least one.
        zeros: Negative rows, at least one.
    """
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    square = area * (1 - area) + (ones - 1) * (first - area * area) + (zeros - 1) * (second - area * area)
    error = 1.959964 * math.sqrt(max(square, 0.0) / (ones * zeros))
    return max(0.0, area - error), min(1.0, area + error)
