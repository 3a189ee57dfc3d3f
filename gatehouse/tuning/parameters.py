"""One dimension of the search space: a setting of `training`, its values, and the condition under which it is used."""

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, model_validator

from gatehouse.store.identity import Spec
from gatehouse.training.spec import setting_problem

Value = Annotated[bool | int | float | str | tuple[int, ...] | dict[str, Any], WithJsonSchema({})]
"""A value of a setting of `training`, or of a group of settings."""

_SAMPLES = 200
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
PLACEHOLDER = re.compile(rf"(?<!\$)\{{({_NAME.pattern})\}}")
"""A parameter in a command: `{name}`, and no variable of a shell, `${name}`."""

Values = Annotated[Value | tuple[Value, ...], WithJsonSchema({})]
"""A value, or a list of values."""


class ParameterSpec(Spec):
    """One dimension of the search space: a setting of `training` and its feasible values."""

    name: str = Field(description="Dotted name in `training`, such as `optimizer.learning_rate`.")
    type: Literal["double", "int", "categorical"] = Field(description="What its values are.")
    min: float | None = Field(None, description="Least value; not for categorical.")
    max: float | None = Field(None, description="Greatest value; not for categorical.")
    step: float | None = Field(None, gt=0, description="Distance of neighbouring values, from `min` on; 1 for int.")
    log: bool = Field(False, description="Search on a logarithmic scale, for values that matter by their ratio.")
    choices: tuple[Value, ...] = Field((), description="For categorical: the values.")
    when: dict[str, Values] = Field(
        {},
        description="Condition: names of other parameters with the value, or the list of values, for which "
        "this one is searched, such as `model.architecture: xgboost`; empty to always search it.",
    )

    @model_validator(mode="after")
    def _feasible(self) -> "ParameterSpec":
        if problem := self._name_problem():
            raise ValueError(f"name: {self.name}: {problem}")
        if self.type == "categorical":
            bounds = {"min": self.min, "max": self.max, "step": self.step, "log": self.log or None}
            if present := [name for name, value in bounds.items() if value is not None]:
                raise ValueError(f"a categorical parameter has choices, and no {', '.join(present)}")
            if not self.choices:
                raise ValueError("a categorical parameter needs choices")
            texts = [json.dumps(plain(choice), sort_keys=True) for choice in self.choices]
            if repeated := sorted({text for text in texts if texts.count(text) > 1}):
                raise ValueError(f"choices: expected each value once, found again {', '.join(repeated)}")
            return self
        if self.choices:
            raise ValueError(f"choices: a parameter of type {self.type} has min and max; remove them")
        if self.min is None or self.max is None:
            raise ValueError(f"a parameter of type {self.type} needs min and max")
        if not self.min <= self.max:
            raise ValueError(f"expected min at most max, found min {self.min:g} and max {self.max:g}")
        if self.log and self.min <= 0:
            raise ValueError(f"log: expected min above 0, found {self.min:g}")
        if self.log and self.step is not None:
            raise ValueError("step: values of a logarithm have no even steps; remove step or log")
        if self.step is not None and self.step > self.max - self.min:
            raise ValueError(f"step: expected at most max - min, {self.max - self.min:g}, found {self.step:g}")
        if self.type == "int" and self.step is not None and self.step != int(self.step):
            raise ValueError(f"step: expected a whole number for int, found {self.step:g}")
        return self

    def _name_problem(self) -> str:
        return setting_problem(self.name)

    @property
    def extremes(self) -> tuple[Any, ...]:
        """The values that show whether training accepts every value of the parameter."""
        if self.type == "categorical":
            return self.choices
        if self.type == "int":
            return self.min, self.max
        low, high = self.min or 0.0, self.max or 0.0
        return low, high, low + (high - low) / math.pi

    @property
    def finite(self) -> tuple[Any, ...] | None:
        """All values, in order; None if there are infinitely many."""
        if self.type == "categorical":
            return self.choices
        low, high = self.min or 0.0, self.max or 0.0
        if self.type == "int":
            return tuple(range(int(low), int(high) + 1, int(self.step or 1)))
        if self.step is None:
            return (low,) if low == high else None
        first, step = Decimal(str(low)), Decimal(str(self.step))
        return tuple(float(first + index * step) for index in range(int((Decimal(str(high)) - first) / step) + 1))

    def internal(self, value: Any) -> float | int | None:
        """A value as Optuna stores it, with a choice as its index; None if the parameter has no such value."""
        if self.finite is not None:
            values = list(map(plain, self.finite))
            if plain(value) not in values:
                return None
            return values.index(plain(value)) if self.type == "categorical" else value
        return value if isinstance(value, int | float) and (self.min or 0) <= value <= (self.max or 0) else None

    @property
    def words(self) -> str:
        """Its values in words."""
        if self.type == "categorical":
            return f"one of {', '.join(str(plain(choice)) for choice in self.choices)}"
        return f"from {self.min:g} to {self.max:g}" + (f" in steps of {self.step:g}" if self.step else "")

    def opening(self, parent: str) -> tuple[Any, ...]:
        """The values of `parent` with which this parameter is open."""
        value = self.when[parent]
        return (value, *value) if isinstance(value, tuple) else (value,)

    def is_open(self, chosen: Mapping[str, Any]) -> bool:
        """Whether the parameter is used with these values of its parents."""
        return all(
            parent in chosen and plain(chosen[parent]) in map(plain, self.opening(parent)) for parent in self.when
        )


class CommandParameter(ParameterSpec):
    """A parameter of a command of the user's own, of any name."""

    def _name_problem(self) -> str:
        return "" if _NAME.fullmatch(self.name) else "expected letters, digits, '.', '_' and '-'"


def plain(value: Any) -> Any:
    """A value as JSON reads it back."""
    return json.loads(json.dumps(value))


def ordered(parameters: Sequence[ParameterSpec]) -> list[ParameterSpec]:
    """The parameters, each after those that its condition names, otherwise in the given order.

    Raises CycleError if conditions form a cycle.
    """
    parents: dict[str, set[str]] = {}
    for parameter in parameters:
        parents.setdefault(parameter.name, set()).update(parameter.when)
    depths: dict[str, int] = {}
    for name in TopologicalSorter(parents).static_order():
        depths[name] = 1 + max((depths[parent] for parent in parents.get(name, ())), default=-1)
    return sorted(parameters, key=lambda parameter: depths[parameter.name])


def condition_problems(parameters: Sequence[ParameterSpec]) -> Iterator[str]:
    """Problems of the conditions: unknown parents, values that a parent does not have, and cycles."""
    for parameter in parameters:
        for parent, value in parameter.when.items():
            values = [other.finite for other in parameters if other.name == parent]
            if not values:
                yield f"parameters: {parameter.name}: when: there is no parameter {parent}"
                continue
            if None in values:
                yield f"parameters: {parameter.name}: when: {parent} has no list of values that one could be of"
                continue
            possible = [choice for choices in values for choice in choices or ()]
            listed = value if isinstance(value, tuple) and value not in possible else (value,)
            if missing := [choice for choice in listed if choice not in possible]:
                yield f"parameters: {parameter.name}: when: {parent} is never {', '.join(map(str, missing))}"
    try:
        ordered(parameters)
    except CycleError as error:
        yield f"parameters: when: conditions lead in a circle: {' -> '.join(error.args[1])}"


def samples(parameters: Sequence[ParameterSpec]) -> list[dict[str, Any]]:
    """Configurations drawn with a fixed seed, which show the conditions under which parameters are used together."""
    draw, drawn = random.Random(0), []
    for _ in range(_SAMPLES):
        chosen: dict[str, Any] = {}
        for parameter in ordered(parameters):
            if parameter.is_open(chosen):
                chosen[parameter.name] = draw.choice(parameter.finite or parameter.extremes)
        drawn.append(chosen)
    return drawn
