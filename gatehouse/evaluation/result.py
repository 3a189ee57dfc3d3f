"""The result of an evaluation, and what scores must be like to be evaluated."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from gatehouse.errors import GatehouseError
from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array
from gatehouse.metrics.tasks import EXPECTED, Task, are_usable
from gatehouse.store.stage import StageModel


class EvaluateResult(StageModel):
    """The evaluation, its verdict with reasons and warnings, and test metrics.

    `summary` says in a line what was drawn for intervals, and fairness.
    """

    evaluation: str
    verdict: Literal["pass", "refused", "inconclusive"]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    metrics: dict[str, float]
    champion_metrics: dict[str, float]
    baseline_metrics: dict[str, float]
    summary: str = ""
    transient: bool = Field(False, description="Lineage that cannot be read now may be readable later.")

    @property
    def provisional(self) -> bool:
        """Whether the same request is evaluated again."""
        return self.transient


class ScoringError(GatehouseError):
    """A model cannot score the test rows, or gave predictions that its task does not allow."""


def require_usable(predicted: Array, rows: Array, task: Task, scorer: str, source: str = "the training set") -> None:
    """Raise ScoringError, which names `scorer`, unless there is a prediction that the task allows for every row.

    `rows` are their numbers in `source`, shape (rows,).
    """
    right = are_usable(predicted, task.output)
    if len(predicted) != len(rows) or not right.all():
        wrong, others = np.flatnonzero(~right), ""
        if len(wrong):
            value = str(predicted[wrong[0]].tolist()).replace("nan", "NaN or null")
            others = f", found {len(wrong)} others, the first {value} in row {rows[wrong[0]]} of {source}"
        raise ScoringError(
            f"The {scorer} gave {len(predicted)} predictions for {len(rows)} rows; expected {EXPECTED[task.output]} "
            f"for every row{others}."
        )


@dataclass(frozen=True)
class Importance:
    """By how much the objective is worse without what a feature says; `interval` has the ends of its 95 % interval."""

    feature: str
    value: float
    interval: tuple[float, float] | None = None
