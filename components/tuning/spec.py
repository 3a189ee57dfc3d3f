"""An experiment in the words of Katib: objective, parameters, trials, budget."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, WithJsonSchema, model_validator

from gatehouse.components.artifacts.identity import Spec
from gatehouse.components.tasks.direction import is_minimized
from gatehouse.components.training.spec import TrainSpec, changed, setting_problem

Value = Annotated[bool | int | float | str | tuple[int, ...] | dict[str, Any], WithJsonSchema({})]
"""A value of a setting of `training`, or of a group of settings."""


class Parameter(Spec):
    """One dimension of the search space: a setting of `training` and its feasible values."""

    name: str = Field(description="Dotted name in `training`, such as `optimizer.learning_rate`.")
    type: Literal["double", "int", "categorical"]
    min: float | None = None
    max: float | None = None
    log: bool = Field(False, description="Search the logarithm: for values that matter by their ratio.")
    choices: tuple[Value, ...] = Field((), description="For categorical: the values.")

    @model_validator(mode="after")
    def _feasible(self) -> "Parameter":
        if problem := setting_problem(self.name):
            raise ValueError(f"name: {self.name}: {problem}")
        if self.type == "categorical":
            if not self.choices:
                raise ValueError("a categorical parameter needs choices")
        elif self.min is None or self.max is None or not self.min <= self.max:
            raise ValueError(f"a parameter of type {self.type} needs min and max, with min at most max")
        elif self.log and self.min <= 0:
            raise ValueError("log: expected min above 0")
        return self

    @property
    def extremes(self) -> tuple[Any, ...]:
        """Values that show whether every value of the parameter is one that training takes."""
        if self.type == "categorical":
            return self.choices
        if self.type == "int":
            return self.min, self.max
        low, high = self.min or 0.0, self.max or 0.0
        return low, high, low + (high - low) / math.pi


class SearchSpace(Spec):
    """An experiment: what is searched, how often, and with which budget a trial."""

    objective: str = Field("log_loss", description="Validation metric of a trial, one that training measures.")
    algorithm: Literal["tpe", "random"] = "tpe"
    trials: int = Field(4, ge=1, le=10_000)
    parameters: tuple[Parameter, ...] = Field(min_length=1)
    budget: dict[str, Value] = Field(
        {},
        description="Settings of a trial in place of those of `training`, by dotted name, as `stopping.epochs: 2`; the "
        "best configuration then trains with those of `training`.",
    )

    @property
    def minimize(self) -> bool:
        """Whether a smaller objective is better."""
        return is_minimized(self.objective)

    @model_validator(mode="after")
    def _distinct(self) -> "SearchSpace":
        problems = [f"budget: {name}: {why}" for name in self.budget if (why := setting_problem(name))]
        names = [*self.budget, *(parameter.name for parameter in self.parameters), "seed"]
        for index, name in enumerate(names):
            for other in names[index + 1 :]:
                if f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}."):
                    where = "a seed of its own" if other == "seed" else "budget and parameters"
                    problems.append(f"parameters: {name} and {other} overlap: every setting stands once in {where}")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def infeasible(space: SearchSpace, base: TrainSpec) -> Iterator[tuple[tuple[str | int, ...], Any, str]]:
    """What a trial could not be trained with: where it stands in the search space, the value, and why.

    Args:
        space: The experiment.
        base: The training whose settings are searched.
    """
    start = base
    for name, value in space.budget.items():
        try:
            start = changed(start, {name: value})
        except ValidationError as error:
            yield ("budget", name), value, _reason(name, error)
    for index, parameter in enumerate(space.parameters):
        for value in parameter.extremes:
            try:
                changed(start, {parameter.name: value})
            except ValidationError as error:
                yield ("parameters", index, "name"), value, _reason(parameter.name, error)
                break


def _reason(name: str, error: ValidationError) -> str:
    return f"{name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}"
