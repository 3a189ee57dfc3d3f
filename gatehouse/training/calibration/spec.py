"""How the probabilities of a model are calibrated, and by which rule its threshold is chosen."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from gatehouse.errors import GatehouseError
from gatehouse.metrics.tasks import TASKS, Output, Task
from gatehouse.store.identity import Spec

Cost = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class CalibrationError(GatehouseError):
    """The validation rows cannot decide how a model is calibrated, or which threshold to take."""

    permanent = True


class FixedThreshold(Spec):
    """A threshold that is stated."""

    rule: Literal["fixed"] = "fixed"
    at: float = Field(0.5, ge=0.0, le=1.0, description="The threshold.")


class FBetaThreshold(Spec):
    """The threshold with the highest F-beta: recall counts `beta` times as much as precision."""

    rule: Literal["f_beta"]
    beta: float = Field(1.0, gt=0.0, le=100.0)


class CostThreshold(Spec):
    """The threshold with the least total cost: a price for each of the four outcomes."""

    rule: Literal["cost"]
    false_positive: Cost = Field(description="Cost of a negative row that is predicted as positive (false positive).")
    false_negative: Cost = Field(description="Cost of a positive row that is predicted as negative (false negative).")
    true_positive: Cost = 0.0
    true_negative: Cost = 0.0


class PrecisionThreshold(Spec):
    """The threshold with the highest recall whose precision is at least `at_least`."""

    rule: Literal["precision"]
    at_least: float = Field(gt=0.0, le=1.0, description="Least precision.")


ThresholdSpec = Annotated[
    FixedThreshold | FBetaThreshold | CostThreshold | PrecisionThreshold, Field(discriminator="rule")
]
Method = Literal["platt", "isotonic", "temperature", "none"]

_METHODS: dict[Output, tuple[Method, ...]] = {
    "probability": ("platt", "isotonic", "none"),
    "probabilities": ("temperature",),
}


class CalibrationSpec(Spec):
    """What is fitted on the validation part after training, and travels with the model."""

    method: Method | None = Field(
        None, description="How probabilities are corrected; null for `platt` of two classes, `temperature` of several."
    )
    threshold: ThresholdSpec = Field(
        FixedThreshold(),
        description="How the probability is chosen from which a row of two classes counts as positive; "
        "`rule` names the method.",
    )
    min_rows: int = Field(500, ge=20, description="Fewest validation rows to fit on.")

    def resolved(self, task: Task) -> Method:
        """The method, with the task's own in place of null."""
        return self.method or _METHODS[task.output][0]

    def problems(self, task: Task) -> Iterator[str]:
        """Settings that do not fit a task."""
        if not task.has_classes:
            expected = " or ".join(other.name for other in TASKS.values() if other.has_classes)
            yield f"expected a task with probabilities ({expected}), found {task.name}; remove it"
            return
        if self.method and self.method not in (offered := _METHODS[task.output]):
            yield f"method: expected {' or '.join(offered)} for the task {task.name}, found {self.method}"
        usual = self.threshold == FixedThreshold()
        if task.output != "probability" and not usual:
            yield f"threshold: only two classes have one, found the task {task.name}; remove it"
        if self.method == "none" and usual:
            yield "method: none, with the usual threshold, does nothing: state a method or a threshold, or remove both"
