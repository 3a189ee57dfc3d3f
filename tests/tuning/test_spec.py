"""The search space: what cannot be a trial is refused before any trial runs."""

from typing import Any

import pytest
from pydantic import ValidationError

from gatehouse.training.spec import TrainSpec, changed, train_spec
from gatehouse.tuning.configuration import configured, infeasible, steps_of
from gatehouse.tuning.spec import ExperimentSpec

RATE = {"name": "optimizer.learning_rate", "type": "double", "min": 1e-4, "max": 1e-2, "log": True}
ARCHITECTURE = {"name": "model.architecture", "type": "categorical", "choices": ["tabular_mlp", "xgboost"]}
OF_TREES, OF_NETWORKS = ({"when": {"model.architecture": name}} for name in ("xgboost", "tabular_mlp"))
DEPTH = {"name": "model.max_depth", "type": "int", "min": 3, "max": 9, "step": 2}
BATCH = {"name": "data.batch_size", "type": "categorical", "choices": [64, 32, 64]}
NETWORK, TREES = train_spec({}), train_spec({"model": {"architecture": "xgboost"}})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parameters": [RATE | {"name": "speed"}]}, "name: speed: there is no such setting"),
        ({"parameters": [RATE | {"name": "dropout"}]}, "did you mean model.dropout"),
        ({"parameters": [RATE | {"min": 0.0}]}, "log: expected min above 0"),
        ({"parameters": [RATE | {"min": 0.1, "max": 0.01}]}, "min at most max"),
        ({"parameters": [{"name": "model.dropout", "type": "double", "min": 0.1}]}, "needs min and max"),
        ({"parameters": [{"name": "model.hidden", "type": "categorical"}]}, "needs choices"),
        ({"parameters": [RATE, RATE]}, "optimizer.learning_rate and optimizer.learning_rate overlap"),
        ({"parameters": [RATE], "trial_settings": {"optimizer": {"warmup": 0}}}, "learning_rate and optimizer over"),
        ({"parameters": [RATE | {"step": 0.1}]}, "no even steps"),
        ({"parameters": [DEPTH | {"step": 0.5}]}, "for int, found step 0.5"),
        ({"parameters": [DEPTH | {"min": 2.5, "max": 6.9}]}, "for int, found min 2.5, max 6.9"),
        ({"parameters": [DEPTH | {"max": 1e20}]}, r"at most 2\^53 for int, found max 1e\+20"),
        ({"parameters": [RATE | {"max": float("inf")}]}, "finite number"),
        ({"parameters": [RATE | {"log": False, "max": 1.0, "step": 1e-7}]}, "at most 1,000,000 values"),
        ({"parameters": [DEPTH | {"max": 300_000_000}], "algorithm": "GridSampler"}, "at most 100,000 combinations"),
        ({"parameters": [DEPTH | {"max": 3 * 10**8}, RATE | {"when": {"model.max_depth": "a"}}]}, "is never a"),
        ({"parameters": [DEPTH | {"choices": [1]}]}, "choices: a parameter of type int has min and max"),
        ({"parameters": [ARCHITECTURE | {"log": True}]}, "has choices, and no log"),
        ({"parameters": [ARCHITECTURE, RATE | {"when": {"model.architecture": "forest"}}]}, "is never forest"),
        ({"parameters": [RATE, DEPTH | {"when": {"optimizer.learning_rate": 0.01}}]}, "has no list of values"),
        ({"parameters": [RATE | OF_TREES, ARCHITECTURE]}, "when: there is no parameter model.architecture before it"),
        ({"parameters": [RATE], "algorithm": {"name": "TPESampler", "n_startup_trials": "x"}}, "valid integer"),
        ({"parameters": [RATE], "early_stopping": "PercentilePruner"}, "percentile: Field required"),
        ({"parameters": [ARCHITECTURE, RATE | OF_TREES, RATE]}, "their conditions must exclude each other"),
        ({"parameters": [RATE], "trial_settings": {"model.architecture": "xgboost"}}, "would have another model"),
        ({"parameters": [RATE], "algorithm": "annealing"}, "algorithm"),
        ({"parameters": [RATE], "algorithm": {"name": "RandomSampler", "n_startup_trials": 3}}, "n_startup_trials"),
        ({"parameters": [RATE], "algorithm": "GridSampler"}, "GridSampler needs parameters with a list of values"),
        ({"parameters": [RATE], "algorithm": "CmaEsSampler"}, "CmaEsSampler needs two parameters"),
        ({"parameters": [ARCHITECTURE, RATE], "algorithm": "CmaEsSampler"}, "CmaEsSampler takes numbers only"),
        ({"parameters": [ARCHITECTURE, DEPTH | OF_TREES], "algorithm": "QMCSampler"}, "QMCSampler takes no conditions"),
        (
            {"parameters": [RATE], "objective": ["log_loss", "roc_auc"], "algorithm": "GPSampler"},
            "GPSampler takes one objective",
        ),
        (
            {"parameters": [RATE], "objective": ["brier", "size_bytes"], "early_stopping": "MedianPruner"},
            "one objective only",
        ),
        (
            {"parameters": [RATE], "objective": "size_bytes", "early_stopping": "MedianPruner"},
            "at the end of a trial only",
        ),
        ({"parameters": [BATCH]}, "choices: expected each value once, found again 64"),
        ({"parameters": [RATE], "warm_start": ["flights"]}, "warm_start: expected references experiments/.*'flights'"),
        ({"parameters": [RATE], "constraints": [{"measure": "size_bytes"}]}, "one of at_most and at_least"),
    ],
)
def test_a_space_that_no_training_could_take_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ExperimentSpec.model_validate(fields)


def test_a_range_of_many_whole_numbers_is_not_listed() -> None:
    (parameter,) = ExperimentSpec(objective="log_loss", parameters=[DEPTH | {"min": 1, "max": 10**15 + 1}]).parameters
    values = {value: parameter.internal(value) for value in (10**15 + 1, 10**15 + 2, 4, 2.5, 7.0, "a", None)}
    assert values == {10**15 + 1: 10**15 + 1, 10**15 + 2: None, 4: None, 2.5: None, 7.0: 7.0, "a": None, None: None}


@pytest.mark.parametrize(
    ("base", "parameter", "message"),
    [
        (NETWORK, RATE | {"max": 2.0}, "learning_rate: Input should be less than or equal to 1"),
        (NETWORK, {"name": "data.batch_size", "type": "double", "min": 64, "max": 128}, "Input should be a"),
        (NETWORK, {"name": "model.hidden", "type": "categorical", "choices": [[8], [0]]}, "greater than or equal to 1"),
        (NETWORK, {"name": "model.max_depth", "type": "int", "min": 2, "max": 8}, "a setting of xgboost"),
        (TREES, {"name": "model.hidden", "type": "categorical", "choices": [[8]]}, "a setting of tabular_mlp"),
        (NETWORK, {"name": "model", "type": "categorical", "choices": [{"architecture": "mlp"}]}, "one of linear, tab"),
    ],
)
def test_a_parameter_that_the_model_cannot_take_is_told(
    base: TrainSpec, parameter: dict[str, Any], message: str
) -> None:
    space = ExperimentSpec.model_validate({"parameters": [parameter]})
    [(where, _, why)] = infeasible(space, base)
    assert where == ("parameters", 0, "name") and message in why


def test_trial_settings_that_the_model_cannot_take_is_told() -> None:
    space = ExperimentSpec.model_validate({"parameters": [RATE], "trial_settings": {"stopping.epochs": 2}})
    assert [(where, value) for where, value, _ in infeasible(space, TREES)] == [
        (("trial_settings", "stopping.epochs"), 2)
    ]
    assert not list(infeasible(space, NETWORK))


def test_a_setting_stands_twice_under_conditions_that_exclude_each_other() -> None:
    spec = ExperimentSpec.model_validate(
        {"parameters": [ARCHITECTURE, RATE | OF_TREES, RATE | OF_NETWORKS, DEPTH | OF_TREES]}
    )
    rate, depth, architecture = "optimizer.learning_rate", "model.max_depth", "model.architecture"
    conditional = {f"{rate} when {architecture} is {name}" for name in ("xgboost", "tabular_mlp")}
    assert {spec.label(parameter) for parameter in spec.parameters} == {*conditional, depth, architecture}
    assert not infeasible(spec, NETWORK) and not infeasible(spec, TREES)


def test_another_architecture_begins_with_its_defaults_and_keeps_what_it_has() -> None:
    optimizer, data = {"learning_rate": 0.5, "weight_decay": 0.1}, {"train_fraction": 0.5, "batch_size": 64}
    parallel = {"parallelism": {"processes": 2, "threads": 3}, "seed": 3}
    base = train_spec({"optimizer": optimizer, "data": data, "stopping": {"patience": 9}} | parallel)
    settings = {"stopping.epochs": 2, "stopping.rounds": 40, "parallelism.processes": 1}
    trees = configured(base, {"model.architecture": "xgboost", "model.max_depth": 4}, settings)
    model, kept = {"architecture": "xgboost", "max_depth": 4}, {"train_fraction": 0.5}
    expected = {"model": model, "data": kept, "stopping": {"rounds": 40}} | parallel
    assert trees == train_spec(expected | {"parallelism": {"processes": 1, "threads": 3}})
    same = configured(base, {"model.architecture": "tabular_mlp"}, settings)
    assert same == changed(base, {"stopping.epochs": 2, "parallelism.processes": 1})


def test_a_trial_setting_is_refused_where_no_model_of_the_search_has_it() -> None:
    both = {"parameters": [ARCHITECTURE], "trial_settings": {"stopping.epochs": 2, "stopping.rounds": 40}}
    assert not infeasible(ExperimentSpec.model_validate(both), TREES)
    [(where, _, why)] = infeasible(ExperimentSpec.model_validate(both | {"parameters": [DEPTH]}), TREES)
    assert where == ("trial_settings", "stopping.epochs") and "a setting of linear, tab" in why


@pytest.mark.parametrize(
    ("base", "settings", "parameters", "steps"),
    [
        (NETWORK, {"stopping.epochs": 4}, [RATE], 4),
        (NETWORK, {"stopping.epochs": 4, "stopping.rounds": 60}, [ARCHITECTURE], 4),
        (TREES, {"stopping.rounds": 60}, [DEPTH], 20),
        (TREES, {"stopping.rounds": 7}, [DEPTH], 7),
    ],
)
def test_a_whole_trial_has_as_many_steps_as_its_network_has_epochs(
    base: TrainSpec, settings: dict[str, Any], parameters: list[Any], steps: int
) -> None:
    spec = ExperimentSpec.model_validate({"parameters": parameters, "trial_settings": settings})
    assert steps_of(spec, base) == steps
    assert steps_of(spec.model_copy(update={"steps_per_trial": 9}), base) == 9


def test_objectives_and_constraints_that_are_not_measured_are_told() -> None:
    limits = [{"measure": "size_bytes", "at_most": 9}, {"measure": "ece", "at_most": 0.1}]
    objectives = {
        "objective": [{"metric": "log_loss", "goal": 0.5}, "brier", "latency_ms"],
        "algorithm": "NSGAIISampler",
    }
    spec = ExperimentSpec.model_validate({"parameters": [RATE], "constraints": limits} | objectives)
    assert [where for where, *_ in infeasible(spec, NETWORK)] == [("objective", 1), ("constraints", 1, "measure")]
    assert spec.objective[0].is_reached(0.4) and not spec.objective[0].is_reached(0.6)
    assert [constraint.violation(10) for constraint in spec.constraints] == [1, 9.9]


REFIT = {"name": "stopping.refit", "type": "int", "min": 0, "max": 3}


@pytest.mark.parametrize(
    ("base", "fields", "where"),
    [
        (changed(NETWORK, {"stopping.refit": 2}), {}, ("training", "stopping", "refit")),
        (NETWORK, {"trial_settings": {"stopping.refit": 2}}, ("trial_settings",)),
        (NETWORK, {"parameters": [REFIT]}, ("parameters", 0, "name")),
    ],
)
def test_a_trial_that_would_train_on_validation_rows_is_told(
    base: TrainSpec, fields: dict[str, Any], where: tuple[Any, ...]
) -> None:
    [(place, _, why)] = infeasible(ExperimentSpec.model_validate({"parameters": [RATE]} | fields), base)
    assert place == where and "stopping.refit" in why and "final_rows: train_and_validation" in why
