"""Metrics by the values of a column: where a good average hides a bad corner."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.evaluation.spec import EvaluationSpec
from gatehouse.components.tracking.metrics import log_loss, roc_auc
from gatehouse.errors import ConfigurationError


@dataclass(frozen=True)
class Slice:
    """One value of one column: its rows, label rate and metrics; `judged` where it is large enough for the gate."""

    name: str
    rows: int
    label_rate: float
    roc_auc: float
    log_loss: float
    judged: bool


def slice_metrics(table: pa.Table, labels: Any, scores: Any, spec: EvaluationSpec) -> list[Slice]:
    """One entry a value of each slice column, largest first within a column; nulls are a slice of their own.

    Raises:
        ConfigurationError: if the training set has no such column.
    """
    missing = [column for column in spec.slices if column not in table.column_names]
    if missing:
        raise ConfigurationError(
            f"evaluation.slices: the training set has no column {', '.join(missing)}; it has {', '.join(table.column_names)}."
        )
    found: list[Slice] = []
    for column in spec.slices:
        values = pc.fill_null(pc.cast(table[column], pa.string()), "(null)").to_numpy(zero_copy_only=False)
        names, inverse = np.unique(values.astype(str), return_inverse=True)
        entries = []
        for index, name in enumerate(names):
            chosen = inverse == index
            rows, ones = int(chosen.sum()), int(labels[chosen].sum())
            entries.append(
                Slice(
                    name=f"{column}={name}",
                    rows=rows,
                    label_rate=ones / rows,
                    roc_auc=roc_auc(labels[chosen], scores[chosen]),
                    log_loss=log_loss(labels[chosen], scores[chosen]),
                    judged=rows >= spec.min_slice_rows and 0 < ones < rows,
                )
            )
        found.extend(sorted(entries, key=lambda entry: (-entry.rows, entry.name)))
    return found
