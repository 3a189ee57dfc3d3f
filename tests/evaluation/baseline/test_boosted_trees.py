"""Boosted trees beside the candidate: they learn, give the same bytes again, and no rule looks at them."""

from typing import Any

import numpy as np
import pytest

from gatehouse.evaluation.baseline.boosted_trees import BoostedTrees
from gatehouse.evaluation.presentation import markdown
from gatehouse.metrics.roc_auc import roc_auc
from tests.evaluation.conftest import SPEC, Bench
from tests.training.synthetic import CATEGORICAL, NUMERIC, table


def test_trees_learn_and_come_back_from_what_is_kept() -> None:
    rows = table(3000)
    train, test = rows.slice(0, 2000), rows.slice(2000)
    one, two = (BoostedTrees.fit("binary", train, train["label"].to_numpy(), NUMERIC, CATEGORICAL) for _ in range(2))
    assert one == two
    scores = BoostedTrees.from_json(one.to_json(), one.trees).predict(test)
    assert roc_auc(test["label"].to_numpy(), scores) > 0.7
    assert np.array_equal(scores[5:6], one.predict(test.slice(5, 1)))


@pytest.mark.parametrize("task", ["multiclass", "regression", "ranking"])
def test_trees_of_other_tasks_learn(task: Any) -> None:
    rows = table(3000)
    wanted = np.digitize(rows["distance"].to_numpy(), [500.0, 1500.0]).astype(np.float64)
    groups = np.arange(3000) % 100 if task == "ranking" else None
    trees = BoostedTrees.fit(task, rows, wanted, NUMERIC, CATEGORICAL, groups)
    found = BoostedTrees.from_json(trees.to_json(), trees.trees).predict(rows)
    if task == "multiclass":
        assert found.shape == (3000, 3) and np.allclose(found.sum(axis=1), 1)
        assert (found.argmax(axis=1) == wanted).mean() > 0.9
    else:
        assert found.shape == (3000,) and np.corrcoef(found, wanted)[0, 1] > 0.8


def test_an_evaluation_shows_them_and_is_judged_without_them(judged_bench: Bench) -> None:
    good = judged_bench.models["good"]
    shown = judged_bench.evaluate(good, spec=SPEC.model_copy(update={"boosted_trees": True}))
    assert 0.5 < shown.boosted_trees_metrics["roc_auc"] < 1
    assert "| boosted trees |" in markdown(shown)
    hidden = judged_bench.evaluate(good)
    assert hidden.boosted_trees_metrics == {}
    assert (hidden.verdict, hidden.metrics, hidden.reasons) == (shown.verdict, shown.metrics, shown.reasons)
