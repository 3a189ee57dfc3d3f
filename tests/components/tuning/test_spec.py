"""The search space: what cannot be a trial is refused before any trial runs."""

from typing import Any

import pytest
from pydantic import ValidationError

from gatehouse.components.training.spec import TrainSpec, train_spec
from gatehouse.components.tuning.spec import SearchSpace, infeasible

RATE = {"name": "optimizer.learning_rate", "type": "double", "min": 1e-4, "max": 1e-2, "log": True}
NETWORK, TREES = train_spec({}), train_spec({"model": {"architecture": "xgboost"}})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"parameters": [RATE | {"name": "speed"}]}, "name: speed: there is no such setting"),
        ({"parameters": [RATE | {"name": "dropout"}]}, "did you mean model.dropout"),
        ({"parameters": [RATE | {"min": 0.0}]}, "log: expected min above 0"),
        ({"parameters": [RATE | {"min": 0.1, "max": 0.01}]}, "min at most max"),
        ({"parameters": [{"name": "model.dropout", "type": "double", "min": 0.1}]}, "needs min and max"),
        ({"parameters": [{"name": "model.hidden", "type": "categorical"}]}, "needs choices"),
        ({"parameters": [RATE, RATE]}, "optimizer.learning_rate and optimizer.learning_rate overlap"),
        ({"parameters": [RATE | {"name": "seed"}]}, "seed and seed overlap"),
        ({"parameters": [RATE], "budget": {"optimizer": {"warmup": 0}}}, "optimizer and optimizer.learning_rate over"),
        ({"parameters": [RATE], "budget": {"epochs": 1}}, "budget: epochs: there is no such setting; did you mean"),
    ],
)
def test_a_space_that_no_training_could_take_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SearchSpace.model_validate(given)


@pytest.mark.parametrize(
    ("base", "parameter", "message"),
    [
        (NETWORK, RATE | {"max": 2.0}, "learning_rate: Input should be less than or equal to 1"),
        (
            NETWORK,
            {"name": "data.batch_size", "type": "double", "min": 64, "max": 128},
            "batch_size: Input should be a",
        ),
        (NETWORK, {"name": "data.batch_size", "type": "int", "min": 6.5, "max": 9}, "batch_size: Input should be a"),
        (NETWORK, {"name": "model.hidden", "type": "categorical", "choices": [[8], [0]]}, "greater than or equal to 1"),
        (NETWORK, {"name": "model.max_depth", "type": "int", "min": 2, "max": 8}, "only xgboost"),
        (TREES, {"name": "model.hidden", "type": "categorical", "choices": [[8]]}, "only tabular_mlp"),
        (NETWORK, {"name": "model", "type": "categorical", "choices": [{"architecture": "mlp"}]}, "expected the arch"),
    ],
)
def test_a_parameter_that_the_model_cannot_take_is_told(
    base: TrainSpec, parameter: dict[str, Any], message: str
) -> None:
    space = SearchSpace.model_validate({"parameters": [parameter]})
    [(where, _, why)] = infeasible(space, base)
    assert where == ("parameters", 0, "name") and message in why


def test_a_budget_that_the_model_cannot_take_is_told() -> None:
    space = SearchSpace.model_validate({"parameters": [RATE], "budget": {"stopping.epochs": 2}})
    assert [(where, value) for where, value, _ in infeasible(space, TREES)] == [(("budget", "stopping.epochs"), 2)]
    assert not list(infeasible(space, NETWORK))


def test_choices_keep_their_types_and_may_be_whole_models() -> None:
    choices = [[16, 8], [8]]
    space = SearchSpace.model_validate(
        {"parameters": [{"name": "model.hidden", "type": "categorical", "choices": choices}]}
    )
    assert SearchSpace.model_validate_json(space.model_dump_json()).parameters[0].choices == ((16, 8), (8,))
    models = [{"architecture": "tabular_mlp", "hidden": [8]}, {"architecture": "ft_transformer", "blocks": 1}]
    space = SearchSpace.model_validate({"parameters": [{"name": "model", "type": "categorical", "choices": models}]})
    assert not list(infeasible(space, NETWORK))
