"""An experiment in Katib's terms: objectives, algorithm, parameters, trials, budget."""

from collections.abc import Iterator
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.catalogue import is_minimized
from gatehouse.store.identity import Spec, operational
from gatehouse.store.reference import is_identity
from gatehouse.training.spec import CHANGEABLE, setting_problem
from gatehouse.tuning.algorithms import SEVERAL_OBJECTIVES, UNCONDITIONAL, Algorithm, EarlyStopping, TpeAlgorithm
from gatehouse.tuning.parameters import CommandParameter, ParameterSpec, Value, condition_problems, ordered, samples

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
