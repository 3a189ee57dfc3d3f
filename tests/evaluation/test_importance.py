"""Permutation importance: what decides a label matters, with an interval above 0, and what is noise does not."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.splitting.parts import Part
from gatehouse.evaluation.bootstrap import Units
from gatehouse.evaluation.importance import permuted_importance
from gatehouse.metrics.tasks import BINARY, REGRESSION

ROWS = 1500
RANDOM = np.random.default_rng(4)
TABLE = pa.table({name: RANDOM.normal(size=ROWS) for name in ("strong", "weak", "noise")})
STRONG, WEAK = (TABLE[name].to_numpy() for name in ("strong", "weak"))


def predictor(weights: Mapping[str, float], task: Any) -> Any:
    """A model of these weights, linear or logistic."""

    def predict(table: pa.Table) -> Any:
        margin = sum(weight * table[name].to_numpy() for name, weight in weights.items())
        return 1 / (1 + np.exp(-margin)) if task is BINARY else margin

    return SimpleNamespace(task=task, predict=predict, read=task.read)


@pytest.mark.parametrize("task", [BINARY, REGRESSION])
def test_what_decides_the_label_has_an_interval_above_0_and_noise_has_one_around_it(task: Any) -> None:
    weights = {"strong": 2.0, "weak": 0.5, "noise": 0.1}
    margin = 2 * STRONG + 0.5 * WEAK
    labels = (RANDOM.random(ROWS) < 1 / (1 + np.exp(-margin))) if task is BINARY else margin + RANDOM.normal(size=ROWS)
    part = Part(np.arange(ROWS), TABLE, labels.astype(np.float64))
    measured = permuted_importance(predictor(weights, task), part, weights, Units.single(ROWS, None))
    strong, weak, noise = ([entry.value, *(entry.interval or ())] for entry in measured)
    assert strong[0] > weak[0] > abs(noise[0]) and strong[1] < strong[0] < strong[2]
    assert weak[1] > 0 > noise[1] and noise[2] > noise[0] - 1e-3
    alone = permuted_importance(predictor(weights, task), part, ["strong"])
    assert [(entry.value, entry.interval) for entry in alone] == [(strong[0], None)]


def test_rows_that_are_drawn_together_widen_the_interval() -> None:
    labels = (2 * STRONG + RANDOM.normal(size=ROWS) > 0).astype(np.float64)
    rows = np.repeat(np.arange(ROWS // 10), 10)  # Each row ten times is one unit.
    part = Part(np.arange(ROWS), TABLE.take(pa.array(rows)), labels[rows])
    model = predictor({"strong": 2.0}, BINARY)
    (single,) = permuted_importance(model, part, ["strong"], Units.single(ROWS, None))
    (together,) = permuted_importance(model, part, ["strong"], Units("id", ROWS // 10, rows))
    assert single.interval and together.interval
    assert np.ptp(together.interval) > 1.5 * np.ptp(single.interval)
