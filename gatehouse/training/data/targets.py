"""What a model is to learn of a training set's rows: labels, weights and groups, checked against the loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.metrics.tasks.found import task_of_loss
from gatehouse.training.loss.spec import BinaryLoss, LossSpec, MulticlassLoss, PairwiseLoss
from gatehouse.training.transformation.columns import Columns, FeatureError


@dataclass(frozen=True)
class Targets:
    """Of the rows of one part, shape (rows,) each.

    Attributes:
        labels: float32; of several classes their numbers from 0.
        weights: float32; None where every row weighs one.
        groups: int64, numbered as they are first met; None where the loss has none.
    """

    labels: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32] | None
    groups: npt.NDArray[np.int64] | None

    def write(self, folder: Path, order: npt.NDArray[np.int64] | None) -> None:
        """Write the arrays that are there, each as `<name>.npy`, in the order of row numbers given, shape (rows,)."""
        for name in ("labels", "weights", "groups"):
            array = getattr(self, name)
            if array is not None:
                np.save(folder / f"{name}.npy", array if order is None else array[order])

    def order(self) -> npt.NDArray[np.int64] | None:
        """Row numbers, shape (rows,), that bring the rows of a group together; None where there are no groups."""
        return None if self.groups is None else np.argsort(self.groups, kind="stable")


def targets_of(tables: Mapping[str, Columns], label: str, spec: LossSpec, group: str = "") -> dict[str, Targets]:
    """The targets of every part. Class weights apply to the part `train` alone: a metric tells what is.

    Args:
        tables: The columns of each part.
        label: Name of the label's column.
        spec: The loss.
        group: Column of the groups, where the loss reads groups and names none.

    Raises:
        FeatureError: if a column is missing, a value in it cannot be learned from, or a part has too few of them.
    """
    group = (spec.group or group) if isinstance(spec, PairwiseLoss) else ""
    if isinstance(spec, PairwiseLoss) and not group:
        raise FeatureError(
            "training.loss.group: the loss pairwise compares rows of one group, and neither it nor the label declares "
            "one. State the LabelView's group."
        )
    labels = {part: _labels(table, label, spec) for part, table in tables.items()}
    weights = {part: _numbers(table, spec.sample_weight, "Sample weight") for part, table in tables.items()}
    for part, values in weights.items():
        if values is not None and not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
            raise FeatureError(
                f"Sample weight {spec.sample_weight} of part {part}: expected finite numbers from 0 up, not all 0."
            )
    _require_enough(labels, spec)
    if isinstance(spec, BinaryLoss | MulticlassLoss) and spec.class_weights:
        by_class = _class_weights(labels["train"], outputs_of(labels["train"], spec), spec)
        chosen = by_class[labels["train"].astype(np.int64)]
        weights["train"] = chosen if weights["train"] is None else weights["train"] * chosen
    return {
        part: Targets(
            labels[part].astype(np.float32),
            None if (weight := weights[part]) is None else weight.astype(np.float32),
            _groups(table, group),
        )
        for part, table in tables.items()
    }


def outputs_of(labels: Any, spec: LossSpec) -> int:
    """Logits of a row: one, or one a class of the train part."""
    return int(labels.max()) + 1 if task_of_loss(spec.kind).output == "probabilities" else 1


def _column(table: Columns, name: str, what: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise FeatureError(f"{what} {name} is no column of the training set; it has {', '.join(table.column_names)}.")
    return table[name]


def _numbers(table: Columns, name: str, what: str) -> npt.NDArray[np.float64] | None:
    if not name:
        return None
    column = _column(table, name, what)
    try:
        values: npt.NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    except pa.ArrowException:
        raise FeatureError(f"{what} {name}: expected numbers, found {column.type}.") from None
    return values


def _labels(table: Columns, name: str, spec: LossSpec) -> npt.NDArray[np.float64]:
    task = task_of_loss(spec.kind)
    nulls = _column(table, name, "Label").null_count
    if nulls:
        raise FeatureError(f"Label {name}: {nulls} of {table.num_rows} rows are null; expected {task.label}.")
    values = _numbers(table, name, "Label")
    assert values is not None
    wrong = int((~(np.isfinite(values.astype(np.float32)) & task.is_label(values))).sum())
    if wrong:
        raise FeatureError(f"Label {name}: {wrong} of {table.num_rows} rows are not {task.label}.")
    return values


def _require_enough(labels: dict[str, npt.NDArray[np.float64]], spec: LossSpec) -> None:
    task, advice = task_of_loss(spec.kind), "Move the boundaries of the split, or give more data."
    for part, values in labels.items():
        if lacking := task.lacks(values):
            raise FeatureError(f"Part {part} of the split has {lacking}. {advice}")
    if task.output == "probabilities" and "validation" in labels:
        unknown = sorted(set(np.unique(labels["validation"])) - set(np.unique(labels["train"])))
        if unknown:
            shown = ", ".join(f"{value:g}" for value in unknown[:5])
            raise FeatureError(f"Part validation of the split has labels that part train has not: {shown}. {advice}")


def _class_weights(
    labels: npt.NDArray[np.float64], outputs: int, spec: BinaryLoss | MulticlassLoss
) -> npt.NDArray[np.float64]:
    classes = max(outputs, 2)
    if spec.class_weights == "balanced":
        counts = np.bincount(labels.astype(np.int64), minlength=classes)
        return np.asarray(len(labels) / (classes * np.maximum(counts, 1)))
    if len(spec.class_weights) != classes:
        raise FeatureError(
            f"training.loss.class_weights has {len(spec.class_weights)} numbers; expected {classes}, one a class."
        )
    return np.array(spec.class_weights, dtype=np.float64)


def _groups(table: Columns, name: str) -> npt.NDArray[np.int64] | None:
    if not name:
        return None
    column = _column(table, name, "Group").combine_chunks()
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return np.asarray(pc.cast(encoded.indices, pa.int64()).to_numpy(zero_copy_only=False))
