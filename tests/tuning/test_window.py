"""The window of TPE: Optuna's own below it; beyond it the trials that Optuna takes for good, and the newest."""

import random
from dataclasses import replace
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers._tpe.sampler import _split_trials
from optuna.trial import FrozenTrial, TrialState, create_trial

from gatehouse.store.store import ArtifactStore
from gatehouse.tuning import suggestion
from gatehouse.tuning.algorithms import TpeAlgorithm
from gatehouse.tuning.controller import Controller
from gatehouse.tuning.opening import opened_study
from gatehouse.tuning.study import ExperimentStudy
from gatehouse.tuning.window import WindowedTpe, _window
from tests.tuning.replaying import replay
from tests.tuning.stand_in import DECAY, RATE, STEPS, Scripted, experiment

WINDOW, GOOD = 100, 10
SPACE = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}


def _trial(draw: random.Random, objectives: int, poor: float) -> FrozenTrial:
    """One that may be stopped early, or break a constraint, and whose value others have too."""
    params, pruned = {name: draw.random() for name in SPACE}, objectives == 1 and draw.random() < poor
    return create_trial(
        state=TrialState.PRUNED if pruned else TrialState.COMPLETE,
        values=None if pruned else [round(draw.random(), 1) for _ in range(objectives)],
        params=params,
        distributions=dict(SPACE),
        intermediate_values={draw.randint(1, 4): draw.random()} if pruned else {},
        system_attrs={"constraints:0": draw.random()} if draw.random() < poor else {},
    )


def _study(directions: list[str], ended: int, poor: float = 0.3) -> optuna.Study:
    draw, study = random.Random(4), optuna.create_study(directions=directions)
    study.ask()
    study.add_trials([_trial(draw, len(directions), poor) for _ in range(ended)])
    return study


def _suggested(study: optuna.Study, sampler: optuna.samplers.BaseSampler) -> dict[str, Any]:
    study.sampler = sampler
    trial = study.ask()
    return {name: trial.suggest_float(name, 0, 1) for name in SPACE}


@pytest.mark.parametrize("poor", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("directions", [["minimize"], ["maximize"], ["minimize", "maximize"]])
def test_beyond_the_window_the_best_and_the_newest_are_shown(directions: list[str], poor: float) -> None:
    """Where nearly all are poor, those that were stopped early or break a constraint are among the best."""
    study = _study(directions, 3 * WINDOW, poor)
    running, *ended = study.get_trials()
    best, others = _split_trials(study, ended, GOOD)
    expected = [running.number, *sorted(each.number for each in (*best, *others[-(WINDOW - GOOD) :]))]
    assert [each.number for each in _window(study, WINDOW)] == expected


@pytest.mark.parametrize("multivariate", [False, True])
def test_up_to_the_window_it_is_optunas_own(multivariate: bool) -> None:
    settings = {"seed": 3, "multivariate": multivariate, "group": multivariate}
    for ended, same in ((WINDOW, True), (WINDOW + 50, False)):
        ours = _suggested(_study(["minimize"], ended), WindowedTpe(WINDOW, **settings))
        theirs = _suggested(_study(["minimize"], ended), optuna.samplers.TPESampler(**settings))
        assert (ours == theirs) == same


@pytest.mark.parametrize("multivariate", [False, True])
def test_a_suggestion_goes_by_nothing_but_the_window(multivariate: bool) -> None:
    settings = {"seed": 3, "multivariate": multivariate, "group": multivariate}
    whole = _study(["minimize"], 3 * WINDOW)
    shown = optuna.create_study()
    shown.add_trials(_window(whole, WINDOW))
    ours = _suggested(whole, WindowedTpe(WINDOW, **settings))
    assert ours == _suggested(shown, optuna.samplers.TPESampler(**settings))


def test_with_hyperband_it_is_optunas_own_and_goes_on_as_it_would_after_an_interruption(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = experiment(algorithm="tpe", early_stopping="hyperband", parameters=[RATE, DECAY], max_trial_count=60)
    whole = Controller(ExperimentStudy(spec, 3, STEPS, "k1"), Scripted()).run()
    assert {trial.state for trial in whole.trials} == {"succeeded", "early_stopped"}
    for count in (17, 33, 60):
        with opened_study(store.objects, "k1", spec.model_copy(update={"max_trial_count": count}), 3, STEPS) as study:
            done = Controller(study, Scripted()).run()
    assert done.trials == whole.trials
    assert replay(spec, 3, STEPS, "k1", done.trials) is None
    monkeypatch.setattr(suggestion, "WindowedTpe", lambda _, **settings: optuna.samplers.TPESampler(**settings))
    assert Controller(ExperimentStudy(spec, 3, STEPS, "k1"), Scripted()).run().trials == whole.trials


def test_an_experiment_beyond_its_window_is_replayed_with_it_alone() -> None:
    spec = experiment(algorithm={"name": "tpe", "window": WINDOW}, early_stopping="hyperband", max_trial_count=10_000)
    study = ExperimentStudy(spec, 3, STEPS, "k")
    draw = random.Random(4)
    for _ in range(3 * WINDOW):
        trial, value = study.ask(), {"log_loss": draw.random()}
        study.end(replace(trial, state="succeeded", values=value, metrics=value))
    assert replay(spec, 3, STEPS, "k", study.trials) is None
    again = replay(spec.model_copy(update={"algorithm": TpeAlgorithm()}), 3, STEPS, "k", study.trials)
    assert again is not None and again.number > WINDOW
