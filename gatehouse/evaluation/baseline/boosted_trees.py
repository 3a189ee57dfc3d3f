"""Gradient-boosted trees on the candidate's features: what a network is worth beside the usual choice for tables.

They are shown and not judged by. Like the linear model they prepare features on their own; the settings are fixed.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.metrics.arithmetic.elementary import logistic, softmax
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.task import Output, TaskName
from gatehouse.runtime.importing import without

with without("sklearn"):  # which XGBoost imports, where it finds it, for classes in its style
    import xgboost

_ROUNDS = 80
_OBJECTIVES: dict[Output, dict[str, Any]] = {
    "probability": {"objective": "binary:logistic"},
    "probabilities": {"objective": "multi:softprob"},
    "prediction": {"objective": "reg:squarederror"},
    "score": {"objective": "rank:ndcg", "ndcg_exp_gain": False},
}
_SETTINGS = {
    "disable_default_eval_metric": 1,
    "tree_method": "hist",
    "nthread": 1,
    "seed": 0,
    "eta": 0.15,
    "max_depth": 6,
    "max_bin": 64,
    "min_child_weight": 20.0,
}


@dataclass(frozen=True)
class Vocabulary:
    """The values of one categorical column seen in training; others count as missing."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class BoostedTrees:
    """Grown trees, in XGBoost's binary JSON, and the columns that they read."""

    task: TaskName
    numeric: tuple[str, ...]
    categorical: tuple[Vocabulary, ...]
    trees: bytes = b""

    @classmethod
    def fit(
        cls,
        task: TaskName,
        table: pa.Table,
        labels: npt.NDArray[Any],
        numeric: list[str],
        categorical: list[str],
        groups: npt.NDArray[np.int64] | None = None,
    ) -> "BoostedTrees":
        """Fit on a table, on one thread and without sampling: the same bytes on every run.

        Args:
            task: Name of the task.
            table: The train rows.
            labels: As the task has them, shape (rows,); of classes two at least must occur.
            numeric: Names of the numeric columns.
            categorical: Names of the others.
            groups: Number of each row's group, shape (rows,), for the task ranking.
        """
        if groups is not None:
            together = np.argsort(groups, kind="stable")
            table, labels, groups = table.take(together), labels[together], groups[together]
        prepared = cls(task, tuple(numeric), tuple(Vocabulary(name, _known(table[name])) for name in categorical))
        types = ["q"] * len(numeric) + ["c"] * len(categorical)
        rows = xgboost.QuantileDMatrix(
            prepared.design(table),
            labels,
            qid=groups,
            feature_types=types,
            enable_categorical=True,
            nthread=1,
            max_bin=_SETTINGS["max_bin"],
        )
        output = TASKS[task].output
        classes = {"num_class": int(labels.max()) + 1} if output == "probabilities" else {}
        booster = xgboost.train(_SETTINGS | _OBJECTIVES[output] | classes, rows, _ROUNDS)
        return replace(prepared, trees=bytes(booster.save_raw("ubj")))

    def design(self, table: pa.Table) -> npt.NDArray[np.float32]:
        """Numbers and category codes, NaN where missing, shape (rows, columns)."""
        found = np.full((table.num_rows, len(self.numeric) + len(self.categorical)), np.nan, np.float32)
        for index, name in enumerate(self.numeric):
            with np.errstate(over="ignore"):
                values = pc.cast(table[name], pa.float64(), safe=False).to_numpy().astype(np.float32)
            found[:, index] = np.where(np.isfinite(values), values, np.nan)
        for index, column in enumerate(self.categorical, len(self.numeric)):
            texts = pc.cast(table[column.name], pa.string())
            codes = pc.index_in(texts, value_set=pa.array(column.values, pa.string()))
            found[:, index] = pc.cast(codes, pa.float32()).to_numpy()
        return found

    def predict(self, table: pa.Table) -> npt.NDArray[np.float64]:
        """As a linear model of the task predicts: shape (rows,), or (rows, classes) of several classes."""
        booster = xgboost.Booster({"nthread": 1}, model_file=bytearray(self.trees))
        margins = np.asarray(booster.inplace_predict(self.design(table), predict_type="margin"), np.float64)
        output = TASKS[self.task].output
        if output == "probabilities":
            return softmax(margins)
        return logistic(margins) if output == "probability" else margins

    def to_json(self) -> dict[str, Any]:
        """The columns as plain JSON, for `trees.json`."""
        columns = [asdict(column) for column in self.categorical]
        return {"task": self.task, "numeric": list(self.numeric), "categorical": columns}

    @classmethod
    def from_json(cls, body: dict[str, Any], trees: bytes) -> "BoostedTrees":
        """Rebuild from `to_json` and the trees."""
        columns = tuple(Vocabulary(column["name"], tuple(column["values"])) for column in body["categorical"])
        return cls(body["task"], tuple(body["numeric"]), columns, trees)


def _known(column: pa.ChunkedArray) -> tuple[str, ...]:
    values = pc.unique(pc.cast(column, pa.string())).to_pylist()
    return tuple(sorted(value for value in values if value is not None))
