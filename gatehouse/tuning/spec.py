"""An experiment in Katib's terms: objectives, algorithm, parameters with their conditions, trials, budget."""

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.catalogue import is_minimized
from gatehouse.store.identity import Spec, operational
from gatehouse.store.reference import is_identity
from gatehouse.training.spec import CHANGEABLE, setting_problem


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


Option = bool | int | float | str | None
"""The value of an option of one of Optuna's classes."""

_WITH_REQUIRED_OPTIONS = ("PercentilePruner", "PatientPruner")


class _OfOptuna(Spec):
    name: str
    options: dict[str, Option] = Field(
        {}, description="Options of the class by Optuna's names, with Optuna's defaults; they stand beside `name`."
    )

    @model_validator(mode="before")
    @classmethod
    def _checked(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        name, options = str(body.get("name")), body.get("options")
        options = options if isinstance(options, dict) else {key: body[key] for key in body if key != "name"}
        if name in get_args(cls.model_fields["name"].annotation) and (options or name in _WITH_REQUIRED_OPTIONS):
            from gatehouse.tuning.samplers import checked_options

            options = checked_options(name, options)
        return {"name": name, "options": options}


class Sampler(_OfOptuna):
    """One of Optuna's [samplers](https://optuna.readthedocs.io/en/stable/reference/samplers/index.html)."""

    name: Literal[
        "RandomSampler", "GridSampler", "QMCSampler", "TPESampler", "GPSampler", "CmaEsSampler", "NSGAIISampler"
    ] = Field(description="The class.")


class Pruner(_OfOptuna):
    """One of Optuna's [pruners](https://optuna.readthedocs.io/en/stable/reference/pruners.html); steps begin at 1."""

    name: Literal["HyperbandPruner", "SuccessiveHalvingPruner", "MedianPruner", "PercentilePruner", "PatientPruner"] = (
        Field(description="The class.")
    )


class PopulationAlgorithm(Spec):
    """Population-based training: members train in parallel, and the worst continue with the weights of the best."""

    name: Literal["population"] = "population"
    population_size: int = Field(8, ge=2, le=10_000, description="Size of the population: trials of each generation.")
    interval: int = Field(1, ge=1, le=10_000, description="Epochs of a generation.")
    quantile: float = Field(
        0.25,
        gt=0,
        le=0.5,
        description="Share of the population that is the worst, and also that is the best: the worst members copy "
        "the best.",
    )
    perturb: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (0.8, 1.25), min_length=1, description="Factors: each setting of a copied member is multiplied by one of them."
    )
    resample: float = Field(0.25, ge=0, le=1, description="Probability that such a setting is drawn at random instead.")


Algorithm = Annotated[
    Annotated[Sampler | PopulationAlgorithm, Field(discriminator="name")],
    BeforeValidator(_named, json_schema_input_type=Any),
]
"""How configurations are suggested; a name alone stands for the algorithm with its defaults."""

SEVERAL_OBJECTIVES = ("RandomSampler", "GridSampler", "QMCSampler", "TPESampler", "NSGAIISampler")
"""Algorithms that support several objectives."""

UNCONDITIONAL = ("GridSampler", "QMCSampler", "CmaEsSampler", "population")
"""Algorithms that support no conditional parameters."""

EarlyStopping = Annotated[Pruner, BeforeValidator(_named, json_schema_input_type=Any)]
"""When a trial is stopped early; a name alone stands for the rule with its defaults."""


Value = Annotated[bool | int | float | str | tuple[int, ...] | dict[str, Any], WithJsonSchema({})]
"""A value of a setting of `training`, or of a group of settings."""

_SAMPLES = 200
_MOST_VALUES, _LARGEST_GRID = 1_000_000, 100_000
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_PRINTED = re.compile(r"[A-Za-z_][\w./-]*")
PLACEHOLDER = re.compile(rf"(?<!\$)\{{({_NAME.pattern})\}}")
"""A parameter in a command: `{name}`, and no variable of a shell, `${name}`."""

Values = Annotated[Value | tuple[Value, ...], WithJsonSchema({})]
"""A value, or a list of values."""


class ParameterSpec(Spec):
    """One dimension of the search space: a setting of `training` and its feasible values."""

    name: str = Field(description="Dotted name in `training`, such as `optimizer.learning_rate`.")
    type: Literal["double", "int", "categorical"] = Field(description="What its values are.")
    min: float | None = Field(None, allow_inf_nan=False, description="Least value; not for categorical.")
    max: float | None = Field(None, allow_inf_nan=False, description="Greatest value; not for categorical.")
    step: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Distance of neighbouring values, from `min` on; 1 for int."
    )
    log: bool = Field(False, description="Search on a logarithmic scale, for values that matter by their ratio.")
    choices: tuple[Value, ...] = Field((), description="For categorical: the values.")
    when: dict[str, Values] = Field(
        {},
        description="Condition: names of parameters before this one with the value, or the list of values, for which "
        "it is searched, such as `model.architecture: xgboost`; empty to always search it.",
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
        whole = {name: getattr(self, name) for name in ("min", "max", "step") if self.type == "int"}
        if cut := [f"{name} {value:g}" for name, value in whole.items() if value and (value % 1 or abs(value) > 2**53)]:
            raise ValueError(f"expected whole numbers of at most 2^53 for int, found {', '.join(cut)}")
        if self.type == "double" and self.step and (self.max - self.min) / self.step > _MOST_VALUES:
            raise ValueError(f"step: expected at most {_MOST_VALUES:,} values; remove step, or take a greater one")
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
    def finite(self) -> Sequence[Any] | None:
        """All values, in order; None if there are infinitely many."""
        if self.type == "categorical":
            return self.choices
        low, high = self.min or 0.0, self.max or 0.0
        if self.type == "int":
            return range(int(low), int(high) + 1, int(self.step or 1))
        if self.step is None:
            return (low,) if low == high else None
        first, step = Decimal(str(low)), Decimal(str(self.step))
        return tuple(float(first + index * step) for index in range(int((Decimal(str(high)) - first) / step) + 1))

    def internal(self, value: Any) -> float | int | None:
        """A value as Optuna stores it, with a choice as its index; None if the parameter has no such value."""
        if self.type == "categorical":
            values = list(map(plain, self.choices))
            return values.index(plain(value)) if plain(value) in values else None
        if not isinstance(value, int | float) or not (self.min or 0) <= value <= (self.max or 0):
            return None
        if self.type == "int":  # A range is searched through for anything but an int.
            return value if value % 1 == 0 and int(value) in (self.finite or ()) else None
        return value if self.finite is None or value in self.finite else None

    @property
    def words(self) -> str:
        """Its values in words."""
        if self.type == "categorical":
            return f"one of {', '.join(str(plain(choice)) for choice in self.choices)}"
        return f"from {self.min:g} to {self.max:g}" + (f" in steps of {self.step:g}" if self.step else "")

    @property
    def condition(self) -> str:
        """Its condition in words; empty for none."""
        values = {name: value if isinstance(value, tuple) else (value,) for name, value in self.when.items()}
        return ", ".join(f"{name} is {' or '.join(map(str, listed))}" for name, listed in values.items())

    @property
    def title(self) -> str:
        """Its name, with the condition in words."""
        return f"{self.name} when {self.condition}" if self.when else self.name

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


def condition_problems(parameters: Sequence[ParameterSpec]) -> Iterator[str]:
    """Problems of the conditions: parents that are not listed before, and values that a parent does not have."""
    for index, parameter in enumerate(parameters):
        for parent, value in parameter.when.items():
            parents = [other for other in parameters[:index] if other.name == parent]
            if not parents:
                yield f"parameters: {parameter.name}: when: there is no parameter {parent} before it"
            elif any(other.finite is None for other in parents):
                yield f"parameters: {parameter.name}: when: {parent} has no list of values that one could be of"
            else:
                is_list = isinstance(value, tuple) and all(other.internal(value) is None for other in parents)
                listed = value if isinstance(value, tuple) and is_list else (value,)
                if missing := [choice for choice in listed if all(other.internal(choice) is None for other in parents)]:
                    yield f"parameters: {parameter.name}: when: {parent} is never {', '.join(map(str, missing))}"


def samples(parameters: Sequence[ParameterSpec]) -> list[dict[str, Any]]:
    """Configurations drawn with a fixed seed, which show the conditions under which parameters are used together."""
    draw, drawn = random.Random(0), []
    for _ in range(_SAMPLES):
        chosen: dict[str, Any] = {}
        for parameter in parameters:
            if parameter.is_open(chosen):
                chosen[parameter.name] = draw.choice(parameter.finite or parameter.extremes)
        drawn.append(chosen)
    return drawn


MEASURES = ("size_bytes", "latency_ms")
"""Measurements of a trial's model besides validation metrics; smaller is better for each."""

CHANGING = tuple(f"optimizer.{name}" for name in CHANGEABLE)
"""Parameters that a population may change during training; all others stay fixed for a member."""

_OF_A_POPULATION = ("stopping.epochs", "optimizer.schedule", "optimizer.warmup", "optimizer.changes")
"""Settings that a population controls itself."""


class Objective(Spec):
    """An objective of the search."""

    metric: str = Field(description=f"Validation metric that training measures, or one of {', '.join(MEASURES)}.")
    goal: float | None = Field(None, description="The experiment ends as soon as a trial is at least as good.")
    direction: Literal["minimize", "maximize"] | None = Field(
        None, description="Which values are better, of a metric that only a command of your own knows."
    )

    @property
    def minimize(self) -> bool:
        """Whether less is better."""
        if self.direction is not None:
            return self.direction == "minimize"
        return self.metric in MEASURES or is_minimized(self.metric)

    @property
    def sign(self) -> int:
        """Factor that makes smaller values better."""
        return 1 if self.minimize else -1

    @property
    def own_direction(self) -> bool | None:
        """Whether less is better of Gatehouse's metric of this name; None if there is none."""
        try:
            return self.metric in MEASURES or is_minimized(self.metric)
        except ConfigurationError:
            return None

    def is_reached(self, value: float) -> bool:
        """Whether a trial with this value reaches the goal."""
        return self.goal is not None and (value <= self.goal if self.minimize else value >= self.goal)


class Constraint(Spec):
    """A limit that a trial's model must keep to be the best."""

    measure: str = Field(description=f"One of {', '.join(MEASURES)}, or a validation metric that training measures.")
    at_most: float | None = Field(None, description="Greatest value; or `at_least`.")
    at_least: float | None = Field(None, description="Least value; or `at_most`.")

    @model_validator(mode="after")
    def _bounded(self) -> "Constraint":
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("expected one of at_most and at_least")
        return self

    @property
    def words(self) -> str:
        """The limit in words."""
        return f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"

    def violation(self, value: float) -> float:
        """By how much the value breaks the constraint; 0 or less if it keeps it."""
        return value - self.at_most if self.at_most is not None else (self.at_least or 0.0) - value


class Budget(Spec):
    """Limits of an experiment; null for no limit. Running trials are stopped when a limit is reached."""

    minutes: float | None = Field(None, gt=0, description="Minutes of the experiment.")
    cost: float | None = Field(None, gt=0, description="Cost of all trials, by the price table.")
    steps: int | None = Field(None, ge=1, description="Steps of all trials together.")


def _objectives(value: Any) -> Any:
    objectives = value if isinstance(value, list | tuple) else [value]
    return [{"metric": entry} if isinstance(entry, str) else entry for entry in objectives]


_HOW_LONG = ("max_trial_count", "parallel_trial_count", "max_failed_trial_count", "budget")
"""Fields that do not identify an experiment: with higher values, the same experiment continues."""


class ExperimentSpec(Spec):
    """An experiment: what is searched, how, how often, and with which settings per trial."""

    objective: Annotated[tuple[Objective, ...], BeforeValidator(_objectives, json_schema_input_type=Any)] = Field(
        (),
        description="What is optimised: a metric, `{metric, goal}`, or a list of them for a Pareto front; empty for "
        "the metric by which `training` keeps its best epoch or round.",
    )
    algorithm: Algorithm = Field(
        Sampler(name="TPESampler"),
        description="Optuna's sampler by the name of its class, or with its options; or `population`.",
    )
    early_stopping: EarlyStopping | None = Field(
        None, description="Optuna's pruner by the name of its class, or with its options; null to stop no trial early."
    )
    max_trial_count: int = Field(8, ge=1, le=100_000, description="How many configurations are tried.")
    parallel_trial_count: int = Field(1, ge=1, le=1000, description="How many of them run at once.")
    max_failed_trial_count: int = Field(
        3, ge=0, description="More failed trials than this end the experiment as failed."
    )
    steps_per_trial: int = Field(
        0, ge=0, le=10_000, description="Steps of a trial, after each of which it may be stopped; 0 for its epochs."
    )
    trial_settings: dict[str, Value] = Field(
        {},
        description="Settings of trials that replace those of `training`, by dotted name, such as "
        "`stopping.epochs: 2`; the final training of the best configuration uses those of "
        "`training`.",
    )
    budget: Budget = Field(Budget(), description="Limits of time, cost and steps for the experiment.")
    constraints: tuple[Constraint, ...] = Field((), description="Constraints that the best trial must satisfy.")
    final_rows: Literal["train", "train_and_validation"] = operational(
        "train",
        description="Rows of the final training of the best configuration: the train rows, or train and "
        "validation rows together, for the number of epochs that was best on the train rows.",
    )
    warm_start: tuple[str, ...] = Field(
        (), description="References of earlier experiments, whose best configurations are tried first."
    )
    parameters: tuple[ParameterSpec, ...] = Field(min_length=1, description="The search space.")
    _decided: ClassVar[tuple[str, ...]] = ("seed",)

    @property
    def is_grid(self) -> bool:
        """Whether all combinations are tried."""
        return self.algorithm.name == "GridSampler"

    @property
    def refits(self) -> bool:
        """Whether the best configuration is finally trained on train and validation rows."""
        return self.final_rows == "train_and_validation"

    @property
    def endless(self) -> Self:
        """The experiment as it is identified, without what says how long it goes on."""
        fields = type(self).model_fields
        return self.model_copy(update={name: fields[name].get_default(call_default_factory=True) for name in _HOW_LONG})

    def aimed_at(self, metric: str) -> "ExperimentSpec":
        """The experiment with this metric as its objective, if it has none."""
        return self if self.objective else self.model_copy(update={"objective": (Objective(metric=metric),)})

    def described(self, steps: int) -> dict[str, Any]:
        """The search as data for `experiment.json`, with the steps of a whole trial."""
        body = self.model_dump(mode="json")
        kept = ("algorithm", "early_stopping", "parameters", "trial_settings", "budget", "constraints", "warm_start")
        objectives = [{"metric": aim.metric, "minimize": aim.minimize, "goal": aim.goal} for aim in self.objective]
        return {"objectives": objectives, "steps_per_trial": steps, **{name: body[name] for name in kept}}

    def label(self, parameter: ParameterSpec) -> str:
        """The parameter's name for Optuna, with its condition if the setting occurs twice."""
        occurrences = sum(other.name == parameter.name for other in self.parameters)
        return parameter.name if occurrences == 1 else parameter.title

    @model_validator(mode="after")
    def _possible(self) -> "ExperimentSpec":
        problems = [*condition_problems(self.parameters)] or [*self._setting_problems(), *self._search_problems()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _setting_problems(self) -> Iterator[str]:
        """Settings that do not exist, or that two entries decide, and a direction that is not the metric's."""
        for aim in self.objective:
            if aim.direction and aim.own_direction not in (None, aim.minimize):
                yield f"objective: {aim.metric} is always {'minimized' if aim.own_direction else 'maximized'}"
        for name in self.trial_settings:
            if why := setting_problem(name):
                yield f"trial_settings: {name}: {why}"
            if name in ("model", "model.architecture"):
                yield f"trial_settings: {name}: the best configuration would have another model; remove it"
        for reference in self.warm_start:
            if not (is_identity(reference) and reference.startswith("experiments/")):
                yield f"warm_start: expected references experiments/<name>/sha256-<64 hex>, found {reference!r}"
        decided = [*self.trial_settings, *self._decided]
        for index, name in enumerate(decided):
            for other in (*decided[index + 1 :], *(parameter.name for parameter in self.parameters)):
                if _overlap(name, other):
                    yield f"{other} and {name} overlap: decide each setting once"
        overlapping: set[tuple[str, str]] = set()
        for chosen in samples(self.parameters):
            used = [parameter.name for parameter in self.parameters if parameter.is_open(chosen)]
            overlapping.update(pair for pair in combinations(used, 2) if _overlap(*pair))
        for name, other in sorted(overlapping):
            yield f"parameters: {name} and {other} overlap: their conditions must exclude each other"

    def _search_problems(self) -> Iterator[str]:
        """Algorithms and pruners that cannot search this space, or these objectives."""
        algorithm, parameters = self.algorithm.name, self.parameters
        metrics = [objective.metric for objective in self.objective]
        measured = ", ".join(metric for metric in metrics if metric in MEASURES)
        if len(set(metrics)) < len(metrics):
            yield f"objective: expected each metric once, found {', '.join(metrics)}"
        if len(metrics) > 1 and algorithm not in SEVERAL_OBJECTIVES:
            yield f"algorithm: {algorithm} takes one objective; for several there are {', '.join(SEVERAL_OBJECTIVES)}"
        if len(metrics) > 1 and self.early_stopping:
            yield "early_stopping: trials can be stopped early by one objective only"
        elif measured and self.early_stopping:
            yield f"early_stopping: {measured} is measured at the end of a trial only"
        if algorithm in UNCONDITIONAL and any(parameter.when for parameter in parameters):
            yield f"algorithm: {algorithm} takes no conditions; remove when, or take TPESampler or RandomSampler"
        if self.is_grid and (endless := [parameter.name for parameter in parameters if parameter.finite is None]):
            listed = ", ".join(endless)
            yield f"algorithm: {algorithm} needs parameters with a list of values, or with a step; found {listed}"
        elif self.is_grid and (size := math.prod(len(other.finite or ()) for other in parameters)) > _LARGEST_GRID:
            yield f"algorithm: {algorithm} tries at most {_LARGEST_GRID:,} combinations, found {size:,}"
        if self.is_grid and self.warm_start:
            yield "warm_start: a grid tries all its configurations"
        if algorithm == "CmaEsSampler":
            if any(parameter.type == "categorical" for parameter in parameters):
                yield f"algorithm: {algorithm} takes numbers only; take TPESampler or GPSampler"
            elif sum(parameter.min != parameter.max for parameter in parameters) < 2:
                yield f"algorithm: {algorithm} needs two parameters at least; take TPESampler or GPSampler"
        if isinstance(self.algorithm, PopulationAlgorithm):
            names, least = [parameter.name for parameter in parameters], 2 * self.algorithm.population_size
            if not set(CHANGING).intersection(names):
                yield f"algorithm: population needs a parameter that may change in training: {', '.join(CHANGING)}"
            for name in (*names, *self.trial_settings):
                if any(_overlap(name, setting) for setting in _OF_A_POPULATION):
                    yield f"{name}: a population decides it; members train to training.stopping.epochs"
            if self.max_trial_count < least:
                yield f"max_trial_count: expected at least two generations, {least}, found {self.max_trial_count}"
            if self.steps_per_trial:
                yield "steps_per_trial: the steps of a population are epochs; remove it"
            if self.early_stopping:
                yield "early_stopping: a population replaces its worst members; remove it"
            if measured:
                yield f"objective: {measured} is not measured while a member trains"


class CommandSearchSpec(ExperimentSpec):
    """An experiment whose trials run a command of the user's own, which names parameters and metrics as it likes."""

    parameters: tuple[CommandParameter, ...] = Field(min_length=1, description="The search space.")
    _decided: ClassVar[tuple[str, ...]] = ()

    def _setting_problems(self) -> Iterator[str]:
        if self.trial_settings or self.refits:
            yield "trial_settings, final_rows: they are of Gatehouse's own training; remove them"
        if not self.objective:
            yield "objective: expected a metric that the command prints"
        for aim in self.objective:
            if not _PRINTED.fullmatch(aim.metric):
                yield f"objective: {aim.metric}: expected a name as printed lines have one, without spaces"
            if aim.direction is None and aim.own_direction is None:
                yield f"objective: {aim.metric}: expected a direction, minimize or maximize"
        if self.early_stopping and not self.steps_per_trial:
            yield "early_stopping: it needs steps_per_trial, how often a whole trial prints the objective"
        if self.algorithm.name == "population":
            yield "algorithm: a population continues Gatehouse's own trainings; take one of Optuna's samplers"
        yield from super()._setting_problems()


def _overlap(name: str, other: str) -> bool:
    """Whether two dotted names are the same setting, or one is a group that contains the other."""
    return f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")
