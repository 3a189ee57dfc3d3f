"""Experiments of Katib become ours, and whatever has no counterpart is said with its reason."""

from typing import Any

import pytest
import yaml

from gatehouse.errors import ConfigurationError
from gatehouse.tuning.katib import Imported, imported, with_section
from gatehouse.tuning.spec import ExperimentSpec


def katib(**changed: Any) -> str:
    """An Experiment with random search over the settings of a network, in Katib's form."""
    spec = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {"algorithmName": "random"},
        "parallelTrialCount": 3,
        "maxTrialCount": 12,
        "maxFailedTrialCount": 3,
        "parameters": [
            {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.001", "max": "0.05"}},
            {"name": "dropout", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "0.5", "step": "0.1"}},
        ],
    } | changed
    spec = {name: value for name, value in spec.items() if value is not None}
    return yaml.safe_dump({"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "spec": spec})


def algorithm(name: str, **settings: str) -> dict[str, Any]:
    listed = [{"name": key, "value": value} for key, value in settings.items()]
    return {"algorithmName": name, "algorithmSettings": listed}


def reasons(result: Imported, where: str) -> str:
    return "; ".join(why for at, why in result.left if at.startswith(where))


def searched(result: Imported) -> list[str]:
    return [entry["name"] for entry in result.tuning["parameters"]]


def test_what_both_know_is_carried_over_and_loads() -> None:
    result = imported(katib(resumePolicy="Never"))
    body = yaml.safe_load(result.text())["tuning"]
    assert result.left == []
    assert body == {
        "objective": "log_loss",
        "algorithm": "random",
        "max_trial_count": 12,
        "parallel_trial_count": 3,
        "max_failed_trial_count": 3,
        "resume_policy": "never",
        "parameters": [
            {"name": "optimizer.learning_rate", "type": "double", "min": 0.001, "max": 0.05},
            {"name": "model.dropout", "type": "double", "min": 0.0, "max": 0.5, "step": 0.1},
        ],
    }
    assert ExperimentSpec.model_validate(body).max_trial_count == 12


@pytest.mark.parametrize(
    ("katib_algorithm", "algorithm", "reason"),
    [
        (algorithm("random", random_state="10"), "random", "the seed is no part of an experiment"),
        (algorithm("sobol"), "sobol", ""),
        (
            algorithm("tpe", n_startup_trials="5", n_ei_candidates="30"),
            {"name": "tpe", "multivariate": False, "startup_trials": 5, "candidates": 30},
            "",
        ),
        (algorithm("multivariate-tpe"), {"name": "tpe", "multivariate": True}, ""),
        (algorithm("cmaes", restart_strategy="ipop", sigma="2"), "cmaes", "no second population"),
        (
            algorithm("bayesianoptimization", n_initial_points="7", acq_func="gp_hedge"),
            {"name": "gp", "startup_trials": 7},
            "scikit-optimize",
        ),
        (algorithm("darts", num_epochs="50"), "tpe", "differentiable architecture search"),
        (algorithm("enas"), "tpe", "architectures of operations"),
        (
            algorithm("pbt", n_population="4", truncation_threshold="0.4", suggestion_trial_dir="/opt"),
            {"name": "population", "population_size": 4, "quantile": 0.4},
            "checkpoints are kept",
        ),
        (algorithm("annealing"), "tpe", "no such algorithm"),
        (algorithm("tpe", startup="5"), {"name": "tpe", "multivariate": False}, "no such setting"),
    ],
)
def test_algorithms_and_their_settings(katib_algorithm: dict[str, Any], algorithm: Any, reason: str) -> None:
    result = imported(katib(algorithm=katib_algorithm))
    assert result.tuning["algorithm"] == algorithm
    assert reason in reasons(result, "algorithm")
    assert bool(reason) == bool(reasons(result, "algorithm"))


def test_hyperband_becomes_random_search_that_stops_at_rungs() -> None:
    epochs = {"name": "num-epochs", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "1"}}
    rate = {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.001", "max": "0.05"}}
    settings = algorithm("hyperband", r_l="9", eta="2", resource_name="num-epochs")
    result = imported(katib(algorithm=settings, parameters=[rate, epochs]))
    assert result.tuning["algorithm"] == "random"
    assert result.tuning["early_stopping"] == {"name": "hyperband", "reduction_factor": 2}
    assert result.tuning["trial_settings"] == {"stopping.epochs": 9}
    assert searched(result) == ["optimizer.learning_rate"]
    assert "not searched: its rungs are steps, and stopping.epochs is 9" in reasons(result, "parameters num-epochs")


@pytest.mark.parametrize("names", [{}, {"optimizer": "optimizer"}, {"optimizer": "model"}], ids=str)
def test_a_whole_section_is_no_parameter(names: dict[str, str]) -> None:
    rate = {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.001", "max": "0.05"}}
    kinds = {"name": "optimizer", "parameterType": "categorical", "feasibleSpace": {"list": ["sgd", "adam"]}}
    result = imported(katib(parameters=[rate, kinds]), names)
    assert searched(result) == ["optimizer.learning_rate"]
    assert "is a whole section of training" in reasons(result, "parameters optimizer")
    assert result.valid
    assert not imported(katib(parameters=[kinds]), names).valid


def test_median_stopping_has_the_defaults_of_katib() -> None:
    stopping = {"algorithmName": "medianstop", "algorithmSettings": [{"name": "start_step", "value": "5"}]}
    result = imported(katib(earlyStopping=stopping))
    assert result.tuning["early_stopping"] == {"name": "median", "startup_trials": 3, "warmup_steps": 5}
    assert "means" in reasons(result, "earlyStopping")


def test_goals_and_directions() -> None:
    goal = {"type": "maximize", "goal": 0.9, "objectiveMetricName": "Validation-accuracy"}
    more = {"additionalMetricNames": ["Train-accuracy"], "metricStrategies": [{"name": "accuracy", "value": "max"}]}
    result = imported(katib(objective=goal | more))
    assert result.tuning["objective"] == {"metric": "accuracy", "goal": 0.9}
    assert "best epoch" in reasons(result, "objective.additionalMetricNames")
    assert "best epoch" in reasons(result, "objective.metricStrategies")
    result = imported(katib(objective={"type": "maximize", "objectiveMetricName": "loss"}))
    assert "always minimized" in reasons(result, "objective.type")
    result = imported(katib(objective={"type": "maximize", "objectiveMetricName": "Kappa", "goal": 1}))
    assert "--map Kappa=METRIC" in reasons(result, "objective.objectiveMetricName") and "objective" not in result.tuning
    assert reasons(result, "objective.goal")


def test_names_are_mapped_and_those_that_are_not_are_said() -> None:
    layers = {"name": "num-layers", "parameterType": "int", "feasibleSpace": {"min": "2", "max": "5"}}
    batch = {"name": "b", "parameterType": "discrete", "feasibleSpace": {"list": ["512", "1024"]}}
    template = {"trialParameters": [{"name": "batchSize", "reference": "b"}], "trialSpec": {"kind": "Job"}}
    text = katib(parameters=[layers, batch], trialTemplate=template)
    result = imported(text)
    assert result.tuning["parameters"] == [{"name": "data.batch_size", "type": "categorical", "choices": [512, 1024]}]
    assert "--map num-layers=SETTING" in reasons(result, "parameters num-layers")
    assert "a trial is a training run" in reasons(result, "trialTemplate")
    result = imported(text, {"num-layers": "model.blocks", "depth": "model.max_depth"})
    assert searched(result) == ["model.blocks", "data.batch_size"]
    assert "has no parameter" in reasons(result, "--map depth")
    result = imported(text, {"num-layers": "model.layers"})
    assert "model.layers" in reasons(result, "here: parameters")


def test_distributions() -> None:
    def space(**changed: str) -> Imported:
        body = {"min": "0.001", "max": "0.1"} | changed
        return imported(katib(parameters=[{"name": "lr", "parameterType": "double", "feasibleSpace": body}]))

    assert space(distribution="logUniform").tuning["parameters"][0]["log"] is True
    assert space(distribution="logUniform").left == []
    assert "log" not in space(distribution="normal").tuning["parameters"][0]
    assert "draw uniformly" in reasons(space(distribution="normal"), "parameters lr")
    assert "no even steps" in reasons(space(distribution="logUniform", step="0.01"), "parameters lr step")
    assert "found 'double'" in reasons(space(min="a"), "parameters lr")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        ("", "found 0 of 0"),
        ("- 1", "expected one document"),
        ("kind: Trial", "expected one document"),
        ("{kind: Experiment, apiVersion: kubeflow.org/v1alpha3, spec: {}}", "expected one document"),
        ("{kind: Experiment, apiVersion: kubeflow.org/v1beta1}", "and spec:"),
        ("kind: Experiment\n---\nkind: Experiment", "found 2 of 2"),
    ],
)
def test_other_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        imported(text)


def test_a_section_takes_the_place_of_the_one_that_is_there() -> None:
    section = "tuning:\n  algorithm: tpe\n"
    there = "name: a\n\ntuning:\n  algorithm: random\n  # of ours\n  parameters:\n  - {name: x}\n\n# about b\nb: 1\n"
    assert with_section(there, section) == "name: a\n\ntuning:\n  algorithm: tpe\n\n# about b\nb: 1\n"
    assert with_section("name: a\n", section) == "name: a\n\ntuning:\n  algorithm: tpe\n"
