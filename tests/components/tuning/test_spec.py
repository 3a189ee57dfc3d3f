"""The search space: what cannot be a trial is refused before any trial runs."""

from typing import Any

import pytest
from pydantic import ValidationError

from gatehouse.components.tuning.spec import SearchSpace

RATE = {"name": "learning_rate", "type": "double", "min": 1e-4, "max": 1e-2, "log": True}


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"name": "speed", "type": "double", "min": 0, "max": 1}, "expected a field of training, found 'speed'"),
        (RATE | {"max": 2.0}, "learning_rate cannot be 2.0 in training"),
        (RATE | {"min": 0.0}, "log: expected min above 0"),
        (RATE | {"min": 0.1, "max": 0.01}, "min at most max"),
        ({"name": "dropout", "type": "double", "min": 0.1}, "needs min and max"),
        ({"name": "batch_size", "type": "double", "min": 64, "max": 128}, "batch_size cannot be"),
        ({"name": "batch_size", "type": "int", "min": 64.5, "max": 128}, "batch_size cannot be 64.5"),
        ({"name": "hidden", "type": "categorical"}, "needs choices"),
        ({"name": "hidden", "type": "categorical", "choices": [[8], [0]]}, r"hidden cannot be \(0,\)"),
        ({"name": "epochs", "type": "int", "min": 1, "max": 3}, "epochs belong to the budget"),
    ],
)
def test_a_parameter_that_training_would_refuse_is_refused(parameter: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SearchSpace.model_validate({"parameters": [parameter]})


def test_a_parameter_given_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match="each name once"):
        SearchSpace.model_validate({"parameters": [RATE, RATE]})


def test_choices_keep_their_types() -> None:
    space = SearchSpace.model_validate(
        {"parameters": [{"name": "hidden", "type": "categorical", "choices": [[16, 8], [8]]}]}
    )
    assert SearchSpace.model_validate_json(space.model_dump_json()).parameters[0].choices == ((16, 8), (8,))
