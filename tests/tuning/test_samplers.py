"""Optuna's samplers: the same suggestions for the same record, and nothing pickled in a study."""

import warnings
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.controller import Controller
from gatehouse.tuning.samplers import step_of
from gatehouse.tuning.study import ExperimentStudy, opened_study
from tests.tuning.stand_in import CONDITIONAL, SPACES, STEPS, Scripted, experiment


def test_only_open_parameters_are_suggested_and_all_of_them() -> None:
    spec = experiment(parameters=CONDITIONAL, max_trial_count=30, algorithm="RandomSampler")
    done = Controller(ExperimentStudy(spec, 3, STEPS, "k"), Scripted()).run()
    shapes = {trial.parameters["model.architecture"]: set(trial.parameters) for trial in done.trials}
    common = {"model.architecture", "optimizer.learning_rate"}
    assert shapes == {"tabular_mlp": common, "xgboost": common | {"model.max_depth"}}
    for trial in done.trials:
        low, high = (0.02, 0.3) if trial.parameters["model.architecture"] == "xgboost" else (1e-4, 1e-1)
        assert low <= trial.parameters["optimizer.learning_rate"] <= high
        assert trial.parameters.get("model.max_depth", 3) in (3, 5, 7, 9)


def test_a_grid_tries_each_configuration_once() -> None:
    spec = experiment(parameters=SPACES["GridSampler"], algorithm="GridSampler", max_trial_count=100)
    done = Controller(ExperimentStudy(spec, 3, STEPS, "k"), Scripted()).run()
    tried = {tuple(trial.parameters.values()) for trial in done.trials}
    assert len(done.trials) == len(tried) == 3 * 6 and done.ended == "exhausted"
    assert {entry[1] for entry in tried} == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}


@pytest.mark.parametrize(("objective", "together"), [("log_loss", True), (["log_loss", "roc_auc"], False)])
def test_tpe_models_parameters_jointly_also_conditional_ones(
    objective: Any, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conditional ones by Optuna's groups, whose warning that they are experimental no user is to read."""

    def trials() -> Any:
        spec = experiment(parameters=CONDITIONAL, objective=objective, max_trial_count=25)
        return Controller(ExperimentStudy(spec, 3, STEPS, "k"), Scripted()).run().trials

    def own(**settings: Any) -> optuna.samplers.TPESampler:
        return original(**settings | {"multivariate": together, "group": together})

    original = optuna.samplers.TPESampler
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        suggestions = trials()
    monkeypatch.setattr(optuna.samplers, "TPESampler", own)
    assert trials() == suggestions


def test_cmaes_keeps_no_pickle_and_continues_after_an_interruption(store: ArtifactStore) -> None:
    spec = experiment(parameters=SPACES["CmaEsSampler"], algorithm="CmaEsSampler", max_trial_count=30)
    whole = Controller(ExperimentStudy(spec, 3, STEPS, "k1"), Scripted()).run()
    for count in (13, 30):
        counted = spec.model_copy(update={"max_trial_count": count})
        with opened_study(store.objects, "k1", counted, 3, STEPS) as study:
            done = Controller(study, Scripted()).run()
            assert not any(frozen.system_attrs for frozen in study.optuna.trials)
    assert done.trials == whole.trials
    losses = [trial.values["log_loss"] for trial in whole.trials]
    assert sum(losses[-10:]) < sum(losses[:10])


def test_cmaes_takes_whole_and_stepped_numbers_within_their_bounds() -> None:
    parameters = [
        {"name": "model.embedding_size", "type": "int", "min": 2, "max": 64, "log": True},
        {"name": "model.dropout", "type": "double", "min": 0.0, "max": 0.5, "step": 0.1},
        {"name": "optimizer.learning_rate", "type": "double", "min": 1e-4, "max": 1e-1, "log": True},
    ]
    spec = experiment(parameters=parameters, algorithm="CmaEsSampler", max_trial_count=40)
    trials = Controller(ExperimentStudy(spec, 3, STEPS, "k"), Scripted()).run().trials
    sizes = {trial.parameters["model.embedding_size"] for trial in trials}
    assert all(isinstance(size, int) and 2 <= size <= 64 for size in sizes) and len(sizes) > 5
    assert {round(trial.parameters["model.dropout"] * 10, 9) for trial in trials} <= set(range(6))
    assert all(1e-4 <= trial.parameters["optimizer.learning_rate"] <= 1e-1 for trial in trials)


@given(st.integers(1, 500), st.integers(1, 60))
def test_a_step_is_reached_as_soon_as_its_share_is_done(total: int, steps: int) -> None:
    reached = [step_of(done, total, steps) for done in range(total + 1)]
    assert reached[0] == 0 and reached[-1] == steps and reached == sorted(reached)
    for done, step in enumerate(reached):
        assert done * steps >= step * total and (step == steps or done * steps < (step + 1) * total)
    assert step_of(total + 7, total, steps) == steps
