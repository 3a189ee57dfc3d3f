"""Trials that failed for a reason outside of the experiment: the next run tries them again, and trains no other."""

from typing import Any

import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.controller import Controller, Experiment, ExperimentFailedError
from gatehouse.tuning.runner import Reported
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import opened_study, read_study
from tests.tuning.replaying import replay
from tests.tuning.stand_in import SPACES, STEPS, Script, Scripted, experiment, failing, loss, trained

LATE = {"error": "TrainingTimeoutError", "provisional": True}


def run(store: ArtifactStore, spec: ExperimentSpec, script: Script = trained, **settings: Any) -> tuple[Any, list[int]]:
    """One run of the same experiment: its result, and the trials that it began."""
    runner = Scripted(script)
    with opened_study(store.objects, "k1", spec, 3, STEPS) as study:
        return Controller(study, runner, **settings).run(), runner.started


def numbers(done: Experiment) -> list[int]:
    return [trial.number for trial in done.provisional]


@pytest.mark.parametrize("algorithm", ["random", "grid", "sobol", "tpe", "gp", "cmaes", "nsga2"])
def test_the_next_run_tries_them_again_and_no_other(store: ArtifactStore, algorithm: str) -> None:
    settings: dict[str, Any] = {"name": algorithm}
    settings |= {"startup_trials": 4} if algorithm in ("tpe", "gp") else {}
    settings |= {"population_size": 4} if algorithm == "nsga2" else {}
    spec = experiment(algorithm=settings, parameters=SPACES[algorithm], max_trial_count=12)
    first, _ = run(store, spec, failing(2, 7, **LATE))
    assert (first.ended, numbers(first)) == ("max_trial_count", [2, 7])
    assert [trial.reason for trial in first.trials if trial.state == "failed"] == ["TrainingTimeoutError"] * 2
    second, began = run(store, spec, failing(7, **LATE))
    assert (numbers(second), began) == ([7], [2, 7])
    third, began = run(store, spec)
    assert (numbers(third), began) == ([], [7])
    assert all(trial.state == "succeeded" and not trial.provisional for trial in third.trials)
    assert [trial.parameters for trial in third.trials] == [trial.parameters for trial in first.trials]
    assert run(store, spec)[1] == []
    assert replay(spec, 3, STEPS, "k1", third.trials) is None


def test_a_trial_goes_on_with_what_it_has_reported(store: ArtifactStore) -> None:
    def late(number: int, parameters: dict[str, Any]) -> Any:
        if number == 1:
            yield from (Reported(number, epoch, STEPS, {"log_loss": loss(parameters, epoch)}) for epoch in (1, 2))
        yield from failing(1, **LATE)(number, parameters)

    spec = experiment(max_trial_count=3)
    clock = iter(range(1000))
    first, _ = run(store, spec, late, clock=lambda: float(next(clock)))
    assert [step for step, _ in first.trials[1].intermediate] == [1, 2]
    second, _ = run(store, spec, clock=lambda: float(next(clock)))
    assert [step for step, _ in second.trials[1].intermediate] == [1, 2, 3, 4]
    assert second.seconds[1] > first.seconds[1], "the time of the first attempt is forgotten"


def test_too_many_of_them_end_this_run_and_the_next_begins_to_count_anew(store: ArtifactStore) -> None:
    spec = experiment(max_trial_count=6, max_failed_trial_count=1, parallel_trial_count=2)
    with pytest.raises(ExperimentFailedError, match=r"(?s)2 of .* at most 1.*The next run tries 2 of them again"):
        run(store, spec, failing(0, 1, **LATE))
    trials, state = read_study(store.objects, "k1")
    assert state == "ended" and [trial.state for trial in trials][:2] == ["failed", "failed"]
    assert "killed" in {trial.state for trial in trials} or len(trials) == 2
    done, began = run(store, spec)
    assert [trial.state for trial in done.trials] == ["succeeded"] * 6 and began == list(range(6))


def test_a_population_begins_anew_as_its_generations_follow_from_each_other(store: ArtifactStore) -> None:
    rate = {"name": "optimizer.learning_rate", "type": "double", "min": 1e-4, "max": 1e-1, "log": True}
    algorithm = {"name": "population", "population_size": 4, "quantile": 0.5}
    spec = ExperimentSpec.model_validate(
        {"objective": "log_loss", "parameters": [rate], "algorithm": algorithm, "max_trial_count": 16}
    )
    undisturbed, _ = run(ArtifactStore.open(f"{store.address}-other"), spec)
    first, _ = run(store, spec, failing(0, **LATE))
    assert (first.ended, numbers(first)) == ("generations", [0])
    assert [trial.parameters for trial in first.trials] != [trial.parameters for trial in undisturbed.trials]
    second, began = run(store, spec)
    assert second.trials == undisturbed.trials and began == list(range(16))
    assert run(store, spec)[1] == []
