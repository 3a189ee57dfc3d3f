"""An experiment in Katib's terms: objectives, algorithm, parameters with their conditions, trials, budget."""

import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.catalogue import is_minimized
from gatehouse.store.identity import Spec, operational
from gatehouse.store.reference import is_identity
from gatehouse.training.spec import CHANGEABLE, setting_problem


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class RandomAlgorithm(Spec):
    """Every configuration is drawn independently."""

    name: Literal["random"] = "random"


class GridAlgorithm(Spec):
    """All combinations of the values, in a random order; the experiment ends when all are tried."""

    name: Literal["grid"] = "grid"


class SobolAlgorithm(Spec):
    """Points of a Sobol sequence, which fill the space more evenly than random ones."""

    name: Literal["sobol"] = "sobol"
    scramble: bool = Field(True, description="Shift the points by the seed, so that another seed tries other points.")


class TpeAlgorithm(Spec):
    """Tree-structured Parzen estimator: values that are frequent among good trials and rare among others."""

    name: Literal["tpe"] = "tpe"
    startup_trials: int = Field(10, ge=1, description="Trials that are drawn at random at the start.")
    candidates: int = Field(24, ge=1, le=10_000, description="Candidate values that are drawn for each suggestion.")
    multivariate: bool | None = Field(
        None,
        description="Whether parameters are modelled together (conditional ones by group); null for together "
        "if there is one objective.",
    )


class GpAlgorithm(Spec):
    """A Gaussian process, and the configuration with the best expected improvement."""

    name: Literal["gp"] = "gp"
    startup_trials: int = Field(10, ge=1, description="Trials that are drawn at random at the start.")


class CmaesAlgorithm(Spec):
    """CMA-ES: a normal distribution that moves to where trials are good. For numbers without conditions."""

    name: Literal["cmaes"] = "cmaes"
    startup_trials: int = Field(1, ge=1, description="Trials that are drawn at random at the start.")
    sigma: float | None = Field(
        None, gt=0, lt=1, description="First standard deviation as a share of each range; null for a sixth."
    )
    population_size: int | None = Field(
        None, ge=3, le=10_000, description="Trials of a generation; null to choose by the number of dimensions."
    )


class Nsga2Algorithm(Spec):
    """NSGA-II: generations of configurations, bred from the best of those before."""

    name: Literal["nsga2"] = "nsga2"
    population_size: int = Field(50, ge=2, le=10_000, description="Trials of a generation.")
    mutation: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Probability that a parameter mutates; null for one parameter per configuration on average.",
    )
    crossover: float = Field(0.9, ge=0, le=1, description="Probability that a configuration has two parents.")


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
    Annotated[
        RandomAlgorithm
        | GridAlgorithm
        | SobolAlgorithm
        | TpeAlgorithm
        | GpAlgorithm
        | CmaesAlgorithm
        | Nsga2Algorithm
        | PopulationAlgorithm,
        Field(discriminator="name"),
    ],
    BeforeValidator(_named, json_schema_input_type=Any),
]
"""How configurations are suggested; a name alone stands for the algorithm with its defaults."""

SEVERAL_OBJECTIVES = ("random", "grid", "sobol", "tpe", "nsga2")
"""Algorithms that support several objectives."""

UNCONDITIONAL = ("grid", "sobol", "cmaes", "population")
"""Algorithms that support no conditional parameters."""


class HyperbandStopping(Spec):
    """Rungs of geometrically growing length, in several brackets that start at different rungs."""

    name: Literal["hyperband"] = "hyperband"
    min_resource: int = Field(1, ge=1, description="Steps up to the first rung.")
    reduction_factor: int = Field(3, ge=2, description="One of this many trials continues to the next rung.")


class SuccessiveHalvingStopping(Spec):
    """Rungs of geometrically growing length."""

    name: Literal["successive_halving"] = "successive_halving"
    min_resource: int = Field(1, ge=1, description="Steps up to the first rung.")
    reduction_factor: int = Field(4, ge=2, description="One of this many trials continues to the next rung.")


class MedianStopping(Spec):
    """Stops a trial whose best value so far is worse than the median of the others at the same step."""

    name: Literal["median"] = "median"
    startup_trials: int = Field(5, ge=0, description="Trials that run to their end before any is stopped.")
    warmup_steps: int = Field(0, ge=0, description="First steps of a trial, in which it is not stopped.")


class PercentileStopping(Spec):
    """Continues a trial while its best value so far is in this best share of the others at the same step."""

    name: Literal["percentile"] = "percentile"
    percentile: float = Field(25.0, ge=0, le=100, description="Percentage of trials that continue.")
    startup_trials: int = Field(5, ge=0, description="Trials that run to their end before any is stopped.")
    warmup_steps: int = Field(0, ge=0, description="First steps of a trial, in which it is not stopped.")


class PatienceStopping(Spec):
    """Stops a trial whose last steps are all worse than its earlier best, independent of other trials."""

    name: Literal["patience"] = "patience"
    patience: int = Field(3, ge=1, description="How many steps in a row may be worse; one more stops the trial.")
    tolerance: float = Field(0.0, ge=0, description="A trial continues if it became worse by at most this much.")


EarlyStopping = Annotated[
    Annotated[
        HyperbandStopping | SuccessiveHalvingStopping | MedianStopping | PercentileStopping | PatienceStopping,
        Field(discriminator="name"),
    ],
    BeforeValidator(_named, json_schema_input_type=Any),
]
"""When a trial is stopped early; a name alone stands for the rule with its defaults."""


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


_HOW_LONG = ("max_trial_count", "parallel_trial_count", "max_failed_trial_count", "budget", "resume_policy")
"""Fields that do not identify an experiment: with higher values, the same experiment continues."""


class ExperimentSpec(Spec):
    """An experiment: what is searched, how, how often, and with which settings per trial."""

    objective: Annotated[tuple[Objective, ...], BeforeValidator(_objectives, json_schema_input_type=Any)] = Field(
        (),
        description="What is optimised: a metric, `{metric, goal}`, or a list of them for a Pareto front; empty for "
        "the metric by which `training` keeps its best epoch or round.",
    )
    algorithm: Algorithm = Field(TpeAlgorithm(), description="Optuna's sampler, by name or with its settings.")
    early_stopping: EarlyStopping | None = Field(
        None, description="Optuna's pruner, by name or with its settings; null to never stop a trial early."
    )
    max_trial_count: int = Field(8, ge=1, le=100_000, description="How many configurations are tried.")
    parallel_trial_count: int = Field(1, ge=1, le=1000, description="How many of them run at once.")
    max_failed_trial_count: int = Field(
        3, ge=0, description="More failed trials than this end the experiment as failed."
    )
    resume_policy: Literal["from_volume", "never"] = operational(
        "from_volume", description="Whether an experiment that was killed is resumed, or starts again."
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
    def ordered(self) -> list[ParameterSpec]:
        """The parameters, each after those that decide whether it is used."""
        return ordered(self.parameters)

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
        if sum(other.name == parameter.name for other in self.parameters) == 1:
            return parameter.name
        return f"{parameter.name} when {', '.join(f'{name} is {value}' for name, value in parameter.when.items())}"

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
        several, pruned = len(metrics) > 1, self.early_stopping is not None
        endless = [parameter.name for parameter in parameters if parameter.finite is None]
        problems = [
            (len(set(metrics)) < len(metrics), f"objective: expected each metric once, found {', '.join(metrics)}"),
            (
                several and algorithm not in SEVERAL_OBJECTIVES,
                f"algorithm: {algorithm} takes one objective; for several there are {', '.join(SEVERAL_OBJECTIVES)}",
            ),
            (several and pruned, "early_stopping: trials can be stopped early by one objective only"),
            (
                not several and pruned and bool(set(metrics) & set(MEASURES)),
                f"early_stopping: {', '.join(metrics)} is measured at the end of a trial only",
            ),
            (
                algorithm in UNCONDITIONAL and any(parameter.when for parameter in parameters),
                f"algorithm: {algorithm} takes no conditions; remove when, or take random, tpe, gp or nsga2",
            ),
            (
                algorithm == "grid" and bool(endless),
                f"algorithm: grid needs parameters with a list of values, or with a step; found {', '.join(endless)}",
            ),
            (algorithm == "grid" and bool(self.warm_start), "warm_start: a grid tries all its configurations"),
            (
                algorithm == "cmaes" and any(parameter.type == "categorical" for parameter in parameters),
                "algorithm: cmaes takes numbers only; give categorical parameters to tpe, gp or nsga2",
            ),
            (
                algorithm == "cmaes" and sum(parameter.min != parameter.max for parameter in parameters) < 2,
                "algorithm: cmaes needs two parameters at least; take tpe or gp for one",  # Optuna's own limit.
            ),
        ]
        if self.algorithm.name == "population":
            names, least = [parameter.name for parameter in parameters], 2 * self.algorithm.population_size
            own = [
                name
                for name in (*names, *self.trial_settings)
                if any(_overlap(name, setting) for setting in _OF_A_POPULATION)
            ]
            measured = [metric for metric in metrics if metric in MEASURES]
            problems += [
                (
                    not set(CHANGING).intersection(names),
                    f"algorithm: population needs a parameter that may change in training: {', '.join(CHANGING)}",
                ),
                (bool(own), f"{', '.join(own)}: a population decides it; members train to training.stopping.epochs"),
                (
                    self.max_trial_count < least,
                    f"max_trial_count: expected at least two generations, {least}, found {self.max_trial_count}",
                ),
                (bool(self.steps_per_trial), "steps_per_trial: the steps of a population are epochs; remove it"),
                (pruned, "early_stopping: a population replaces its worst members; remove it"),
                (bool(measured), f"objective: {', '.join(measured)} is not measured while a member trains"),
            ]
        yield from (message for applies, message in problems if applies)


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
            if aim.direction is None and aim.own_direction is None:
                yield f"objective: {aim.metric}: expected a direction, minimize or maximize"
        if self.early_stopping and not self.steps_per_trial:
            yield "early_stopping: it needs steps_per_trial, how often a whole trial prints the objective"
        if self.algorithm.name == "population":
            yield "algorithm: a population continues Gatehouse's own trainings; take tpe, gp or cmaes"
        yield from super()._setting_problems()


def _overlap(name: str, other: str) -> bool:
    """Whether two dotted names are the same setting, or one is a group that contains the other."""
    return f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")
