"""The tune stage: runs an experiment on a search space, and returns the settings of its best trial."""

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationInfo, field_validator

from gatehouse.errors import ConfigurationError
from gatehouse.runtime.counting import counted
from gatehouse.store.builder_code import builder_code
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.run import RUN_ID, Attempt
from gatehouse.store.stage import Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.cost import cost_here
from gatehouse.training.spec import TrainSpec, own_metric, settings_of
from gatehouse.tuning.configuration import configured, infeasible, steps_of
from gatehouse.tuning.cores import short_of_cores_here
from gatehouse.tuning.data import TrialData
from gatehouse.tuning.description import described
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.trial import Trial, words

if TYPE_CHECKING:
    from gatehouse.tuning.controller import Experiment

_HOW_LONG = ("max_trial_count", "parallel_trial_count", "max_failed_trial_count", "budget", "resume_policy")
"""Fields that do not identify an experiment: with higher values, the same experiment continues."""

_HOUR = 3600.0


class TuneRequest(StageModel):
    """The search space, the data, and the starting point.

    Attributes:
        training_set: Reference of the training set.
        split: Reference of its split.
        transformation: Reference of the transformation fitted on its train part.
        base: All settings that are not searched.
        spec: The experiment.
        model_name: Name of the model.
        seed: Seed of sampler and trials.
        resample_by: Units that the bootstrap of the best score resamples, as in the evaluation.
        price: Price of an hour of trials where `budget.cost` ends the search by it; None for every other experiment.
    """

    training_set: str
    split: str
    transformation: str
    base: TrainSpec
    spec: ExperimentSpec
    model_name: str
    seed: int
    resample_by: str = ""
    price: float | None = None

    @field_validator("spec")
    @classmethod
    def _aimed(cls, spec: ExperimentSpec, info: ValidationInfo) -> ExperimentSpec:
        return spec.aimed_at(own_metric(info.data["base"])) if "base" in info.data else spec

    @property
    def data(self) -> TrialData:
        """The data of every trial."""
        return TrialData(self.training_set, self.split, self.transformation)

    def priced(self) -> "TuneRequest":
        """The request with the price of this machine, by the price table here, where `budget.cost` asks for one."""
        price = None if self.spec.budget.cost is None else cost_here(_HOUR).get("cost")
        return self.model_copy(update={"price": price})


class TuneResult(StageModel):
    """The experiment; the best settings as canonical JSON of a TrainSpec, without operational ones; and a summary."""

    experiment: str
    best: str
    summary: str
    ended: str
    provisional_trials: int = 0

    @property
    def provisional(self) -> bool:
        """An experiment that a person stopped continues when it is requested again; so does one with such trials."""
        return self.ended == "stopped" or self.provisional_trials > 0


def _builders(request: TuneRequest) -> str:
    """Digest of the builders of the base and of all models in the search."""
    searched = [one.choices for one in request.spec.parameters if one.name in ("model", "model.architecture")]
    chosen = [_architecture(choice) for choices in searched for choice in choices]
    return builder_code(request.base.model.architecture, *chosen)


def _architecture(choice: object) -> str:
    """The architecture in a choice, which is a whole model or the architecture alone."""
    return str(choice.get("architecture", "") if isinstance(choice, dict) else choice)


@stage(
    "tune",
    title="Tune hyperparameters",
    effects=Effects(memo=True, why="Goes on with the trials that its journal in the store holds."),
    resources=Resources(cpu="2", memory="8G", minutes=240),
    pages={"experiments": "gatehouse.tuning.reports.page:page"},
    outside=_builders,
    section="tuning",
    tracked="experiment",
)
def tune(request: TuneRequest, store: ArtifactStore) -> TuneResult:
    """Run the experiment; the artifact holds `trials.json`, and `experiment.json` with the search and its result.

    A measurement beside it holds its study, its start, the durations of it and of each trial, their jobs, and the
    errors of trials. Checkpoints of stopped trials are kept for later trials with the same settings. An interrupted
    experiment continues, and so does one that is requested with more trials or another budget. One with trials that
    failed for a reason outside of the request, such as a time limit or an eviction, is provisional: when it is
    requested again, these trials go on.

    Raises:
        ConfigurationError: if the model does not accept a value that is searched, or an experiment of `warm_start` is
            not in the store.
        ExperimentFailedError: if too many trials failed, or none is usable.
        SecondControllerError: if another process runs the same experiment.
    """
    import time

    from gatehouse.training.stage import forget_job

    began, spec = time.time(), request.spec
    if wrong := [f"\n  - {why}, found {value!r}" for _, value, why in infeasible(spec, request.base)]:
        raise ConfigurationError(f"The search space does not fit the training:{''.join(wrong)}")
    if short := short_of_cores_here(spec, request.base):
        Attempt(store, "tune:cores").warn(short)
    ended = _run(request, store)
    winner = ended.best
    experiment = _publish(request, store, ended)
    failed = {str(trial.number): trial.told for trial in ended.trials if trial.told}
    seconds = {str(number): round(took, 3) for number, took in ended.seconds.items()}
    jobs = {str(trial.number): trial.job for trial in ended.trials if trial.job}
    measured: dict[str, object] = {"stage": "tune", "began": began, "seconds": time.time() - began}
    measured |= {"study": study_key(request), "jobs": jobs, "failed": failed, "trial_seconds": seconds}
    store.append(f"measurements/{experiment}", measured)
    names = dict.fromkeys(parameter.name for parameter in spec.parameters)  # A journal forgets their order.
    chosen = ", ".join(f"{name} {_short(winner.parameters[name])}" for name in names if name in winner.parameters)
    best = canonical_json(settings_of(configured(request.base, ended.settings | {"seed": request.seed})))
    summary = f"trial {winner.number}: {words(winner.values)} ({chosen})"
    if ended.provisional:
        Attempt(store, "tune:provisional").warn(f"The experiment is {_provisional(ended.provisional)}.")
        summary = f"{summary}; {_provisional(ended.provisional)}"
    result = TuneResult(
        experiment=experiment,
        best=best,
        summary=summary,
        ended=ended.ended,
        provisional_trials=len(ended.provisional),
    )
    for trial in ended.trials if not result.provisional else ():
        if trial.job and (trial.state == "failed" or spec.algorithm.name == "population"):
            forget_job(store, trial.job)
    return result


def _provisional(trials: Sequence[Trial]) -> str:
    """That an experiment is provisional, and why."""
    reasons = ", ".join(dict.fromkeys(trial.reason for trial in trials))
    return (
        f"provisional: {counted(len(trials), 'trial')} failed for a reason outside of the search ({reasons}), and the "
        "next run tries again"
    )


def study_key(request: TuneRequest) -> str:
    """The key of a request's experiment; it stays the same with more trials, another budget or another price."""
    fields = ExperimentSpec.model_fields
    endless = {name: fields[name].get_default(call_default_factory=True) for name in _HOW_LONG}
    return tune.key(request.model_copy(update={"price": None, "spec": request.spec.model_copy(update=endless)}))


def _run(request: TuneRequest, store: ArtifactStore) -> "Experiment":
    from gatehouse.tuning.access.journal import is_asked_to_stop, remember
    from gatehouse.tuning.controller import Controller
    from gatehouse.tuning.opening import best_configurations, opened_study
    from gatehouse.tuning.training_trials import TrainingTrials

    key, spec, steps = study_key(request), request.spec, steps_of(request.spec, request.base)
    warm = best_configurations(store, spec)
    body = request.model_dump(mode="json")
    about = {"stage": "tune", "name": request.model_name, "request": body, "steps": steps, "seed": request.seed}
    ends = Attempt(store, "tune:trials")

    def tell(number: int, line: str) -> None:
        ends.note(f"trial-{number}", message=line)

    with opened_study(store.objects, key, spec, request.seed, steps, warm) as study:
        remember(store.objects, key, about, os.environ.get(RUN_ID, ""))
        with TrainingTrials(store, request.data, request.model_name, request.base, spec, request.seed) as trials:
            asked = functools.partial(is_asked_to_stop, store.objects, key)
            return Controller(study, trials, stopped=asked, told=tell, price=request.price).run()


def _publish(request: TuneRequest, store: ArtifactStore, ended: "Experiment") -> str:
    from collections import Counter
    from dataclasses import asdict

    from gatehouse.tuning.optimism import optimism

    spec, winner = request.spec, ended.best
    luck = None
    if len(spec.objective) == 1:
        feasible = [trial for trial in ended.trials if trial.feasible and store.exists(trial.model)]
        luck = optimism(store, request.data, spec.objective[0], feasible, request.seed, request.resample_by)
    found = {
        "best_trial": winner.number,
        "front": list(ended.front),
        "ended": ended.ended,
        "provisional": [trial.number for trial in ended.provisional],
        "counts": dict(Counter(trial.state for trial in ended.trials)),
        "steps": ended.steps,
        "optimism": luck and asdict(luck),
    }
    origin = {role: reference for role, reference in asdict(request.data).items() if reference}
    origin |= {f"warm_start.{index}": reference for index, reference in enumerate(spec.warm_start)}
    first = spec.objective[0].metric
    details = {"best_trial": winner.number, "value": winner.values[first]}
    published = store.publish(
        "experiments",
        request.model_name,
        {
            "trials.json": canonical_json([trial.to_json() for trial in ended.trials]),
            "experiment.json": canonical_json(described(spec, steps_of(spec, request.base)) | found),
        },
        derived_from=origin,
        configuration={"base": identity_of(request.base), "experiment": identity_of(spec)},
        details=details | {"trials": len(ended.trials), "ended": ended.ended},
    )
    return str(published)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
