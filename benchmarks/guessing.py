"""How many models without skill, and how many with some, pass the gate: by the baseline alone, and not guessing too.

Labels of two classes follow the first of five features by a logit that is normal; without skill they follow none. A
candidate of boosted trees is stopped early on validation rows, the baseline is the linear model of the evaluation, and
both learn from the same train rows.
"""

import argparse
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import xgboost

from gatehouse.data.statistics.linear_model import LinearModel
from gatehouse.evaluation.bootstrap import DrawnMetrics, Units, compared, on_draws, on_shuffled
from gatehouse.metrics.classification import log_loss, roc_auc
from gatehouse.metrics.tasks import BINARY

_FEATURES = [f"feature_{number}" for number in range(5)]
_LOGIT, _CONFIDENCE = -0.7, 0.95
_SETTINGS = {"objective": "binary:logistic", "eval_metric": "logloss", "max_depth": 2, "eta": 0.1, "nthread": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--test-rows", type=int, nargs="*", default=[150, 300, 1_000, 3_000])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("skill  ROC AUC  test rows  beats the baseline  and is shown better than guessing", flush=True)
    lucky = 0.0
    for skill in (0.0, 0.3, 0.6, 1.0):
        for rows in options.test_rows:
            results = np.array([_tried(skill, rows, seed, options.draws) for seed in range(options.repeats)])
            area, beaten, shown = results[:, 0].mean(), results[:, 1].mean(), (results[:, 1] * results[:, 2]).mean()
            print(f"{skill:5.1f}  {area:7.3f}  {rows:9,}  {beaten:18.1%}  {shown:29.1%}", flush=True)
            lucky = lucky if skill else max(lucky, shown)
    raise SystemExit(lucky > 1 - _CONFIDENCE)


def _tried(skill: float, rows: int, seed: int, draws: int) -> tuple[float, bool, bool]:
    """The candidate's ROC AUC, whether it beats the baseline, and whether it is shown to be better than guessing."""
    draw = np.random.default_rng(seed)
    (train, learned), (validation, watched), (test, labels) = (_rows(draw, skill, n) for n in (3 * rows, rows, rows))
    data = xgboost.DMatrix(_array(train), learned)
    watch = [(xgboost.DMatrix(_array(validation), watched), "validation")]
    grown = xgboost.train(_SETTINGS, data, 300, evals=watch, early_stopping_rounds=20, verbose_eval=False)
    scores = grown.predict(xgboost.DMatrix(_array(test)), iteration_range=(0, grown.best_iteration + 1))
    candidate = BINARY.read(np.asarray(scores, np.float64), None)
    baseline = BINARY.read(LinearModel.fit("binary", train, learned, _FEATURES, []).predict(test), None)
    candidate_losses, baseline_losses = (log_loss.measure(labels, outputs) for outputs in (candidate, baseline))
    units = Units("row", rows)
    drawn = on_draws([DrawnMetrics(log_loss.on_draws(labels, candidate))], units, draws, 7)[:, 0]
    guessed, shuffled = on_shuffled(log_loss, labels, candidate, units, draws, 7)
    comparison = compared(log_loss, candidate_losses, guessed, (drawn, shuffled), _CONFIDENCE, rows)
    return roc_auc.measure(labels, candidate), candidate_losses < baseline_losses, comparison.worst_bound < 0


def _rows(draw: np.random.Generator, skill: float, rows: int) -> tuple[pa.Table, Any]:
    values = draw.normal(size=(rows, len(_FEATURES)))
    chances = 1 / (1 + np.exp(-(_LOGIT + skill * values[:, 0])))
    return pa.table(dict(zip(_FEATURES, values.T, strict=True))), (draw.random(rows) < chances).astype(float)


def _array(table: pa.Table) -> Any:
    return np.column_stack([table[name].to_numpy() for name in _FEATURES])


if __name__ == "__main__":
    main()
