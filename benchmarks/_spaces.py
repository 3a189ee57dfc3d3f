"""Search spaces with a formula for what a trial reports, whose optimum is known and near 0."""

import math
import random
from typing import Any

STEPS, NOISE = 27, 0.02
RATE = {"name": "optimizer.learning_rate", "type": "double", "min": 1e-4, "max": 1.0, "log": True}
DECAY = {"name": "optimizer.weight_decay", "type": "double", "min": 0.0, "max": 1.0}
DROPOUT = {"name": "model.dropout", "type": "double", "min": 0.0, "max": 0.9}
DEPTH = {"name": "model.max_depth", "type": "int", "min": 2, "max": 12}
ARCHITECTURE = {"name": "model.architecture", "type": "categorical", "choices": ["tabular_mlp", "xgboost"]}
_OF_NETWORKS, _OF_TREES = ({"when": {"model.architecture": name}} for name in ("tabular_mlp", "xgboost"))
BOWL = [RATE, DECAY, DROPOUT]
TWO_MODELS = [
    ARCHITECTURE,
    *(name | _OF_NETWORKS for name in BOWL),
    RATE | _OF_TREES | {"min": 1e-3},
    DEPTH | _OF_TREES,
]


def bowl(parameters: dict[str, Any], step: int = STEPS, steps: int = STEPS) -> float:
    """A learning curve towards a bowl over the parameters, whose least value is 0, with noise of the configuration."""
    rate = math.log10(parameters["optimizer.learning_rate"]) + 2
    far = rate**2 + 4 * (parameters["optimizer.weight_decay"] - 0.3) ** 2 + (parameters["model.dropout"] - 0.2) ** 2
    return far + _rest(parameters, step, steps)


def valley(parameters: dict[str, Any], step: int = STEPS) -> float:
    """The same towards a narrow valley, in which learning rate and decay only fit together."""
    rate = math.log10(parameters["optimizer.learning_rate"]) + 2
    decay = 4 * (parameters["optimizer.weight_decay"] - 0.3)
    far = 4 * (rate - decay) ** 2 + 0.1 * (rate + decay) ** 2 + (parameters["model.dropout"] - 0.2) ** 2
    return far + _rest(parameters, step)


def two_models(parameters: dict[str, Any], step: int = STEPS) -> float:
    """The bowl for networks; for trees, which have other parameters, one whose least value is 0.05."""
    if parameters["model.architecture"] == "tabular_mlp":
        return bowl(parameters, step)
    rate = math.log10(parameters["optimizer.learning_rate"]) + 1
    return 0.05 + rate**2 + 0.05 * (parameters["model.max_depth"] - 6) ** 2 + _rest(parameters, step)


def _rest(parameters: dict[str, Any], step: int, steps: int = STEPS) -> float:
    noise = NOISE * random.Random(repr(sorted(parameters.items()))).random()
    return noise + 0.5 * (1 - step / steps)
