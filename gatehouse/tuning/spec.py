"""An experiment in Katib's terms: objectives, algorithm, parameters, trials, budget."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from gatehouse.metrics.catalogue import is_minimized
from gatehouse.store.identity import Spec, operational
from gatehouse.store.reference import is_identity
from gatehouse.training.spec import CHANGEABLE, setting_problem
from gatehouse.tuning.algorithms import SEVERAL_OBJECTIVES, UNCONDITIONAL, Algorithm, EarlyStopping, TpeAlgorithm
from gatehouse.tuning.parameters import ParameterSpec, Value, condition_problems, exclude_each_other, ordered

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

    @property
    def minimize(self) -> bool:
        """Whether less is better."""
        return self.metric in MEASURES or is_minimized(self.metric)

    def is_reached(self, value: float) -> bool:
        """Whether a trial with this value reaches the goal."""
        return self.goal is not None and (value <= self.goal if self.minimize else value >= self.goal)


class Constraint(Spec):
    """A limit that a trial's model must keep to be the best."""

    measure: str = Field(description=f"One of {', '.join(MEASURES)}, or a validation metric that training measures.")
    at_most: float | None = None
    at_least: float | None = None

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
        0,
        ge=0,
        le=10_000,
        description="Steps of a trial, after each of which it may be stopped; 0 for its epochs.",
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

    @property
    def ordered(self) -> list[ParameterSpec]:
        """The parameters, each after those that decide whether it is used."""
        return ordered(self.parameters)

    @property
    def refits(self) -> bool:
        """Whether the best configuration is finally trained on train and validation rows."""
        return self.final_rows == "train_and_validation"

    def aimed_at(self, metric: str) -> "ExperimentSpec":
        """The experiment with this metric as its objective, if it has none."""
        return self if self.objective else self.model_copy(update={"objective": (Objective(metric=metric),)})

    def described(self, steps: int) -> dict[str, Any]:
        """The search as data, for `experiment.json`: what is searched, how, and under which limits.

        Args:
            steps: Steps of a whole trial.
        """
        body = self.model_dump(mode="json")
        kept = ("algorithm", "early_stopping", "parameters", "trial_settings", "budget", "constraints", "warm_start")
        objectives = [{"metric": one.metric, "minimize": one.minimize, "goal": one.goal} for one in self.objective]
        return {"objectives": objectives, "steps_per_trial": steps, **{name: body[name] for name in kept}}

    def label(self, parameter: ParameterSpec) -> str:
        """The parameter's name for Optuna, with its condition if the setting occurs twice."""
        if sum(other.name == parameter.name for other in self.parameters) == 1:
            return parameter.name
        return f"{parameter.name} when {', '.join(f'{name} is {value}' for name, value in parameter.when.items())}"

    @model_validator(mode="after")
    def _possible(self) -> "ExperimentSpec":
        problems = [*self._setting_problems(), *self._warm_start_problems(), *condition_problems(self.parameters)]
        problems = problems or [*self._overlaps(), *self._algorithm_problems(), *self._objective_problems()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _setting_problems(self) -> Iterator[str]:
        for name in self.trial_settings:
            if why := setting_problem(name):
                yield f"trial_settings: {name}: {why}"
            if name in ("model", "model.architecture"):
                yield f"trial_settings: {name}: the best configuration would have another model; remove it"

    def _warm_start_problems(self) -> Iterator[str]:
        for reference in self.warm_start:
            if not (is_identity(reference) and reference.startswith("experiments/")):
                yield (
                    f"warm_start: expected references experiments/<name>/sha256-<64 hex>, found {reference!r}; "
                    "copy it from gatehouse tuning list"
                )

    def _overlaps(self) -> Iterator[str]:
        for index, one in enumerate(self.parameters):
            for name in (*self.trial_settings, "seed"):
                if _overlap(one.name, name):
                    where = "a seed of its own" if name == "seed" else "trial_settings and parameters"
                    yield f"parameters: {one.name} and {name} overlap: every setting stands once in {where}"
            for other in self.parameters[index + 1 :]:
                if _overlap(one.name, other.name) and not exclude_each_other(one, other, self.parameters):
                    yield f"parameters: {one.name} and {other.name} overlap: their conditions must exclude each other"
        settings = list(self.trial_settings)
        for index, name in enumerate(settings):
            for later in (*settings[index + 1 :], "seed"):
                if _overlap(name, later):
                    yield f"trial_settings: {name} and {later} overlap: every setting stands once"

    def _algorithm_problems(self) -> Iterator[str]:
        name = self.algorithm.name
        if name in UNCONDITIONAL and any(each.when for each in self.parameters):
            yield f"algorithm: {name} takes no conditions; remove when, or take random, tpe, gp or nsga2"
        if name == "grid" and (endless := [each.name for each in self.parameters if each.finite is None]):
            yield f"algorithm: grid needs parameters with a list of values, or with a step; found {', '.join(endless)}"
        if name == "grid" and self.warm_start:
            yield "warm_start: a grid tries all its configurations; remove it"
        if name == "cmaes":
            if any(each.type == "categorical" for each in self.parameters):
                yield "algorithm: cmaes takes numbers only; give categorical parameters to tpe, gp or nsga2"
            if sum(each.min != each.max for each in self.parameters) < 2:  # Optuna's own limit
                yield "algorithm: cmaes needs two parameters at least; take tpe or gp for one"
        if self.algorithm.name == "population":
            yield from self._population_problems(self.algorithm.population_size)

    def _population_problems(self, size: int) -> Iterator[str]:
        named = [each.name for each in self.parameters]
        if not set(CHANGING).intersection(named):
            yield f"algorithm: population needs a parameter that may change in training: {', '.join(CHANGING)}"
        for name in (*named, *self.trial_settings):
            if any(_overlap(name, own) for own in _OF_A_POPULATION):
                yield f"{name}: a population decides it; members train to the epochs of training.stopping; remove it"
        if self.max_trial_count < 2 * size:
            yield (
                f"max_trial_count: each generation of the population is {size} trials; expected at least {2 * size}, "
                f"found {self.max_trial_count}"
            )
        if self.steps_per_trial:
            yield "steps_per_trial: the steps of a population are epochs; remove it"
        if self.early_stopping is not None:
            yield "early_stopping: a population replaces its worst members; remove it"
        if measured := [each.metric for each in self.objective if each.metric in MEASURES]:
            yield f"objective: {measured[0]} is not measured while a member trains; take a metric"

    def _objective_problems(self) -> Iterator[str]:
        metrics = [each.metric for each in self.objective]
        if len(set(metrics)) < len(metrics):
            yield f"objective: expected each metric once, found {', '.join(metrics)}"
        if len(metrics) > 1:
            if self.algorithm.name not in SEVERAL_OBJECTIVES:
                yield (
                    f"algorithm: {self.algorithm.name} takes one objective; for several there are "
                    f"{', '.join(SEVERAL_OBJECTIVES)}"
                )
            if self.early_stopping is not None:
                yield "early_stopping: trials can be stopped early by one objective only; remove it, or objectives"
        elif self.early_stopping is not None and set(metrics) & set(MEASURES):
            yield f"early_stopping: {metrics[0]} is measured at the end of a trial only; remove it"


def _overlap(one: str, other: str) -> bool:
    """Whether two dotted names are the same setting, or one is a group that contains the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
