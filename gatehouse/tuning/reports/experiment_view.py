"""An experiment in the form for people: the search space and all trials, whether published or still running."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gatehouse.reports.charts import Axis
from gatehouse.reports.format import number
from gatehouse.runtime.plural import counted
from gatehouse.store.canonical import canonical_json

SUCCEEDED, EARLY_STOPPED = "succeeded", "early_stopped"
Body = Mapping[str, Any]

_ENDINGS = {
    "max_trial_count": "it made as many trials as max_trial_count says",
    "max_failed_trial_count": "more trials failed than max_failed_trial_count allows",
    "goal": "a trial reached the goal",
    "minutes": "budget.minutes were over",
    "cost": "budget.cost was spent",
    "steps": "budget.steps were trained",
    "generations": "every member of the population trained to its last epoch",
    "exhausted": "every configuration of the search space was tried",
    "stopped": "somebody stopped it",
}


@dataclass(frozen=True)
class Dimension:
    """One parameter of the search space, as the experiment describes it; a setting may occur under two conditions."""

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
    def condition(self) -> str:
        """The condition in words; empty for none."""
        return ", ".join(f"{name} is {' or '.join(map(text_of, values))}" for name, values in self.conditions.items())

    @property
    def title(self) -> str:
        """The name, with the condition in words."""
        return f"{self.setting}, where {self.condition}" if self.conditions else self.setting

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers with a distance between them."""
        return bool(self.spec["type"] != "categorical")

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The values of a categorical parameter as text."""
        return tuple(map(text_of, self.spec.get("choices") or ()))

    @property
    def range(self) -> str:
        """Its possible values in words."""
        if not self.numeric:
            return ", ".join(self.choices)
        low, high, step = (self.spec.get(key) for key in ("min", "max", "step"))
        stepped = f" by {text_of(step)}" if step else ""
        return f"{text_of(low)} to {text_of(high)}{stepped}{', logarithmic' if self.spec.get('log') else ''}"

    def axis(self) -> Axis:
        """The axis of its values."""
        if not self.numeric:
            return Axis(self.setting, choices=self.choices)
        ends = [float(self.spec["min"]), float(self.spec["max"])]
        return Axis.of(self.setting, ends, bool(self.spec.get("log")) and ends[0] > 0, self.spec["type"] == "int")

    def of(self, trial: Body) -> float | None:
        """Its value in a trial as a number on the axis; None if the trial did not have it."""
        parameters = trial["parameters"]
        applies = all(
            name in parameters and text_of(parameters[name]) in map(text_of, values)
            for name, values in self.conditions.items()
        )
        if self.setting not in parameters or not applies:
            return None
        value = parameters[self.setting]
        if self.numeric:
            return finite(value)
        text = text_of(value)
        return float(self.choices.index(text)) if text in self.choices else None


@dataclass(frozen=True)
class Objective:
    """An objective of the trials: its metric, its direction, and the value at which the experiment ends."""

    metric: str
    minimize: bool
    goal: float | None = None

    def of(self, trial: Body) -> float | None:
        """The value of a trial; None if it has no finite value."""
        return finite((trial.get("values") or {}).get(self.metric))

    @property
    def sign(self) -> int:
        """Factor that makes smaller values better."""
        return 1 if self.minimize else -1


@dataclass(frozen=True)
class ExperimentView:
    """An experiment: the content of `experiment.json` and `trials.json`, and its state in words unless it has ended."""

    name: str
    about: Body
    trials: Sequence[Body]
    state: str = "ended"

    @cached_property
    def objectives(self) -> list[Objective]:
        """The objectives, in order of priority."""
        return [
            Objective(str(body["metric"]), bool(body["minimize"]), body.get("goal"))
            for body in self.about["objectives"]
        ]

    @cached_property
    def dimensions(self) -> list[Dimension]:
        """The parameters of the search space."""
        return [Dimension(spec) for spec in self.about["parameters"]]

    @cached_property
    def settings(self) -> list[str]:
        """The names of all settings in the search space."""
        return list(dict.fromkeys(dimension.setting for dimension in self.dimensions))

    @cached_property
    def succeeded(self) -> list[Body]:
        """Trials that finished training and have every value."""
        return [
            trial
            for trial in self.trials
            if trial["state"] == SUCCEEDED and all(objective.of(trial) is not None for objective in self.objectives)
        ]

    @cached_property
    def best(self) -> Body | None:
        """The best trial, with several objectives the knee; None if no trial succeeded."""
        if (best := self.about.get("best_trial")) is not None:
            return next((trial for trial in self.trials if trial["number"] == best), None)
        first = self.objectives[0]
        feasible = [trial for trial in self.succeeded if trial.get("feasible", True)] or self.succeeded
        return min(feasible, key=lambda trial: (first.of(trial) or 0.0) * first.sign, default=None)

    @cached_property
    def front(self) -> list[Body]:
        """The trials of the Pareto front; empty for a single objective."""
        numbers = set(self.about.get("front") or ())
        return [trial for trial in self.trials if trial["number"] in numbers] if len(self.objectives) > 1 else []

    def ranked(self, objective: Objective) -> list[Body]:
        """Successful trials, best first by an objective."""
        return sorted(self.succeeded, key=lambda trial: (objective.of(trial) or 0.0) * objective.sign)


def finite(value: Any) -> float | None:
    """A finite number from JSON, else None; NaN in any form gives None."""
    return float(value) if type(value) in (float, int) and math.isfinite(value) else None


def text_of(value: Any) -> str:
    """A parameter's value as text: numbers with four digits; `trials.json` has all digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else canonical_json(value)


def values_of(shown: ExperimentView, trial: Body) -> str:
    """The objectives of a trial in words: `log_loss 0.5731, latency_ms 3.2`."""
    return ", ".join(f"{objective.metric} {number(objective.of(trial))}" for objective in shown.objectives)


def ending(ended: str) -> str:
    """Why an experiment ended, in words."""
    return _ENDINGS.get(ended, ended)


def subtitle(shown: ExperimentView) -> str:
    """A one-line description of the experiment."""
    states = Counter(str(trial["state"]).replace("_", " ") for trial in shown.trials)
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    stopping = shown.about.get("early_stopping")
    pruned = f", early stopping by {stopping['name']}" if stopping else ""
    trials = counted(len(shown.trials), "trial")
    return f"{trials}{f' ({counts})' if counts else ''}, algorithm {shown.about['algorithm']['name']}{pruned}"


def result_lines(shown: ExperimentView) -> list[str]:
    """The best trial and why the experiment ended, in sentences."""
    why = f"The experiment ended because {ending(str(shown.about['ended']))}." if shown.state == "ended" else ""
    best = shown.best
    if best is None:
        none = f"None of {len(shown.trials):,} trials succeeded." if shown.trials else "There is no trial."
        return [f"{none} {why}".strip()]
    if shown.front:
        place = f"is the knee of the Pareto front of {len(shown.front):,} trials"
    else:
        place = f"of {len(shown.trials):,} is best" + (" so far" if shown.state != "ended" else "")
    lines = [f"Trial {best['number']} {place}: {values_of(shown, best)}. {why}".strip()]
    if not best.get("feasible", True):
        lines.append("No trial keeps every constraint: the best one breaks at least one of them.")
    return lines


def failure_lines(shown: ExperimentView) -> list[str]:
    """The number of failed trials by reason, and whether the result is provisional."""
    reasons = Counter(str(trial.get("reason") or "no reason") for trial in shown.trials if trial["state"] == "failed")
    lines = [f"{counted(count, 'trial')}: {reason}" for reason, count in reasons.most_common()]
    if again := len(shown.about.get("provisional") or ()):
        lines.append(
            f"The result is provisional: {counted(again, 'trial')} failed for a reason outside of the search, such as "
            "a time limit, memory or a cluster. The next run tries again."
        )
    return lines
