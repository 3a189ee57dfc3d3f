"""The tune stage: a search space becomes an experiment, and the spec of its best trial on the full budget."""

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.spec import TrainSpec
from gatehouse.components.training.stage import builder_code
from gatehouse.components.tuning.spec import SearchSpace


class TuneRequest(StageModel):
    """What is searched, on which data, from which starting point; without a transformation, with the default one."""

    training_set: str
    split: str
    transformation: str = ""
    base: TrainSpec
    space: SearchSpace
    model_name: str
    seed: int


class TuneResult(StageModel):
    """The experiment; the best spec as canonical JSON of a TrainSpec; and a line that sums it up."""

    experiment: str
    best: str
    summary: str


def _builders(request: TuneRequest) -> str:
    searched = [each.choices for each in request.space.parameters if each.name == "architecture"]
    return builder_code(request.base.architecture, *(str(choice) for choices in searched for choice in choices))


@stage(
    "tune",
    title="Tune hyperparameters",
    effects=Effects(memo=True, why="Trials are memoised one by one, so a retry goes on where it stopped."),
    resources=Resources(cpu="2", memory="8G", minutes=240),
    outside=_builders,
)
def tune(request: TuneRequest, store: ArtifactStore) -> TuneResult:
    """Run the experiment; the artifact holds `trials.json`, `best.json` and `report.html`.

    When it began and how long it took go to a measurement beside it.

    Raises:
        ExperimentFailedError: if no trial succeeded.
    """
    import time
    from dataclasses import asdict

    from gatehouse.components.tuning.experiment import TrialData, best_of, run_experiment
    from gatehouse.components.tuning.report import experiment_report

    began = time.time()
    space = request.space
    data = TrialData(request.training_set, request.split, request.transformation)
    trials = run_experiment(store, data, request.model_name, request.base, space, request.seed)
    winner = best_of(trials, space.minimize)
    best = request.base.changed(winner.parameters | {"seed": request.seed})
    experiment = store.publish(
        "experiments",
        request.model_name,
        {
            "trials.json": canonical_json([asdict(trial) for trial in trials]),
            "best.json": canonical_json(best.model_dump(mode="json")),
            "report.html": experiment_report(request.model_name, space, trials, winner),
        },
        derived_from={role: reference for role, reference in asdict(data).items() if reference},
        configuration={"base": request.base.model_dump(mode="json"), "space": space.model_dump(mode="json")},
        details={"best_trial": winner.number, "value": winner.value},
    )
    store.append(f"measurements/{experiment}", {"stage": "tune", "began": began, "seconds": time.time() - began})
    chosen = ", ".join(f"{name} {_short(value)}" for name, value in winner.parameters.items())
    summary = f"trial {winner.number}: {space.objective} {winner.value:.4f} ({chosen})"
    return TuneResult(experiment=str(experiment), best=canonical_json(best.model_dump(mode="json")), summary=summary)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
