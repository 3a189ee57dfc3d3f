"""Experiments as artifacts hold them, made by a rule, for the tests of pages and commands."""

import math
import random
from typing import Any

PARAMETERS = [
    {"name": "model.architecture", "type": "categorical", "choices": ["tabular_mlp", "xgboost"]},
    {
        "name": "optimizer.learning_rate", "type": "double", "min": 0.0005, "max": 0.002, "log": True,
        "when": {"model.architecture": "tabular_mlp"},
    },
    {
        "name": "optimizer.learning_rate", "type": "double", "min": 0.02, "max": 0.3, "log": True,
        "when": {"model.architecture": "xgboost"},
    },
    {"name": "model.max_depth", "type": "int", "min": 3, "max": 9, "when": {"model.architecture": "xgboost"}},
    {"name": "data.train_fraction", "type": "double", "min": 0.2, "max": 1.0},
]  # fmt: skip


def about(**changed: Any) -> dict[str, Any]:
    """What `experiment.json` says of an experiment with hyperband over a network and trees."""
    return {
        "objectives": [{"metric": "log_loss", "minimize": True, "goal": None}],
        "algorithm": {"name": "TPESampler", "options": {}},
        "early_stopping": {"name": "HyperbandPruner", "options": {"min_resource": 1, "reduction_factor": 3}},
        "parameters": PARAMETERS,
        "trial_settings": {"stopping.epochs": 9},
        "steps_per_trial": 9,
        "best_trial": None,
        "front": [],
        "provisional": [],
        "ended": "max_trial_count",
        "constraints": [],
        "warm_start": [],
    } | changed


def trials(count: int, seed: int = 0, steps: int = 9) -> list[dict[str, Any]]:
    """So many trials: most succeed, some are stopped early at a rung, and every eleventh fails."""
    draw = random.Random(seed)
    result = []
    for number in range(count):
        trees = draw.random() < 0.6
        rate = math.exp(draw.uniform(math.log(0.02), math.log(0.3)) if trees else draw.uniform(-7.6, -6.2))
        parameters: dict[str, Any] = {
            "model.architecture": "xgboost" if trees else "tabular_mlp",
            "optimizer.learning_rate": rate,
            "data.train_fraction": draw.uniform(0.2, 1.0),
        }
        if trees:
            parameters["model.max_depth"] = draw.randint(3, 9)
        end = 0.58 + 0.03 * (1 - parameters["data.train_fraction"]) + 0.02 * abs(math.log(rate / 0.07)) / 4
        end += draw.gauss(0, 0.003)
        curve = [[step, end + 0.12 * math.exp(-step / 2.5)] for step in range(1, steps + 1)]
        state, reason, values = "succeeded", "", {"log_loss": end}
        if number % 11 == 10:
            state, reason, values, curve = "failed", "NonFiniteLossError", {}, curve[:2]
        elif end > 0.6 and number % 3:
            at = 1 if number % 2 else 3
            state, reason, values = "early_stopped", f"pruned at step {at} of {steps}", {}
            curve = curve[:at]
        done = state == "succeeded"
        measures = {"size_bytes": draw.randint(10_000, 900_000), "latency_ms": draw.uniform(1, 9)} if done else {}
        result.append(
            {
                "number": number,
                "state": state,
                "parameters": parameters,
                "values": values,
                "measures": measures,
                "feasible": True,
                "intermediate": curve,
                "reason": reason,
                "model": f"models/flights-trial/sha256-{number:064x}" if done else "",
                "metrics": {},
                "job": "",
                "beside": [],
                "parent": None,
            }
        )
    return result
