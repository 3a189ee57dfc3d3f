"""A linear model on the candidate's features: what a candidate must beat to be worth its complexity.

Logistic regression for two classes, one against the rest for several, and least squares for numbers and rankings.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gatehouse.data.statistics.design import Design, Floats
from gatehouse.data.statistics.linear_fit import fit_least_squares, fit_logistic
from gatehouse.metrics.arithmetic.elementary import logistic
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.task import TaskName

_ROOT_ROWS_PER_PENALTY = 25.0
_NEVER = -30.0
"""The margin of a class without train rows."""


@dataclass(frozen=True)
class LinearModel:
    """A fitted linear model.

    Attributes:
        task: Name of the task.
        design: What is done to each column before.
        coefficients: Of each output (one a class of several, else one), the intercept last.
    """

    task: TaskName
    design: Design
    coefficients: tuple[tuple[float, ...], ...]

    @classmethod
    def fit(
        cls, task: TaskName, table: pa.Table, labels: npt.NDArray[Any], numeric: list[str], categorical: list[str]
    ) -> "LinearModel":
        """Fit on a table: the same numbers on every run and every processor. Without columns it is a constant.

        The L2 penalty is the square root of the rows over 25: of less and less weight with more rows.

        Args:
            task: Name of the task.
            table: The train rows.
            labels: As the task has them, shape (rows,); of classes two at least must occur.
            numeric: Names of the numeric columns.
            categorical: Names of the others.
        """
        design = Design.fit(table, numeric, categorical)
        rows = design.matrix(table)
        penalty = math.sqrt(table.num_rows) / _ROOT_ROWS_PER_PENALTY
        penalties = np.append(np.full(rows.shape[1] - 1, penalty), 0.0)
        output = TASKS[task].output
        if output == "probability":
            fitted = [fit_logistic(rows, labels, penalties)]
        elif output == "probabilities":
            fitted = [_fit_class(rows, labels == number, penalties) for number in range(int(labels.max()) + 1)]
        else:
            fitted = [fit_least_squares(rows, labels, penalties)]
        return cls(task, design, tuple(tuple(each.tolist()) for each in fitted))

    def predict(self, table: pa.Table) -> Floats:
        """Probability of label 1, or the number itself, of every row in order, shape (rows,).

        Of several classes the probability of each, shape (rows, classes): their own, divided by the sum of all.
        """
        margins: Floats = self.design.matrix(table) @ np.array(self.coefficients).T
        output = TASKS[self.task].output
        if output == "probabilities":
            shares = logistic(margins)
            return np.asarray(shares / shares.sum(axis=1, keepdims=True))
        return logistic(margins[:, 0]) if output == "probability" else margins[:, 0]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"task": self.task, "design": self.design.to_json(), "coefficients": self.coefficients}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "LinearModel":
        """Rebuild from `to_json`."""
        coefficients = tuple(tuple(each) for each in body["coefficients"])
        return cls(body["task"], Design.from_json(body["design"]), coefficients)


def _fit_class(rows: Any, hits: npt.NDArray[np.bool_], penalties: Floats) -> Floats:
    """One class against the rest."""
    if hits.any():
        return fit_logistic(rows, hits, penalties)
    return np.append(np.zeros(len(penalties) - 1), _NEVER)
