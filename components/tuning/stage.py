"""The tune stage: a search space becomes an experiment, and the spec of its best trial on the full budget."""

from gatehouse.components.artifacts.builder_code import builder_code
from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.identity import identity_of
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.spec import TrainSpec, settings_of
from gatehouse.components.tuning.configuration import configured, infeasible, steps_of
from gatehouse.components.tuning.spec import ExperimentSpec
from gatehouse.errors import ConfigurationError


class TuneRequest(StageModel):
    """What is searched, on which data, from which starting point; without a transformation, with the default one."""

    training_set: str
    split: str
    transformation: str = ""
    base: TrainSpec
    spec: ExperimentSpec
    model_name: str
    seed: int


class TuneResult(StageModel):
    """The experiment; the best settings as canonical JSON of a TrainSpec, without how to run it; a summary."""

    experiment: str
    best: str
    summary: str


def _builders(request: TuneRequest) -> str:
    """Of the base, and of all models that are searched."""
    searched = [one.choices for one in request.spec.parameters if one.name in ("model", "model.architecture")]
    chosen = [_architecture(choice) for choices in searched for choice in choices]
    return builder_code(request.base.model.architecture, *chosen)


def _architecture(choice: object) -> str:
    """The architecture that a choice names: of a whole model, or by itself."""
    return str(choice.get("architecture", "") if isinstance(choice, dict) else choice)


@stage(
    "tune",
    title="Tune hyperparameters",
    effects=Effects(memo=True, why="Trials are memoised one by one, so a retry goes on where it stopped."),
    resources=Resources(cpu="2", memory="8G", minutes=240),
    pages={"experiments": "gatehouse.components.tuning.report:page"},
    outside=_builders,
)
def tune(request: TuneRequest, store: ArtifactStore) -> TuneResult:
    """Run the experiment; the artifact holds `trials.json`, and `experiment.json` with what was searched.

    When it began, how long it took and what errors of trials said go to a measurement beside it.

    Raises:
        ConfigurationError: if the model that is trained cannot take a value that is searched.
        ExperimentFailedError: if no trial succeeded.
    """
    import time
    from dataclasses import asdict

    from gatehouse.components.tuning.experiment import TrialData, best_of, run_experiment

    began = time.time()
    spec = request.spec
    if wrong := [f"\n  - {why}, found {value!r}" for _, value, why in infeasible(spec, request.base)]:
        raise ConfigurationError(f"The search space does not fit the training:{''.join(wrong)}")
    data = TrialData(request.training_set, request.split, request.transformation)
    trials = run_experiment(store, data, request.model_name, request.base, spec, request.seed)
    winner = best_of(trials, spec)
    best = canonical_json(settings_of(configured(request.base, winner.parameters | {"seed": request.seed})))
    objective = spec.objective[0].metric
    about = spec.model_dump(mode="json") | {"steps_per_trial": steps_of(spec, request.base)}
    experiment = store.publish(
        "experiments",
        request.model_name,
        {
            "trials.json": canonical_json([trial.to_json() for trial in trials]),
            "experiment.json": canonical_json(about | {"best_trial": winner.number}),
        },
        derived_from={role: reference for role, reference in asdict(data).items() if reference},
        configuration={"base": identity_of(request.base), "experiment": identity_of(spec)},
        details={"best_trial": winner.number, "value": winner.values[objective]},
    )
    took: dict[str, object] = {"stage": "tune", "began": began, "seconds": time.time() - began}
    failed = {str(trial.number): trial.told for trial in trials if trial.told}
    store.append(f"measurements/{experiment}", took | {"failed": failed})
    chosen = ", ".join(f"{name} {_short(value)}" for name, value in winner.parameters.items())
    summary = f"trial {winner.number}: {objective} {winner.values[objective]:.4f} ({chosen})"
    return TuneResult(experiment=str(experiment), best=best, summary=summary)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
