"""An experiment in the form for its page: the search space and all trials, whether published or still running."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gatehouse.reports.format import number
from gatehouse.reports.plots import Axis
from gatehouse.store.canonical import canonical_json

SUCCEEDED, EARLY_STOPPED = "succeeded", "early_stopped"
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Dimension:
    """One parameter of the search space, with its condition: a setting may occur twice.

    Attributes:
        spec: Its description in the experiment.
    """

    spec: Body

    @property
    def setting(self) -> str:
        """The dotted name of the setting."""
        return str(self.spec["name"])

    @cached_property
    def conditions(self) -> Mapping[str, Sequence[Any]]:
        """Other parameters, and the values of each with which this one is searched."""
        when = self.spec.get("when") or {}
        return {name: value if isinstance(value, list) else [value] for name, value in when.items()}

    @property
    def title(self) -> str:
        """The name, with the condition in words."""
        when = ", ".join(f"{name} is {' or '.join(map(told, values))}" for name, values in self.conditions.items())
        return f"{self.setting}, where {when}" if when else self.setting

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers with a distance between them."""
        return bool(self.spec["type"] != "categorical")

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The values of a categorical parameter as text."""
        return tuple(map(told, self.spec.get("choices") or ()))

    def axis(self) -> Axis:
        """The axis of its values."""
        if not self.numeric:
            return Axis(self.setting, choices=self.choices)
        ends = [float(self.spec["min"]), float(self.spec["max"])]
        return Axis.of(self.setting, ends, bool(self.spec.get("log")) and ends[0] > 0, self.spec["type"] == "int")

    def of(self, trial: Body) -> float | None:
        """Its value in a trial as a number on the axis; None if the trial did not have it."""
        parameters = trial["parameters"]
        if self.setting not in parameters or not self._applies(parameters):
            return None
        value = parameters[self.setting]
        if self.numeric:
            return finite(value)
        text = told(value)
        return float(self.choices.index(text)) if text in self.choices else None

    def _applies(self, parameters: Body) -> bool:
        return all(
            name in parameters and told(parameters[name]) in map(told, values)
            for name, values in self.conditions.items()
        )


@dataclass(frozen=True)
class Objective:
    """An objective of the trials.

    Attributes:
        metric: Its name.
        minimize: Whether smaller is better.
        goal: The value at which the experiment ends; None for none.
    """

    metric: str
    minimize: bool
    goal: float | None = None

    def of(self, trial: Body) -> float | None:
        """The value of a trial; None if it has no finite value."""
        return finite((trial.get("values") or {}).get(self.metric))

    def sign(self) -> int:
        """Factor that makes smaller values better."""
        return 1 if self.minimize else -1


@dataclass(frozen=True)
class Shown:
    """An experiment.

    Attributes:
        name: Name of the model.
        about: The content of `experiment.json`: what was searched, and how it ended.
        trials: The content of `trials.json`: each trial, by number.
        state: `ended`, or the state of an unpublished experiment in words.
    """

    name: str
    about: Body
    trials: Sequence[Body]
    state: str = "ended"

    @cached_property
    def objectives(self) -> list[Objective]:
        """The objectives, in order of priority."""
        return [
            Objective(str(one["metric"]), bool(one["minimize"]), one.get("goal")) for one in self.about["objectives"]
        ]

    @cached_property
    def dimensions(self) -> list[Dimension]:
        """The parameters of the search space."""
        return [Dimension(one) for one in self.about["parameters"]]

    @cached_property
    def succeeded(self) -> list[Body]:
        """Trials that finished training and have every value."""
        return [one for one in self.trials if one["state"] == SUCCEEDED and self._whole(one)]

    @cached_property
    def best(self) -> Body | None:
        """The best trial, with several objectives the knee; None if no trial succeeded."""
        if self.about.get("best_trial") is not None:
            wanted = self.about["best_trial"]
            return next((one for one in self.trials if one["number"] == wanted), None)
        first = self.objectives[0]
        feasible = [one for one in self.succeeded if one.get("feasible", True)] or self.succeeded
        return min(feasible, key=lambda one: (first.of(one) or 0.0) * first.sign(), default=None)

    @cached_property
    def front(self) -> list[Body]:
        """The trials of the Pareto front; empty for a single objective."""
        wanted = set(self.about.get("front") or ())
        return [one for one in self.trials if one["number"] in wanted] if len(self.objectives) > 1 else []

    def ranked(self, objective: Objective) -> list[Body]:
        """Successful trials, best first by an objective."""
        return sorted(self.succeeded, key=lambda one: (objective.of(one) or 0.0) * objective.sign())

    def _whole(self, trial: Body) -> bool:
        return all(objective.of(trial) is not None for objective in self.objectives)


def finite(value: Any) -> float | None:
    """A finite number from JSON, else None; NaN in any form gives None."""
    return float(value) if type(value) in (float, int) and math.isfinite(value) else None


def told(value: Any) -> str:
    """A parameter's value as text: numbers with four digits; `trials.json` has all digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else canonical_json(value)


def values_of(shown: Shown, trial: Body) -> str:
    """The objectives of a trial in words: `log_loss 0.5731, latency_ms 3.2`."""
    return ", ".join(f"{one.metric} {number(one.of(trial))}" for one in shown.objectives)
