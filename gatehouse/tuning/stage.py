"""The tune stage: runs an experiment on a search space, and returns the settings of its best trial."""

from dataclasses import asdict

from pydantic import ValidationInfo, field_validator

from gatehouse.errors import ConfigurationError
from gatehouse.store.builder_code import builder_code
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import cost_here
from gatehouse.training.spec import TrainSpec, own_metric, settings_of
from gatehouse.tuning.configuration import configured, infeasible, steps_of
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.trial import TrialData

_HOUR = 3600.0


class TuneRequest(StageModel):
    """The search space, the data, the starting point, and the price of an hour if `budget.cost` limits it."""

    training_set: str
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
    def data(self) -> TrialData:
        """The data of every trial."""
        return TrialData(self.training_set, self.split, self.transformation)

    def priced(self) -> "TuneRequest":
        """The request with the price of this machine, by the price table here, where `budget.cost` asks for one."""
        price = None if self.spec.budget.cost is None else cost_here(_HOUR).get("cost")
        return self.model_copy(update={"price": price})


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
    """Digest of the builders of the base and of all models in the search."""
    chosen = [  # A choice is a whole model, or the architecture alone.
        str(choice.get("architecture", "") if isinstance(choice, dict) else choice)
        for parameter in request.spec.parameters
        for choice in (parameter.choices if parameter.name in ("model", "model.architecture") else ())
    ]
    return builder_code(request.base.model.architecture, *chosen)


@stage(
    "tune",
    title="Tune hyperparameters",
    effects=Effects(memo=True, why="Goes on with the trials that its journal in the store holds."),
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
    requested again, these trials continue.

    Raises:
        ConfigurationError: if the model does not accept a value that is searched, or an experiment of `warm_start` is
            not in the store.
        ExperimentFailedError: if too many trials failed, or none is usable.
        SecondControllerError: if another process runs the same experiment.
    """
    from gatehouse.training.stage import forget_job
    from gatehouse.tuning.experiment import run_experiment
    from gatehouse.tuning.training_trials import TrainingTrials

    spec = request.spec
    if problems := [f"\n  - {why}, found {value!r}" for _, value, why in infeasible(spec, request.base)]:
        raise ConfigurationError(f"The search space does not fit the training:{''.join(problems)}")
    conducted = run_experiment(
        store,
        tune,
        request,
        study_key(request),
        TrainingTrials(store, request.data, request.model_name, request.base, spec, request.seed),
        name=request.model_name,
        steps=steps_of(spec, request.base),
        origin={role: reference for role, reference in asdict(request.data).items() if reference},
        configuration={"base": identity_of(request.base)},
        price=request.price,
    )
    result = conducted.result
    tuned = TuneResult(
        experiment=conducted.experiment,
        best=canonical_json(settings_of(configured(request.base, result.settings | {"seed": request.seed}))),
        summary=conducted.summary,
        ended=result.ended,
        provisional_trials=len(result.provisional),
    )
    for trial in () if tuned.provisional else result.trials:
        if trial.job and (trial.state == "failed" or spec.algorithm.name == "population"):
            forget_job(store, trial.job)
    return tuned


def study_key(request: TuneRequest) -> str:
    """The key of a request's experiment; it stays the same with more trials, another budget or another price."""
    return tune.key(request.model_copy(update={"price": None, "spec": request.spec.endless}))
