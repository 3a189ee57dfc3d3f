"""An experiment in the words of Katib: objective, parameters, trials, budget."""

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gatehouse.components.training.spec import TREES, TrainSpec

_OF_TREES = frozenset(f"xgboost.{name}" for name in type(TrainSpec().xgboost).model_fields)


def _base(parameter: str) -> TrainSpec:
    return TrainSpec.model_validate({"architecture": TREES} if parameter in _OF_TREES else {})


class Parameter(BaseModel):
    """One dimension of the search space: the name of a field of TrainSpec and its feasible values."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    type: Literal["double", "int", "categorical"]
    min: float | None = None
    max: float | None = None
    log: bool = Field(False, description="Search the logarithm: for values that matter by their ratio.")
    choices: tuple[float | int | str | tuple[int, ...], ...] = Field((), description="For categorical: the values.")

    @model_validator(mode="after")
    def _feasible(self) -> "Parameter":
        if self.name not in TrainSpec.model_fields and self.name not in _OF_TREES:
            raise ValueError(f"name: expected a field of training, found {self.name!r}")
        if self.type == "categorical":
            if not self.choices:
                raise ValueError("a categorical parameter needs choices")
        elif self.min is None or self.max is None or not self.min <= self.max:
            raise ValueError(f"a parameter of type {self.type} needs min and max, with min at most max")
        elif self.log and self.min <= 0:
            raise ValueError("log: expected min above 0")
        for value in self._extremes():
            try:
                _base(self.name).changed({self.name: value})
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                raise ValueError(f"{self.name} cannot be {value!r} in training: {reason}") from None
        return self

    def _extremes(self) -> tuple[Any, ...]:
        """Values that show whether every value of the parameter is one that training takes."""
        if self.type == "categorical":
            return self.choices
        if self.type == "int":
            return self.min, self.max
        low, high = self.min or 0.0, self.max or 0.0
        return low, low + (high - low) / math.pi, high


class SearchSpace(BaseModel):
    """An experiment: what is searched, how often, and with which budget a trial."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: Literal["log_loss", "roc_auc"] = Field("log_loss", description="Validation metric of a trial.")
    algorithm: Literal["tpe", "random"] = "tpe"
    trials: int = Field(4, ge=1, le=10_000)
    parameters: tuple[Parameter, ...] = Field(min_length=1)
    epochs: int = Field(
        2, ge=1, description="Epochs of a trial; the best configuration then trains on the full budget."
    )
    train_fraction: float = Field(1.0, gt=0.0, le=1.0, description="Share of the train rows that a trial uses.")
    processes: int = Field(1, ge=1, description="Workers of a trial.")

    @property
    def minimize(self) -> bool:
        """Whether a smaller objective is better."""
        return self.objective == "log_loss"

    @model_validator(mode="after")
    def _distinct(self) -> "SearchSpace":
        names = [parameter.name for parameter in self.parameters]
        if len(set(names)) < len(names):
            raise ValueError("parameters: expected each name once")
        fixed = {"epochs", "train_fraction", "processes", "seed"} & set(names)
        if fixed:
            raise ValueError(f"parameters: {', '.join(sorted(fixed))} belong to the budget and cannot be searched")
        return self
