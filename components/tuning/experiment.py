"""Runs an experiment: Optuna suggests, the real training program answers."""

import logging
from dataclasses import asdict, dataclass

import optuna

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.spec import TrainSpec
from gatehouse.components.training.stage import TrainRequest, job_key, train
from gatehouse.components.tuning.configuration import configured
from gatehouse.components.tuning.spec import ExperimentSpec
from gatehouse.components.tuning.suggestion import sampler_of, suggested
from gatehouse.components.tuning.trial import Trial
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


def run_experiment(
    store: ArtifactStore, data: TrialData, model_name: str, base: TrainSpec, spec: ExperimentSpec, seed: int
) -> list[Trial]:
    """Run all trials one after another; each is a memoised training run, so a killed experiment goes on where it was.

    A trial whose training ends without a model is recorded with the reason and told to the sampler as failed; the
    experiment goes on. Data that no trial could train on ends it.

    Args:
        store: Where data is read and trials' models are published.
        data: What every trial is trained on.
        model_name: The trials' models are named `<model_name>-trial`.
        base: Every setting that is neither searched nor in the budget.
        spec: What is searched.
        seed: Of the sampler and of every trial.

    Raises:
        ExperimentFailedError: if every trial failed.
        GatehouseError: if the data cannot be used; see `train`.
    """
    objective = spec.objective[0]
    study = optuna.create_study(direction="minimize" if objective.minimize else "maximize")
    trials: list[Trial] = []
    for number in range(spec.max_trial_count):
        study.sampler = sampler_of(spec, seed, number)
        asked = study.ask()
        chosen = suggested(spec, asked)
        trained = configured(base, chosen | {"seed": seed}, spec.trial_settings)
        request = TrainRequest(**asdict(data), spec=trained, model_name=f"{model_name}-trial")
        try:
            result = train(request, store)
        except LauncherError as error:
            logger.warning("Trial %d failed: %s", number, error)
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
            reason, told = type(error).__name__, str(error).splitlines()[0]
            trials.append(Trial(number, "failed", chosen, reason=reason, job=job_key(request), told=told))
            continue
        value = result.metrics[objective.metric]
        logger.info("Trial %d: %s %.5f with %s", number, objective.metric, value, chosen)
        study.tell(asked, value)
        values, key = {objective.metric: value}, job_key(request)
        trials.append(
            Trial(number, "succeeded", chosen, values, {}, True, model=result.model, metrics=result.metrics, job=key)
        )
    if not any(trial.feasible for trial in trials):
        reasons = "".join(f"\n  - trial {trial.number}: {trial.told}" for trial in trials)
        raise ExperimentFailedError(f"None of {len(trials)} trials succeeded:{reasons}")
    return trials


def best_of(trials: list[Trial], spec: ExperimentSpec) -> Trial:
    """The trial with the best value; of equals the first."""
    objective = spec.objective[0]
    done = [trial for trial in trials if trial.feasible]
    return min(done, key=lambda trial: trial.values[objective.metric] * (1 if objective.minimize else -1))
