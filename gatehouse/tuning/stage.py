"""The tune stage: runs an experiment on a search space, and returns the settings of its best trial."""

import functools
import os
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationInfo, field_validator

from gatehouse.errors import ConfigurationError
from gatehouse.launchers.launch_stage import CommandRequest
from gatehouse.runtime.plural import counted
from gatehouse.store.builder_code import builder_code
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.run import RUN_ID, Attempt
from gatehouse.store.stage import Effects, Stage, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import cost_here
from gatehouse.training.spec import TrainSpec, own_metric, own_names, settings_of
from gatehouse.tuning.configuration import configured, infeasible, steps_of
from gatehouse.tuning.spec import CommandSearchSpec, ExperimentSpec
from gatehouse.tuning.trial import words

if TYPE_CHECKING:
    from gatehouse.tuning.controller import Experiment
    from gatehouse.tuning.runner import TrialThreads

_HOUR = 3600.0


class TuneRequest(StageModel):
    """The search space, the data, the starting point, and the price of an hour if `budget.cost` limits it."""

    split: str
    transformation: str
    base: TrainSpec
    spec: ExperimentSpec
    model_name: str
    seed: int
    price: float | None = None

    @field_validator("spec")
    @classmethod
    def _aimed(cls, spec: ExperimentSpec, info: ValidationInfo) -> ExperimentSpec:
        return spec.aimed_at(own_metric(info.data["base"])) if "base" in info.data else spec

    @property
    def data(self) -> dict[str, str]:
        """References of the data of every trial."""
        return {"split": self.split, "transformation": self.transformation}


def hourly_price(spec: Mapping[str, Any]) -> float | None:
    """The price of an hour of this machine, by the price table here, where `budget.cost` of a search asks for one."""
    return cost_here(_HOUR).get("cost") if (spec.get("budget") or {}).get("cost") else None


class TuneResult(StageModel):
    """The experiment; the best settings as JSON of a TrainSpec, without operational ones; and a summary."""

    experiment: str
    best: str
    summary: str
    ended: str
    provisional_trials: int = 0

    @property
    def provisional(self) -> bool:
        """Whether the experiment continues when it is requested again."""
        return self.ended == "stopped" or self.provisional_trials > 0


def _builders(request: TuneRequest) -> str:
    """Digest of the code of a project's own: of the base, and of all models in the search."""
    chosen = [  # A choice is a whole model, or the architecture alone.
        str(choice.get("architecture", "") if isinstance(choice, dict) else choice)
        for parameter in request.spec.parameters
        for choice in (parameter.choices if parameter.name in ("model", "model.architecture") else ())
    ]
    return builder_code(*own_names(request.base), *chosen)


@stage(
    "tune",
    title="Tune hyperparameters",
    effects=Effects(memo=True, why="Goes on with the trials that its journal in the store holds."),
    pages={"experiments": "gatehouse.tuning.report:page"},
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
    requested again, these trials continue.

    Raises:
        ConfigurationError: if the model does not accept a value that is searched, or an experiment of `warm_start` is
            not in the store.
        ExperimentFailedError: if too many trials failed, or none is usable.
        SecondControllerError: if another process runs the same experiment.
    """
    from gatehouse.training.stage import forget_job
    from gatehouse.tuning.training_trials import TrainingTrials

    spec = request.spec
    if problems := [f"\n  - {why}, found {value!r}" for _, value, why in infeasible(spec, request.base)]:
        raise ConfigurationError(f"The search space does not fit the training:{''.join(problems)}")
    name, steps, key = request.model_name, steps_of(spec, request.base), study_key(request)
    trials = TrainingTrials(store, request.data, name, request.base, spec, request.seed)
    result, fields = _experiment(store, tune, request, key, trials, name, steps, base=identity_of(request.base))
    best = configured(request.base, result.settings | {"seed": request.seed})
    tuned = TuneResult(best=canonical_json(settings_of(best)), **fields)
    for trial in () if tuned.provisional else result.trials:
        if trial.job and (trial.state == "failed" or spec.algorithm.name == "population"):
            forget_job(store, trial.job)
    return tuned


class SearchRequest(CommandRequest):
    """The search space, and the command of a trial; `task` if the program is not among the inputs."""

    spec: CommandSearchSpec
    seed: int = 0


class SearchResult(TuneResult):
    """The result of a search, with the parameters as JSON; `value` is the objective of the best trial."""

    value: float


@stage(
    "search",
    title="Search parameters",
    effects=Effects(memo=True, why="Goes on with the trials that its journal in the store holds."),
    pages={"experiments": "gatehouse.tuning.report:page"},
    tracked="experiment",
)
def search(request: SearchRequest, store: ArtifactStore) -> SearchResult:
    """Search the parameters of a command, as `tune` those of training; trials leave no model.

    Raises ExperimentFailedError and SecondControllerError as `tune`.
    """
    from gatehouse.tuning.command_trials import CommandTrials

    spec = request.spec
    key = search.key(request.model_copy(update={"spec": spec.endless}))
    trials, steps = CommandTrials(store, key, request, spec), spec.steps_per_trial or 1
    about = {"trial": identity_of(request.command), "inputs": request.inputs}
    result, fields = _experiment(store, search, request, key, trials, request.name, steps, **about)
    value = result.best.values[spec.objective[0].metric]
    searched = SearchResult(best=canonical_json(result.settings), value=value, **fields)
    for trial in () if searched.provisional else result.trials:
        trials.forget(trial.number)
    return searched


def _experiment(
    store: ArtifactStore,
    stage: Stage[Any, Any],
    request: TuneRequest | SearchRequest,
    key: str,
    trials: "TrialThreads",
    name: str,
    steps: int,
    **configuration: Any,
) -> "tuple[Experiment, dict[str, Any]]":
    """Run the experiment of a request, or go on with it, and publish it: its result, and what the stage says of it.

    `key` identifies the study, `steps` are those of a whole trial, and `configuration` is told in the artifact.
    """
    from gatehouse.data.splitting.parts import divided_set
    from gatehouse.tuning.controller import Controller
    from gatehouse.tuning.journal import is_asked_to_stop, remember
    from gatehouse.tuning.study import best_configurations, opened_study

    began, spec = time.time(), request.spec
    attempt = Attempt(store, f"{stage.name}:trials")
    about = {"name": name, "experiment": spec.described(steps), "max_failed_trial_count": spec.max_failed_trial_count}
    stopped = functools.partial(is_asked_to_stop, store.objects, key)

    def notify(number: int, line: str) -> None:
        attempt.note(f"trial-{number}", message=line)

    with opened_study(store.objects, key, spec, request.seed, steps, best_configurations(store, spec)) as study:
        remember(store.objects, key, about, os.environ.get(RUN_ID, ""))
        with trials:
            result = Controller(
                study, trials, stopped=stopped, notify=notify, price=getattr(request, "price", None)
            ).run()
    best = result.best
    outcome = {
        "best_trial": best.number,
        "front": list(result.front),
        "ended": result.ended,
        "provisional": [trial.number for trial in result.provisional],
        "counts": dict(Counter(trial.state for trial in result.trials)),
        "steps": result.steps,
    }
    origin = {f"warm_start.{index}": reference for index, reference in enumerate(spec.warm_start)}
    if isinstance(request, TuneRequest):
        origin |= {"training_set": divided_set(store, request.split), **request.data}
    published = store.publish(
        "experiments",
        name,
        {
            "trials.json": canonical_json([trial.to_json() for trial in result.trials]),
            "experiment.json": canonical_json(spec.described(steps) | outcome),
        },
        derived_from=origin,
        configuration={**configuration, "experiment": identity_of(spec)},
        details={
            "best_trial": best.number,
            "value": best.values[spec.objective[0].metric],
            "trials": len(result.trials),
            "ended": result.ended,
        },
    )
    measured: dict[str, object] = {
        "stage": stage.name,
        "began": began,
        "seconds": time.time() - began,
        "study": key,
        "jobs": {str(trial.number): trial.job for trial in result.trials if trial.job},
        "failed": {str(trial.number): trial.message for trial in result.trials if trial.message},
        "trial_seconds": {str(trial.number): round(trial.seconds, 3) for trial in result.trials},
    }
    store.append(f"measurements/{published}", measured)
    names = [parameter.name for parameter in spec.parameters if parameter.is_open(best.parameters)]
    summary = f"trial {best.number}: {words(best.values)} ({words({name: best.parameters[name] for name in names})})"
    if result.provisional:
        reasons = ", ".join(dict.fromkeys(trial.reason for trial in result.provisional))
        why = (
            f"provisional: {counted(len(result.provisional), 'trial')} failed for a reason outside of the search "
            f"({reasons}), and the next run tries again"
        )
        Attempt(store, f"{stage.name}:provisional").warn(f"The experiment is {why}.")
        summary = f"{summary}; {why}"
    facts = {"experiment": str(published), "summary": summary, "ended": result.ended}
    return result, facts | {"provisional_trials": len(result.provisional)}


def study_key(request: TuneRequest) -> str:
    """The key of a request's experiment; it stays the same with more trials, another budget or another price."""
    return tune.key(request.model_copy(update={"price": None, "spec": request.spec.endless}))
