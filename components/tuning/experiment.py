"""Runs an experiment: Optuna suggests, the real training program answers."""

import logging
from dataclasses import asdict, dataclass
from typing import Any

import optuna

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.spec import TrainSpec, changed
from gatehouse.components.training.stage import TrainRequest, job_key, train
from gatehouse.components.tuning.spec import Parameter, SearchSpace
from gatehouse.errors import GatehouseError, LauncherError

logger = logging.getLogger(__name__)


class ExperimentFailedError(GatehouseError):
    """No trial of an experiment succeeded."""


@dataclass(frozen=True)
class TrialData:
    """References of what every trial is trained on; without a transformation, the default one is fitted."""

    training_set: str
    split: str
    transformation: str = ""


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        number: From 0 on.
        parameters: What was tried.
        value: Of the objective; None where training failed.
        model: Reference of its model; empty where training failed.
        metrics: All that training measured.
        error: The class of the error that training ended in; empty for none.
        job: Key of its training job.
        told: What the error said, for people: words are in no artifact.
    """

    number: int
    parameters: dict[str, Any]
    value: float | None
    model: str = ""
    metrics: dict[str, float] | None = None
    error: str = ""
    job: str = ""
    told: str = ""


def run_experiment(
    store: ArtifactStore, data: TrialData, model_name: str, base: TrainSpec, space: SearchSpace, seed: int
) -> list[Trial]:
    """Run all trials one after another; each is a memoised training run, so a killed experiment goes on where it was.

    A trial whose training ends without a model is recorded with the reason and told to the sampler as failed; the
    experiment goes on. Data that no trial could train on ends it.

    Args:
        store: Where data is read and trials' models are published.
        data: What every trial is trained on.
        model_name: The trials' models are named `<model_name>-trial`.
        base: Every setting that is neither searched nor in the budget.
        space: What is searched.
        seed: Of the sampler and of every trial.

    Raises:
        ExperimentFailedError: if every trial failed.
        GatehouseError: if the data cannot be used; see `train`.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    sampler = samplers[space.algorithm](seed=seed)
    study = optuna.create_study(direction="minimize" if space.minimize else "maximize", sampler=sampler)
    budget = dict(space.budget) | {"seed": seed}
    trials: list[Trial] = []
    for number in range(space.trials):
        suggested = study.ask()
        chosen = {parameter.name: _suggest(suggested, parameter) for parameter in space.parameters}
        spec = changed(base, chosen | budget)
        request = TrainRequest(**asdict(data), spec=spec, model_name=f"{model_name}-trial")
        try:
            result = train(request, store)
        except LauncherError as error:
            logger.warning("Trial %d failed: %s", number, error)
            study.tell(suggested, state=optuna.trial.TrialState.FAIL)
            name, told = type(error).__name__, str(error).splitlines()[0]
            trials.append(Trial(number, chosen, None, error=name, job=job_key(request), told=told))
            continue
        logger.info("Trial %d: %s %.5f with %s", number, space.objective, result.metrics[space.objective], chosen)
        value = result.metrics[space.objective]
        study.tell(suggested, value)
        trials.append(Trial(number, chosen, value, result.model, result.metrics, job=job_key(request)))
    if all(trial.value is None for trial in trials):
        reasons = "".join(f"\n  - trial {trial.number}: {trial.told}" for trial in trials)
        raise ExperimentFailedError(f"None of {len(trials)} trials succeeded:{reasons}")
    return trials


def best_of(trials: list[Trial], minimize: bool) -> Trial:
    """The trial with the best value; of equals the first."""
    done = [trial for trial in trials if trial.value is not None]
    return min(done, key=lambda trial: (trial.value or 0.0) * (1 if minimize else -1))


def _suggest(trial: optuna.Trial, parameter: Parameter) -> Any:
    if parameter.type == "categorical":
        # Optuna keeps scalars only: the position stands for the value.
        return parameter.choices[trial.suggest_categorical(parameter.name, list(range(len(parameter.choices))))]
    low, high = parameter.min or 0.0, parameter.max or 0.0
    if parameter.type == "int":
        return trial.suggest_int(parameter.name, int(low), int(high), log=parameter.log)
    return trial.suggest_float(parameter.name, low, high, log=parameter.log)
