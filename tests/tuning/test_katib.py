"""A Katib Experiment is the same search as ours, and what has no counterpart is refused or in the warnings."""

from typing import Any

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.tuning.katib import search_of

OBJECTIVE = {"type": "maximize", "goal": "0.9", "objectiveMetricName": "own"}
LATEST = {"metricStrategies": [{"name": "own", "value": "latest"}]}


def katib(parameters: list[dict[str, Any]] | None = None, **changes: Any) -> tuple[dict[str, Any], list[str]]:
    """The search of an Experiment, without fields at their default, and the places of its warnings."""
    space = [{"name": "optimizer", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "1"}}]
    body = {
        "objective": OBJECTIVE | LATEST,
        "algorithm": {"algorithmName": "random"},
        "maxTrialCount": 12,
        "parameters": parameters or [*space, space[0] | {"name": "y"}],
    } | changes
    spec, _, warnings = search_of({"kind": "Experiment", "spec": body}, [])
    places = [warning.removeprefix("experiment.").partition(" is left out")[0] for warning in warnings]
    return spec.model_dump(exclude_unset=True, exclude_none=True), places


def algorithm(name: str, **settings: str) -> dict[str, Any]:
    listed = [{"name": key, "value": value} for key, value in settings.items()]
    return {"algorithmName": name, "algorithmSettings": listed}


def parameter(kind: str, **space: Any) -> tuple[dict[str, Any], list[str]]:
    spec, places = katib([{"name": "x", "parameterType": kind, "feasibleSpace": space}])
    return spec["parameters"][0], places


def test_objective_and_counts() -> None:
    spec, places = katib(maxFailedTrialCount=0, resumePolicy="Never")
    assert spec["objective"] == ({"metric": "own", "direction": "maximize", "goal": 0.9},) and places == []
    assert (spec["max_trial_count"], spec["parallel_trial_count"], spec["max_failed_trial_count"]) == (12, 3, 0)
    assert spec["resume_policy"] == "never" and spec["parameters"][0]["name"] == "optimizer"
    assert katib(maxTrialCount=None)[1] == ["maxTrialCount"]
    assert katib(maxTrialCounts=3)[1] == ["maxTrialCounts"]
    assert katib(objective=OBJECTIVE | LATEST | {"goals": 1})[1] == ["objective.goals"]
    for named, place in (
        ({}, "objectiveMetricName own"),
        ({"metricStrategies": [{"name": "own", "value": "max"}]}, "metricStrategies own"),
    ):
        assert [text.partition(":")[0] for text in katib(objective=OBJECTIVE | named)[1]] == [f"objective.{place}"]


@pytest.mark.parametrize(
    ("body", "expected", "left_out"),
    [
        (algorithm("sobol", random_state="10"), {"name": "QMCSampler", "options": {}}, ["random_state: 10"]),
        (
            algorithm("random", n_startup_trials="5"),
            {"name": "RandomSampler", "options": {}},
            ["n_startup_trials: 5"],
        ),
        (
            algorithm("tpe", n_startup_trials="5", n_ei_candidates="30", startup="1"),
            {
                "name": "TPESampler",
                "options": {"multivariate": False, "n_startup_trials": 5, "n_ei_candidates": 30},
            },
            ["startup: 1"],
        ),
        (algorithm("multivariate-tpe"), {"name": "TPESampler", "options": {"multivariate": True}}, []),
        (algorithm("cmaes", sigma="2"), {"name": "CmaEsSampler", "options": {}}, ["sigma: 2"]),
        (
            algorithm("bayesianoptimization", n_initial_points="7", acq_func="gp_hedge"),
            {"name": "GPSampler", "options": {"n_startup_trials": 7}},
            ["acq_func: gp_hedge"],
        ),
    ],
    ids=str,
)
def test_algorithms_and_their_settings(body: dict[str, Any], expected: dict[str, Any], left_out: list[str]) -> None:
    spec, places = katib(algorithm=body)
    assert spec["algorithm"] == expected
    assert places == [f"algorithm.algorithmSettings {setting}" for setting in left_out]


def test_values() -> None:
    choices = {"name": "x", "type": "categorical"}
    assert parameter("discrete", list=["512", "1024"]) == (choices | {"choices": (512, 1024)}, [])
    assert parameter("double", list=["0.5", "1"]) == (choices | {"choices": (0.5, 1.0)}, [])
    assert parameter("categorical", list=["1", "b"]) == (choices | {"choices": ("1", "b")}, [])
    number, bounds = {"name": "x", "type": "double", "min": 0.1, "max": 1.0, "log": False}, {"min": "0.1", "max": "1"}
    assert parameter("double", **bounds, steps="0.1") == (number, ["parameters x.feasibleSpace.steps"])
    assert parameter("double", **bounds, step="0.1") == (number | {"step": 0.1}, [])
    assert parameter("double", **bounds, distribution="normal") == (number, ["parameters x distribution: normal"])
    logarithmic = parameter("double", **bounds, distribution="logUniform", step="0.1")
    assert logarithmic == (number | {"log": True}, ["parameters x step: 0.1"])


@pytest.mark.parametrize("name", ["hyperband", "pbt", "darts", "annealing", ""])
def test_other_algorithms_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"algorithm\.algorithmName: .* bayesianoptimization, found '{name}'"):
        katib(algorithm={"algorithmName": name})


def test_what_is_no_experiment_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="earlyStopping: medianstop"):
        katib(earlyStopping={"algorithmName": "medianstop"})
    for changes in ({"algorithm": algorithm("tpe", n_startup_trials="a")}, {"maxTrialCount": "z"}, {"objective": None}):
        with pytest.raises(ConfigurationError):
            katib(**changes)
    for space in ({"list": "512"}, {"list": ["a"]}, {}):
        with pytest.raises(ConfigurationError, match="parameters x: expected a list of numbers"):
            parameter("discrete", **space)
    for kind, space in (("categorical", {"list": "ab"}), ("double", {"min": "a", "max": "1"}), ("int", {"max": "1"})):
        with pytest.raises(ConfigurationError, match=r"parameters\.0"):
            parameter(kind, **space)


def optimization_job(**changes: Any) -> dict[str, Any]:
    """The sample of the proposal of Kubeflow's Trainer."""
    rate = {"logUniform": {"min": "0.0001", "max": "0.1"}}
    spec = {
        "objectives": [{"metric": "val_loss", "direction": "Minimize"}],
        "searchAlgorithm": {"random": {}},
        "parameters": [
            {"name": "learning_rate", "searchSpace": rate},
            {"name": "layers", "searchSpace": {"uniform": {"min": "1", "max": "4", "type": "Int"}}},
            {"name": "batch_size", "searchSpace": {"categorical": {"choices": ["16", "32", "64"]}}},
        ],
        "numTrials": 20,
        "parallelTrials": 4,
    }
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "OptimizationJob", "spec": spec | changes}


def test_an_optimization_job_is_the_same_search() -> None:
    same = {
        "objective": {"metric": "val_loss", "direction": "minimize"},
        "algorithm": "RandomSampler",
        "parameters": [
            {"name": "learning_rate", "type": "double", "min": 0.0001, "max": 0.1, "log": True},
            {"name": "layers", "type": "int", "min": 1, "max": 4},
            {"name": "batch_size", "type": "categorical", "choices": ["16", "32", "64"]},
        ],
        "max_trial_count": 20,
        "parallel_trial_count": 4,
    }
    command = ["train.py", "{layers}"]
    assert search_of(optimization_job(), command) == search_of(same, command)
    spec, _, warnings = search_of(
        optimization_job(searchAlgorithm={"random": {"seed": 4}}, trainJobTemplate={"spec": {}}, trials=3), []
    )
    assert spec == search_of(same, [])[0]
    places = [warning.removeprefix("experiment.").partition(" is left out")[0] for warning in warnings]
    assert places == ["trials", "trainJobTemplate", "searchAlgorithm.random.seed"]
    categorical = optimization_job()["spec"]["parameters"][2:]
    grid, _, _ = search_of(optimization_job(searchAlgorithm={"grid": {}}, parameters=categorical, numTrials=None), [])
    assert (grid.algorithm.name, grid.objective[0].metric) == ("GridSampler", "val_loss")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"searchAlgorithm": {"tpe": {}}}, "searchAlgorithm"),
        ({"parameters": [{"name": "x", "searchSpace": {"normal": {}}}]}, "parameters x"),
        ({"parameters": [{"name": "x", "searchSpace": {"uniform": {"min": "0", "max": "1", "type": "A"}}}]}, "type"),
        ({"parameters": [{"name": "x", "searchSpace": {"uniform": {"min": "2", "max": "1"}}}]}, "parameters"),
        ({"objectives": []}, "objective"),
        ({"numTrials": "many"}, "max_trial_count"),
    ],
    ids=str,
)
def test_an_optimization_job_that_would_be_another_search_is_refused(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigurationError, match=place):
        search_of(optimization_job(**changes), [])
